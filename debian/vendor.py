#!/usr/bin/python3
"""Completes the source tree of `make dist`, so that it builds offline on every Linux and
contains nothing else:

1. What the packages' build does not need leaves the tree: benchmarks, fuzzing, and the crates
   that only other tests than the daemon's and the engine's own need. So the tree's Cargo.toml
   and Cargo.lock differ from those in git: each version is the same, but fewer are named.
2. `cargo vendor` puts the sources of what is left into vendor/.
3. Cargo wants to see the crates of other systems too, because the lock file names them (Windows, WASI).
   Only their Cargo.toml and licences stay, with an empty library.

    debian/vendor.py TREE
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

# Workspaces of their own that no package contains.
LEFT_OUT = ["bench", "fuzz"]

# Whose tests debian/rules runs. No other crate keeps its [dev-dependencies]; the daemon's
# unit tests need none.
KEEPS_ITS_TESTS = "crates/engine"

# The architectures of Debian 13 and sid, one of Debian's ports (powerpc: 32 bits, big endian),
# and what `make static` builds.
TARGETS = [
    "x86_64-unknown-linux-gnu",
    "x86_64-unknown-linux-musl",
    "aarch64-unknown-linux-gnu",
    "arm-unknown-linux-gnueabi",
    "armv7-unknown-linux-gnueabihf",
    "i686-unknown-linux-gnu",
    "loongarch64-unknown-linux-gnu",
    "powerpc-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64gc-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
]

NOTE = "# Changed by `make dist` (debian/vendor.py): dependencies of other tests and benchmarks are left out.\n\n"

LICENCE_NAMES = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)", re.I)


def main():
    tree = Path(sys.argv[1])
    before = locked(tree)
    leave_out(tree)
    # Removes from the lock file what nothing names any more.
    cargo(tree, "metadata", "--format-version=1")
    added = locked(tree) - before
    if added:
        sys.exit(f"the lock file of the tree has versions that git's has not: {sorted(added)}")
    cargo(tree, "vendor", "--quiet", "--locked", "vendor")
    (tree / ".cargo").mkdir()
    (tree / ".cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "vendored"\n[source.vendored]\ndirectory = "vendor"\n')
    on_linux = crates_on_linux(tree)
    for crate in sorted((tree / "vendor").iterdir()):
        package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]
        if (package["name"], package["version"]) not in on_linux:
            empty(crate)


def cargo(tree, command, *arguments):
    done = subprocess.run([os.environ.get("CARGO", "cargo"), command, *arguments], cwd=tree, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def locked(tree):
    """The packages in the lock file."""
    packages = tomllib.loads((tree / "Cargo.lock").read_text())["package"]
    return {(package["name"], package["version"]) for package in packages}


def leave_out(tree):
    for folder in LEFT_OUT:
        shutil.rmtree(tree / folder, ignore_errors=True)
    for manifest in [tree / "Cargo.toml", *tree.glob("crates/*/Cargo.toml")]:
        if manifest.parent != tree / KEEPS_ITS_TESTS:
            manifest.write_text(NOTE + without_section(manifest.read_text(), "dev-dependencies"))


def without_section(manifest, name):
    return re.sub(rf"^\[{name}\]\n.*?(?=^\[|\Z)", "", manifest, flags=re.M | re.S)


def crates_on_linux(tree):
    """Names and versions of the crates from outside that any of TARGETS needs."""
    found = set()
    for target in TARGETS:
        lines = cargo(tree, "tree", "--workspace", "--locked", "--offline", "--target", target,
                      "--edges=normal,build,dev", "--prefix=none", "--format={p}").splitlines()
        found |= {(name, version.removeprefix("v")) for name, version, *_ in map(str.split, filter(None, lines))}
    return found


def empty(crate):
    """Leaves of a crate what Cargo reads without compiling it, and its licences."""
    checksums = json.loads((crate / ".cargo-checksum.json").read_text())
    library = tomllib.loads((crate / "Cargo.toml").read_text()).get("lib", {}).get("path", "src/lib.rs")
    for path in sorted(crate.rglob("*"), reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.parent != crate or path.name != "Cargo.toml" and not LICENCE_NAMES.match(path.name):
            path.unlink()
    (crate / library).parent.mkdir(parents=True, exist_ok=True)
    (crate / library).write_text("// Not needed on Linux: emptied by debian/vendor.py of poolcounterd.\n")
    (crate / ".cargo-checksum.json").write_text(json.dumps({"files": {}, "package": checksums["package"]}) + "\n")


if __name__ == "__main__":
    main()
