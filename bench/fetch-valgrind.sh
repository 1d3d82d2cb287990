#!/bin/sh
# Prints a command that runs valgrind: the installed one, or else Debian's, which it
# fetches from the archive and unpacks below target/valgrind. Installs nothing.
set -eu
if command -v valgrind; then
    exit
fi
top=$(cd "$(dirname "$0")/.." && pwd)
dir=$top/target/valgrind
wrapper=$dir/valgrind
if [ ! -x "$wrapper" ]; then
    rm -rf "$dir"
    "$top/tests/support/unpack-debian.sh" "$dir" valgrind
    printf '#!/bin/sh\nVALGRIND_LIB=%s exec %s "$@"\n' \
        "$dir/usr/libexec/valgrind" "$dir/usr/bin/valgrind" > "$dir/new"
    chmod +x "$dir/new"
    mv "$dir/new" "$wrapper"
fi
echo "$wrapper"
