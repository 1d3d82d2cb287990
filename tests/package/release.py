"""`make release` in a clone: what it refuses, and what it makes of a clone whose placeholders are filled."""

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import scenarios
from checks import QUICK
from machine import Machine
from roots import BUILD_PATIENCE_S, expect

REPOSITORY = Path(__file__).resolve().parents[2]

# Not that of the sources, so that it has to be set.
VERSION = "9.8.7"

FINGERPRINT = "fingerprint.invalid"

# None is an address that exists (RFC 2606), and nobody has the key.
VALUES = {
    "https://repository.invalid": "https://git.example.org/wiki/poolcounterd",
    "https://tracker.invalid": "https://git.example.org/wiki/poolcounterd/issues",
    "https://releases.invalid": "https://git.example.org/wiki/poolcounterd/releases",
    "security@poolcounterd.invalid": "security@example.org",
    "maintainers@poolcounterd.invalid": "maintainers@example.org",
    "registry.invalid": "registry.example.org/wiki",
    FINGERPRINT: "0123456789ABCDEF0123456789ABCDEF01234567",
}


class Keyring:
    """Keys without a passphrase, in a short path: an agent's socket is in it."""

    def __init__(self, home):
        self.environment = {"GNUPGHOME": home}

    def run(self, *command, **options):
        done = subprocess.run(command, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, check=True, **options)
        return done.stdout + done.stderr

    def key(self, name, expires="never", then="now"):
        """Returns its fingerprint."""
        clock = [] if then == "now" else ["--faked-system-time", then]
        self.run("gpg", "--batch", "--passphrase", "", *clock, "--quick-generate-key", name, "ed25519", "sign", expires)
        return self.fingerprints(name)[0]

    def subkey(self, fingerprint):
        self.run("gpg", "--batch", "--passphrase", "", "--quick-add-key", fingerprint, "ed25519", "sign", "never")
        return self.fingerprints(fingerprint)[1]

    def fingerprints(self, name):
        """Of the key, then of its subkeys."""
        return re.findall(r"^fpr:+([0-9A-F]+):", self.run("gpg", "--with-colons", "--list-keys", name), re.M)


