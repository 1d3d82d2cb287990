#!/bin/sh
# Fetches Debian's own C daemon, the reference that ours is compared with, from
# Debian's archive and unpacks it below target/reference. Nothing is installed.
# Prints the path of the binary. Needs apt-get; `apt-get update` needs root.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$top/target/reference
binary=$dir/usr/bin/poolcounterd
if [ ! -x "$binary" ]; then
    rm -rf "$dir"
    mkdir -p "$dir/download"
    cd "$dir/download"
    # apt gives up its root rights for a download and then wants the folder to
    # be readable for its own user; it is ours, so we say that root may fetch.
    fetch() { apt-get -q -o APT::Sandbox::User=root download poolcounter >&2; }
    fetch || { apt-get -q update >&2 && fetch; }
    dpkg-deb -x poolcounter_*.deb "$dir"
fi
echo "$binary"
