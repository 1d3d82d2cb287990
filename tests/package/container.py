#!/usr/bin/python3
"""In its own network, process and mount namespaces: podman serves the image of
docs/guide/container/Dockerfile, finds it healthy, and stops it twice while a client holds a lock.

    tests/package/container.py    the image is `poolcounterd`, in the storage that CONTAINERS_STORAGE_CONF names
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PATIENCE_S = 60
ADDRESS = ("127.0.0.1", 7531)
# The kernel's control groups belong to the machine, and so does the limit of descriptors.
SETTINGS = """
[containers]
cgroups = "disabled"
default_ulimits = []
netns = "host"
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def main():
    prepare()

    def output_of(*words):
        return subprocess.run(["podman", *words], check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    output_of("run", "-d", "--replace", "--name", "served", "localhost/poolcounterd")
    eventually(lambda: "listening on" in output_of("logs", "served"), "it listens")
    # Fails if the image has no health check, or says that it is ill.
    output_of("healthcheck", "run", "served")
    holder = socket.create_connection(ADDRESS)
    expect(ask(holder, "ACQ4ME key 1 9 0") == "LOCKED", "the client has no lock")

    first = subprocess.Popen(["podman", "stop", "-t", "60", "served"])
    eventually(lambda: "draining" in output_of("logs", "served"), "a stop drains")
    second = subprocess.Popen(["podman", "stop", "-t", "60", "served"])
    # A second signal that toggled would let new clients in.
    for _ in range(20):
        expect(is_refused(), "a new client is served during the stop")
        expect(ask(holder, "STATS processing_workers") == "processing_workers: 1", "the holder has lost its lock")
        time.sleep(0.1)
    expect(first.poll() is None and second.poll() is None, "a stop did not wait for the holder")
    expect(ask(holder, "RELEASE") == "RELEASED", "the holder can't release its lock")
    holder.close()
    expect(first.wait(PATIENCE_S) == second.wait(PATIENCE_S) == 0, "a stop failed")
    status = output_of("inspect", "--format", "{{.State.ExitCode}}", "served").strip()
    expect(status == "75", f"the container ended with status {status}: {output_of('logs', 'served')}")
    output_of("rm", "served")


def prepare():
    settings = Path("/run/containers.conf")
    for command in [["mount", "--make-rprivate", "/"], ["mount", "-t", "tmpfs", "tmpfs", "/run"],
                    ["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"], ["ip", "link", "set", "lo", "up"]]:
        subprocess.run(command, check=True)
    settings.write_text(SETTINGS)
    os.environ["CONTAINERS_CONF"] = str(settings)


def ask(client, line):
    client.sendall(line.encode() + b"\n")
    client.settimeout(PATIENCE_S)
    return client.makefile().readline().strip()


def is_refused():
    try:
        socket.create_connection(ADDRESS).close()
    except ConnectionRefusedError:
        return True
    return False


def eventually(condition, what):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        expect(time.monotonic() < deadline, f"not yet after {PATIENCE_S} s: {what}")
        time.sleep(0.05)


def expect(condition, failure):
    if not condition:
        sys.exit(failure)


main()
