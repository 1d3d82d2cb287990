"""What the orders on the operators' pages change, for clients with real keys: who gets the lock,
who waits, who is refused and who loses a lock, without the order and with it. `run` compares
what the orders print.
"""

import dataclasses
import functools
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from roots import Failure, expect
from world import HTTP_PORT, PATIENCE_S, SILENT_ADDRESS, UNREACHABLE_ADDRESS, World, environment

REPOSITORY = Path(__file__).resolve().parents[2]

# Each with its pool's limits (docs/guide/mediawiki.md, "What others set"), but a timeout that no machine is slow
# enough to reach.
PAGE = "ACQ4ANY enwiki:pcache:idhash:2-0!canonical:revid:7 2 100 3600"
OTHER_PAGE = "ACQ4ANY enwiki:pcache:idhash:15580374-0!canonical:revid:1251735342 2 100 3600"
GERMAN_PAGE = "ACQ4ANY dewiki:pcache:idhash:9-0!canonical:revid:41 2 100 3600"
SEARCH = "ACQ4ME CirrusSearch-Search:_elasticsearch 200 200 3600"
COMPLETION = "ACQ4ME CirrusSearch-Completion:_elasticsearch 432 450 3600"
# Limits that are far too high: that is when an operator steps in.
API = "ACQ4ME enwiki:ApiParse:a:198.51.100.7 50 100 3600"
API_OF_ANOTHER = "ACQ4ME enwiki:ApiParse:u:4242 50 100 3600"
GERMAN_API = "ACQ4ME dewiki:ApiParse:u:4242 150 200 3600"


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
PAGE_KEY, OTHER_KEY, GERMAN_KEY, SEARCH_KEY = (line.split()[1] for line in (PAGE, OTHER_PAGE, GERMAN_PAGE, SEARCH))
# What a file of rules may have for them.
SEARCH_RULE = "search CirrusSearch-Search:* workers=180 maxqueue=200"
PAGE_RULE = "articles *cache:* workers=1"


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
class ShorterWait:
    """An order that ends waits before the client's own timeout of a minute."""

    key: str
    instead: dict  # a time of the example

    def check(self, order, directory):
        with World(directory, {}) as world:
            hold(world, self.key)
            give(replaced(order, self.instead), directory)
            waiter, answer = world.send(REQUEST.format(self.key))
            answer = answer or last_word(waiter)
            expect(answer == "TIMEOUT", f"{order}: a wait ends with {answer!r}")


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
            wait_for_stuck(self.before)
            give(replaced(order, self.instead), directory)
            wait_for_stuck(self.after)


