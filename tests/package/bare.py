"""A new user's machine: bare Debian with only the packages in README, a clone, and an
ordinary user at the keyboard."""

import os
import re
import shutil
import ssl
import subprocess
from pathlib import Path

from checks import QUICK
from machine import in_a_cgroup
from roots import BUILD_PATIENCE_S, PATIENCE_S, expect, make_root

REPOSITORY = Path(__file__).resolve().parents[2]
USER = "newcomer"
CLONE = f"/home/{USER}/poolcounterd"
# The packages that are installed.
LIST = r"dpkg-query -Wf '${Package}\n'"

# What an ordinary user cannot do. All other tests must run.
SKIPS_ALLOWED = {
    "network namespaces need root",
    "only root can become another user",
    "only root may listen on port 53",
    "mount namespaces need root",
    "PID namespaces need root",
}

# What depends on the container.
SKIPS_POSSIBLE = {
    "this kernel, or container, gives no pid namespaces",
    "this kernel, or container, has no vm.memfd_noexec of its own to set",
    "this kernel, or container, lets no process copy another's descriptors",
}

# Variables that configure programs' access to the network.
NETWORK_VARIABLES = re.compile(r"(http|https|all|no)_proxy|CARGO_(HTTP|NET|SOURCE|REGISTR)\w*", re.I)


def packages():
    """What README says to install before `make run`."""
    found = re.search(r"^ *sudo apt install (.*?) *# Debian 12: ", (REPOSITORY / "README.md").read_text(), re.M)
    expect(found, "README does not say what to install")
    return found[1]


def shown_in_readme():
    """Commands with nc that README shows, each with its answer."""
    readme = (REPOSITORY / "README.md").read_text()
    return re.findall(r"^ *\$ (.*\| nc .*)\n((?: *[^\s$`].*\n)+)", readme, re.M)


