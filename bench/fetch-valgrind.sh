#!/bin/sh
# Prints a command that runs valgrind: the one that is installed, or else
# Debian's, fetched from its archive and unpacked below target/valgrind. Nothing
# is installed.
set -eu
if command -v valgrind; then
    exit
fi
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$top/target/valgrind
wrapper=$dir/valgrind
if [ ! -x "$wrapper" ]; then
    rm -rf "$dir"
    mkdir -p "$dir/download"
    cd "$dir/download"
    # As in tests/fetch-reference.sh.
    fetch() { apt-get -q -o APT::Sandbox::User=root download valgrind >&2; }
    fetch || { apt-get -q update >&2 && fetch; }
    dpkg-deb -x valgrind_*.deb "$dir"
    printf '#!/bin/sh\nVALGRIND_LIB=%s exec %s "$@"\n' \
        "$dir/usr/libexec/valgrind" "$dir/usr/bin/valgrind" > "$dir/new"
    chmod +x "$dir/new"
    mv "$dir/new" "$wrapper"
fi
echo "$wrapper"
