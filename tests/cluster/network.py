"""Hosts joined by a bridge, and the daemons on them. Each host is a network namespace
that a process of this test keeps: whatever ends the test, the kernel removes the
namespace, its end of the cable and the bridge. Nothing is created outside of them.
"""

import contextlib
import itertools
import signal
import socket
import subprocess
import time
from pathlib import Path

from roots import PATIENCE_S, Client, eventually, expect, in_network_of

PORT = 7531
DRAINED = 75
ESTABLISHED = "01"  # in /proc/net/tcp
FIRST_PROCESS = "ip link set lo up && echo up && exec sleep infinity"
# With a Debian root of its own, laid over the one that all share.
FIRST_PROCESS_IN_ROOT = """
mount --make-rprivate / && mount -t tmpfs tmpfs "$0" && cd "$0" && mkdir changes work root &&
mount -t overlay overlay -o "lowerdir=$1,upperdir=changes,workdir=work" root &&
mount -t proc proc root/proc && mkdir -p root/run/poolcounter &&
""" + FIRST_PROCESS
# When this process ends, for any reason, the kernel ends what it started.
END_WITH_THIS = ["setpriv", "--pdeathsig", "KILL"]


class Host:
    """A network namespace, with a Debian root if `directory` and `root` are given."""

    def __init__(self, name, directory=None, root=None):
        self.name, self.address, self.directory = name, None, directory
        program = ["unshare", "--net", "sh", "-c", FIRST_PROCESS]
        if directory:
            program = ["unshare", "--net", "--mount", "sh", "-c", FIRST_PROCESS_IN_ROOT, directory, root]
        self._first = subprocess.Popen([*END_WITH_THIS, *program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        expect(self._first.stdout.readline() == b"up\n", f"the host {name} did not start")
        self.pid = self._first.pid

    def end(self):
        self._first.kill()
        self._first.wait()
        self._first.stdout.close()

    def start(self, command, log):
        inside = ["chroot", self.directory / "root"] if self.directory else []
        enter = [*END_WITH_THIS, "nsenter", "-t", str(self.pid), "-n", *(["-m"] if self.directory else []), *inside]
        return subprocess.Popen([*enter, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ip(self, words):
        command = ["nsenter", "-t", str(self.pid), "-n", "ip", *words.split()]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def call(self, action):
        return in_network_of(self.pid, action)

    def client(self, address):
        return Client(self.call(lambda: socket.create_connection((address, PORT), PATIENCE_S)))

    def connections(self):
        """Yields the established ones: both ends, and how many bytes are unread."""
        for line in Path(f"/proc/{self.pid}/net/tcp").read_text().splitlines()[1:]:
            _, here, there, state, queues = line.split()[:5]
            if state == ESTABLISHED:
                yield end_of(here), end_of(there), int(queues.partition(":")[2], 16)

    def has_unread_answers(self):
        return any(unread for _, there, unread in self.connections() if there[1] == PORT)

    def path(self, path):
        """A file of its root, as seen from here."""
        return Path(f"/proc/{self.pid}/root{self.directory}/root{path}")


class Network:
    """`with Network() as network:`. The bridge is also in a namespace."""

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        self._numbers = itertools.count(1)
        self._switch = Host("switch")
        self._stack.callback(self._switch.end)
        self._switch.ip("link add bridge type bridge")
        self._switch.ip("link set bridge up")
        return self

    def __exit__(self, *_):
        self._stack.close()

    def add_host(self, name, **root):
        host = Host(name, **root)
        self._stack.callback(host.end)
        number = next(self._numbers)
        host.address = f"192.0.2.{number}"
        self._switch.ip(f"link add {name} type veth peer name eth0 netns {host.pid}")
        self._switch.ip(f"link set {name} master bridge up")
        host.ip(f"addr add {host.address}/24 dev eth0")
        host.ip("link set eth0 up")
        return host

    @contextlib.contextmanager
    def cut(self, host):
        """Pulls its cable out of the bridge: no packet reaches or leaves it."""
        self._switch.ip(f"link set {host.name} down")
        try:
            yield
        finally:
            self._switch.ip(f"link set {host.name} up")

    @contextlib.contextmanager
    def apart(self, *hosts):
        """These do not reach each other; all others do."""
        self._isolate(hosts, "on")
        try:
            yield
        finally:
            self._isolate(hosts, "off")

    def _isolate(self, hosts, word):
        for host in hosts:
            self._switch.ip(f"link set dev {host.name} type bridge_slave isolated {word}")


class Daemon:
    """A poolcounterd on a host, which this test starts and ends."""

    def __init__(self, host, program, log, control):
        self.host, self.program, self.log, self.control = host, program, log, control
        self.process = None

    @property
    def address(self):
        return self.host.address

    def start(self, *options, listen=None):
        command = [self.program, "-l", listen or self.address, "--control", self.control, *options]
        self.process = self.host.start(command, self.log)
        eventually(f"{self.host.name} listens", self._answers)

    def _answers(self):
        expect(self.process.poll() is None, f"the daemon on {self.host.name} ended: {self.log.name}")
        with contextlib.suppress(OSError), self.host.client(self.address):
            return True

    def signal(self, number):
        self.process.send_signal(number)

    def hot_restart(self):
        status = self.host.start([self.program, "--reload", "--control", self.control], self.log).wait(PATIENCE_S)
        expect(status == 0, f"the hot restart was refused: {self.log.name}")

    def drain(self):
        """Begins to drain: new clients are refused from now on."""
        self.signal(signal.SIGQUIT)

    def wait_until_drained(self):
        status = self.process.wait(PATIENCE_S)
        expect(status == DRAINED, f"it ended with {status} instead of {DRAINED} after the drain")

    @contextlib.contextmanager
    def stopped(self):
        self.signal(signal.SIGSTOP)
        stat = Path(f"/proc/{self.process.pid}/stat")
        eventually("it has stopped", lambda: stat.read_text().rpartition(")")[2].split()[0] == "T")
        try:
            yield
        finally:
            self.signal(signal.SIGCONT)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def count(self, name):
        """One of its counters. Asked on its own host, whatever is cut."""
        with self.host.client(self.address) as client:
            return int(client.ask(f"STATS {name}").partition(": ")[2])

    def seconds_until_free(self):
        begin = time.monotonic()
        eventually("its locks are free", lambda: self.count("processing_workers") == 0)
        return time.monotonic() - begin

    def connections(self):
        """The client ends of the connections that no client has closed."""
        return {there for here, there, _ in self.host.connections() if here == (self.address, PORT)}


def end_of(text):
    """An address of /proc/net/tcp: 0100007F:1D6B."""
    address, port = text.split(":")
    return socket.inet_ntoa(int(address, 16).to_bytes(4, "little")), int(port, 16)
