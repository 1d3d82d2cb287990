"""The outcome of each round with Debian's daemon, without times. Debian's release pins
MediaWiki and that daemon, so they are recorded once, and every run compares our daemon
with the record.
"""

import json
from pathlib import Path

FILE = Path(__file__).with_name("outcomes.json")


class Recorded:
    """The record."""

    def __init__(self):
        recorded = json.loads(FILE.read_text(encoding="utf-8"))
        self.versions = recorded["versions"]
        self._rounds = recorded["rounds"]

    def of(self, name):
        """The outcome of a round. None if it is not recorded."""
        return self._rounds.get(name)


def record(versions, outcomes):
    """`outcomes` maps each round to what must be the same."""
    text = json.dumps({"versions": versions, "rounds": outcomes}, indent=1, sort_keys=True)
    FILE.write_text(text + "\n", encoding="utf-8")
