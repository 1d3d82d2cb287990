"""A lock server with scripted answers. It records, in order, lines, answers and ends of
connections.

It has one thread, and reads connections of locks before those of marks, so that a client
that closes the first and then sends a mark is recorded in that order.
"""

import contextlib
import selectors
import threading
import time

from roots import eventually

TURN_S = 0.05
END = object()


class Connection:
    def __init__(self, socket):
        self.socket = socket
        self.number = None  # given by its first line, unless that is a mark
        self.unread = b""


class Scripted:
    """`with Scripted(host, {"ACQ4ME": ["LOCKED"]}) as server:`. `answers` has, for the
    first word of a line, the answers in turn; the last one is repeated. A number delays
    the next one by that many seconds, None is no answer, and END ends the connection."""

    def __init__(self, host, answers, address="127.0.0.3", port=7531):
        self.address = address
        self._listener = host.listener(address, port)
        self._answers = {word: list(each) for word, each in answers.items()}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._late = []  # when, connection, answer
        self._numbers = 0
        self._open = 0
        self._events = []
        self._times = []
        self._stop = False

    def __enter__(self):
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop = True
        self._thread.join()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()
        self._selector.close()

    def _run(self):
        while not self._stop:
            ready = [key.data for key, _ in self._selector.select(TURN_S)]
            for connection in sorted(filter(None, ready), key=lambda each: each.number is None):
                self._receive(connection)
            if None in ready:
                self._selector.register(socket := self._listener.accept()[0], selectors.EVENT_READ, Connection(socket))
            self._send_late_answers()

    def _receive(self, connection):
        try:
            piece = connection.socket.recv(4096)
        except ConnectionResetError:
            piece = b""
        if not piece:
            return self._close(connection)
        *lines, connection.unread = (connection.unread + piece).split(b"\n")
        for line in lines:
            self._handle(connection, line.decode(errors="backslashreplace"))

    def _close(self, connection):
        if connection.number:
            self._late = [each for each in self._late if each[1] is not connection]
            self._note(f"{connection.number} closed")
            self._open -= 1
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _handle(self, connection, line):
        word, _, rest = line.partition(" ")
        if word == "MARK":
            self._note(rest)
            connection.socket.sendall(b"OK\n")
            return
        if not connection.number:
            self._numbers += 1
            self._open += 1
            connection.number = self._numbers
        self._note(f"{connection.number}> {line}")
        answer, late_s = self._next_answer(word), 0
        if isinstance(answer, (int, float)):
            answer, late_s = self._next_answer(word), answer
        if answer is END:
            self._close(connection)
        elif answer:
            self._late.append((time.monotonic() + late_s, connection, answer))

    def _next_answer(self, word):
        answers = self._answers[word]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def _send_late_answers(self):
        now = time.monotonic()
        due = [each for each in self._late if each[0] <= now]
        self._late = [each for each in self._late if each[0] > now]
        for _, connection, answer in due:
            self._note(f"{connection.number}< {answer}")
            with contextlib.suppress(OSError):  # The client may be closing it.
                connection.socket.sendall(answer.encode() + b"\n")

    def _note(self, event):
        self._events.append(event)
        self._times.append(time.monotonic())

    def seconds_until(self, event, occurrence=1):
        """From the event before it. The first occurrence is 1."""
        index = [i for i, each in enumerate(self._events) if each == event][occurrence - 1]
        return self._times[index] - self._times[index - 1]

    def seen(self):
        """Everything, once all connections are closed."""
        eventually("all connections are closed", lambda: not self._open)
        return list(self._events)
