"""What tests with Debian roots share: roots made by mmdebstrap, other network
namespaces, a client of the lock daemon.
"""

import ctypes
import os
import shutil
import subprocess
import time

# Where Debian's own package is in a root that contains it.
DEBIANS_OWN = "/root/debian/poolcounter.deb"

# Longer than a busy machine ever needs for one step: an answer, a command, a boot, an
# installation. The only upper bound on time: what takes longer hangs.
PATIENCE_S = 120
# The same for a whole build or suite of tests.
BUILD_PATIENCE_S = 3600
# Another apt may be at work.
WAIT_FOR_OTHERS = ["-o", f"DPkg::Lock::Timeout={PATIENCE_S}"]

CLONE_NEWNET = 0x40000000  # setns(2); Python has it from 3.12
_libc = ctypes.CDLL(None, use_errno=True)


def _setns(descriptor):
    if _libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def in_network_of(pid, action):
    """Calls `action` with this thread in the network of that process; sockets made
    there stay in it."""
    with open("/proc/thread-self/ns/net") as home, open(f"/proc/{pid}/ns/net") as there:
        _setns(there.fileno())
        try:
            return action()
        finally:
            _setns(home.fileno())


def recipe_of(suite, packages, fetch_debians_own=False, hooks=()):
    """What a root is made of. A root with another recipe is made again."""
    return f"{suite} {packages} {fetch_debians_own} {' '.join(hooks)}\n"


def recipe_file(directory):
    return directory.with_name(directory.name + ".recipe")


def has_root(directory, recipe):
    """Whether the root was made by this recipe."""
    file = recipe_file(directory)
    return file.exists() and file.read_text() == recipe and directory.exists()


def make_root(directory, suite, packages, fetch_debians_own=False, hooks=(), log=None):
    """Makes a Debian root in `directory`, or reuses the existing one. `log` is a path,
    beside the root if not given."""
    recipe = recipe_file(directory)
    wanted = recipe_of(suite, packages, fetch_debians_own, hooks)
    if has_root(directory, wanted):
        return
    shutil.rmtree(directory, ignore_errors=True)
    directory.parent.mkdir(parents=True, exist_ok=True)
    if fetch_debians_own:
        hooks = [
            # Not installed, only stored for the scenario that needs it: it would
            # run after every change of packages.
            "--customize-hook=mkdir -p $1/root/needrestart/partial",
            '--customize-hook=chroot "$1" apt-get -qy --no-install-recommends --download-only'
            " -o APT::Sandbox::User=root -o Dir::Cache::archives=/root/needrestart install needrestart",
            "--customize-hook=mkdir $1/root/debian",
            '--customize-hook=chroot "$1" sh -c "cd /root/debian'
            ' && apt-get -q -o APT::Sandbox::User=root download poolcounter"',
            '--customize-hook=mv "$1"/root/debian/*.deb "$1"' + DEBIANS_OWN,
        ]
    include = [f"--include={packages}"] if packages else []
    # With the security archive, which has bookworm's current cargo. Sid has none, and its lists are
    # valid for a week only, so a mirror that lags behind has expired ones.
    main, security = archives()
    sources = [f"deb {main} {suite} main"]
    if suite == "sid":
        hooks = ['--aptopt=Acquire::Check-Valid-Until "false"', *hooks]
    else:
        sources.append(f"deb {security} {suite}-security main")
    # Does not wait for the disk after each file, which takes most of the time. The hook removes
    # the option from the root itself.
    fast = ["--dpkgopt=force-unsafe-io", "--customize-hook=rm $1/etc/dpkg/dpkg.cfg.d/99mmdebstrap"]
    # In its own namespaces: if it is killed, its processes end, and it leaves no
    # mounted /proc or /sys below the directory, which may be removed next.
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc",
               "mmdebstrap", "--quiet", "--variant=minbase", *include, *hooks, *fast, suite, directory, *sources]
    log = log or directory.with_name(directory.name + ".log")
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=output)
    expect(done.returncode == 0, f"mmdebstrap failed to make {directory.name}: {log}")
    recipe.write_text(wanted)


def archives():
    """This machine's main and security archives of Debian. Archives with other packages
    may be configured before them."""
    command = ["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)", "Origin: Debian", "Created-By: Packages"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    found = dict(line.split("|", 1) for line in reversed(lines))
    expect("Debian" in found and "Debian-Security" in found,
           f"apt names no main and security archive of Debian, only {found}: run apt-get update")
    return found["Debian"], found["Debian-Security"]


def install_tools(tools):
    """Installs the packages of missing programs; `tools` maps programs to packages."""
    missing = sorted(package for tool, package in tools.items() if not shutil.which(tool))
    if missing:
        print(f"installing {' '.join(missing)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        quiet = {"env": environment, "stdout": subprocess.DEVNULL}
        subprocess.run(["apt-get", "-q", "update"], check=True, **quiet)
        subprocess.run(["apt-get", "-qy", *WAIT_FOR_OTHERS, "--no-install-recommends", "install", *missing], check=True, **quiet)


def skip(why):
    """Prints why tests can't run here; returns the exit status. If CI is set, that is a
    failure, except for the reasons in `SKIPS_ALLOWED`, separated by semicolons."""
    print(f"SKIPPED: {why}", flush=True)
    allowed = [reason.strip() for reason in os.environ.get("SKIPS_ALLOWED", "").split(";")]
    return 1 if os.environ.get("CI") and why not in allowed else 0


def expect_space(needs):
    """`needs` maps directories, which need not exist yet, to megabytes. Directories on one
    file system are added up."""
    devices = {}
    for directory in needs:
        existing = next(path for path in [directory, *directory.parents] if path.exists())
        devices.setdefault(existing.stat().st_dev, []).append((directory, existing))
    for places in devices.values():
        free_mb = shutil.disk_usage(places[0][1]).free >> 20
        needed_mb = sum(needs[directory] for directory, _ in places)
        names = " and ".join(str(directory) for directory, _ in places)
        expect(free_mb >= needed_mb, f"{free_mb} MB are left for {names}, and this needs {needed_mb} MB")


class Failure(Exception):
    """A user-visible expectation that does not hold."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


def eventually(what, condition, seconds=PATIENCE_S):
    """Polls a condition that sends no event."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        expect(time.monotonic() < end, f"not within {seconds:.0f} s: {what}")
        time.sleep(0.02)


class Client:
    """One connection to the lock daemon."""

    def __init__(self, connection):
        self.socket = connection
        self.lines = connection.makefile("r")

    def send(self, command):
        self.socket.sendall(command.encode() + b"\n")

    def receive(self):
        return self.lines.readline().rstrip("\n")

    def ask(self, command):
        self.send(command)
        return self.receive()

    def ended(self):
        """Whether the other side has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def stats_full(self):
        """`STATS FULL` as a dictionary."""
        self.send("STATS FULL")
        stats = {}
        while (line := self.lines.readline()) not in ("\n", ""):
            name, _, value = line.rstrip("\n").partition(": ")
            stats[name] = value
        return stats

    def close(self):
        self.lines.close()
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
