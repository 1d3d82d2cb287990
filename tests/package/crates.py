"""Which versions of their crates the sources build with and pass their tests with: those in
Debian's archive, the oldest that Cargo.toml allows, and the newest that there are. The lock file,
which all other tests use, has a say in none of them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from checks import QUICK, run
from roots import expect, make_root, recipe_file

REPOSITORY = Path(__file__).resolve().parents[2]

# What all three try: both programs, and what needs no program beside them.
BUILD = "cargo build && cargo build -p poolcounter-command"
TEST = "cargo test --lib && cargo test -p poolcounter-engine"


def debians_crates(world):
    """As debian/README.source says, in Debian sid without a network: its commands build the packages
    from the crates of Debian's archive, and run the tests that it names."""
    root = world.roots / "sid-crates"
    # Sid is another one each day.
    recipe_file(root).unlink(missing_ok=True)
    install, build, test = commands_in_readme_source()
    packages = install.removeprefix("apt install --no-install-recommends ").split()
    make_root(root, "sid", ",".join(packages))
    copy_sources(root / "sources")
    output = run_without_network(world, root, build + test)
    world.note(f"{passed(output)} tests")
    for skipped in sorted(set(re.findall(r"^SKIPPED: .*$", output, re.M))):
        world.note(skipped)
    shutil.rmtree(root)


def commands_in_readme_source():
    """Its indented blocks: what to install, to build and to test."""
    text = (REPOSITORY / "debian/README.source").read_text()
    blocks = [re.sub(r"\\\n *", "", block) for block in re.findall(r"(?<=\n\n)    \S.*\n(?:    .*\n)*", text)]
    expect(len(blocks) == 3, f"debian/README.source has {len(blocks)} blocks of commands, not 3")
    return [re.sub(r"^ +", "", block, flags=re.M) for block in blocks]


def run_without_network(world, root, commands):
    """In the root's /sources, with what Debian's builds have: loopback, processes, terminals."""
    # The tests come after the build.
    settings = {**QUICK, "DEB_BUILD_OPTIONS": "nocheck"}
    quick = "\n".join(f"export {name}={value}" for name, value in settings.items())
    inside = f"cd /sources\n{quick}\n{commands}"
    outside = (f"ip link set lo up && mount -t proc proc {root}/proc && mount -t devpts -o ptmxmode=666 devpts {root}/dev/pts"
               f' && exec chroot {root} sh -exc "$0"')
    start = world.log.tell()
    run(world, ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", outside, inside],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"})
    return world.log_path.read_text(errors="replace")[start:]


def oldest_crates(world):
    """The oldest version of each crate that a Cargo.toml names; of those that only others name, the newest."""
    # Cargo offers this on its nightly channel only, under a name that may change.
    resolves(world, "oldest-crates", ["-Z", "direct-minimal-versions"], RUSTC_BOOTSTRAP="1")


def newest_crates(world):
    """The newest of all, whatever Rust they need: what somebody gets who ignores the lock file."""
    resolves(world, "newest-crates", [], CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS="allow")


def resolves(world, name, options, **variables):
    tree = world.directory / name
    copy_sources(tree)
    (tree / "Cargo.lock").unlink()
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tree / "target")}
    run(world, ["cargo", "generate-lockfile", *options], cwd=tree, env={**environment, **variables})
    start = world.log.tell()
    run(world, ["sh", "-exc", f"{BUILD} && {TEST}"], cwd=tree, env=environment)
    world.note(f"{passed(world.log_path.read_text(errors='replace')[start:])} tests")
    shutil.rmtree(tree)


def copy_sources(directory):
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    copy_over(directory)


def copy_over(directory):
    """What is in git, as it is now."""
    files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["xargs", "-0", "cp", "--parents", "-P", "-t", directory], cwd=REPOSITORY, input=files, check=True)


def passed(output):
    return sum(int(count) for count in re.findall(r"^test result: ok. (\d+) passed", output, re.M))


ALL = [debians_crates, oldest_crates, newest_crates]
