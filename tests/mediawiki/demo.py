#!/usr/bin/python3
"""make demo: what the daemon is for, to watch. A MediaWiki in a Debian root of its own,
60 readers of an expired page, first without the daemon, then with it, then with hot
restarts while they wait.

Builds the daemon first. Leaves only that build and the compressed root, in a cache, and
prints where they are.
"""

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPOSITORY / "tests/support"))
sys.dont_write_bytecode = True  # files of root in the sources

import rounds
from daemons import install_ours
from host import end_in_order, ignore_endings
from roots import Failure, expect, expect_space, make_root, recipe_of
from screen import Bars, Progress, put
from wiki import PEAK_MB, ROOT_MB, ROOT_PACKAGES, SUITE, Wiki

BUILD = REPOSITORY / "target"
BINARIES = BUILD / "release"
BUILD_MB = 160
# Independent of the make that has started this.
MAKE = ["env", "-u", "MAKEFLAGS", "-u", "MAKELEVEL", "make", "--no-print-directory", "-C", str(REPOSITORY)]
PROGRAM = "target/release/poolcounterd"
TOOLS = {"mmdebstrap": "mmdebstrap", "zstd": "zstd", "ip": "iproute2", "unshare": "util-linux"}
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "poolcounterd"
COMPRESSED_MB = 200
# Not in /tmp, which may be in memory. The process id follows.
DIRECTORIES = "/var/tmp/poolcounterd-demo-"


def check_needs(cached, directory):
    expect(shutil.which("apt-get"), "this makes a Debian root, from this machine's own sources: it needs Debian")
    missing = sorted(package for tool, package in TOOLS.items() if not shutil.which(tool))
    expect(not missing, f"something is missing: apt install {' '.join(missing)}")
    expect(os.geteuid() == 0, "this makes a Debian root and network namespaces, which needs root:\nsudo make demo")
    root = {directory: ROOT_MB} if cached.exists() else {directory: PEAK_MB, CACHE: COMPRESSED_MB}
    expect_space({**root, BUILD: 0 if is_built() else BUILD_MB})


