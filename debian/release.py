#!/usr/bin/python3
"""Makes a release and publishes nothing: docs/development/releasing.md.

    debian/release.py VERSION CHECK TARGET...     `make release` calls it

1. Stops if something is missing, and names all of it: nothing is changed then.
2. Puts what debian/publication says in place of its placeholders, sets the version, dates the
   changelogs, removes lines marked UNTIL_RELEASED, and commits.
3. Runs CHECK, and builds tarball, static programs and packages into target/upload.
4. Tags the commit, signed by the key whose fingerprint is published.

If it stops, correct what it says, commit, and start it again: what is written already, it leaves as it is.
"""

import datetime
import email.utils
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
PUBLICATION = "debian/publication"
UPLOAD = TOP / "target/upload"

# A line of a document that is false from the release on ends with this.
UNTIL_RELEASED = "<!-- until the release -->"

# What names the placeholders, and keeps them.
NAMES_THEM = [PUBLICATION, "debian/release.py", "docs/development/releasing.md"]

# Programs that neither `make` nor its targets ask for themselves before the long check.
TOOLS = {"dpkg-buildpackage": "dpkg-dev", "dh": "debhelper", "gpg": "gnupg", "xz": "xz-utils"}

# Where an image's tag names the version.
IMAGE = re.compile(r"(image: \S+/poolcounterd:)\S+")

FINGERPRINT = "fingerprint.invalid"

# The public key, among the files that are uploaded.
KEY = "signing-key.asc"

NOTES = TOP / "target/release-notes.md"
CHANGES = TOP / "CHANGELOG.md"
DEBIANS_CHANGES = TOP / "debian/changelog"


def main():
    version, check, *targets = sys.argv[1:]
    os.chdir(TOP)
    # Those of `make release` are not for what is started here.
    for variable in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES"]:
        os.environ.pop(variable, None)
    values, problems = publication()
    problems += in_the_tree(version, values) + tools()
    if not check.strip():
        problems.append("CHECK is empty; CHECK=true checks nothing")
    if check.split()[:1] == [".ci/run"] and os.geteuid():
        problems.append(".ci/run boots machines, as root; if it has passed for this commit: CHECK=true")
    if not problems:
        # Last, because it may ask for a passphrase.
        problems = key(values[FINGERPRINT])
    if problems:
        stop(f"There is no release of {version} yet:", problems)
    write(version, values)
    if left := left_in_the_tree(values):
        stop("After debian/publication was put in, which `git checkout .` takes back:", left)
    if git("status", "--porcelain"):
        run("git", "commit", "-qam", f"Release {version}")
    say(f"checking {git('log', '-1', '--oneline')}: {check}")
    # What is skipped is not checked.
    run(*shlex.split(check), env={**os.environ, "CI": "1"})
    for folder in ["dist", "static", "deb"]:
        shutil.rmtree(TOP / "target" / folder, ignore_errors=True)
    for target in targets:
        run("make", target)
    if git("status", "--porcelain"):
        sys.exit("the build has changed files in git: git status")
    collect(version)
    (UPLOAD / KEY).write_text(output_of("gpg", "--armor", "--export", values[FINGERPRINT]))
    # Whatever git's configuration would sign with.
    run("git", "-c", "gpg.format=openpgp", "-c", "gpg.program=gpg", "tag", "-u", values[FINGERPRINT], "-m", f"poolcounterd {version}", f"v{version}")
    write_notes(version)
    what_is_left(version, values)


def stop(why, problems):
    sys.exit("\n".join([why, *(f"- {problem}" for problem in problems)]))


