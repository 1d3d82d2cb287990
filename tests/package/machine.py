"""Debian in a container: a root made by mmdebstrap, systemd booted in it by
systemd-nspawn, commands run inside by nsenter, connections made from inside.

The container has a loopback interface and no other, so nothing here reaches
beyond it.
"""

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from roots import PATIENCE_S, Client, Failure, eventually, expect, in_network_of

PORT = 7531

# The root contains the dependencies of Debian's own poolcounter, because the
# container has no network to fetch them; man-db, because `systemd-analyze verify`
# looks up the pages that a unit names; apt-utils, because autopkgtest needs it.
ROOT_PACKAGES = {
    "bookworm": "adduser,apt-utils,libevent-2.1-7,man-db,systemd,systemd-sysv",
    "trixie": "adduser,apt-utils,libevent-2.1-7t64,man-db,systemd,systemd-sysv",
}
BUILD_PACKAGES = {
    "bookworm": "build-essential,cargo-web,debhelper",
    "trixie": "build-essential,cargo,debhelper",
}

_numbers = itertools.count()


def own_cgroup():
    """The control group (version 2) of this process."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next(fields[1] for fields in mounts if fields[2] == "cgroup2")
    own = next(line[3:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))
    return Path(mount + own)


@contextlib.contextmanager
def in_a_cgroup(name, command):
    """Runs the command in a control group of its own, and removes it afterwards."""
    cgroup = own_cgroup() / name
    cgroup.mkdir(exist_ok=True)
    yield started_in(cgroup, command)
    remove_cgroup(cgroup)


def started_in(cgroup, command):
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', cgroup, *command]


def remove_cgroup(cgroup):
    for directory, _, _ in os.walk(cgroup, topdown=False):
        eventually(f"{directory} is empty", lambda: removed(directory))


def removed(directory):
    """Removes a control group, once the processes in it have ended."""
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


class Machine:
    """A throwaway copy of a root, booted. `with Machine(...) as machine:`"""

    def __init__(self, root, log, allow_bpf=False):
        self.log = log
        self.directory = Path(tempfile.mkdtemp(prefix="machine-", dir=root.parent))
        self.name = f"poolcounter-{os.getpid()}-{next(_numbers)}"
        self.root = self.directory / "root"
        subprocess.run(["cp", "-a", "--reflink=auto", root, self.root], check=True)
        self.cgroup = own_cgroup() / self.name
        self.allow_bpf = allow_bpf
        self.leader = None
        self._nspawn = None

    def __enter__(self):
        self.boot()
        return self

    def __exit__(self, *_):
        if self.leader and self.log:
            self.run("journalctl --no-pager -o short-monotonic -u 'poolcounter*'", check=False)
        self.halt()
        shutil.rmtree(self.directory, ignore_errors=True)

    def boot(self):
        """Boots and waits until everything has started."""
        environment = {"PATH": os.environ["PATH"], "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        # It ends when this process ends, for any reason.
        command = ["setpriv", "--pdeathsig", "KILL", "systemd-nspawn", "-q", "-D", self.root, "--boot", f"--machine={self.name}",
                   "--console=pipe", "--register=no", "--keep-unit", "--private-network", "--notify-ready=yes"]
        if self.allow_bpf:
            # Without these, systemd inside can't attach its address filters.
            environment["SYSTEMD_SECCOMP"] = "0"
            command.append("--capability=all")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            path = self.directory / "notify"
            path.unlink(missing_ok=True)
            notify.bind(str(path))
            notify.settimeout(0.5)
            environment["NOTIFY_SOCKET"] = str(path)
            self._nspawn = subprocess.Popen(self._in_its_cgroup(command), env=environment, stdin=subprocess.DEVNULL,
                                            stdout=self.log, stderr=self.log)
            self._await_boot(notify)
        assert self.leader > 1  # nsenter would take 0 for this system itself
        self._ip("link", "set", "lo", "up")
        self.run("systemctl is-system-running --wait", check=False)

    def _in_its_cgroup(self, command):
        """With --keep-unit a machine lives below the control group that starts it.
        Two machines in one group would confuse each other's units."""
        self.cgroup.mkdir(exist_ok=True)
        return started_in(self.cgroup, command)

    def _await_boot(self, notify):
        """systemd-nspawn first reports the pid of the container's init, later that
        the container is up."""
        end = time.monotonic() + PATIENCE_S
        ready = False
        while not (self.leader and ready):
            expect(self._nspawn.poll() is None, "the machine went down while it booted")
            expect(time.monotonic() < end, f"the machine did not boot within {PATIENCE_S} s")
            try:
                message = notify.recv(4096).decode()
            except TimeoutError:
                continue
            for line in message.splitlines():
                if line.startswith("X_NSPAWN_LEADER_PID="):
                    self.leader = int(line.split("=")[1])
                ready = ready or line == "READY=1"

    def halt(self):
        if self._nspawn:
            if self.leader:
                try:
                    os.kill(self.leader, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            try:
                self._nspawn.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._nspawn = self.leader = None
        remove_cgroup(self.cgroup)

    def reboot(self):
        # The machine may end before the command does.
        self.run("systemctl --no-block poweroff", check=False)
        self._nspawn.wait(PATIENCE_S)
        self.leader = None
        self.boot()

    def _ip(self, *arguments):
        # The host's ip: a minimal root has none.
        subprocess.run(["nsenter", "-t", str(self.leader), "-n", "ip", *arguments], check=True)

    def add_address(self, address):
        """Adds an address to the loopback interface."""
        self._ip("address", "add", address, "dev", "lo")

    def run(self, command, check=True):
        """Runs a shell command inside as root, without a terminal and with empty
        standard input; returns its output."""
        self.log.write(f"+ {command}\n")
        self.log.flush()
        done = subprocess.run(
            ["nsenter", "-t", str(self.leader), "-a", "--", "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
             "LC_ALL=C.UTF-8", "/bin/sh", "-c", f"cd /root && {{ {command}\n}}"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S,
        )
        self.log.write(done.stdout)
        self.log.flush()
        if check:
            expect(done.returncode == 0, f"`{command}` ended with status {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout.strip()

    def status(self, command):
        """The exit status of a command."""
        return int(self.run(f"( {command} ) >/dev/null 2>&1; echo $?"))

    def show(self, name, unit="poolcounter.service"):
        """A property of a unit, as systemd shows it."""
        return self.run(f"systemctl show -P {name} {unit}")

    def copy_in(self, source, target):
        shutil.copy(source, str(self.root) + target)

    def write(self, path, text):
        file = Path(str(self.root) + path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def daemon(self):
        """The daemon's main process: its pid inside."""
        pid = int(self.show("MainPID"))
        expect(pid > 0, "the service has no main process")
        return pid

    # --- talking to the daemon from inside the container's network

    def in_network(self, action):
        """Calls `action` with this thread in the container's network; sockets made
        there stay in it."""
        return in_network_of(self.leader, action)

    def connect(self, address="127.0.0.1", seconds=PATIENCE_S):
        return Client(self.in_network(lambda: socket.create_connection((address, PORT), seconds)))

    def refuses(self, address="127.0.0.1"):
        try:
            self.connect(address).close()
        except ConnectionRefusedError:
            return True
        return False


class Watcher:
    """A client that connects repeatedly while something else happens:
    `with Watcher(machine) as watcher: ...`. Counts refusals and measures the longest
    time without service. It is served before and after."""

    def __init__(self, machine):
        self.machine = machine
        self.served = self.refused = self.failed = 0
        self.longest_gap_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        last = time.monotonic()
        while not self._stop.is_set():
            try:
                with self.machine.connect() as client:
                    answered = client.ask("STATS UPTIME").startswith("uptime: ")
            except ConnectionRefusedError:
                self.refused += 1
                answered = False
            except OSError:
                self.failed += 1
                answered = False
            now = time.monotonic()
            if answered:
                self.served += 1
                self.longest_gap_s = max(self.longest_gap_s, now - last)
                last = now
            self._stop.wait(0.005)
        self.longest_gap_s = max(self.longest_gap_s, time.monotonic() - last)

    def __enter__(self):
        self._thread.start()
        self._await_service("before")
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self._await_service("afterwards")
        finally:
            self._stop.set()
            self._thread.join()

    def _await_service(self, when):
        served = self.served
        eventually(f"the watcher is served {when}", lambda: self.served > served)


class Load:
    """Clients that take the same lock in turn, each on one connection for the whole
    time: `with Load(machine) as load: ...`. The exit fails if one was not served, or
    if two held the lock at once."""

    def __init__(self, machine, clients=20):
        self.cycles = 0
        self.failures = []
        self._clients = [machine.connect() for _ in range(clients)]
        self._holders = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=[client]) for client in self._clients]

    def _work(self, client):
        try:
            while not self._stop.is_set():
                self._cycle(client)
        except (OSError, Failure) as e:
            self.failures.append(f"{type(e).__name__}: {e}")

    def _cycle(self, client):
        answer = client.ask(f"ACQ4ME load 1 {2 * len(self._clients)} {PATIENCE_S}")
        expect(answer == "LOCKED", f"ACQ4ME was answered by {answer!r}")
        # The lock under test is what makes this safe.
        self._holders += 1
        expect(self._holders == 1, "two hold the lock")
        self.cycles += 1
        self._holders -= 1
        answer = client.ask("RELEASE")
        expect(answer == "RELEASED", f"RELEASE was answered by {answer!r}")

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                eventually("there was load", lambda: self.failures or self.cycles > len(self._clients))
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()
            for client in self._clients:
                client.close()
        if kind is None:
            expect(not self.failures, f"{len(self.failures)} clients failed: {self.failures[:3]}")
