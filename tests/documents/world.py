"""The daemon, clients and programs of this machine that a block of a document meets, in
namespaces of their own."""

import contextlib
import os
import re
import shlex
import socket
import subprocess
import time
from pathlib import Path

from roots import expect

PROGRAMS = Path(__file__).resolve().parents[2] / "target/release"
PORT = 7531
HTTP_PORT = 9531
CONTROL = "/run/poolcounter/control.sock"
# Addresses that the documents use.
ADDRESSES = ["10.1.2.3", "10.1.2.4", "10.1.2.20"]
# Of hosts that are gone: of one whose packets get no answer, and of one that its network reports.
SILENT_ADDRESS = "192.0.2.9"
UNREACHABLE_ADDRESS = "192.0.2.10"
PATIENCE_S = 20

# In place of netcat-openbsd, which is not everywhere.
NC = """#!/usr/bin/python3
import socket, sys
flags = [word for word in sys.argv[1:] if word.startswith("-")]
words = [word for word in sys.argv[1:] if not word.startswith("-")]
if any("U" in flag for flag in flags):
    server = socket.socket(socket.AF_UNIX)
    server.connect(words[0])
else:
    server = socket.create_connection((words[0], int(words[1])))
server.sendall(sys.stdin.buffer.read())
server.shutdown(socket.SHUT_WR)
while data := server.recv(65536):
    sys.stdout.buffer.write(data)
"""


class World:
    """A daemon and its clients. Ends with the block."""

    def __init__(self, directory, marks, options=()):
        self.directory, self.marks, self.options = directory, marks, options
        self._daemons, self._clients, self._ports = [], [], set()

    def __enter__(self):
        rules = Path("/etc/poolcounter/rules")
        rules.write_text("".join(f"{rule.strip()}\n" for rule in self.marks.get("rules", "").split(";")))
        self._start(PORT, "--control", CONTROL, "--http", f"127.0.0.1:{HTTP_PORT}", "--rules", rules, "--slow", "5", *self.options)
        for line in filter(None, (line.strip() for line in self.marks.get("with", "").split(";"))):
            port, line = re.fullmatch(r"(?:(\d+) )?(.*)", line).groups()
            _, answer = self.send(line, int(port or PORT))
            expect(answer in ("LOCKED", None), f"{line} is answered by {answer}")
        return self

    def __exit__(self, *_):
        for client in self._clients:
            client.close()
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def _start(self, port, *options):
        log = (self.directory / "log").open("a")
        command = [PROGRAMS / "poolcounterd", "-l", "0.0.0.0", "-p", str(port), *options]
        self._daemons.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment(self.directory)))
        self._ports.add(port)
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                return
            expect(time.monotonic() < deadline, f"no daemon on port {port}: {(self.directory / 'log').read_text()}")
            time.sleep(0.01)

    def send(self, line, port=PORT, address=""):
        """A client that has sent the line from that address, and its answer; None if it waits."""
        if port not in self._ports:
            self._start(port)
        client = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
        client.settimeout(0.01)
        self._clients.append(client)
        waiting = self.statistic("waiting_workers", port)
        client.sendall(line.encode() + b"\n")
        deadline = time.monotonic() + PATIENCE_S
        while self.statistic("waiting_workers", port) == waiting:
            with contextlib.suppress(TimeoutError):
                return client, client.recv(100).decode().strip()
            expect(time.monotonic() < deadline, f"{line}: no answer")
        return client, None

    def signal(self, number):
        self._daemons[0].send_signal(number)
        # Until the signal has done its work.
        os.waitid(os.P_PID, self._daemons[0].pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)

    def statistic(self, name, port=PORT):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(f"STATS {name}\n".encode())
            return client.makefile().readline()


def environment(directory):
    return {**os.environ, "PATH": f"{directory}/bin:{os.environ['PATH']}"}


def prepare(directory):
    """Programs that the documents name: ours, and netcat."""
    programs = directory / "bin"
    programs.mkdir()
    for name in ["poolcounter", "poolcounterd"]:
        (programs / name).symlink_to(PROGRAMS / name)
    (programs / "nc").write_text(NC)
    (programs / "nc").chmod(0o755)


def enter():
    """Sets up the namespaces, so that nothing outside of them changes."""
    for command in ["ip link set lo up", *(f"ip addr add {address}/32 dev lo" for address in ADDRESSES),
                    "ip link add silent type veth peer name nobody", "ip link set nobody up", "ip link set silent arp off up", f"ip route add {SILENT_ADDRESS} dev silent",
                    f"ip route add unreachable {UNREACHABLE_ADDRESS}",
                    "mount --make-rprivate /", "mount -t tmpfs tmpfs /run"]:
        subprocess.run(shlex.split(command), check=True)
    Path(CONTROL).parent.mkdir()
    for path in ["/etc", "/usr/local/bin"]:
        overlay(path)
    Path("/etc/poolcounter").mkdir(exist_ok=True)
    job = Path("/usr/local/bin/report")
    job.write_text("#!/bin/sh\nsleep 0.1\n")
    job.chmod(0o755)


def overlay(path):
    """Keeps what is written below the path in memory."""
    own = Path("/run/overlays") / path.strip("/").replace("/", "-")
    for name in ["upper", "work"]:
        (own / name).mkdir(parents=True)
    options = f"lowerdir={path},upperdir={own}/upper,workdir={own}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, path], check=True)