def wait_for_stuck(expected):
    """Keys that the alert PoolCounterStuckHolder sees."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with urllib.request.urlopen(f"http://127.0.0.1:{HTTP_PORT}/metrics") as answer:
            metrics = answer.read().decode()
        stuck = sum(int(n) for n in re.findall(r"^poolcounter_group_stuck_keys\{.*\} (\d+)$", metrics, re.M))
        if stuck == expected:
            return
        expect(time.monotonic() < deadline, f"{stuck} keys are stuck, not {expected}")
        time.sleep(0.05)


def request_of(user):
    return API_OF_ANOTHER.replace("4242", str(user))


def is_over(limit, line):
    """What ends this limit, which refuses all, for a pool with two workers at least."""
    return Limits([(line, 2, (0, 0, 2), (2, 0, 0))], earlier=(limit,))


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
    "rule set renders --for 30m 'dewiki:*cache:*' deny": Limits([
        (GERMAN_PAGE, 2, (2, 0, 0), (0, 0, 2)),
        (GERMAN_API, 2, (2, 0, 0), (2, 0, 0)),
        (PAGE, 2, (2, 0, 0), (2, 0, 0)),
    ]),
    "rule reset dewiki": is_over("rule set dewiki --for 30m 'dewiki:*cache:*' deny", GERMAN_PAGE),
    "rule reset flood": is_over("rule set flood --for 30m 'enwiki:ApiParse:a:198.51.100.7' deny", API),
    "rule reset slow": is_over("rule set slow --for 30m 'enwiki:*cache:*' deny", PAGE),
    "rule reset dumps": is_over("rule set dumps --for 12h 'job:dumps*' deny", "ACQ4ME job:dumps-enwiki 2 9 60"),
    "rule reset waits": is_over("rule set waits --for 30m 'CirrusSearch-Search:*' deny", SEARCH),
    "rule set search 'CirrusSearch-Search:*' workers=20 maxqueue=40": Limits(
        [(SEARCH, 50, (50, 0, 0), (20, 20, 10))],
        rules=SEARCH_RULE,
    ),
    "rule reset search": Limits(
        [(SEARCH, 50, (20, 20, 10), (50, 0, 0))],
        rules=SEARCH_RULE,
        earlier=("rule set search 'CirrusSearch-Search:*' workers=20 maxqueue=40",),
    ),
    "rule off articles": Limits([(PAGE, 2, (1, 1, 0), (2, 0, 0))], rules=PAGE_RULE),
    "rule reset articles": Limits([(PAGE, 2, (2, 0, 0), (1, 1, 0))], rules=PAGE_RULE, earlier=("rule off articles",)),
    "rule set waits --for 30m 'CirrusSearch-Search:*' timeout=5s": ShorterWait(SEARCH_KEY, instead={"=5s": "=1s"}),
    f"free --key '{PAGE_KEY}'": Handover([PAGE_KEY], [OTHER_KEY]),
    "free --client 17": Handover([PAGE_KEY], [OTHER_KEY]),
    "free --host 10.1.2.20 --max 1000": Handover([request_of(user).split()[1] for user in range(25)], [PAGE_KEY], address="10.1.2.20"),
    "rule set slow --for 30m 'enwiki:*cache:*' max-hold=2m": Handover([PAGE_KEY, OTHER_KEY], [GERMAN_KEY], instead={"=2m": "=1s"}),
    "free --key CirrusSearch-Search:_elasticsearch": Handover([SEARCH_KEY], [PAGE_KEY]),
    f"free --key '{PAGE_KEY}' --dry-run": Handover([], [PAGE_KEY]),
    "rule set try --for 5m test stuck-after=20s": StuckAfter("test", "", 0, 1, instead={"=20s": "=1s"}),
    "rule set dumps --for 12h 'job:dumps*' stuck-after=never": StuckAfter("job:dumps-enwiki", "jobs job:* stuck-after=1", 1, 0),
}


# What "Is it urgent?" says that `poolcounter check` answers, and when: by the daemon's options, a
# signal to it, and the address that is asked. The last two hosts are gone.
URGENT = "docs/operate/first-five-minutes.md"
ANSWERS = [
    ("OK", [], None, "10.1.2.3"),
    ("Connection refused", [], signal.SIGKILL, "10.1.2.3"),
    ("timed out, no answer within 5 seconds", [], signal.SIGSTOP, "10.1.2.3"),
    ("closed the connection", ["--allow", "192.0.2.0/24"], None, "10.1.2.3"),
    ("connection timed out", [], None, SILENT_ADDRESS),
    ("No route to host", [], None, UNREACHABLE_ADDRESS),
]


def check_answers(directory):
    page = (REPOSITORY / URGENT).read_text(encoding="utf-8")
    for answer, options, signal_sent, address in ANSWERS:
        expect(f"| `{answer}`" in page, f"{URGENT} does not explain `{answer}`")
        with World(directory, {}, options) as world:
            if signal_sent:
                world.signal(signal_sent)
            printed = command(f"poolcounter -s {address} check", directory)
            expect(answer in printed, f"{options} {signal_sent}: the answer is {printed}, not {answer}")


# Not those in a loop over hosts.
ORDER = re.compile(r"(?:^ *|[`$#] ?)poolcounter ((?:rule (?:set|off|reset)|free) [^`\n]*)", re.M)


def checks_of(documents):
    """What to check, by name: each order of these documents, and the answers of one page."""
    checks = {f"{document}: {order.strip()}": order.strip() for document in documents for order in orders_in(document)}
    unknown = [name for name, order in checks.items() if order not in EFFECTS]
    expect(not unknown, f"say in {__file__} what these change: {unknown}")
    checks = {name: functools.partial(EFFECTS[order].check, order) for name, order in checks.items()}
    if URGENT in documents:
        checks[f"{URGENT}: Is it urgent?"] = check_answers
    return checks


def check_effects(documents, prepare):
    """Returns how many checks fail."""
    failed, checks = 0, checks_of(documents)
    for name, check in checks.items():
        with tempfile.TemporaryDirectory() as directory:
            try:
                prepare(Path(directory))
                check(Path(directory))
            except (Failure, TimeoutError) as e:
                failed += 1
                print(f"FAILED {name}: {e}\n", flush=True)
    print(f"{len(checks)} promises about orders and answers were checked; failed: {failed}")
    return failed


def orders_in(document):
    text = (REPOSITORY / document).read_text(encoding="utf-8")
    return ORDER.findall(text)
