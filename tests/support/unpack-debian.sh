#!/bin/sh
# Usage: tests/support/unpack-debian.sh DIRECTORY PACKAGE [SUITE]
# Downloads a package from Debian's archive into DIRECTORY/download and unpacks it
# below DIRECTORY. Installs nothing, so it does not need root, except for `apt-get
# update` if apt has no list of packages yet. With SUITE, such as trixie, the package comes
# from that suite, not this machine's: its list is kept below DIRECTORY meanwhile.
set -eu
dir=$1
package=$2
suite=${3:-}
mkdir -p "$dir/download"
cd "$dir/download"
dir=$(cd .. && pwd)

# As root, apt drops its privileges for a download and then can't write here.
apt() { apt-get -q -o APT::Sandbox::User=root "$@" >&2; }
if [ -n "$suite" ]; then
    lists=$dir/lists
    mkdir -p "$lists"
    trap 'rm -rf "$lists"' EXIT
    # The archive from which this machine gets Debian's packages.
    # shellcheck disable=SC2016  # apt replaces it, not the shell.
    archive=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        'Origin: Debian' 'Label: Debian' | head -n 1)
    [ -n "$archive" ] || { echo "apt names no archive: sudo apt-get update" >&2; exit 1; }
    echo "deb $archive $suite main" > "$lists/sources"
    apt_of_suite() {
        apt -o "Dir::Etc::SourceList=$lists/sources" -o Dir::Etc::SourceParts=/dev/null \
            -o "Dir::State=$lists" -o "Dir::Cache=$lists" "$@"
    }
    apt_of_suite update
    apt_of_suite download "$package"
elif ! apt download "$package"; then
    [ "$(id -u)" -eq 0 ] && apt update && apt download "$package"
fi
dpkg-deb -x "$package"_*.deb "$dir"
