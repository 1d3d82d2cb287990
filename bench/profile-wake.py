#!/usr/bin/env python3
"""Where does the time go when one RELEASE wakes 10,000 waiters?

    bench/profile-wake.py PID HOST PORT

Wakes them ten times, with perf recording only that, and prints the CPU time
per waiter, the kernel's share, and the functions that take most. Needs
perf (Debian: linux-perf), the right to use it, and 10,100 descriptors (ulimit -n).
Pin the daemon to one core and this to another with taskset.
"""

import os
import resource
import socket
import subprocess
import sys
import tempfile
import time

WAITERS = 10_000
ROUNDS = 10


def wait_for_waiters(client):
    answer = b""
    while b"waiting_workers: %d\n" % WAITERS not in answer:
        client.sendall(b"STATS FULL\n")
        time.sleep(0.1)
        answer = client.recv(1 << 16)


def exchange(client, line, answer):
    client.sendall(line)
    assert client.recv(100) == answer, line


class Perf:
    """perf record, which records only while it is enabled."""

    def __init__(self, pid, folder):
        self.data = f"{folder}/perf.data"
        control, acknowledge = f"{folder}/control", f"{folder}/acknowledge"
        os.mkfifo(control)
        os.mkfifo(acknowledge)
        options = ["-e", "cpu-clock", "-F", "20000", "-D", "-1", "-p", pid, "-o", self.data]
        self.process = subprocess.Popen(
            ["perf", "record", "-q", *options, f"--control=fifo:{control},{acknowledge}"]
        )
        self.control, self.acknowledge = open(control, "w"), open(acknowledge)

    def send(self, word):
        print(word, file=self.control, flush=True)
        self.acknowledge.readline()

    def report(self, sort, lines):
        self.process.send_signal(2)
        self.process.wait()
        options = ["--stdio", "-q", "--no-children", "--sort", sort]
        text = subprocess.run(
            ["perf", "report", "-i", self.data, *options], capture_output=True, text=True
        ).stdout
        return "\n".join([line for line in text.splitlines() if line.strip()][:lines])


def cpu_ns(pid):
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0])


def main(pid, host, port):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    holder = socket.create_connection((host, port))
    waiters = [socket.create_connection((host, port)) for _ in range(WAITERS)]
    used_ns = 0
    with tempfile.TemporaryDirectory() as folder:
        perf = Perf(pid, folder)
        for _ in range(ROUNDS):
            exchange(holder, b"ACQ4ME wake 1 20000 100\n", b"LOCKED\n")
            for waiter in waiters:
                waiter.sendall(b"ACQ4ANY wake 1 20000 100\n")
            wait_for_waiters(holder)
            perf.send("enable")
            before_ns = cpu_ns(pid)
            exchange(holder, b"RELEASE\n", b"RELEASED\n")
            for waiter in waiters:
                assert waiter.recv(100) == b"DONE\n"
            time.sleep(0.02)  # The scheduler books the time of a process when it sleeps.
            used_ns += cpu_ns(pid) - before_ns
            perf.send("disable")
        print(f"{used_ns / 1e3 / ROUNDS / WAITERS:.2f} µs of CPU for each woken waiter")
        print(perf.report("dso", 6))
        print(perf.report("dso,sym", 30))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
