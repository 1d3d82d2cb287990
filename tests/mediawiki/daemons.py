"""The lock daemons that MediaWiki asks: Debian's and ours, on the wiki's host."""

import itertools
import os
import re
import shutil
import signal
from pathlib import Path

from host import child_of
from roots import PATIENCE_S, eventually, expect

PORT = 7531
OURS = "/srv/bin/poolcounterd"
POOLCOUNTER = "/srv/bin/poolcounter"
PROGRAMS = {"Debian's": "/usr/bin/poolcounterd", "ours": OURS}
# What must be the same with both. The others are sums of time.
COUNTERS = ["total_acquired", "total_releases", "hashtable_entries", "processing_workers", "waiting_workers",
            "connect_errors", "failed_sends", "full_queues", "lock_mismatch", "lock_while_waiting", "release_mismatch",
            "processed_count"]


def install_ours(wiki, binaries):
    """The daemon and, for the tests, the command `poolcounter`, of one directory."""
    for path in [OURS, POOLCOUNTER]:
        target = Path(f"{wiki.root}{path}")
        target.parent.mkdir(exist_ok=True)
        if (binaries / target.name).exists():
            shutil.copy(binaries / target.name, target)


class Daemon:
    """`with Daemon(wiki, "ours") as daemon:`."""

    # Each has an address of its own: for a minute after its end, Debian's can't listen
    # again where connections linger.
    _numbers = itertools.count(1)

    def __init__(self, wiki, kind, options=()):
        self.wiki = wiki
        self.kind = kind
        self.address = f"127.0.1.{next(self._numbers)}"
        self._command = [PROGRAMS[kind], "-l", self.address, *options]
        self.log_path = f"/srv/log/{self.address}.log"

    def __enter__(self):
        self.start()
        return self

    def start(self):
        with open(f"{self.wiki.root}{self.log_path}", "w") as log:
            self._process = self.wiki.start(self._command, stderr=log)
        eventually(f"{self.kind} daemon listens", lambda: self.wiki.listens(self.address, PORT))

    def signal(self, number):
        os.kill(child_of(self._process), number)

    def stop(self):
        self.signal(signal.SIGTERM)
        self._process.wait(PATIENCE_S)

    def wait(self):
        """Its exit status."""
        return self._process.wait(PATIENCE_S)

    def __exit__(self, *_):
        # By name: at SIGUSR1 Debian's leaves a child with another process id.
        self.wiki.run(f"pkill -KILL -f '^{' '.join(self._command)}$'", check=False)
        self._process.wait(PATIENCE_S)

    def log(self):
        return self.wiki.read(self.log_path)

    def each(self):
        return [self]

    def counters(self):
        stats = self._stats()
        return {name: int(stats[name]) for name in COUNTERS}

    def gained(self):
        """The time that clients have gained by waiting, such as "2m 36.916046s"."""
        return self._stats()["gained time"]

    def _stats(self):
        with self.wiki.client(self.address, PORT) as client:
            return client.stats_full()

    def hot_restart(self):
        """Sends SIGUSR1 to ours and waits until it logs that it has continued; returns its
        pause. Fails at once if it is refused or the daemon ends."""
        read = len(self.log())

        def continued():
            news = self.log()[read:]
            expect("hot restart refused" not in news, f"the hot restart failed: {news.strip()}")
            expect(self._process.poll() is None, f"the daemon ended at the hot restart: {news.strip()}")
            return re.search(r" continued after (a pause of \d+ µs with \d+ connections)", news)

        self.signal(signal.SIGUSR1)
        return eventually("it has continued", continued)[1]
