"""What clients with one address see, and the files that docs/ has for them. These are run
as they are, except for addresses and the changes that a row names.
"""

import dataclasses
from pathlib import Path

from roots import expect
from rows import Row

DOCUMENTS = Path(__file__).resolve().parents[2] / "docs/guide/several-daemons"
# Clients with one address wait longer for it than clients with several.
CONNECT_S = 1.0


@dataclasses.dataclass
class OneAddressRow(Row):
    """The result for clients with one address: refused calls count apart."""

    columns = ["one address", "calls", "failed", "refused, for (s)", "overlapping, until (s)"]

    @property
    def failed(self):
        return [call for call in super().failed if call.outcome != "refused"]

    @property
    def refused(self):
        return [call for call in self.calls if call.outcome == "refused"]

    @property
    def refused_s(self):
        """From the first refused call to the last one."""
        times = [call.began for call in self.refused]
        return max(times) - min(times) if times else 0

    def cells(self):
        refused = f"{len(self.refused)}, {self.refused_s:.1f}" if self.refused else "0"
        return [self.title, len(self.calls), len(self.failed), refused, self.overlapping]


def file_with(name, addresses, changes=()):
    """The document's text with the changes; it must contain each replaced text."""
    text = (DOCUMENTS / name).read_text(encoding="utf-8")
    for old, new in [*addresses.items(), *changes]:
        expect(old in text, f"{name} has no {old}")
        text = text.replace(old, new)
    return text
