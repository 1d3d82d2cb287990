"""What happens to one of three daemons, and what clients notice."""

import contextlib
import dataclasses
import signal
import time

from clients import CLIENTS, TIMEOUT_S, Crowd, Load, overlaps
from roots import expect

KEEPALIVE_S, DEFAULT_KEEPALIVE_S = 2, 60
ROLLOUT_S = 3
PAUSE_S = 1
# Long holds on few keys: a drain takes a while, and many clients wait.
LONG_HOLDS = Load(keys=30, shortest_s=0.6, longest_s=1.0)
# Short holds on few keys: if two servers have the same keys, holds overlap.
SHORT_HOLDS = Load(keys=90, shortest_s=0.01, longest_s=0.04)
FEWEST_OVERLAPS = 50
ANSWERED = {"done", "timeout", "queue_full"}


@dataclasses.dataclass
class Row:
    """The result of one row."""

    title: str
    calls: list
    ended: float
    notes: list
    columns = ["what happens to one of three", "calls", "failed", "moved", "longest connect (ms)", "overlapping, until (s)"]

    @property
    def failed(self):
        """Calls without an answer of the protocol."""
        return [call for call in self.calls if call.outcome not in ANSWERED]

    @property
    def moved(self):
        return sum(call.moved for call in self.calls)

    @property
    def longest_connect_ms(self):
        return 1000 * max(call.connect_s for call in self.calls)

    @property
    def overlaps(self):
        return len(list(overlaps(self.calls)))

    @property
    def until_s(self):
        """When the last overlap was over, after the event; None if there was none."""
        return max((end - self.ended for end in overlaps(self.calls)), default=None)

    @property
    def overlapping(self):
        return f"{self.overlaps}, {self.until_s:.1f}" if self.overlaps else "0"

    def cells(self):
        return [self.title, len(self.calls), len(self.failed), self.moved, f"{self.longest_connect_ms:.0f}",
                self.overlapping]

    def demand(self, condition, what):
        expect(condition, f"expected {what}\n       | {' | '.join(map(str, self.cells()))} |")

    def demand_none_failed(self):
        self.demand(not self.failed, "0 failed")

    def demand_no_overlap_after(self, seconds):
        self.demand((self.until_s or 0) <= seconds, f"no overlap later than {seconds:.1f} s after its end")


@dataclasses.dataclass
class Remark:
    """A result that is in no table."""

    title: str
    notes: list
    columns = None


class Scene:
    """Daemons that have just started, and a crowd at work."""

    def __init__(self, cluster, crowd, daemons):
        self.cluster, self.crowd, self.daemons = cluster, crowd, daemons
        self.daemon = daemons[0]
        self.ended = None
        self.notes = []

    def mark_end(self):
        self.ended = time.monotonic()

    def note(self, text):
        self.notes.append(text)


@contextlib.contextmanager
def scene(cluster, load=Load(), options=(), started=3, listed=3):
    """Ends with the daemons killed and each call ended."""
    daemons = cluster.daemons
    with contextlib.ExitStack() as stack:
        for daemon in daemons:
            stack.callback(daemon.kill)
        for daemon in daemons[3 - started:]:
            daemon.start(*options)
        lists = [[daemon.address for daemon in daemons[3 - listed:]] for _ in cluster.clients]
        with Crowd(cluster.clients, lists, load) as crowd:
            crowd.wait_for_calls()
            yield Scene(cluster, crowd, daemons)


def row_of(title, scene):
    return Row(title, scene.crowd.calls, scene.ended, scene.notes)


def hot_restarts(cluster):
    with scene(cluster) as it:
        for _ in range(5):
            it.daemon.hot_restart()
            it.crowd.wait_for_calls()
        it.mark_end()
    row = row_of("hot restart, five times", it)
    row.demand_none_failed()
    row.demand(not row.moved and not row.overlaps, "0 moved, 0 overlaps")
    yield row


def drain(it):
    it.daemon.drain()
    it.daemon.wait_until_drained()
    it.mark_end()


def drained(cluster):
    with scene(cluster, LONG_HOLDS) as it:
        drain(it)
        it.crowd.wait_for_calls()
    row = row_of("drain", it)
    row.demand_none_failed()
    row.demand_no_overlap_after(0)
    yield row


def drained_and_returned(cluster):
    longest_s = TIMEOUT_S + LONG_HOLDS.longest_s
    with scene(cluster, LONG_HOLDS) as it:
        drain(it)
        time.sleep(PAUSE_S)
        it.daemon.start()
        it.mark_end()
        time.sleep(longest_s + 1)
    row = row_of("drain, and return after 1 s", it)
    row.demand_none_failed()
    row.demand_no_overlap_after(longest_s)
    yield row


def killed(cluster):
    with scene(cluster) as it:
        lost = kill(it)
        it.crowd.wait_for_calls(6 * CLIENTS)
    yield judge_killed(row_of("kill -9", it), lost)


