"""An operator lowers the limit of a slow backend for some time, as the runbook says ("One page,
client or backend uses all workers"), while readers wait: the slots that are free when that is
over belong to those that wait, oldest first, and not to newcomers.

The backend is a render that ends when the round says so. Its key and its limits are the
wiki's own. Nothing depends on time: a wait that gets its slot ends long before the pool's
timeout, and one that does not lasts until then.
"""

import contextlib
import dataclasses
import fnmatch
import json
import re
import time

from crowd import Crowd
from daemons import POOLCOUNTER, Daemon
from roots import PATIENCE_S, eventually, expect
from rounds import message_in
from rules import API, ARTICLE, CONTROL
from wiki import PAGE

WORKERS = 5  # what the wiki allows
LOWERED = 1  # what the operator allows for some time
WAITERS = 7  # more than get a slot when that is over
NEWCOMERS = 2  # fewer than there are slots, so that some stay free if waiters get none
PROCESSES = WORKERS + WAITERS + NEWCOMERS + 1
TIMEOUT_S = 60
POOL = {"class": "PoolCounter_Client", "timeout": TIMEOUT_S, "workers": WORKERS, "maxqueue": 100}
RULE = "rule set search --for 30m"
OWN, SHARED = "its own work", "the work of another"


@dataclasses.dataclass
class Visit:
    """A reader's request, by itself, since each has to come after the one before it."""

    crowd: Crowd
    came: float  # this and all other times are of the monotonic clock

    @property
    def answer(self):
        return self.crowd.readers[0]

    @property
    def is_answered(self):
        return self.crowd.answered() == 1

    @property
    def left(self):
        return self.came + self.answer.seconds


class Backend:
    """`with Backend(wiki, daemon, path, pattern) as backend:`. Readers of the path ask the
    daemon for one key, and their work ends only when they are let go."""

    def __init__(self, wiki, daemon, path, pattern):
        self._wiki = wiki
        self._daemon = daemon
        self._path = path
        self.pattern = pattern
        self._crowds = contextlib.ExitStack()
        self._hold = contextlib.ExitStack()
        self._before = {what: len(wiki.renders(what)) for what in ["began", "ended"]}
        self.visits = {}  # by the reader's number

    def __enter__(self):
        self._hold.enter_context(self._wiki.held())
        return self

    def __exit__(self, *why):
        self._hold.close()
        return self._crowds.__exit__(*why)

    def come(self, count):
        """That many readers come, one after the other; returns their numbers."""
        numbers = list(range(len(self.visits) + 1, len(self.visits) + 1 + count))
        present = sum(self.at_the_daemon())
        for number in numbers:
            crowd = Crowd(self._wiki, f"{self._path}&reader={number}", 1)
            self.visits[number] = Visit(crowd, time.monotonic())
            self._crowds.enter_context(crowd)
            present += 1
            self.settle(present)
        return numbers

    def at_the_daemon(self):
        """How many hold the lock, and how many wait."""
        counters = self._daemon.counters()
        return counters["processing_workers"], counters["waiting_workers"]

    def settle(self, present):
        """Waits until so many hold or wait, and all that hold work."""
        def settled():
            holders, waiters = self.at_the_daemon()
            return holders + waiters == present and len(self.at_work()) == holders
        self.until(f"{present} are at the daemon", settled)

    def until(self, what, condition, seconds=PATIENCE_S):
        def checked():
            for visit in self.visits.values():
                visit.crowd.check()
            return condition()
        eventually(what, checked, seconds)

    def began(self):
        """When each reader's work began."""
        return self._since("began")

    def at_work(self):
        return self.began().keys() - self._since("ended").keys()

    def _since(self, what):
        return self._wiki.renders_of_readers(what, self._before[what])

    def let_go(self, count):
        """The first of those that came get their work done."""
        self._wiki.end_renders_until(self._before["began"] + count)
        self.settle(len(self.visits) - count)

    def let_all_go(self):
        self._hold.close()
        for number, visit in self.visits.items():
            expect(visit.crowd.wait(PATIENCE_S), f"reader {number} is not answered")

    def key(self):
        """As the wiki sends it."""
        row, = json.loads(self._wiki.run(f"{POOLCOUNTER} -s {self._daemon.address} keys --json"))["keys"]
        return row["key"]

    def waited(self, number):
        """From when to when a reader waited for work, its own or another's."""
        visit = self.visits[number]
        return visit.came, self.began().get(number, visit.left)

    def got(self, number):
        answer = self.visits[number].answer
        render = re.search(rb"render (\d+) of this page", answer.body)
        code = re.search(rb'"code":"([a-z-]+)"', answer.body)
        if not render:
            return f"the error {code[1].decode()}" if code else message_in(answer.body)
        if number in self.began():
            return OWN
        return SHARED if int(render[1]) > self._before["began"] else "the stale copy"

    def order(self, words):
        """Gives an order to the daemon."""
        self._wiki.run(f"{POOLCOUNTER} {words} --control-socket {CONTROL}")

    def lower(self, setting):
        self.order(f"{RULE} '{self.pattern}' {setting} maxqueue=40")

    def rules(self):
        return self._wiki.run(f"{POOLCOUNTER} rules --control-socket {CONTROL}")


