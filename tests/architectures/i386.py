"""Builds and tests for a processor of 32 bits, in a root of Debian 13 with its Rust and its cross
compiler. The programs run on this machine's kernel.
"""

import shlex
import shutil
import subprocess

from shared import DIRECTORY, PATH, REPOSITORY, in_root, run
from roots import archives, make_root

ROOT = DIRECTORY / "i386-root"
TOOLS = {"ip": "iproute2", "mmdebstrap": "mmdebstrap"}

TARGET = "i686-unknown-linux-gnu"
DEBIANS_PACKAGES = "cargo,rustc,gcc,libc6-dev,iproute2,strace,gcc-i686-linux-gnu,libc6-dev-i386-cross"

# What is tested. Always the same, because dependencies get all features that these need.
PACKAGES = "-p poolcounterd -p poolcounter-protocol -p poolcounter-engine -p poolcounter-schema -p poolcounter-reports -p poolcounter-command"

# As in the profile of tests, so that programs and tests share their dependencies.
PROFILE = {"CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_PROFILE_DEV_DEBUG": "line-tables-only", "CARGO_INCREMENTAL": "0",
           "CARGO_TARGET_DIR": "/build/target"}
VENDORED = '''
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/build/vendor"
'''

# Rust's standard library for i386: unpacked, since an installation would need all that Rust's
# compiler itself needs there.
UNPACK_LIBRARY = """
    sed -i 's/^deb /deb [arch=amd64] /' /etc/apt/sources.list
    echo "deb [arch=i386] $1 trixie main" >> /etc/apt/sources.list
    dpkg --add-architecture i386
    apt-get -q update
    version=$(dpkg-query -W -f '${Version}' libstd-rust-dev)
    cd /root
    apt-get -q -o APT::Sandbox::User=root download libstd-rust-dev:i386=$version
    dpkg-deb -x libstd-rust-dev_*.deb /
    rm libstd-rust-dev_*.deb
"""


def why_not():
    """Why it can't be tested here."""
    return None


def has_a_root(log):
    """With the compilers and the sources."""
    unpack = f'chroot "$1" sh -ec {shlex.quote(UNPACK_LIBRARY)} sh {archives()[0]}'
    make_root(ROOT, "trixie", DEBIANS_PACKAGES, hooks=[f"--customize-hook={unpack}"])
    build = ROOT / "build"
    shutil.rmtree(build / "sources", ignore_errors=True)
    (build / "sources").mkdir(parents=True)
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["xargs", "-0", "cp", "-t", build / "sources", "--parents", "-P"], input=files, cwd=REPOSITORY, check=True)
    run(log, ["cargo", "vendor", "--locked", build / "vendor"], cwd=REPOSITORY)
    (build / "sources/.cargo").mkdir()
    (build / "sources/.cargo/config.toml").write_text(VENDORED)


def compiles(log):
    """Everything, tests included."""
    cargo(log, "check --workspace --all-targets")


def passes_its_tests(log):
    """Those of its libraries, and those of hot restarts and of the daemon."""
    cargo(log, f"test {PACKAGES} --lib --test model")
    # Those of `passed` let perl make system calls by number: here perl is amd64's.
    cargo(log, f"test {PACKAGES} --test restart --test daemon -- --skip passed::")


def serves(log):
    """The package's own tests, with daemon and command of i386."""
    # With a test, dependencies have the features that they have for the tests, and are built already.
    cargo(log, f"build {PACKAGES} --bins --test restart")
    for test in ["smoke", "client"]:
        # A folder each: they wait for lines of their own daemon.
        in_root(log, ROOT, f"export AUTOPKGTEST_TMP=$(mktemp -d); debian/tests/{test}",
                PATH=f"/build/target/{TARGET}/debug:{PATH}")


STEPS = [has_a_root, compiles, passes_its_tests, serves]


def cargo(log, command):
    name = TARGET.upper().replace("-", "_")
    subcommand, _, rest = command.partition(" ")
    in_root(log, ROOT, f"cargo {subcommand} --offline --locked --target {TARGET} {rest}", **PROFILE, **{
        f"CARGO_TARGET_{name}_LINKER": "i686-linux-gnu-gcc",
        # Debian's cross libraries are not where its programs look for them.
        f"CARGO_TARGET_{name}_RUSTFLAGS": "-Ctarget-feature=+crt-static",
    })
