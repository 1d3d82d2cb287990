"""What the rounds measured, kept as JSON; the table of docs/development/evidence.md and the picture
of README.md are made from it.
"""

import json
import os
import re
from pathlib import Path

from roots import expect

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "development/evidence.md"
PICTURE = DOCS / "guide/mediawiki/readers.svg"
RECORDED = [PAGE, PICTURE]
TABLE = re.compile(r"(<!-- figures.*?-->\n).*?(<!-- end of figures -->)", re.S)

# Rounds as the table names them, in its order.
TITLES = {
    "no_daemon": "no daemon",
    "recommended": "[the recommended settings](../guide/mediawiki.md#install), a stale copy",
    "recommended_without_old_copy": "the recommended settings, no stale copy",
    "wait": "one renders, the others wait",
    "fast_stale": "`fastStale`, a stale copy",
    "fast_stale_without_old_copy": "`fastStale`, no stale copy",
    "queue_full_with_old_copy": "`maxqueue` 10, a stale copy",
    "queue_full_without_old_copy": "`maxqueue` 10, no stale copy",
    "timeout_with_old_copy": "`timeout` 1, render 2.5 s, a stale copy",
    "timeout_without_old_copy": "`timeout` 1, render 2.5 s, no stale copy",
    "renderer_killed": "the rendering process is killed",
    "stopped": "the daemon is stopped",
    "many_readers": "300 readers, 40 processes",
    "no_daemon_4_processes": "no daemon, 4 processes",
    "four_processes": "4 processes",
    "thumbnails_without_daemon": "thumbnail, no daemon",
    "thumbnails": "thumbnail, `maxqueue` 10",
    "recommended_thumbnails": "thumbnail, the recommended settings",
    "forked_restart": "the daemon gets SIGUSR1",
    "hot_restarts": "the daemon gets SIGUSR1, five times",
    "drain": "drained, with a second daemon",
}
ERRORS = {"200": "an error page", "500": "an error", "nothing": "nothing"}

# What the picture shows: round, daemon, its words. Each daemon is replaced in the same
# two ways.
BARS = [
    ("no_daemon", "no daemon", "Without PoolCounter"),
    ("wait", "ours", "With it"),
    ("fast_stale", "ours", "With it and fastStale"),
    ("stopped", "Debian's", "C daemon stopped meanwhile"),
    ("stopped", "ours", "This one stopped meanwhile"),
    ("forked_restart", "Debian's", "C daemon after SIGUSR1"),
    ("hot_restarts", "ours", "This one after 5 SIGUSR1"),
]


def save(path, versions, outcomes):
    rows = [{"round": name, "daemon": kind, "renders": outcome.renders, "median_s": outcome.median_s,
             "slowest_s": outcome.slowest_s, "answers": outcome.answers, "counters": outcome.counters}
            for (name, kind), outcome in outcomes.items()]
    path.write_text(json.dumps({**versions, "cores": os.cpu_count(), "rounds": rows}, indent=1), encoding="utf-8")


def record(path, wanted):
    """Writes the table and the picture. `wanted` are the rows: round and daemon."""
    figures = json.loads(path.read_text(encoding="utf-8"))
    there = [(row["round"], row["daemon"]) for row in figures["rounds"]]
    expect(sorted(there) == sorted(wanted), f"these rows are missing, or there are others: {set(there) ^ set(wanted)}")
    expect({name for name, _ in wanted} == set(TITLES), "TITLES does not have exactly the names of the rounds")
    text = PAGE.read_text(encoding="utf-8")
    expect(len(TABLE.findall(text)) == 1, f"{PAGE} has no place for the table")
    shown = picture(figures)
    PAGE.write_text(TABLE.sub(lambda found: found[1] + table(figures) + found[2], text), encoding="utf-8")
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(shown, encoding="utf-8")


def table(figures):
    """A row for each round: both daemons give the same answers, or the round fails."""
    lines = [f"MediaWiki {figures['mediawiki']}, Debian's poolcounter {figures['poolcounter']}, {figures['cores']} cores:\n",
             "| round | readers got | renders | Debian's, or none | ours |", "|---|---|---|---|---|"]
    for name, title in TITLES.items():
        rows = {row["daemon"]: row for row in figures["rounds"] if row["round"] == name}
        one = next(iter(rows.values()))
        got = ", ".join(f"{count} {in_short(what)}" for what, count in sorted(one["answers"].items(), key=lambda a: -a[1]))
        theirs, ours = (times(rows.get(kind)) for kind in ("no daemon" if "no daemon" in rows else "Debian's", "ours"))
        lines.append(f"| {title} | {got} | {one['renders']} | {theirs} | {ours} |")
    return "\n".join(lines) + "\n"


def times(row):
    """Median and slowest."""
    return f"{row['median_s']:.1f}, {row['slowest_s']:.1f}" if row else ""


def in_short(what):
    return ERRORS.get(re.split("[:,]", what)[0], what)


STYLE = """
text { font: 15px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.small { font-size: 13px; fill: #59636e }
.median { fill: #0969da } .bad { fill: #cf222e } .slowest { opacity: .45 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .median { fill: #4493f8 } .bad { fill: #f85149 }
}
"""
WIDTH, LEFT, ROW, TOP = 800, 250, 34, 62
PIXELS_FOR_BARS = 320


def picture(figures):
    """Bars: how long readers waited. The full bar is the median, the faint end the slowest."""
    rows = {(row["round"], row["daemon"]): row for row in figures["rounds"]}
    shown = [(rows[round, daemon], words) for round, daemon, words in BARS]
    scale = PIXELS_FOR_BARS / max(row["slowest_s"] for row, _ in shown)
    height = TOP + ROW * len(shown) + 30
    summary = "; ".join(f"{words}: {in_words(row)}" for row, words in shown)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
             f"<title>60 readers of an expired page. {summary}</title>", f"<style>{STYLE}</style>",
             '<text class="title" x="8" y="24">60 readers ask for an expired page at once. One second to render it.</text>',
             f'<text class="small" x="8" y="44">How long they wait: the median and, fainter, the slowest.'
             f' MediaWiki {figures["mediawiki"]}, {figures["cores"]} cores.</text>']
    for number, (row, words) in enumerate(shown):
        parts += bar(row, words, TOP + ROW * number, scale)
    parts += [f'<text class="small" x="8" y="{height - 8}">make test-mediawiki measures this.</text>', "</svg>"]
    return "\n".join(parts) + "\n"


def bar(row, words, y, scale):
    median, slowest = row["median_s"] * scale, row["slowest_s"] * scale
    kind = "bad" if row["renders"] > 1 else "median"
    return [f'<text x="{LEFT - 12}" y="{y + 19}" text-anchor="end">{words}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" width="{median:.0f}" height="20"/>',
            f'<rect class="{kind} slowest" x="{LEFT + median:.0f}" y="{y + 4}" width="{slowest - median:.0f}" height="20"/>',
            f'<text x="{LEFT + slowest + 10:.0f}" y="{y + 19}">{in_words(row)}</text>']


def in_words(row):
    renders = f"{row['renders']} render" + ("s" if row["renders"] != 1 else "")
    return f"{renders}, {row['median_s']:.1f} s"