# --- how it is over

def reset(backend):
    backend.order("rule reset search")


def for_ends(backend):
    """Gives the order again for a second, which is part of the times after it."""
    backend.order(f"rule set search --for 1s '{backend.pattern}' workers={LOWERED} maxqueue=40")
    eventually("the rule has ended", lambda: backend.pattern not in backend.rules())


def more_workers(backend):
    backend.lower(f"workers={WORKERS}")


def higher_total(backend):
    backend.lower("total=100")


# --- what readers get

def judge(backend, waiters, is_over, good):
    """Readers wait below a lowered limit. It is over: as many of them as the wiki allows get
    to work, the oldest, although newcomers come. Then all get something good. Returns a
    table of who waited how long."""
    expect(backend.at_the_daemon() == (LOWERED, len(waiters)), f"{backend.at_the_daemon()} hold and wait")
    key = backend.key()
    expect(fnmatch.fnmatchcase(key, backend.pattern), f"the wiki's key is {key}")
    entitled = set(waiters[:WORKERS - LOWERED])
    before = backend.began().keys()
    start = time.monotonic()
    is_over(backend)
    backend.come(NEWCOMERS)

    def decided():
        served = backend.began().keys()
        return entitled <= served or all(number in served or backend.visits[number].is_answered for number in waiters)

    # Renders begin in any order after slots that are given at once, so who began is what counts.
    backend.until("those that wait get slots, or give up", decided, TIMEOUT_S + PATIENCE_S)
    served = backend.began().keys() - before
    backend.let_all_go()
    table = in_lines(backend, key, start, waiters)
    expect(served == entitled,
           f"the free slots went to the readers {in_words(served)} instead of {in_words(entitled)}{table}")
    expect({backend.got(number) for number in backend.visits} <= good, f"some readers got nothing good{table}")
    return table


def in_words(numbers):
    return ", ".join(map(str, sorted(numbers))) or "none"


def in_lines(backend, key, start, waiters):
    lines = [f": {key}", "reader  waited  of this after the order  got"]
    for number in backend.visits:
        came, end = backend.waited(number)
        after = f"{end - start:.2f} s" if number in waiters else "-"
        lines.append(f"{number:6} {end - came:5.2f} s {after:>24}  {backend.got(number)}")
    return "\n         ".join(lines)


@contextlib.contextmanager
def backend_of(wiki, pool, path, pattern, old_copy=False):
    with Daemon(wiki, "ours", ["--control", CONTROL]) as daemon:
        wiki.configure({pool: POOL}, [daemon.address], 0.0)
        wiki.serve(PROCESSES)
        expect(wiki.get(ARTICLE).status == 200, "the wiki does not work")
        if old_copy:
            expect(wiki.get(path).status == 200, "the wiki does not work")
            wiki.expire()
        with Backend(wiki, daemon, path, pattern) as backend:
            yield backend


def of_one_key(wiki, setting, is_over):
    """As searches do, the requests that one client sends to the API have one key, and none
    can use the work of another: both pass `doWork` without `doCachedWork` (doPoolCounterWork
    in includes/Util.php of CirrusSearch, ApiParse.php of MediaWiki 1.43). The limit is
    lowered while all slots are taken; when it is over, only one still is."""
    with backend_of(wiki, "ApiParser", API, "*:ApiParse:*") as backend:
        readers = backend.come(WORKERS + WAITERS)
        backend.lower(setting)
        backend.let_go(WORKERS - LOWERED)
        return judge(backend, readers[WORKERS:], is_over, {OWN})


def a_reset_gives_slots_to_those_that_wait(wiki):
    return of_one_key(wiki, f"workers={LOWERED}", reset)


def the_end_of_for_gives_slots_to_those_that_wait(wiki):
    return of_one_key(wiki, f"workers={LOWERED}", for_ends)


def more_workers_give_slots_to_those_that_wait(wiki):
    return of_one_key(wiki, f"workers={LOWERED}", more_workers)


def a_higher_total_gives_slots_to_those_that_wait(wiki):
    return of_one_key(wiki, f"total={LOWERED}", higher_total)


def a_reset_gives_slots_to_readers_of_an_article(wiki):
    """Who waits for an article can use the work of another, so the limit is lowered before
    they come: the first work that is done ends all waits."""
    with backend_of(wiki, "ArticleView", PAGE, "*:pcache:*", old_copy=True) as backend:
        backend.lower(f"workers={LOWERED}")
        readers = backend.come(LOWERED + WAITERS)
        return judge(backend, readers[LOWERED:], reset, {OWN, SHARED})


FACTS = [
    a_reset_gives_slots_to_those_that_wait, the_end_of_for_gives_slots_to_those_that_wait,
    more_workers_give_slots_to_those_that_wait, a_higher_total_gives_slots_to_those_that_wait,
    a_reset_gives_slots_to_readers_of_an_article,
]
NOT_IN_THE_GATE = [
    # For MediaWiki it is the same as a reset: only the daemon knows the difference.
    the_end_of_for_gives_slots_to_those_that_wait, more_workers_give_slots_to_those_that_wait,
    a_higher_total_gives_slots_to_those_that_wait,
]
