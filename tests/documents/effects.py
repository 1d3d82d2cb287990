"""What the orders on the operators' pages change, for clients with real keys: who gets the lock,
who waits, who is refused and who loses a lock, without the order and with it. `run` compares
what the orders print.
"""

import dataclasses
import re
import subprocess
import tempfile
import time
from pathlib import Path

from roots import Failure, expect
from world import HTTP_PORT, PATIENCE_S, World, environment

REPOSITORY = Path(__file__).resolve().parents[2]

# Each with its pool's limits (docs/guide/mediawiki.md, "What others set").
PAGE = "ACQ4ANY enwiki:pcache:idhash:2-0!canonical:revid:7 2 100 15"
OTHER_PAGE = "ACQ4ANY enwiki:pcache:idhash:15580374-0!canonical:revid:1251735342 2 100 15"
GERMAN_PAGE = "ACQ4ANY dewiki:pcache:idhash:9-0!canonical:revid:41 2 100 15"
SEARCH = "ACQ4ME CirrusSearch-Search:_elasticsearch 200 200 15"
COMPLETION = "ACQ4ME CirrusSearch-Completion:_elasticsearch 432 450 15"
# Limits that are far too high: that is when an operator steps in.
API = "ACQ4ME enwiki:ApiParse:a:198.51.100.7 50 100 15"
API_OF_ANOTHER = "ACQ4ME enwiki:ApiParse:u:4242 50 100 15"
GERMAN_API = "ACQ4ME dewiki:ApiParse:u:4242 150 200 15"


@dataclasses.dataclass
class Limits:
    """An order that changes what new requests get: of each line how many clients send it, and
    how many of them get the lock, wait and are refused, without the order and with it."""

    requests: list
    rules: str = ""
    earlier: tuple = ()  # orders that are given before

    def check(self, order, directory):
        self._check_requests(self.earlier, 2, directory)
        self._check_requests((*self.earlier, order), 3, directory)

    def _check_requests(self, orders, column, directory):
        with World(directory, {"rules": self.rules}) as world:
            for order in orders:
                give(order, directory)
            for request in self.requests:
                line, count, expected = request[0], request[1], request[column]
                answers = [world.send(line)[1] for _ in range(count)]
                seen = tuple(answers.count(answer) for answer in ("LOCKED", None, "QUEUE_FULL"))
                expect(seen == expected, f"after {orders}, {seen} clients with `{line}` hold, wait and are refused, not {expected}")


@dataclasses.dataclass
class Handover:
    """An order that takes each lock of these keys from its holder, and gives it to a waiter.
    Other locks stay."""

    lose: list
    keep: list
    address: str = "127.0.0.1"  # of those that lose
    instead: dict = dataclasses.field(default_factory=dict)  # a time of the example

    def check(self, order, directory):
        with World(directory, {}) as world:
            losers = [hold(world, key, self.address) for key in self.lose]
            keepers = [hold(world, key) for key in self.keep]
            waiters = [world.send(REQUEST.format(key)) for key in self.lose]
            expect(all(answer is None for _, answer in waiters), f"{order}: a client does not wait")
            instead = {"--client 17": f"--client {number_of_holder(PAGE_KEY, directory)}"} if "--client" in order else self.instead
            give(replaced(order, instead), directory)
            expect([last_word(it) for it in losers] == [""] * len(losers), f"{order}: a connection stays open")
            answers = [last_word(waiter) for waiter, _ in waiters]
            expect(answers == ["LOCKED"] * len(waiters), f"{order}: the waiters get {answers}")
            held = world.statistic("processing_workers")
            expect(held == f"processing_workers: {len(waiters) + len(keepers)}\n", f"{order}: afterwards {held}")


# One client at a time.
REQUEST = "ACQ4ME {} 1 100 60"
PAGE_KEY, OTHER_KEY, GERMAN_KEY = (line.split()[1] for line in (PAGE, OTHER_PAGE, GERMAN_PAGE))


def hold(world, key, address="127.0.0.1"):
    client, answer = world.send(REQUEST.format(key), address=address)
    expect(answer == "LOCKED", f"a request for {key} is answered by {answer}")
    return client


def last_word(client):
    client.settimeout(PATIENCE_S)
    return client.recv(100).decode().strip()


def replaced(order, instead):
    for shown, used in instead.items():
        expect(shown in order, f"{order} lacks {shown}")
        order = order.replace(shown, used)
    return order


def number_of_holder(key, directory):
    return re.search(r" #(\d+) ", command(f"poolcounter key '{key}'", directory))[1]


def give(order, directory):
    answer = command(f"poolcounter {order}", directory)
    expect(re.match(r"OK|rules", answer), f"poolcounter {order} is answered by {answer}")


