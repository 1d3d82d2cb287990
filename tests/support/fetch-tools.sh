#!/bin/sh
# Gets what some tests need besides Rust: strace injects faults below the daemon, ip
# and ss show sockets and make network namespaces, tmux is a terminal that a test
# drives, mandoc checks manual pages, Debian's C daemon is the
# reference, Prometheus scrapes the daemon and both Debians' promtool check metrics and
# rules. With the argument `browser` it gets Chromium instead, which shows the page at /.
# As root, installs what is missing. Lists what it can't get in one line, with the
# command that gets it. The tests that need it are then skipped, and fail if CI is set.
set -eu
here=$(dirname "$0")

wanted=${1-}
set --
if [ "$wanted" = browser ]; then
    command -v chromium > /dev/null || set -- "$@" chromium
else
    command -v strace > /dev/null || set -- "$@" strace
    command -v ip > /dev/null || set -- "$@" iproute2
    command -v tmux > /dev/null || set -- "$@" tmux
    command -v mandoc > /dev/null || set -- "$@" mandoc
fi
install() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" >&2; }
if [ $# -gt 0 ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    if install "$@" || { apt-get -q update >&2 && install "$@"; }; then
        set --
    fi
fi
[ $# -eq 0 ] || echo "Some tests need missing programs: sudo apt-get install $*" >&2
[ "$wanted" != browser ] || exit 0

# Both Debians' promtool: each finds different mistakes. In Debian 12 it is part of
# prometheus, which is one static program and also runs on 13.
prometheus=$(cd "$here/../.." && pwd)/target/prometheus
for wanted in "bookworm prometheus" "trixie promtool"; do
    suite=${wanted% *}
    package=${wanted#* }
    [ ! -x "$prometheus/$suite/usr/bin/promtool" ] || continue
    mkdir -p "$prometheus"
    "$here/unpack-debian.sh" "$prometheus/$suite" "$package" "$suite" > "$prometheus/$suite.log" 2>&1 ||
        echo "$package of $suite can't be fetched, see target/prometheus/$suite.log: sudo apt-get update" >&2
done

log=$here/../../target/fetch-reference.log
mkdir -p "$(dirname "$log")"
"$here/fetch-reference.sh" > "$log" 2>&1 ||
    echo "Comparisons with Debian's daemon will be skipped, see target/fetch-reference.log: sudo apt-get update" >&2
