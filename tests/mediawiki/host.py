"""A host for processes, with its own writable root, network and process ids. It ends when
this process ends, for any reason. Its network has only a loopback interface.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from roots import Client, eventually, expect, in_network_of

# It is the first process of its host: when it ends, the kernel ends the others.
# The root is laid over its origin, or copied where the file system can't do that.
FIRST_PROCESS = """
set -e
cd "$0"
mkdir changes work root
mount -t overlay overlay -o "lowerdir=$1,upperdir=changes,workdir=work" root || cp -a --reflink=auto "$1/." root
mount -t proc proc root/proc
ip link set lo up
: > ready
exec sleep infinity
"""
ENDINGS = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM]
ENVIRONMENT = ["/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"]


def end_in_order():
    """From now on a signal ends this process only after it has removed what it made. Further
    signals do not disturb that."""
    for each in ENDINGS:
        signal.signal(each, _end)


def _end(number, _):
    ignore_endings()
    sys.exit(128 + number)


def ignore_endings():
    for each in ENDINGS:
        signal.signal(each, signal.SIG_IGN)


class Host:
    """`with Host(origin, log) as host:`. `origin` is a root, which is not changed; `log`
    is a file to write to."""

    def __init__(self, origin, log):
        self.log = log
        self.directory = Path(tempfile.mkdtemp(prefix="host-", dir=origin.parent))
        self._origin = origin
        self._first = None
        self.pid = None

    def __enter__(self):
        try:
            self.prepare()
        except BaseException:
            self.__exit__()
            raise
        return self

    def prepare(self):
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL",
                   "sh", "-c", FIRST_PROCESS, self.directory, self._origin]
        self._first = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        eventually("the host is up", self._is_up, 120.0)
        self.pid = child_of(self._first)

    def _is_up(self):
        expect(self._first.poll() is None, f"the host did not start, see {self.log.name}")
        return (self.directory / "ready").exists()

    @property
    def root(self):
        """The root as it is seen from outside."""
        return Path(f"/proc/{self.pid}/root{self.directory}/root")

    def __exit__(self, *_):
        if self._first:
            if self.pid:
                # The signal that ends this process may also have ended that one.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self._first.kill()
            self._first.wait()
        # The kernel is ending the last processes; one may still write.
        eventually("the root is removed", lambda: removed(self.directory))

    def _inside(self, command):
        return ["nsenter", "-t", str(self.pid), "-n", "-m", "-p", "chroot", self.directory / "root", *ENVIRONMENT, *command]

    def run(self, command, check=True, seconds=300):
        """Runs a shell command inside as root and returns its output."""
        self.log.write(f"+ {command}\n")
        self.log.flush()
        done = subprocess.run(self._inside(["/bin/sh", "-c", command]), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, encoding="utf-8", errors="replace", timeout=seconds)
        self.log.write(done.stdout)
        self.log.flush()
        if check:
            expect(done.returncode == 0, f"`{command}` ended with status {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout.strip()

    def start(self, command, **options):
        """Starts a program inside, in a process group of its own: Apache ends its whole
        group. Returns the process that waits for it; `child_of` returns the program's id."""
        settings = {"stdin": subprocess.DEVNULL, "stdout": self.log, "stderr": self.log, **options}
        return subprocess.Popen(self._inside(["setsid", *command]), **settings)

    def write(self, path, text):
        file = Path(f"{self.root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def read(self, path):
        return Path(f"{self.root}{path}").read_text(encoding="utf-8", errors="replace")

    def sockets(self, address, port, count=1, seconds=300.0):
        """That many connections, made from inside."""
        def connect():
            return [socket.create_connection((address, port), seconds) for _ in range(count)]
        return in_network_of(self.pid, connect)

    def listener(self, address, port):
        """A listening socket, inside."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return in_network_of(self.pid, lambda: socket.create_server((address, port), family=family))

    def listens(self, address, port):
        try:
            self.sockets(address, port)[0].close()
        except OSError:
            return False
        return True

    def client(self, address, port):
        """A client of the lock daemon there."""
        return Client(self.sockets(address, port)[0])


def child_of(process):
    """The process id, seen from here, of the only child."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return int(eventually("it has started", lambda: children.read_text().split())[0])


def removed(directory):
    shutil.rmtree(directory, ignore_errors=True)
    return not directory.exists()