def command(line, directory):
    done = subprocess.run(["bash", "-c", line], env=environment(directory), timeout=PATIENCE_S, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.stdout


@dataclasses.dataclass
class StuckAfter:
    """An order that says when the alert counts a lock as stuck."""

    key: str
    rules: str  # without the order, the lock is stuck after a second
    before: int
    after: int
    instead: dict = dataclasses.field(default_factory=dict)  # a time of the example

    def check(self, order, directory):
        with World(directory, {"rules": self.rules}) as world:
            hold(world, self.key)
            wait_for_stuck(self.before, directory)
            give(replaced(order, self.instead), directory)
            wait_for_stuck(self.after, directory)


def wait_for_stuck(expected, directory):
    """Keys that the alert PoolCounterStuckHolder sees."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        metrics = command(f"curl -s http://127.0.0.1:{HTTP_PORT}/metrics", directory)
        stuck = sum(int(n) for n in re.findall(r"^poolcounter_group_stuck_keys\{.*\} (\d+)$", metrics, re.M))
        if stuck == expected:
            return
        expect(time.monotonic() < deadline, f"{stuck} keys are stuck, not {expected}")
        time.sleep(0.05)


def request_of(user):
    return API_OF_ANOTHER.replace("4242", str(user))


EFFECTS = {
    "rule set search --for 30m 'CirrusSearch-Search:*' workers=20 maxqueue=40": Limits([
        (SEARCH, 50, (50, 0, 0), (20, 20, 10)),
        (COMPLETION, 50, (50, 0, 0), (50, 0, 0)),
    ]),
    "rule set search --for 2h 'CirrusSearch-Search:*' workers=2 maxqueue=20": Limits(
        [(SEARCH, 25, (2, 1, 22), (2, 18, 5))],
        rules="search CirrusSearch-Search:* workers=2 maxqueue=3",
    ),
    "rule set flood --for 30m 'enwiki:ApiParse:a:198.51.100.7' maxqueue=2": Limits([
        (API, 10, (10, 0, 0), (2, 0, 8)),
        (API_OF_ANOTHER, 10, (10, 0, 0), (10, 0, 0)),
    ]),
    "rule set flood --for 30m '*:ApiParse:*' maxqueue=4": Limits([
        (API, 10, (10, 0, 0), (4, 0, 6)),
        (API_OF_ANOTHER, 10, (10, 0, 0), (4, 0, 6)),
        (PAGE, 10, (2, 8, 0), (2, 8, 0)),
    ]),
    "rule set api --for 30m 'enwiki:ApiParse:*' total=10 maxqueue=1": Limits([
        *((request_of(user), 2, (2, 0, 0), (1, 0, 1) if user < 10 else (0, 0, 2)) for user in range(12)),
        (GERMAN_API, 10, (10, 0, 0), (10, 0, 0)),
        (PAGE, 10, (2, 8, 0), (2, 8, 0)),
    ]),
    "rule set page --for 30m 'enwiki:*pcache:idhash:2-*' workers=1 maxqueue=5": Limits([
        (PAGE, 10, (2, 8, 0), (1, 4, 5)),
        (OTHER_PAGE, 10, (2, 8, 0), (2, 8, 0)),
    ]),
    "rule set dewiki --for 30m 'dewiki:*' total=100": Limits([
        (GERMAN_API, 110, (110, 0, 0), (100, 0, 10)),
        (GERMAN_PAGE, 1, (1, 0, 0), (0, 0, 1)),
        (PAGE, 10, (2, 8, 0), (2, 8, 0)),
    ]),
    "rule set dewiki --for 30m 'dewiki:*cache:*' deny": Limits([
        (GERMAN_PAGE, 2, (2, 0, 0), (0, 0, 2)),
        (GERMAN_API, 2, (2, 0, 0), (2, 0, 0)),
        (PAGE, 2, (2, 0, 0), (2, 0, 0)),
    ]),
    "rule reset dewiki": Limits(
        [(GERMAN_PAGE, 2, (0, 0, 2), (2, 0, 0))],
        earlier=("rule set dewiki --for 30m 'dewiki:*cache:*' deny",),
    ),
    f"free --key '{PAGE_KEY}'": Handover([PAGE_KEY], [OTHER_KEY]),
    "free --client 17": Handover([PAGE_KEY], [OTHER_KEY]),
    "free --host 10.1.2.3 --max 1000": Handover([request_of(user).split()[1] for user in range(25)], [PAGE_KEY], address="10.1.2.3"),
    "rule set slow --for 30m 'enwiki:*cache:*' max-hold=120": Handover([PAGE_KEY, OTHER_KEY], [GERMAN_KEY], instead={"=120": "=1"}),
    "free --key CirrusSearch-Search:_elasticsearch --dry-run": Handover([], ["CirrusSearch-Search:_elasticsearch"]),
    "rule set try --for 5m test stuck-after=20": StuckAfter("test", "", 0, 1, instead={"=20": "=1"}),
    "rule set dumps --for 12h 'job:dumps*' stuck-after=never": StuckAfter("job:dumps-enwiki", "jobs job:* stuck-after=1", 1, 0),
}


# Not those in a loop over hosts.
ORDER = re.compile(r"(?:^ *|[`$#] ?)poolcounter ((?:rule (?:set|off|reset)|free) [^`\n]*)", re.M)


def check_effects(documents, prepare):
    """Each order of these documents is in the table, and does what the table says."""
    orders = {order.strip(): document for document in documents for order in orders_in(document)}
    unknown = [f"{document}: {order}" for order, document in orders.items() if order not in EFFECTS]
    expect(not unknown, f"say in {__file__} what these change: {unknown}")
    failed = []
    for order in orders:
        with tempfile.TemporaryDirectory() as directory:
            try:
                prepare(Path(directory))
                EFFECTS[order].check(order, Path(directory))
            except Failure as e:
                failed.append(order)
                print(f"FAILED {orders[order]}: {order}: {e}\n", flush=True)
    print(f"{len(orders)} orders change what their pages promise; failed: {len(failed)}")
    return len(failed)


def orders_in(document):
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return ORDER.findall(text)