def killed_and_started(cluster):
    with scene(cluster) as it:
        lost = kill(it)
        time.sleep(PAUSE_S)
        it.daemon.start()
        it.mark_end()
        it.crowd.wait_for_calls(6 * CLIENTS)
    yield judge_killed(row_of("kill -9, and start after 1 s", it), lost)


def kill(it):
    """Returns the connections that were open. It is stopped first, so that nothing
    changes while they are counted."""
    with it.crowd.connecting.closed(), it.daemon.stopped():
        lost = it.crowd.open_connections(it.daemon)
        it.daemon.kill()
    it.mark_end()
    return lost


def judge_killed(row, lost):
    failed = {call.end for call in row.failed}
    row.demand(failed == lost,
               f"exactly the {len(lost)} calls that were open there to fail; others failed:"
               f" {failed - lost}, these did not: {lost - failed}")
    return row


def added(cluster):
    with scene(cluster, SHORT_HOLDS, started=2, listed=2) as it:
        roll_out(it, it.daemons)
        it.daemon.start()
        it.mark_end()
        it.crowd.wait_for_calls(6 * CLIENTS)
    right = row_of("added: in all lists over 3 s, then started", it)
    with scene(cluster, SHORT_HOLDS, listed=2) as it:
        roll_out(it, it.daemons)
        it.mark_end()
        it.crowd.wait_for_calls(6 * CLIENTS)
    yield from judge_orders(right, row_of("added: started, then in all lists over 3 s", it))


def removed(cluster):
    with scene(cluster, SHORT_HOLDS) as it:
        drain(it)
        roll_out(it, it.daemons[1:])
        it.mark_end()
    right = row_of("removed: drained, then from all lists over 3 s", it)
    with scene(cluster, SHORT_HOLDS) as it:
        roll_out(it, it.daemons[1:])
        it.mark_end()
        it.daemon.drain()
        it.daemon.wait_until_drained()
        it.crowd.wait_for_calls(6 * CLIENTS)
    yield from judge_orders(right, row_of("removed: from all lists over 3 s, then drained", it))


def roll_out(it, daemons):
    """Half of the clients get the new list three seconds before the others."""
    wanted = [daemon.address for daemon in daemons]
    it.crowd.lists[0] = wanted
    time.sleep(ROLLOUT_S)
    it.crowd.lists[1] = wanted
    it.crowd.wait_for_calls()


def judge_orders(right, wrong):
    for row in [right, wrong]:
        row.demand_none_failed()
    wrong.demand(wrong.overlaps >= FEWEST_OVERLAPS, f"a load under which the wrong order has {FEWEST_OVERLAPS} overlaps")
    right.demand(right.overlaps <= wrong.overlaps / 10,
                 f"at most a tenth of the {wrong.overlaps} overlaps of the wrong order")
    yield right
    yield wrong


def cut(cluster):
    with scene(cluster, options=["--keepalive", str(KEEPALIVE_S)]) as it:
        with cluster.network.cut(it.daemon.host):
            free_s = it.daemon.seconds_until_free()
        it.mark_end()
        it.note(f"its locks were free {free_s:.1f} s after the cut")
        it.crowd.wait_for_calls(6 * CLIENTS)
    row = row_of(f"link cut until its locks are free, `--keepalive {KEEPALIVE_S}`", it)
    row.demand(free_s <= 2 * KEEPALIVE_S,
               f"its locks to be free after {2 * KEEPALIVE_S} s; they were after {free_s:.1f} s")
    yield note_long_waits(row, it)


def cut_for_half(cluster):
    for keepalive_s in [KEEPALIVE_S, DEFAULT_KEEPALIVE_S]:
        with scene(cluster, options=["--keepalive", str(keepalive_s)]) as it:
            with cluster.network.apart(it.daemon.host, cluster.clients[0]):
                time.sleep(2)
            it.mark_end()
            it.crowd.wait_for_calls(6 * CLIENTS)
        yield note_long_waits(row_of(f"link cut for half of the clients for 2 s, `--keepalive {keepalive_s}`", it), it)


def stopped(cluster):
    for title, options in [("SIGSTOP for 3 s", []), ("SIGSTOP for 3 s, with `--backlog 4`", ["--backlog", "4"])]:
        with scene(cluster, options=options) as it:
            with it.daemon.stopped():
                time.sleep(3)
            it.mark_end()
            it.crowd.wait_for_calls(6 * CLIENTS)
        yield note_long_waits(row_of(title, it), it)


def note_long_waits(row, it):
    waits = [call for call in row.calls if call.connected and call.waited_s() > 1]
    longest = max((call.waited_s() for call in waits), default=0)
    there = sum(call.server == it.daemon.address for call in waits)
    row.notes.append(f"waits of more than 1 s: {there} there, {len(waits) - there} elsewhere, the longest {longest:.1f} s")
    return row


ROWS = [hot_restarts, drained, drained_and_returned, killed, killed_and_started, added, removed, cut, cut_for_half, stopped]
