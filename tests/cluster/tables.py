"""The rows as Markdown, and their place in docs/development/evidence.md."""

import itertools
import os
import re
from pathlib import Path

from roots import expect

PAGE = Path(__file__).resolve().parents[2] / "docs/development/evidence.md"
PLACE = re.compile(r"(<!-- cluster table.*?-->\n).*?(<!-- end -->)", re.S)
NEW_PAGE = "# Evidence\n\n<!-- cluster table -->\n<!-- end -->\n"


def text_of(rows):
    """A table for each kind of row, and below them the notes."""
    lines = []
    with_columns = [row for row in rows if row.columns]
    for columns, of_them in itertools.groupby(with_columns, lambda row: row.columns):
        lines += [*table(columns, of_them), ""]
    return "\n".join(lines + notes(rows)) + "\n"


def table(columns, rows):
    yield from [line(columns), "|---" * len(columns) + "|"]
    yield from (line(row.cells()) for row in rows)


def line(cells):
    return f"| {' | '.join(map(str, cells))} |"


def notes(rows):
    return [f"- {row.title}: {'; '.join(row.notes)}" for row in rows if row.notes]


def record(rows):
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else NEW_PAGE
    expect(len(PLACE.findall(text)) == 1, f"{PAGE} has no place for the table")
    shown = f"Three daemons and 40 clients on {os.cpu_count()} cores:\n\n{text_of(rows)}"
    PAGE.write_text(PLACE.sub(lambda found: found[1] + shown + found[2], text), encoding="utf-8")
    print(f"The table is recorded in {PAGE}")
