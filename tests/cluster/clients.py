"""A crowd of clients that choose servers as MediaWiki does, and what they saw."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import random
import socket
import threading
import time

from network import PORT
from roots import PATIENCE_S, eventually, expect

TIMEOUT_S = 5
# MediaWiki's client stops reading after 1.5 times the timeout.
ANSWER_S = 1.5 * TIMEOUT_S
CONNECT_S = 0.1
ATTEMPTS = 2
CLIENTS = 40
# A client that every server refuses pauses this long.
PAUSE_S = 0.02


def order(servers, key):
    """As in docs/guide/scripts.md and crates/command/src/lock_client/order.rs."""
    return sorted(servers, key=lambda server: hashlib.md5((server + key).encode()).digest())


@dataclasses.dataclass
class Load:
    keys: int = 300
    shortest_s: float = 0.02
    longest_s: float = 0.2

    def hold_s(self):
        return random.uniform(self.shortest_s, self.longest_s)


@dataclasses.dataclass(eq=False)
class Call:
    """Times are of one monotonic clock. `outcome` is None until the call ends."""

    key: str
    began: float = None
    server: str = None
    moved: bool = False
    end: tuple = None
    connected: float = None
    locked: float = None
    released: float = None
    ended: float = None
    outcome: str = None

    @property
    def connect_s(self):
        return (self.connected or self.ended) - self.began

    def waited_s(self):
        """For the lock, once connected."""
        return (self.locked or self.ended) - self.connected


class Gate:
    """While it is closed, no thread is inside."""

    def __init__(self):
        self._changed = threading.Condition()
        self._is_open, self._inside = True, 0

    def __enter__(self):
        with self._changed:
            self._changed.wait_for(lambda: self._is_open)
            self._inside += 1

    def __exit__(self, *_):
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self):
        with self._changed:
            self._is_open = False
            expect(self._changed.wait_for(lambda: not self._inside, PATIENCE_S), "clients never finish connecting")
        try:
            yield
        finally:
            with self._changed:
                self._is_open = True
                self._changed.notify_all()


class Crowd:
    """`with Crowd(hosts, lists, load) as crowd:`. The clients are spread over the hosts;
    `lists` has the servers for the clients of each host, and may be changed at any time."""

    def __init__(self, hosts, lists, load, connect_s=CONNECT_S):
        self.lists, self.load = lists, load
        self._connect_s = connect_s
        self.connecting = Gate()
        self.calls = []
        self._hosts = hosts
        self._running = set()
        self._changed = threading.Condition()
        self._is_over = False
        self._broken = []
        places = itertools.islice(itertools.cycle(enumerate(hosts)), CLIENTS)
        self._threads = [threading.Thread(target=self._visit, args=place, daemon=True) for place in places]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._is_over = True
        for thread in self._threads:
            thread.join(PATIENCE_S)
        expect(not self._broken, f"a client raised an error: {self._broken}")
        expect(not any(thread.is_alive() for thread in self._threads), "a client never ends")

    def wait_for_calls(self, count=2 * CLIENTS):
        """Waits until that many more calls have ended."""
        wanted = len(self.calls) + count
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.calls) >= wanted or self._broken, PATIENCE_S)
        expect(done and not self._broken, f"the clients are stuck: {self._broken}")

    def open_connections(self, daemon):
        """The client ends of the connections in use there. The daemon must be stopped and
        the gate closed: then no call begins, and calls that are ending end soon."""
        def agreed():
            with self._changed:
                ends = {call.end for call in self._running if call.server == daemon.address}
                is_read = not any(host.has_unread_answers() for host in self._hosts)
                return is_read and ends == daemon.connections() and ends
        return eventually("kernel and clients agree on the open connections", agreed)

    def _visit(self, place, host):
        try:
            host.call(lambda: self._call_again_and_again(place))
        except Exception as e:  # noqa: BLE001
            self._broken.append(repr(e))

    def _call_again_and_again(self, place):
        while not self._is_over:
            call = Call(f"page:{random.randrange(self.load.keys)}")
            call.outcome = self._make(call, order(self.lists[place], call.key))
            call.ended = time.monotonic()
            with self._changed:
                self._running.discard(call)
                self.calls.append(call)
                self._changed.notify_all()
            if call.outcome == "refused":
                time.sleep(PAUSE_S)

    def _make(self, call, servers):
        with self.connecting:
            call.began = time.monotonic()
            connection = self._connect(call, servers)
        if not connection:
            return "refused"
        with connection:
            return self._hold(call, connection)

    def _connect(self, call, servers):
        for number, server in enumerate(servers):
            for _ in range(ATTEMPTS):
                try:
                    connection = socket.create_connection((server, PORT), self._connect_s)
                except OSError:
                    continue
                call.connected = time.monotonic()
                call.server, call.moved, call.end = server, number > 0, connection.getsockname()
                with self._changed:
                    self._running.add(call)
                return connection
        return None

    def _hold(self, call, connection):
        connection.settimeout(ANSWER_S)
        send(connection, f"ACQ4ME {call.key} 1 50 {TIMEOUT_S}")
        answer = receive(connection)
        if answer != "LOCKED":
            return answer.lower() or "failed"
        call.locked = time.monotonic()
        time.sleep(self.load.hold_s())
        call.released = time.monotonic()
        send(connection, "RELEASE")
        if not has_answer(connection):
            return "failed"
        # Until here the kernel has the answer; from here on the call is no longer open.
        with self._changed:
            self._running.discard(call)
            return "done" if receive(connection) == "RELEASED" else "failed"


def send(connection, line):
    with contextlib.suppress(OSError):  # The answer is missing then.
        connection.sendall(line.encode() + b"\n")


def has_answer(connection):
    """Waits for an answer, and leaves it with the kernel."""
    try:
        return connection.recv(1, socket.MSG_PEEK) != b""
    except OSError:
        return False


def receive(connection):
    """The answer, or "" if there is none."""
    answer = b""
    with contextlib.suppress(OSError):
        while not answer.endswith(b"\n") and (part := connection.recv(200)):
            answer += part
    return answer.decode().strip()


def overlaps(calls):
    """Yields the end of each overlap of two holds of one key."""
    holds = collections.defaultdict(list)
    for call in calls:
        if call.locked:
            holds[call.key].append((call.locked, call.released))
    for of_key in holds.values():
        last_end = 0
        for begin, end in sorted(of_key):
            if begin < last_end:
                yield min(end, last_end)
            last_end = max(last_end, end)
