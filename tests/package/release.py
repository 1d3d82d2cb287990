"""`make release` in a clone: what it refuses, and what it makes of a clone whose placeholders are filled."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import scenarios
from checks import QUICK
from machine import Machine
from roots import BUILD_PATIENCE_S, expect

REPOSITORY = Path(__file__).resolve().parents[2]

# Not that of the sources, so that it has to be set.
VERSION = "9.8.7"

# None is an address that exists (RFC 2606).
VALUES = {
    "https://repository.invalid": "https://git.example.org/wiki/poolcounterd",
    "https://tracker.invalid": "https://git.example.org/wiki/poolcounterd/issues",
    "https://releases.invalid": "https://git.example.org/wiki/poolcounterd/releases",
    "security@poolcounterd.invalid": "security@example.org",
    "maintainers@poolcounterd.invalid": "maintainers@example.org",
    "registry.invalid": "registry.example.org/wiki",
    "fingerprint.invalid": "0123456789ABCDEF0123456789ABCDEF01234567",
}


class Clone:
    def __init__(self, world, name):
        self.world = world
        self.path = world.directory / name
        shutil.rmtree(self.path, ignore_errors=True)
        # Also what is not committed yet.
        files = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout
        self.path.mkdir(parents=True)
        subprocess.run(["xargs", "-0", "cp", "--parents", "-P", "-t", self.path], cwd=REPOSITORY, input=files, check=True)
        # As before the first release, also if that has been.
        self.write("debian/publication", re.sub(r"^(?!#)(.+)=.*$", r"\1=", self.read("debian/publication"), flags=re.M))
        self.git("init", "-q")
        self.commit()

    def read(self, path):
        return (self.path / path).read_text()

    def write(self, path, text):
        (self.path / path).write_text(text)

    def git(self, *arguments):
        identity = ["-c", "user.name=Releaser", "-c", "user.email=releaser@example.org"]
        return subprocess.run(["git", *identity, *arguments], cwd=self.path, stdout=subprocess.PIPE, text=True, check=True).stdout

    def commit(self):
        self.git("add", "-A")
        self.git("commit", "-qm", "A change")

    def edit(self, path, before, after):
        text = self.read(path)
        expect(before in text, f"{path} does not have {before!r}")
        self.write(path, text.replace(before, after, 1))

    def fill(self):
        for placeholder, value in VALUES.items():
            self.edit("debian/publication", f"{placeholder}=\n", f"{placeholder}={value}\n")

    def describe_the_release(self):
        self.edit("CHANGELOG.md", "\n## ", f"\n## {VERSION} (unreleased)\n\nA release.\n\n## ")
        changelog = self.read("debian/changelog")
        entry = re.match(r"poolcounter \(.*\)(?P<rest>(?s:.*?)\n -- .*\n)", changelog)
        self.write("debian/changelog", f"poolcounter ({VERSION}-1){entry['rest']}\n{changelog}")

    def release(self, **variables):
        """Returns its exit status and what it printed."""
        start = self.world.log.tell()
        environment = {**os.environ, "GIT_AUTHOR_NAME": "Releaser", "GIT_AUTHOR_EMAIL": "releaser@example.org",
                       "GIT_COMMITTER_NAME": "Releaser", "GIT_COMMITTER_EMAIL": "releaser@example.org", **variables}
        done = subprocess.run(["make", "release", f"VERSION={VERSION}", "CHECK=test -e check-passes"], cwd=self.path, env=environment,
                              stdin=subprocess.DEVNULL, stdout=self.world.log, stderr=self.world.log, timeout=BUILD_PATIENCE_S)
        return done.returncode, self.world.log_path.read_text()[start:]


def release_names_what_is_missing(world):
    """Empty and wrong values, changes that are not committed, a changelog without the version, an address
    that nothing stands for: it names each, and changes nothing."""
    clone = Clone(world, "release-refused")
    clone.edit("README.md", "\n", "\nhttps://forgotten.invalid/x\n")
    before = clone.git("rev-parse", "HEAD")
    status, output = clone.release()
    expected = [*(f"{placeholder} has no value" for placeholder in VALUES), "not committed", "CHANGELOG.md: no heading",
                "debian/changelog: the first entry", "README.md: debian/publication does not have https://forgotten.invalid"]
    unnamed = [problem for problem in expected if problem not in output]
    expect(status != 0 and not unnamed, f"it ended with status {status} without {unnamed}")
    for placeholder, wrong in [("https://tracker.invalid", "tracker.example.org/"), ("registry.invalid", "ghcr.io/Team"),
                               ("registry.invalid", "ghcr.io/team/poolcounterd"), ("https://repository.invalid", "https://x.org/../y"),
                               ("security@poolcounterd.invalid", "a@b"), ("fingerprint.invalid", "0123")]:
        publication = clone.read("debian/publication")
        clone.edit("debian/publication", f"{placeholder}=", f"{placeholder}={wrong}")
        expect(f"{placeholder} can't be {wrong!r}" in clone.release()[1], f"{wrong} is taken for {placeholder}")
        clone.write("debian/publication", publication)
    clone.write("debian/publication", clone.read("debian/publication") + "a word\n")
    expect("no = in 'a word'" in clone.release()[1], "a line without a value is no problem")
    expect(clone.git("rev-parse", "HEAD") == before and not clone.git("tag"), "it has changed something")
    shutil.rmtree(clone.path)


def release_makes_all_that_is_uploaded(world):
    """With filled placeholders: a commit whose texts have the addresses and the version; a tag once the check
    has passed, not before; and a folder with tarball, static programs, packages and their sums."""
    clone = Clone(world, "release")
    clone.fill()
    clone.describe_the_release()
    clone.edit("README.md", "\n", "\n".join(["", "Nowhere to be had. <!-- until the release -->", *VALUES, ""]))
    clone.commit()
    status, output = clone.release()
    expect(status != 0 and not clone.git("tag"), f"the check failed, and it ended with status {status} and tags {clone.git('tag')!r}")
    # Of another architecture, as tests/architectures leaves it: built before the release.
    (clone.path / "target/static").mkdir(parents=True, exist_ok=True)
    (clone.path / f"target/static/poolcounterd-{VERSION}-other-unknown-linux-musl.tar.gz").touch()
    (clone.path / ".git/info/exclude").write_text("check-passes\n")
    (clone.path / "check-passes").touch()
    status, output = clone.release(DEB_BUILD_OPTIONS="nocheck", **QUICK)
    expect(status == 0, f"it ended with status {status}: {output[-1500:]}")
    expect("not for others" in output and "gpg" not in output.splitlines()[-1], "a build with one's own settings is to be uploaded")
    commits = clone.git("log", "--format=%s").splitlines()
    expect(commits == [f"Release {VERSION}", "A change", "A change"], f"commits: {commits}")
    expect(clone.git("rev-parse", f"v{VERSION}^{{commit}}") == clone.git("rev-parse", "HEAD"), "the tag is elsewhere")
    has_addresses_and_version(clone)
    has_all_files(world, clone.path / "target/upload")
    a_stranger_installs_them(world, clone.path / "target/upload")
    shutil.rmtree(clone.path)


def has_addresses_and_version(clone):
    changed = clone.git("diff", "HEAD^", "--name-only").split()
    of_cargo = [path for path in changed if path.endswith((".lock", "Cargo.toml"))]
    expect(of_cargo == ["Cargo.lock", "Cargo.toml", "bench/Cargo.lock", "fuzz/Cargo.lock"], f"changed: {of_cargo}")
    for path in ["Cargo.lock", "bench/Cargo.lock", "fuzz/Cargo.lock"]:
        lines = {line for line in clone.git("diff", "-U0", "HEAD^", "--", path).splitlines() if re.match(r"[+-]\w", line)}
        expect(len(lines) == 2 and f'+version = "{VERSION}"' in lines, f"{path}: {lines}")
    texts = {path: clone.read(path) for path in changed}
    expect("poolcounterd\n" + "\n".join([*VALUES.values(), ""]) in texts["README.md"], f"README.md begins with {texts['README.md'][:500]}")
    expect(re.search(rf"^## {VERSION} \(\d{{4}}-\d\d-\d\d\)$", texts["CHANGELOG.md"], re.M), "CHANGELOG.md has no date")
    for example in ["compose", "kubernetes"]:
        expect(f"/poolcounterd:{VERSION}\n" in texts[f"docs/guide/container/{example}.yaml"], f"{example}.yaml names another image")
    left = [path for path, text in texts.items() if re.search(r"\.invalid\b", text)]
    expect(not left, f"with placeholders: {left}")


def has_all_files(world, folder):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    named = sorted(line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    expect(named == sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS"), f"sums of {named} only")
    architecture = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    static = f"poolcounterd-{VERSION}-{os.uname().machine}-unknown-linux-musl"
    packages = [f"{package}{kind}_{VERSION}-1_{architecture}.deb" for package in ["poolcounter", "poolcounter-client"] for kind in ["", "-dbgsym"]]
    expect(named == sorted([*packages, f"poolcounter-{VERSION}.tar.xz", f"{static}.tar.gz"]), f"files: {named}")
    subprocess.run(["tar", "-C", folder, "-xzf", folder / f"{static}.tar.gz"], check=True)
    subprocess.run(["dpkg-deb", "-x", folder / packages[0], folder / "unpacked"], check=True)
    for program in [folder / static / "bin/poolcounterd", folder / static / "bin/poolcounter", folder / "unpacked/usr/bin/poolcounterd"]:
        said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        expect(said.split()[1] == VERSION, f"{program.name} says {said}")
    world.note(f"{len(named)} files")


def a_stranger_installs_them(world, folder):
    """On a booted Debian 13 the package serves; on another one, what is in the static tarball."""
    package, = folder.glob("poolcounter_*.deb")
    with Machine(world.roots / "trixie", world.log) as machine:
        machine.copy_in(package, scenarios.OURS)
        scenarios.install_ours(machine)
        scenarios.expect_served(machine)
    tarball, = folder.glob("*.tar.gz")
    with Machine(world.roots / "trixie", world.log) as machine:
        machine.copy_in(tarball, "/root/static.tar.gz")
        # As docs/guide/install.md says.
        machine.run("tar -xzf /root/static.tar.gz -C /usr/local --strip-components=1"
                    " && systemctl daemon-reload && systemctl enable --now poolcounter && /usr/local/bin/poolcounter check")
        scenarios.expect_served(machine)
