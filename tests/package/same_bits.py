"""The same sources give the same bits, whoever builds them and wherever."""

import hashlib
import os
import shutil
from pathlib import Path

from checks import run
from crates import copy_over
from roots import expect

REPOSITORY = Path(__file__).resolve().parents[2]
CARGO_HOME = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
RELEASED = ["target/static/*.tar.gz", "target/dist/*.tar.xz", "target/deb/*.deb", "installed/bin/*"]


def same_bits_in_two_folders(world):
    """Two clones in two folders, each with its own CARGO_HOME, umask and time zone, make identical programs, tarballs
    and packages."""
    folder = world.directory / "same-bits"
    shutil.rmtree(folder, ignore_errors=True)
    builders = [(folder / "one", 0o022, "UTC"), (folder / "at-another-path/two", 0o002, "Pacific/Apia")]
    for clone, umask, _ in builders:
        run(world, ["git", "-c", f"safe.directory={REPOSITORY}", "clone", "-q", REPOSITORY, clone], umask=umask)
        copy_over(clone)
    first, second = (built(world, *builder) for builder in builders)
    differing = sorted(name for name in first | second if first.get(name) != second.get(name))
    expect(not differing, f"not the same: {differing}")
    expect(len(first) >= 6, f"only these were built: {sorted(first)}")
    for name, checksum in first.items():
        world.note(f"{name} {checksum}")
    shutil.rmtree(folder)


def built(world, clone, umask, time_zone):
    """The SHA-256 of each file that is released, and of both programs as `make install` installs them."""
    cargo_home = clone / "cargo-home"
    cargo_home.mkdir()
    # Cargo's settings may say where crates are fetched.
    if (CARGO_HOME / "config.toml").exists():
        shutil.copy(CARGO_HOME / "config.toml", cargo_home)
    environment = {**os.environ, "CARGO_HOME": str(cargo_home), "TZ": time_zone, "DEB_BUILD_OPTIONS": "nocheck"}
    environment.setdefault("RUSTUP_HOME", str(Path.home() / ".rustup"))
    for goal in [["dist"], ["static"], ["deb"], ["install", "install-client", f"DESTDIR={clone}/installed", "PREFIX="]]:
        run(world, ["make", "-C", clone, *goal], env=environment, umask=umask)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for pattern in RELEASED for path in sorted(clone.glob(pattern))}


ALL = [same_bits_in_two_folders]
