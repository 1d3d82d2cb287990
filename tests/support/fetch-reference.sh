#!/bin/sh
# Fetches Debian's C daemon, the reference to compare with, and unpacks it below
# target/reference, with the library that it needs if the machine lacks it.
# Installs nothing. Prints the path of the binary.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$top/target/reference
binary=$dir/usr/bin/poolcounterd
# The tests look here for a library that the machine lacks.
libraries=$dir/libraries

runs() { [ -x "$binary" ] && ! LD_LIBRARY_PATH=$libraries ldd "$binary" | grep -q 'not found'; }

if ! runs; then
    rm -rf "$dir"
    "$top/tests/support/unpack-debian.sh" "$dir" poolcounter
    if ! runs; then
        # Its name is libevent-2.1-7 on Debian 12 and libevent-2.1-7t64 on 13.
        libevent=$(dpkg-deb -f "$dir"/download/poolcounter_*.deb Depends | grep -o 'libevent[^ ,]*')
        "$top/tests/support/unpack-debian.sh" "$dir" "$libevent"
        ln -s "$(dirname "$(find "$dir" -name 'libevent-*.so.*' | head -n 1)")" "$libraries"
    fi
    runs || { ldd "$binary" >&2; exit 1; }
fi
echo "$binary"
