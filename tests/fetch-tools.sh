#!/bin/sh
# Installs from Debian's archive what some tests need and a machine may lack:
# strace injects faults below the daemon, ip makes network namespaces. Without
# root the tests that need them say that they were skipped, and fail where CI is
# set.
set -eu
missing=
command -v strace > /dev/null || missing="$missing strace"
command -v ip > /dev/null || missing="$missing iproute2"
[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ]; then
    echo "not root, so not installed:$missing" >&2
    exit 0
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends $missing; }
install >&2 || { apt-get -q update >&2 && install >&2; }