def publication():
    """Each placeholder with its value, and what is wrong with them."""
    lines = [line.strip() for line in (TOP / PUBLICATION).read_text().splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    problems = [f"{PUBLICATION}: no = in {line!r}" for line in lines if "=" not in line]
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    problems += [f"{PUBLICATION}: {name} has no value" for name, value in values.items() if not value]
    for name, value in values.items():
        if value and not has_the_form_of(name, value):
            problems.append(f"{PUBLICATION}: {name} can't be {value!r}")
    return values, problems


def key(fingerprint):
    """Why the key that users are told of can't sign: it is needed last, and by then hours have passed."""
    test = subprocess.run(["gpg", "--local-user", fingerprint, "--output", "/dev/null", "--yes", "--detach-sign"], input="a test",
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if test.returncode:
        return [f"the key {fingerprint} of {PUBLICATION} can't sign here: {test.stderr.strip()}"]
    primary = re.search(r"^fpr:+([0-9A-F]+):", output_of("gpg", "--with-colons", "--list-keys", fingerprint), re.M)[1]
    return [] if primary == fingerprint else [f"{PUBLICATION}: {fingerprint} is a subkey; users compare its key, {primary}"]


HOST = r"[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+"


def has_the_form_of(name, value):
    if name.startswith("fingerprint"):
        form = r"[0-9A-F]{40}"
    elif "://" in name:
        # A browser's address may end in anything; that of the repository has names behind it.
        form = rf"https://{HOST}(:\d{{1,5}})?" + (r"(/[\w.~+-]+)+" if "repository" in name else r"(/[\w./~+%?=&-]*)?")
    elif "@" in name:
        form = rf"[\w.+-]+@{HOST}"
    else:
        form = r"[a-z0-9-]+(\.[a-z0-9-]+)+(:\d{1,5})?(/[a-z0-9._-]+)*(?<!/poolcounterd)"
    return re.fullmatch(form, value) and not re.search(r"\.invalid|\.\.", value, re.I)


def in_the_tree(version, values):
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        return [f"a version has three numbers, as 2.0.0 has: {version}"]
    problems = []
    if git("status", "--porcelain"):
        problems.append("there are changes that are not committed: git status")
    if git("tag", "--list", f"v{version}"):
        problems.append(f"there is a tag already: git tag -d v{version}, if it is not published")
    if subprocess.run(["git", "symbolic-ref", "-q", "HEAD"], stdout=subprocess.DEVNULL).returncode:
        problems.append("this is no branch: git switch")
    if subprocess.run(["git", "var", "GIT_COMMITTER_IDENT"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        problems.append("git does not know who you are: git config user.name, user.email")
    if not heading(version).search(CHANGES.read_text()):
        problems.append(f"CHANGELOG.md: no heading '## {version} (unreleased)'")
    if not DEBIANS_CHANGES.read_text().startswith(f"poolcounter ({version}-1) "):
        problems.append(f"debian/changelog: the first entry is not that of {version}-1")
    for path, text in texts():
        for name in values:
            text = text.replace(name, "")
        problems += [f"{path}: {PUBLICATION} does not have {name}" for name in re.findall(r"[\w./:@-]+\.invalid\b(?!\()", text)]
    return problems


def left_in_the_tree(values):
    """What is still there after `write`, and what did not come in."""
    left, whole = [], b""
    for path in git("ls-files").splitlines():
        file = TOP / path
        if path not in NAMES_THEM and not path.startswith("tests/") and file.is_file():
            content = file.read_bytes()
            whole += content
            for word in [rb"[\w./:@-]+\.invalid\b(?!\()", UNTIL_RELEASED.encode()]:
                left += [f"{path} has {found.decode(errors='replace')}" for found in re.findall(word, content, re.I)]
    missing = [value for value in values.values() if value.encode() not in whole]
    return left + [f"nothing in the tree has {value}: an earlier release wrote another; write it there too" for value in missing]


def tools():
    problems = [f"{tool} is missing: apt install {package}" for tool, package in TOOLS.items() if not shutil.which(tool)]
    if not shutil.which("rustc"):
        return [*problems, "rustc is missing: README.md says what to install"]
    # Also what `make static` would install from rustup, so that it comes up before the check.
    library = subprocess.run(["rustc", "--print", "target-libdir", "--target", musl()], stdout=subprocess.PIPE, text=True)
    if not shutil.which("rustup") and not Path(library.stdout.strip()).is_dir():
        problems.append(f"Rust's library for {musl()} is missing, and rustup, which has it: https://rustup.rs")
    # debian/vendor.py reads TOML.
    if sys.version_info < (3, 11):
        problems.append("Python 3.11 is needed, which Debian 12 has")
    return problems


def musl():
    return f"{os.uname().machine}-unknown-linux-musl"


def texts():
    """The files in git that may have placeholders, with their text."""
    for path in git("ls-files").splitlines():
        file = TOP / path
        if path not in NAMES_THEM and not path.startswith("tests/") and not file.is_symlink() and file.exists():
            try:
                yield path, file.read_text()
            except UnicodeDecodeError:
                pass


def write(version, values):
    for path, text in texts():
        written = text
        for name, value in values.items():
            written = written.replace(name, value)
        written = "".join(line for line in written.splitlines(keepends=True) if not line.rstrip().endswith(UNTIL_RELEASED))
        if path.startswith("docs/guide/container/"):
            written = IMAGE.sub(rf"\g<1>{version}", written)
        if written != text:
            (TOP / path).write_text(written)
    edit(TOP / "Cargo.toml", r'^version = ".*"', f'version = "{version}"')
    edit(TOP / "docs/guide/rpm/poolcounter.spec", r"^(Version: *).*", rf"\g<1>{version}")
    # The lock files follow, and nothing else in them.
    for manifest in ["Cargo.toml", "bench/Cargo.toml", "fuzz/Cargo.toml"]:
        run("cargo", "metadata", "--format-version=1", f"--manifest-path={manifest}", stdout=subprocess.DEVNULL)
    now = datetime.datetime.now(datetime.timezone.utc)
    edit(CHANGES, rf"^## {re.escape(version)} \(unreleased\)$", f"## {version} ({now:%Y-%m-%d})", may_be_done=True)
    # The first entry's, unless it is of that day.
    day = datetime.date.fromisoformat(heading(version).search(CHANGES.read_text())[1])
    stamp = re.search(r"^ -- .*>  (.*)", DEBIANS_CHANGES.read_text(), re.M)[1]
    if email.utils.parsedate_to_datetime(stamp).date() != day:
        then = datetime.datetime.combine(day, now.timetz())
        edit(DEBIANS_CHANGES, r"^( -- .*>  ).*", rf"\g<1>{email.utils.format_datetime(then)}")


def heading(version):
    return re.compile(rf"^## {re.escape(version)} \((unreleased|\d{{4}}-\d\d-\d\d)\)$", re.M)


def edit(path, pattern, replacement, may_be_done=False):
    """Replaces the first one."""
    text, count = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.M)
    if not count and not may_be_done:
        sys.exit(f"{path}: nothing is like {pattern}")
    path.write_text(text)


def collect(version):
    shutil.rmtree(UPLOAD, ignore_errors=True)
    UPLOAD.mkdir(parents=True)
    for pattern in [f"dist/poolcounter-{version}.tar.xz", f"static/poolcounterd-{version}-*.tar.gz", "deb/*.deb"]:
        for built in (TOP / "target").glob(pattern):
            shutil.copy2(built, UPLOAD)
    # With these, the same sources give the same bits.
    rust = output_of("rustc", "--version").strip()
    (UPLOAD / "BUILT-WITH").write_text(f"{platform.freedesktop_os_release()['PRETTY_NAME']}, {rust}\n")
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(UPLOAD.iterdir()))
    (UPLOAD / "SHA256SUMS").write_text(sums)
    say(sums.rstrip())


# What others who build the same do not have.
SETTINGS = re.compile(r"(CARGO_ENCODED_|CARGO_BUILD_)?RUSTFLAGS|RUSTC(_WRAPPER|_WORKSPACE_WRAPPER)?|CARGO_PROFILE_\w+|DEB_BUILD_OPTIONS|C(XX)?FLAGS|LDFLAGS")


def write_notes(version):
    """What the changelog says of this version. Its links lead to files of the repository, and nowhere on a page of releases."""
    section = re.split(r"^## .*\n", CHANGES.read_text()[heading(version).search(CHANGES.read_text()).end():], maxsplit=1, flags=re.M)[0]
    NOTES.write_text(re.sub(r"\[([^\]]+)\]\((?!\w+:)[^)]*\)", r"\1", section).strip() + "\n")


def what_is_left(version, values):
    if own := sorted(name for name, value in os.environ.items() if value and SETTINGS.fullmatch(name)):
        return say(f"\n{version} is built, but not for others: unset {' '.join(own)}, delete the tag and start again.")
    image = f"{values['registry.invalid']}/poolcounterd:{version}"
    static = f"target/static/poolcounterd-{version}-{musl()}"
    say(f"""
{version} is built, committed and tagged. Nothing is published: docs/development/releasing.md says what comes when.

    git push {values['https://repository.invalid']} HEAD
    git push {values['https://repository.invalid']} v{version}  # once the workflow has passed there
    gpg -u {values[FINGERPRINT]} --armor --detach-sign target/upload/SHA256SUMS
    docker build -t {image} -f docs/guide/container/Dockerfile {static}
    docker login {image.split('/')[0]}
    docker push {image}

All files of target/upload belong to {values['https://releases.invalid']}; target/release-notes.md is what to say there.""")


def git(*arguments):
    return output_of("git", *arguments).rstrip("\n")


def output_of(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def run(*command, **options):
    say("+ " + shlex.join(command))
    done = subprocess.run(command, **options)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with status {done.returncode}. After a correction, which you commit, start the release again.")


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    main()
