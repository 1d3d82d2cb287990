"""What the tests of both architectures share."""

import shlex
import subprocess
from pathlib import Path

from roots import BUILD_PATIENCE_S, expect

REPOSITORY = Path(__file__).resolve().parents[2]
DIRECTORY = REPOSITORY / "target/architectures"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"


def run(log, command, **options):
    """Runs a command, its output into the log."""
    log.write(f"+ {shlex.join(map(str, command))}\n")
    log.flush()
    options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, **options}
    done = subprocess.run(command, timeout=BUILD_PATIENCE_S, **options)
    expect(done.returncode == 0, f"{command[0]} ended with status {done.returncode}")
    return done


def in_root(log, root, command, **variables):
    """Runs a shell command in /build/sources of a root, with a network of its own, where only loopback is."""
    environment = {"PATH": PATH, "HOME": "/root", "LC_ALL": "C.UTF-8", **variables}
    enter = f"""
        mount --make-rprivate /
        mount -t proc proc {root}/proc
        mount --rbind /dev {root}/dev
        ip link set lo up
        exec env -i {" ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())} \
            chroot {root} bash -ec {shlex.quote(f"cd /build/sources; {command}")}
    """
    run(log, ["unshare", "--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-ec", enter])
