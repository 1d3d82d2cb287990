#!/bin/sh
# Gets what the tests need besides Rust: strace injects faults below the daemon, ip and ss
# show sockets and make network namespaces, tmux is a terminal that a test drives, perl makes
# system calls by number, mandoc checks manual pages, libFuzzer is C++; Debian's C daemon is
# the reference, Prometheus scrapes the daemon and both Debians' promtool check metrics and
# rules. With the argument `browser` it gets Chromium alone, which shows the page at /.
# As root, installs the programs that are missing; otherwise it fails, with the line that does.
# What can't be fetched is named, and its tests are skipped, or fail if CI is set.
set -eu
here=$(dirname "$0")

# Each with its package.
programs="c++:g++ mandoc:mandoc perl:perl ss:iproute2 strace:strace tmux:tmux"
[ "${1-}" != browser ] || programs=chromium:chromium
set --
for program in $programs; do
    command -v "${program%:*}" > /dev/null || set -- "$@" "${program#*:}"
done
install() { DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 install --no-install-recommends "$@" >&2; }
if [ $# -gt 0 ] && [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
    if install "$@" || { apt-get -q update >&2 && install "$@"; }; then
        set --
    fi
fi
[ $# -eq 0 ] || { printf '\nPrograms for the tests are missing. This installs them:\n\n    sudo apt install %s\n\n' "$*" >&2; exit 1; }
[ "$programs" != chromium:chromium ] || exit 0

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