def is_built():
    """Whether the daemon is there, and as the sources are now."""
    return subprocess.run([*MAKE, "-q", PROGRAM], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def build():
    if is_built():
        return
    with Progress("building the daemon", BINARIES, BUILD_MB):
        run([*MAKE, PROGRAM])


def remove_leftovers():
    """Removes the directories of killed demos."""
    for left in Path("/").glob(f"{DIRECTORIES[1:]}*"):
        if not Path("/proc", left.name.rpartition("-")[2]).exists():
            shutil.rmtree(left, ignore_errors=True)


# --- the root

def cached_root():
    """Where the root is kept: its name has a hash of the recipe, so that a root made by
    another recipe is not used."""
    recipe = recipe_of(SUITE, ROOT_PACKAGES) + platform.machine()
    return CACHE / f"mediawiki-{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}.tar.zst"


def announce(cached, directory):
    if not is_built():
        put(f"This builds the daemon: some minutes, and {BUILD_MB} MB, which stay until\n"
            f"`make clean`:\n{BUILD}\n"
            "Cargo keeps what it downloads for that:\n"
            f"{os.environ.get('CARGO_HOME') or Path.home() / '.cargo'}\n")
    if cached.exists():
        made = time.strftime("%d %B %Y", time.localtime(cached.stat().st_mtime))
        put(f"MediaWiki comes from a cache of {made}, and needs {ROOT_MB} MB in\n"
            f"{directory.parent} while this runs. The cache:\n{cached}\n")
    else:
        put("The first time this makes a Debian system with MediaWiki: some minutes,\n"
            f"up to {PEAK_MB} MB in {directory.parent} while it runs, and some 150 MB from\n"
            f"Debian's archive. {COMPRESSED_MB} MB stay for the next time:\n{cached}\n")


def provide_root(directory, cached, log):
    """Unpacks the root, or makes it and keeps it compressed."""
    root = directory / SUITE
    if cached.exists() and unpack(cached, root):
        return root
    with Progress("making a Debian root with MediaWiki", root, PEAK_MB):
        make_root(root, SUITE, ROOT_PACKAGES, log=log)
    for older in cached.parent.glob(f"mediawiki-*{''.join(cached.suffixes)}"):
        older.unlink()
    partial = cached.with_suffix(".partial")
    try:
        with Progress("compressing it for the next time", partial, COMPRESSED_MB):
            run(["tar", "-C", directory, "-I", "zstd -T0", "-cf", partial, root.name])
        partial.rename(cached)
    finally:
        partial.unlink(missing_ok=True)
    return root


def unpack(cached, root):
    """Returns whether it succeeds; the cached root may be damaged."""
    try:
        with Progress("unpacking MediaWiki", root, ROOT_MB):
            run(["tar", "-C", root.parent, "--zstd", "-xf", cached])
        return True
    except Failure:
        shutil.rmtree(root, ignore_errors=True)
        if subprocess.run(["zstd", "-tq", cached], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0:
            raise
        put("The cache is damaged: it is made again.\n")
        return False


def run(command):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    expect(done.returncode == 0, f"{command[0]} failed: {done.stderr[-500:]}")


# --- the readers

class Background:
    """An action that runs while the readers wait. Its errors are raised here."""

    def __init__(self, action):
        self._why_it_failed = None
        self._action = action
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self._action()
        except Exception as e:  # noqa: BLE001
            self._why_it_failed = e

    def check(self):
        if self._why_it_failed:
            raise self._why_it_failed

    def finish(self):
        self._thread.join()
        self.check()


class Act:
    """One act of the demo: readers come, and bars show them."""

    def __init__(self, wiki, title, scale_s):
        self.wiki = wiki
        self.stage = rounds.Stage(wiki, "ours")
        self.title = title
        self.scale_s = scale_s

    def play(self, servers=(), meanwhile=lambda bars: None):
        """`meanwhile` is called with the bars when the readers have come, and may show
        something; no render ends before it returns."""
        with Progress("an expired page, and 60 idle web server processes"):
            self.stage.prepare(servers=servers)
        with contextlib.ExitStack() as held:
            held.enter_context(self.wiki.held())
            with self.stage.crowd() as crowd:
                bars = Bars(self.title, crowd, self.stage, self.scale_s)

                def act():
                    with held:
                        meanwhile(bars)

                background = Background(act)
                bars.watch(background.check)
                background.finish()
        self.outcome = self.stage.outcome(crowd)
        return self

    def in_one_line(self, words):
        outcome = self.outcome
        failed = sum(count for what, count in outcome.answers.items() if what not in ["the page", "the stale copy"])
        return (f"{words:23} {outcome.in_words():>10}  median {outcome.median_s:5.1f} s  slowest {outcome.slowest_s:5.1f} s"
                f"  {failed:2} failed\n")


def hot_restarts(stage, daemon, bars):
    stage.wait_for_waiters(daemon, rounds.READERS - 1)
    for number in range(1, rounds.HOT_RESTARTS + 1):
        rounds.expect_one_renders(daemon, rounds.READERS - 1)
        bars.show(f"hot restart {number}: {daemon.hot_restart()}")
    rounds.expect_one_renders(daemon, rounds.READERS - 1)


def show(root, log):
    with Wiki(root, log) as wiki:
        install_ours(wiki, BINARIES)
        without = Act(wiki, "Without the daemon: everybody renders", rounds.READERS / os.cpu_count()).play()
        scale_s = without.outcome.slowest_s
        with without.stage.daemon() as daemon:
            with_it = Act(wiki, "With it: one renders, the others wait for the result", scale_s).play([daemon])
        with without.stage.daemon() as daemon:
            restarted = Act(wiki, f"With it, and {rounds.HOT_RESTARTS} hot restarts while they wait", scale_s)
            restarted.play([daemon], lambda bars: hot_restarts(restarted.stage, daemon, bars))
    put("\n" + without.in_one_line("without the daemon") + with_it.in_one_line("with it")
        + restarted.in_one_line(f"with it, {rounds.HOT_RESTARTS} hot restarts"))
    for round, act in [(rounds.no_daemon, without), (rounds.wait, with_it), (rounds.hot_restarts, restarted)]:
        rounds.check(round, act.outcome)


# --- the beginning and the end

def main():
    if sys.argv[1:]:
        print("usage: tests/mediawiki/demo.py", file=sys.stderr)
        return 2
    cached = cached_root()
    directory = Path(f"{DIRECTORIES}{os.getpid()}")
    log_path = CACHE / "demo.log"
    failed = False
    end_in_order()
    try:
        remove_leftovers()
        check_needs(cached, directory)
        announce(cached, directory)
        build()
        directory.mkdir()
        CACHE.mkdir(parents=True, exist_ok=True)
        log_path.unlink(missing_ok=True)
        root = provide_root(directory, cached, log_path)
        with log_path.open("w", encoding="utf-8") as log:
            show(root, log)
    except (Failure, OSError, subprocess.SubprocessError) as e:
        failed = True
        for line in f"\nmake demo: {e}".splitlines():
            # Paths are not broken, so that they can be copied.
            print(textwrap.fill(line, 80, break_long_words=False, break_on_hyphens=False), file=sys.stderr)
        if directory.exists() and log_path.exists():
            print(f"The log: {log_path}", file=sys.stderr)
        return 1
    finally:
        ignore_endings()
        if directory.exists():
            with Progress("removing the root"):
                remove(directory)
            if not failed:
                log_path.unlink(missing_ok=True)
    put(f"\nWhat is left: the cache ({cached.stat().st_size >> 20} MB):\n{cached}\n"
        f"and the build, until `make clean`:\n{BUILD}\n")
    return 0


def remove(directory):
    """Retries: the last processes of a host are ending, and one may still write."""
    for _ in range(100):
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            return
        time.sleep(0.1)
    print(f"can't remove {directory}", file=sys.stderr)


sys.exit(main())