@contextlib.contextmanager
def keyring():
    with tempfile.TemporaryDirectory(prefix="keys") as home:
        ring = Keyring(home)
        try:
            yield ring
        finally:
            ring.run("gpgconf", "--kill", "all")


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

    def fill(self, values):
        for placeholder, value in values.items():
            self.edit("debian/publication", f"{placeholder}=\n", f"{placeholder}={value}\n")

    def describe_the_release(self):
        self.edit("CHANGELOG.md", "\n## ", f"\n## {VERSION} (unreleased)\n\nA release of [a page](https://example.org), and [a file](docs/guide/migrate.md#roll-back-to-1x).\n\n## ")
        changelog = self.read("debian/changelog")
        entry = re.match(r"poolcounter \(.*\)(?P<rest>(?s:.*?)\n -- .*\n)", changelog)
        self.write("debian/changelog", f"poolcounter ({VERSION}-1){entry['rest']}\n{changelog}")

    def release(self, check="test -e check-passes", wrapper=(), **variables):
        """Returns its exit status and what it printed."""
        start = self.world.log.tell()
        environment = {**os.environ, "GIT_AUTHOR_NAME": "Releaser", "GIT_AUTHOR_EMAIL": "releaser@example.org",
                       "GIT_COMMITTER_NAME": "Releaser", "GIT_COMMITTER_EMAIL": "releaser@example.org", **variables}
        done = subprocess.run([*wrapper, "make", "release", f"VERSION={VERSION}", f"CHECK={check}"], cwd=self.path, env=environment,
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


def release_tries_the_key_first(world):
    """What would end a release after its long check is said before it, and nothing is changed then: a key that can't sign
    or is not the one that users compare, and a check that needs root."""
    clone = Clone(world, "release-keys")
    clone.describe_the_release()
    clone.fill(VALUES)
    clone.commit()
    with keyring() as ring:
        good = ring.key("Releaser <releaser@example.org>")
        subkey = ring.subkey(good)
        expired = ring.key("Expired <expired@example.org>", expires="1d", then="20200101T000000")
        public_alone = ring.key("Public <public@example.org>")
        ring.run("gpg", "--batch", "--yes", "--delete-secret-keys", public_alone)
        unknown = VALUES[FINGERPRINT]
        for wrong, problem in [*((key, "can't sign here") for key in [unknown, expired, public_alone]), (subkey, f"users compare its key, {good}")]:
            told = told_by(clone, wrong, ring, check="true")
            expect(wrong in told and problem in told, f"{problem!r} is not in {told!r}")
        # As the user nobody.
        told = told_by(clone, good, ring, "unshare", "--map-user=65534", "--map-group=65534", check=".ci/run")
        expect(".ci/run boots machines, as root" in told, f"an ordinary user is told {told!r}")
    shutil.rmtree(clone.path)


def told_by(clone, fingerprint, ring, *wrapper, check):
    """What a release refuses that would be signed by this key."""
    clone.write("debian/publication", re.sub(f"^{re.escape(FINGERPRINT)}=.*", f"{FINGERPRINT}={fingerprint}", clone.read("debian/publication"), flags=re.M))
    clone.git("commit", "-qam", "A key", "--allow-empty")
    before = clone.git("rev-parse", "HEAD")
    status, output = clone.release(check, wrapper, **ring.environment)
    expect(status != 0 and clone.git("rev-parse", "HEAD") == before and not clone.git("status", "--porcelain"), f"it changed something: {output}")
    return output


def release_makes_all_that_is_uploaded(world):
    """With filled placeholders: a commit whose texts have the addresses and the version; a tag once the check
    has passed, not before; and a folder with tarball, static programs, packages, their sums, and the key that signed the tag."""
    with keyring() as ring:
        makes_all_that_is_uploaded(world, ring)


def makes_all_that_is_uploaded(world, ring):
    clone = Clone(world, "release")
    # Whatever git would sign with.
    clone.git("config", "user.signingkey", ring.key("Another <another@example.org>"))
    values = {**VALUES, FINGERPRINT: ring.key("Releaser <releaser@example.org>")}
    clone.fill(values)
    clone.describe_the_release()
    clone.edit("README.md", "\n", "\n".join(["", "Nowhere to be had. <!-- until the release -->", *VALUES, ""]))
    clone.commit()
    status, output = clone.release(**ring.environment)
    expect(status != 0 and not clone.git("tag"), f"the check failed, and it ended with status {status} and tags {clone.git('tag')!r}")
    # Of another architecture, as tests/architectures leaves it: built before the release.
    (clone.path / "target/static").mkdir(parents=True, exist_ok=True)
    (clone.path / f"target/static/poolcounterd-{VERSION}-other-unknown-linux-musl.tar.gz").touch()
    (clone.path / ".git/info/exclude").write_text("check-passes\n")
    (clone.path / "check-passes").touch()
    status, output = clone.release(DEB_BUILD_OPTIONS="nocheck", **QUICK, **ring.environment)
    expect(status == 0, f"it ended with status {status}: {output[-1500:]}")
    expect("not for others" in output and "gpg" not in output.splitlines()[-1], "a build with one's own settings is to be uploaded")
    commits = clone.git("log", "--format=%s").splitlines()
    expect(commits == [f"Release {VERSION}", "A change", "A change"], f"commits: {commits}")
    expect(clone.git("rev-parse", f"v{VERSION}^{{commit}}") == clone.git("rev-parse", "HEAD"), "the tag is elsewhere")
    has_addresses_and_version(clone, values)
    has_all_files(world, clone.path / "target/upload")
    is_signed(clone, values[FINGERPRINT], ring)
    notes = clone.read("target/release-notes.md")
    expect(notes == "A release of [a page](https://example.org), and a file.\n", f"release notes: {notes!r}")
    a_stranger_installs_them(world, clone.path / "target/upload")
    shutil.rmtree(clone.path)


def has_addresses_and_version(clone, values):
    changed = clone.git("diff", "HEAD^", "--name-only").split()
    of_cargo = [path for path in changed if path.endswith((".lock", "Cargo.toml"))]
    expect(of_cargo == ["Cargo.lock", "Cargo.toml", "bench/Cargo.lock", "fuzz/Cargo.lock"], f"changed: {of_cargo}")
    for path in ["Cargo.lock", "bench/Cargo.lock", "fuzz/Cargo.lock"]:
        lines = {line for line in clone.git("diff", "-U0", "HEAD^", "--", path).splitlines() if re.match(r"[+-]\w", line)}
        expect(len(lines) == 2 and f'+version = "{VERSION}"' in lines, f"{path}: {lines}")
    texts = {path: clone.read(path) for path in changed}
    expect("poolcounterd\n" + "\n".join([*values.values(), ""]) in texts["README.md"], f"README.md begins with {texts['README.md'][:500]}")
    expect(re.search(rf"^## {VERSION} \(\d{{4}}-\d\d-\d\d\)$", texts["CHANGELOG.md"], re.M), "CHANGELOG.md has no date")
    for example in ["compose", "kubernetes"]:
        expect(f"/poolcounterd:{VERSION}\n" in texts[f"docs/guide/container/{example}.yaml"], f"{example}.yaml names another image")
    left = [path for path, text in texts.items() if re.search(r"\.invalid\b", text)]
    expect(not left, f"with placeholders: {left}")


def has_all_files(world, folder):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
    named = sorted(line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines())
    without = ["SHA256SUMS", "signing-key.asc"]
    expect(named == sorted(path.name for path in folder.iterdir() if path.name not in without), f"sums of {named} only")
    architecture = subprocess.run(["dpkg", "--print-architecture"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    static = f"poolcounterd-{VERSION}-{os.uname().machine}-unknown-linux-musl"
    packages = [f"{package}{kind}_{VERSION}-1_{architecture}.deb" for package in ["poolcounter", "poolcounter-client"] for kind in ["", "-dbgsym"]]
    expect(named == sorted(["BUILT-WITH", *packages, f"poolcounter-{VERSION}.tar.xz", f"{static}.tar.gz"]), f"files: {named}")
    subprocess.run(["tar", "-C", folder, "-xzf", folder / f"{static}.tar.gz"], check=True)
    subprocess.run(["dpkg-deb", "-x", folder / packages[0], folder / "unpacked"], check=True)
    for program in [folder / static / "bin/poolcounterd", folder / static / "bin/poolcounter", folder / "unpacked/usr/bin/poolcounterd"]:
        said = subprocess.run([program, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout
        expect(said.split()[1] == VERSION, f"{program.name} says {said}")
    built_with = (folder / "BUILT-WITH").read_text()
    expect(re.fullmatch(r"Debian GNU/Linux \d+ \(\w+\), rustc 1\.\S+ .*\n", built_with), f"built with {built_with!r}")
    world.note(f"{len(named)} files")


def is_signed(clone, fingerprint, ring):
    """The tag is signed by that key; and a stranger who does as SECURITY.md says imports it, compares, and verifies."""
    expect(fingerprint in ring.run("git", "tag", "--verify", f"v{VERSION}", cwd=clone.path), f"the tag is not signed by {fingerprint}")
    upload = clone.path / "target/upload"
    ring.run("gpg", "--batch", "-u", fingerprint, "--armor", "--detach-sign", upload / "SHA256SUMS")
    with keyring() as strangers:
        strangers.run("gpg", "--batch", "--import", upload / "signing-key.asc")
        said = strangers.run("gpg", "--batch", "--verify", upload / "SHA256SUMS.asc", upload / "SHA256SUMS").replace(" ", "")
        expect(f"Primarykeyfingerprint:{fingerprint}" in said, f"to compare with {fingerprint}: {said}")


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
