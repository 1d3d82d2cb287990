"""Builds the static programs, Debian's packages and the tests of the daemon for arm64, and uses them on a
machine that QEMU emulates, with Debian 13's kernel and systemd: in_machine is what runs there.
"""

import contextlib
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from shared import DIRECTORY, REPOSITORY, in_root, run
from roots import expect, make_root

TOOLS = {"arch-test": "arch-test", "cpio": "cpio", "ip": "iproute2", "mmdebstrap": "mmdebstrap",
         "qemu-aarch64-static": "qemu-user-static", "qemu-system-aarch64": "qemu-system-arm"}

TARGET = "aarch64-unknown-linux-musl"
# Rust has linker and C library: no compiler of C is needed.
ENVIRONMENT = {**os.environ, "CARGO_TARGET_DIR": str(REPOSITORY / "target"),
               "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER": "rust-lld"}

# Debian's compilers for arm64, and its Rust's standard library.
CROSS = DIRECTORY / "arm64-cross"
CROSS_PACKAGES = "build-essential,cargo,debhelper,iproute2"
CROSS_COMPILERS = [
    '--customize-hook=chroot "$1" dpkg --add-architecture arm64',
    '--customize-hook=chroot "$1" apt-get -q update',
    '--customize-hook=chroot "$1" apt-get -qy --no-install-recommends install crossbuild-essential-arm64 libstd-rust-dev:arm64',
]
# Compiled as fast as possible: the static programs are as optimized as what ships.
QUICK = {"CARGO_PROFILE_RELEASE_LTO": "off", "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16"}

# The machine's file system.
ROOT = DIRECTORY / "arm64-root"
ROOT_PACKAGES = "iproute2,strace,systemd-sysv"
# Only its image, which has all drivers that are needed: an installation would make an initramfs, which
# takes minutes under emulation.
FETCH_KERNEL = r"""
    cd /boot
    package=$(apt-cache depends linux-image-cloud-arm64 | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p')
    apt-get -q -o APT::Sandbox::User=root download $package
    dpkg-deb --fsys-tarfile $package*.deb | tar -xO --wildcards './boot/vmlinuz-*' > kernel
    rm $package*.deb
"""
# What comes on top of it.
OURS = DIRECTORY / "ours"
INITRAMFS = DIRECTORY / "initramfs"

BINFMT = Path("/proc/sys/fs/binfmt_misc")
# Of qemu-user-static.
FORMAT = Path("/usr/lib/binfmt.d/qemu-aarch64.conf")


def why_not():
    """Why it can't be tested here."""
    library = subprocess.run(["rustc", "--print", "target-libdir", "--target", TARGET], stdout=subprocess.PIPE, text=True)
    if not Path(library.stdout.strip()).is_dir() and not shutil.which("rustup"):
        return f"Rust's library for {TARGET} is missing, and there is no rustup to fetch it"
    if not (BINFMT / "register").exists() and subprocess.run(["mount", "-t", "binfmt_misc", "none", BINFMT]).returncode:
        return "this kernel has no binfmt_misc, which runs programs of another processor"
    return None


def builds_static(log):
    """The tarball, unpacked as the installation's page says."""
    directory = REPOSITORY / "target/static"
    for old in directory.glob(f"*-{TARGET}.tar.gz"):
        old.unlink()
    run(log, ["make", "static", f"STATIC_TARGET={TARGET}"], cwd=REPOSITORY, env=ENVIRONMENT)
    [tarball] = directory.glob(f"*-{TARGET}.tar.gz")
    shutil.rmtree(OURS, ignore_errors=True)
    (OURS / "usr/local").mkdir(parents=True)
    run(log, ["tar", "-C", OURS / "usr/local", "--strip-components=1", "--no-same-owner", "-xzf", tarball])


def builds_tests(log):
    """Those of the daemon, as static programs. They look for the daemon where it was built."""
    # Instead of running them, cargo copies them.
    copy = {"CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_RUNNER": f"install -D -t {OURS}/tests"}
    run(log, ["cargo", "test", "--locked", "--target", TARGET, "--test", "daemon"], cwd=REPOSITORY, env={**ENVIRONMENT, **copy})
    daemon = REPOSITORY / "target" / TARGET / "debug/poolcounterd"
    run(log, ["install", "-D", daemon, f"{OURS}{daemon}"])


def builds_packages(log):
    """dpkg-buildpackage -a arm64 on this machine's processor, offline."""
    make_root(CROSS, "trixie", CROSS_PACKAGES, hooks=CROSS_COMPILERS)
    build = CROSS / "build"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir()
    run(log, ["make", "dist-tree", f"DIST={build / 'sources'}"], cwd=REPOSITORY)
    in_root(log, CROSS, "dpkg-buildpackage -us -uc -b -a arm64", **QUICK)
    (OURS / "packages").mkdir(parents=True, exist_ok=True)
    for package in ["poolcounter", "poolcounter-client"]:
        [file] = build.glob(f"{package}_*_arm64.deb")
        shutil.copy(file, OURS / "packages")


def makes_a_machine(log):
    """Its file system, as an initramfs: two archives, of which the second adds to the first."""
    with programs_of_arm64():
        make_root(ROOT, "trixie", ROOT_PACKAGES,
                  hooks=["--architectures=arm64", f'--customize-hook=chroot "$1" sh -ec {shlex.quote(FETCH_KERNEL)}'])
    shutil.copy(Path(__file__).with_name("in_machine"), OURS)
    with INITRAMFS.open("wb") as packed:
        for directory in [ROOT, OURS]:
            run(log, ["sh", "-c", "find . -path ./boot -prune -o -print | cpio -o -H newc"], cwd=directory, stdout=packed)


@contextlib.contextmanager
def programs_of_arm64():
    """This machine executes them meanwhile, by QEMU, if it does not already."""
    if (BINFMT / "qemu-aarch64").exists():
        yield
        return
    (BINFMT / "register").write_bytes(FORMAT.read_bytes())
    try:
        yield
    finally:
        (BINFMT / "qemu-aarch64").write_text("-1")


def runs(log):
    """in_machine, until the machine is off. What its console says is in a log of its own."""
    console = DIRECTORY / "arm64-console.log"
    arguments = [
        # The daemon may have been built below /tmp.
        "systemd.mask=tmp.mount",
        "console=ttyAMA0 quiet panic=-1 rdinit=/sbin/init systemd.show_status=0",
        "systemd.run=/in_machine systemd.run_success_action=poweroff systemd.run_failure_action=poweroff",
    ]
    with console.open("w") as output:
        # A processor that many rented machines have.
        run(log, ["qemu-system-aarch64", "-M", "virt", "-cpu", "neoverse-n1", "-smp", "2", "-m", "2G", "-nographic", "-nic", "none",
                  "-no-reboot", "-kernel", ROOT / "boot/kernel", "-initrd", INITRAMFS, "-append", " ".join(arguments)], stdout=output)
    said = console.read_text(errors="replace")
    for line in re.findall(r"^       .*", said, re.M):
        print(line.rstrip(), flush=True)
    expect(re.search("^       all passed", said, re.M), f"not all of it passed: {console}")


STEPS = [builds_static, builds_tests, builds_packages, makes_a_machine, runs]
