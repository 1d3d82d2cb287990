"""The demo's output: progress, and readers as bars. On a terminal it changes in place;
elsewhere it prints a line now and then.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

TERMINAL = sys.stdout.isatty()
TURN_S = 0.1
# Without a terminal.
QUIET_TURN_S = 5.0
ROWS = 5
EIGHTHS, SQUARE = " ▁▂▃▄▅▆▇█", "■"
try:
    EIGHTHS.encode(sys.stdout.encoding)
    SQUARE.encode(sys.stdout.encoding)
except UnicodeEncodeError:
    EIGHTHS, SQUARE = "  ..::||#", "#"
    sys.stdout.reconfigure(errors="replace")  # µ
COLOURS = {"waiting": "\033[90m", "served": "\033[32m", "stale": "\033[33m", "failed": "\033[31m"}
PLAIN = "\033[0m"
# A line that is too long is cut, not wrapped: otherwise drawing again would begin at
# the wrong line.
NO_WRAP, WRAP = "\033[?7l", "\033[?7h"


def put(text):
    """Writes. If the output is closed, the demo ends as if the terminal had hung up."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        os.kill(os.getpid(), signal.SIGHUP)


class Progress:
    """`with Progress("unpacking", path, 670):` shows what is happening, and how many of
    the megabytes are in `path` so far."""

    def __init__(self, words, path=None, megabytes=None):
        self.words = words
        self.path = path
        self.megabytes = megabytes
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        start = time.monotonic()
        while True:
            self._show(time.monotonic() - start)
            if self._end.wait(0.5 if TERMINAL else 15.0):
                return

    def _show(self, elapsed_s):
        text = f"{self.words}  {elapsed_s:.0f} s"
        if self.path:
            text += f", {min(size_mb(self.path), self.megabytes)} of some {self.megabytes} MB"
        if TERMINAL:
            put(f"{NO_WRAP}\r\033[K{text}{WRAP}")
        elif self.path or elapsed_s < 1:
            put(f"{text}\n")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()
        if TERMINAL:
            put("\r\033[K")


def size_mb(path):
    done = subprocess.run(["du", "-xsm", path], capture_output=True, text=True)
    return int(done.stdout.split()[0]) if done.stdout else 0


class Bars:
    """A bar for each reader: the height shows how long it waits, the colour what it got."""

    def __init__(self, title, crowd, stage, scale_s):
        self.title = title
        self.crowd = crowd
        self.stage = stage
        self.scale_s = scale_s  # of a full bar, unless a reader waits longer
        self._messages = []
        self._drawn = 0

    def show(self, text):
        """Shows it below the bars."""
        self._messages.append(text)

    def watch(self, check):
        """Returns when all readers have been answered, or raises what `check` does."""
        put(f"\n{self.title}\n")
        next_line_s = 0.0
        while True:
            ended = self.crowd.wait(TURN_S)
            check()
            elapsed_s = self.crowd.slowest() if ended else self.crowd.elapsed()
            if TERMINAL:
                self._draw(elapsed_s)
            elif ended or self._messages or elapsed_s >= next_line_s:
                self._write_line(elapsed_s)
                next_line_s = elapsed_s + QUIET_TURN_S
            if ended:
                return

    def _draw(self, elapsed_s):
        states = self._states()
        lines = [*self._bars(states, elapsed_s), self._legend(states, elapsed_s), *self._messages[-1:]]
        back = f"\033[{self._drawn}A" if self._drawn else ""
        put(NO_WRAP + back + "".join(f"\r\033[K{line}\n" for line in lines) + WRAP)
        self._drawn = len(lines)

    def _write_line(self, elapsed_s):
        messages, self._messages = self._messages, []
        put("".join(f"{line}\n" for line in [*messages, self._legend(self._states(), elapsed_s)]))

    def _states(self):
        return [self._state(reader) for reader in self.crowd.readers]

    def _state(self, reader):
        if reader.seconds is None:
            return "waiting"
        return {"the page": "served", "the stale copy": "stale"}.get(self.stage.what_it_got(reader), "failed")

    def _bars(self, states, elapsed_s):
        if shutil.get_terminal_size().columns <= len(states):
            return []
        waits = [elapsed_s if reader.seconds is None else reader.seconds for reader in self.crowd.readers]
        scale_s = max(self.scale_s, *waits)
        heights = [max(1, round(8 * ROWS * min(1.0, wait / scale_s))) for wait in waits]
        return [row_of_bars(row, heights, states) for row in reversed(range(ROWS))]

    def _legend(self, states, elapsed_s):
        counts = [f"{self._coloured(state)} {states.count(state):2}" for state in COLOURS]
        renders = self.stage.new_renders()
        return f"{elapsed_s:5.1f} s   {'   '.join(counts)}   {renders} render{'s' * (renders != 1)}"

    def _coloured(self, state):
        return f"{COLOURS[state]}{SQUARE} {state}{PLAIN}" if TERMINAL else state


def row_of_bars(row, heights, states):
    cells = []
    for height, state in zip(heights, states):
        cells.append(COLOURS[state] + EIGHTHS[max(0, min(8, height - 8 * row))])
    return "".join(cells) + PLAIN
