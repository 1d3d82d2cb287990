"""Readers of a page, all at once. They share one process and one thread, so that they
take little from the server that they measure.
"""

import selectors
import threading
import time

from roots import Failure


class Reader:
    """One request and its result."""

    def __init__(self, socket):
        self.socket = socket
        self.received = b""
        self.seconds = None  # from the start of the crowd to the end of the answer

    def take(self, now):
        """Receives; returns whether the answer has ended."""
        try:
            piece = self.socket.recv(65536)
        except ConnectionResetError:
            piece = b""
        self.received += piece
        if piece:
            return False
        self.seconds = now
        self.socket.close()
        return True

    @property
    def status(self):
        """Of HTTP; 0 when the connection ended without an answer."""
        first = self.received.split(b"\r\n", 1)[0].split()
        return int(first[1]) if len(first) > 1 else 0

    @property
    def body(self):
        return self.received.partition(b"\r\n\r\n")[2]


class Crowd:
    """`with Crowd(host, path, count) as crowd: ...` requests and continues in the
    background; the exit waits for all answers."""

    def __init__(self, host, path, count, address="127.0.0.1", port=80, seconds=300.0):
        self.readers = [Reader(socket) for socket in host.sockets(address, port, count)]
        self._request = f"GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n".encode()
        self._seconds = seconds
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended = threading.Event()
        self._why_it_stopped = None
        self.overdue = 0

    def _run(self):
        try:
            self._receive_answers()
        except Exception as e:  # noqa: BLE001
            self._why_it_stopped = e
        finally:
            for reader in self.readers:
                reader.socket.close()
            self._ended.set()

    def _receive_answers(self):
        with selectors.DefaultSelector() as selector:
            for reader in self.readers:
                reader.socket.setblocking(False)
                selector.register(reader.socket, selectors.EVENT_READ, reader)
            for reader in self.readers:
                reader.socket.send(self._request)
            while selector.get_map() and self.elapsed() < self._seconds:
                for key, _ in selector.select(1.0):
                    if key.data.take(self.elapsed()):
                        selector.unregister(key.fileobj)
            self.overdue = len(selector.get_map())

    def elapsed(self):
        return time.monotonic() - self._start

    def slowest(self):
        """Seconds until the last answer so far."""
        return max((reader.seconds for reader in self.readers if reader.seconds is not None), default=0.0)

    def answered(self):
        """How many have their answer."""
        return sum(reader.seconds is not None for reader in self.readers)

    def check(self):
        """Fails if the readers had to stop."""
        why = self._why_it_stopped
        if why:
            raise Failure(f"the readers stopped: {type(why).__name__}: {why}") from why

    def wait(self, seconds):
        """Returns whether all answers are there, or overdue, within that time."""
        ended = self._ended.wait(seconds)
        self.check()
        return ended

    def __enter__(self):
        self._start = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, kind, *_):
        if kind:
            self._seconds = 0
        self._thread.join()
        if not kind:
            self.check()