class Bare:
    """A bare root with a clone in it, used as a new user would."""

    def __init__(self, world, suite):
        self.world = world
        self.root = world.roots / f"{suite}-bare"
        make_root(self.root, suite, "", hooks=[
            f'--customize-hook=chroot "$1" apt-get -qy install {packages()}',
            # As Debian's installer writes it.
            r'--customize-hook=printf "127.0.0.1 localhost\n::1 localhost\n" > "$1/etc/hosts"',
            # With the lists that `apt update` left there.
            "--skip=cleanup/apt/lists",
            f'--customize-hook=chroot "$1" {LIST} > "$1/packages"',
            f'--customize-hook=chroot "$1" useradd -m -s /bin/bash {USER}',
        ])
        self._reach_the_network_as_here()
        self._clone()
        # Of an earlier run.
        self.run(f"{LIST} | grep -vxFf /packages | xargs -r dpkg --purge", user="root")

    def _reach_the_network_as_here(self):
        """The certificates that this machine trusts, its resolver, cargo's settings."""
        certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
        shutil.copy(certificates, self.root / "etc/ssl/certs/ca-certificates.crt")
        home = self.root / "home" / USER
        shutil.rmtree(home)
        shutil.copytree(self.root / "etc/skel", home)
        settings = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "config.toml"
        if settings.exists():
            (home / ".cargo").mkdir()
            shutil.copy(settings, home / ".cargo")

    def _clone(self):
        target = Path(str(self.root) + CLONE)
        command = ["git", "-c", f"safe.directory={REPOSITORY}", "clone", "-q", "--no-hardlinks", REPOSITORY, target]
        subprocess.run(command, check=True, stdout=self.world.log, stderr=self.world.log)
        subprocess.run(["chroot", self.root, "chown", "-R", f"{USER}:{USER}", f"/home/{USER}"], check=True)

    def run(self, command, check=True, user=USER, **variables):
        """Runs a shell command in the clone, as a user at a terminal would, and
        returns its output."""
        self.world.log.write(f"+ {command}\n")
        self.world.log.flush()
        network = {name: value for name, value in os.environ.items() if NETWORK_VARIABLES.fullmatch(name)}
        settings = [f"--setenv={name}={value}" for name, value in {**network, **variables}.items()]
        nspawn = ["setpriv", "--pdeathsig", "KILL", "systemd-nspawn", "-q", "-D", self.root, "--as-pid2", "--pipe",
                  "--register=no", "--keep-unit", "--resolv-conf=copy-host", f"--machine=bare-{os.getpid()}",
                  f"--user={user}", *settings, "/bin/bash", "-c", f"cd {CLONE} && {{ {command}\n}} 2>&1"]
        environment = {"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        with in_a_cgroup(f"bare-{os.getpid()}", nspawn) as nspawn:
            start = os.fstat(self.world.log.fileno()).st_size
            done = subprocess.run(nspawn, env=environment, stdin=subprocess.DEVNULL, stdout=self.world.log,
                                  stderr=subprocess.PIPE, timeout=BUILD_PATIENCE_S)
        output = self.world.log_path.read_bytes()[start:].decode(errors="replace")
        # Written by systemd-nspawn itself, not by the command.
        self.world.log.write(done.stderr.decode(errors="replace"))
        self.world.log.flush()
        if check:
            expect(done.returncode == 0, f"`{command}` ended with status {done.returncode}: {output[-1500:]}")
        return output


# Starts `make run` and waits until it serves, then runs the commands in the file
# `asked` and those that `make run` printed, and ends it. The user has set a build folder
# for cargo, which the Makefile must ignore.
MAKE_RUN = f"PATIENCE_S={PATIENCE_S}" + r"""
    set -m
    CARGO_TARGET_DIR=$HOME/elsewhere make run ARGS="$ARGS" > run.log 2>&1 &
    job=$!
    while ! grep -q 'listening on' run.log; do
        kill -0 $job || { cat run.log; exit 1; }
        sleep 0.2
    done
    sed -n 's/^    \(.* | nc .*\)/\1/p' run.log > printed
    cat printed run.log >&2
    while read -r line; do
        printf '== %s\n' "$line"
        timeout $PATIENCE_S bash -c "$line" < /dev/null
    done < <(cat printed asked)
    kill -- -$job
    wait
    rm -f printed asked run.log
"""


def a_user_runs_it(world):
    """As README says, as a user: what to install, `make run` and its nc lines, what `make test`
    needs; and one crate of tests, with the oldest supported compiler. Without optimization: the question
    is whether it builds."""
    bare = Bare(world, "trixie")
    world.note(bare.run("cargo --version").split()[1])
    runs(bare, "-p 7532", 7532, **QUICK)
    installs_programs(bare)
    one_crate(world, bare)
    leaves_nothing(bare)


# As an ordinary user, it fetches Debian's daemon and compares ours with it: the shortest
# test that a daemon made by this compiler really answers.
CRATE = "reference"


def one_crate(world, bare):
    """In the profile of `make run`, so that dependencies are not compiled again."""
    output = bare.run(f"make reference && cargo test --locked --release --test {CRATE}", CI="1", **QUICK)
    world.note(f"{passed(output)} tests")


def a_user_runs_and_tests(world):
    """As README says, as a user: `make run`, and its nc lines give what README shows;
    `make test`, which skips only what needs root; nothing left behind."""
    bare = Bare(world, "trixie")
    world.note(bare.run("cargo --version").split()[1])
    runs(bare, "", 7531)
    runs(bare, "-p 7532", 7532)
    installs_programs(bare)
    tests(world, bare)
    leaves_nothing(bare)
    # What `make test` does not compile.
    for crate in ["bench", "fuzz"]:
        bare.run(f"cargo check --locked --all-targets --target-dir target --manifest-path {crate}/Cargo.toml")
    names_what_is_missing(bare)


def runs(bare, arguments, port, **variables):
    shown = shown_in_readme()
    expect(shown, "README shows no nc line")
    asked = Path(str(bare.root) + CLONE) / "asked"
    asked.write_text("".join(command.replace("7531", str(port)) + "\n" for command, _ in shown))
    os.chmod(asked, 0o666)
    output = bare.run(MAKE_RUN, ARGS=arguments, **variables)
    answers = dict(re.findall(r"^== (.*)\n((?:(?!== ).*\n)*)", output, re.M))
    printed = [command for command in answers if str(port) in command]
    expect(len(printed) >= 3, f"make run printed no nc lines: {output}")
    for command, answer in answers.items():
        expected = r"uptime: 0 days" if "STATS" in command else r"LOCKED\nRELEASED\n$"
        expect(re.match(expected, answer), f"{command} answered {answer!r}")
    for command, example in shown:
        answer = answers[command.replace("7531", str(port))]
        expect(shape(answer) == shape(example), f"README shows {example!r}, {command} answered {answer!r}")


def shape(text):
    return re.sub(r"\d+", "N", " ".join(text.split()))


def installs_programs(bare):
    """`make test` builds nothing while programs are missing, and says how root installs them."""
    output = bare.run("rm -rf target/debug; make test && echo done; [ ! -e target/debug ]")
    line = re.search(r"^ *sudo (apt install .*)\n", output, re.M)
    expect(line and "Error" in output, f"`make test` printed {output}")
    bare.run(f"DEBIAN_FRONTEND=noninteractive {line[1]} -y", user="root")


def tests(world, bare):
    output = bare.run("make test", CI="1", SKIPS_ALLOWED=";".join(SKIPS_ALLOWED | SKIPS_POSSIBLE))
    skipped = set(re.findall(r"^SKIPPED: (.*)$", output, re.M))
    expect(skipped - SKIPS_POSSIBLE == SKIPS_ALLOWED, f"skipped: {sorted(skipped)}")
    expect(passed(output) > 100, f"only {passed(output)} tests ran")
    world.note(f"{passed(output)} tests")


def passed(output):
    return sum(int(count) for count in re.findall(r"^test result: ok. (\d+) passed", output, re.M))


def leaves_nothing(bare):
    """Leaves nothing outside target/, except what cargo keeps for every project."""
    status = bare.run("git status --porcelain --ignored").split("\n")
    expect(status == ["!! target/", ""], f"in the clone: {status}")
    listing = bare.run("find $HOME /tmp /var/tmp /dev/shm -mindepth 1 -newer /etc/passwd"
                       f" -not -path $HOME/.cargo -not -path '*/.cargo/*' -not -path '{CLONE}*'")
    left = [path for path in listing.splitlines() if not Path(path).name.startswith(".bash") and path != f"/home/{USER}/.profile"]
    expect(not left, f"left behind: {left}")


def names_what_is_missing(bare):
    """A missing program that README's line does not include is named, with its package."""
    for command, words in [
        ("make lint", "apt install rustfmt"),
        ("make static", "rustup has it"),
        ("make test-package", "apt install python3"),
        ("make deb", "apt install python3"),
        ("PATH=/nowhere /usr/bin/make run", "README.md says what to install"),
    ]:
        output = bare.run(f"{command} && echo done", check=False)
        expect(words in output and not output.endswith("done\n"), f"`{command}` printed {output[-500:]}")
