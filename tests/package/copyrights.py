"""debian/copyright.py with crates that have one file: what it writes of their holders, and when it refuses."""

import shutil
import subprocess
from pathlib import Path

from roots import expect

PROGRAM = Path(__file__).resolve().parents[2] / "debian/copyright.py"

MIT = "Permission is hereby granted, free of charge, to any\nperson obtaining a copy of this software\n"
MANIFEST = 'license = "MIT"\nauthors = ["Some Author"]'

# A file, its text, and the holder that it names.
HOLDERS = [
    ("LICENSE", f"Copyright (c) 2021 Real Holder\n{MIT}", "2021 Real Holder"),
    ("LICENSE", f"(c) 2021 Real Holder\n{MIT}", "2021 Real Holder"),
    ("LICENSE", f"\u00a9 2021 Real Holder\n{MIT}", "2021 Real Holder"),
    ("LICENSE", f"Portions Copyright (C) 2011 Bob Roe\n{MIT}", "2011 Bob Roe"),
    ("LICENSE", f"Copyright (c) \u00a9 2021 by Real Holder\n{MIT}", "2021 by Real Holder"),
    ("LICENSE", f"Copyright by Real Holder\n{MIT}", "Real Holder"),
    ("lib.rs", "//! Copyright (c) 2019-2021 Jane Roe\n", "2019-2021 Jane Roe"),
    ("lib.rs", "/* SPDX-FileCopyrightText: 2022 Jane Roe */\n", "2022 Jane Roe"),
    ("lib.rs", "// SPDX-FileCopyrightText: Copyright (c) 2022 Jane Roe\n", "2022 Jane Roe"),
    ("lib.rs", "// Copyright \u24d2 2015-2016 K. and [`clap` contributors](https://example.org).\n", "2015-2016 K. and clap contributors"),
    ("lib.rs", "// Copyright 2018 Jane Roe (@jane),\n// John Roe, and\n// Bob Roe\n//\n// Licensed\n", "2018 Jane Roe, John Roe, and Bob Roe"),
    ("lib.rs", "/// Copies the copyright notice.\n", "Some Author"),
]

# What Cargo.toml says, a file, its text, and a part of the message.
REFUSED = [
    ('license-file = "LICENSE"', "LICENSE", MIT, "names no licence"),
    ("", "LICENSE", MIT, "names no licence"),
    ('license = "MIT"', "LICENSE", MIT, "name a holder"),
    ('license = "Ruby"', "LICENSE", MIT, "no text for"),
    (MANIFEST, "LICENSE", "Proprietary. Do not copy.\n", "unknown"),
    (MANIFEST, "LICENSE", "GNU GENERAL PUBLIC LICENSE\nVersion 3\n", "GPL"),
    (MANIFEST, "COPYING", f"{MIT}\nGNU Lesser General Public License\n", "GPL"),
    (MANIFEST, "lib.rs", "// under the terms of the GNU General\n// Public License\n", "GPL"),
    (MANIFEST, "lib.rs", "// SPDX-License-Identifier: GPL-3.0-only\n", "no text for"),
]


def holders_are_found_or_refused(world):
    """Each row of HOLDERS and REFUSED."""
    wrong = []
    for name, text, holder in HOLDERS:
        done = written_for(world, MANIFEST, name, text)
        ours = done.stdout.partition("Files: vendor/one/*\n")[2].partition("License: ")[0]
        if f" {holder}\n" not in ours:
            wrong.append(f"{text!r}: {ours}{done.stderr}")
    for manifest, name, text, message in REFUSED:
        done = written_for(world, manifest, name, text)
        if done.returncode == 0 or message not in done.stderr or "Traceback" in done.stderr:
            wrong.append(f"{manifest!r}, {text!r}: {done.stderr or 'not refused'}")
    expect(not wrong, "\n       ".join(wrong))


def written_for(world, manifest, name, text):
    """What it writes for a source tarball with one crate, and serde for the licence's text."""
    tree = world.directory / "copyrights"
    shutil.rmtree(tree, ignore_errors=True)
    for crate, lines, file, content in [("one", manifest, name, text), ("serde", MANIFEST, "LICENSE-MIT", f"Copyright (c) 2020 Another\n{MIT}")]:
        (tree / "vendor" / crate).mkdir(parents=True)
        (tree / "vendor" / crate / "Cargo.toml").write_text(f"[package]\nname = \"{crate}\"\n{lines}\n")
        (tree / "vendor" / crate / file).write_text(content)
    return subprocess.run(["python3", PROGRAM, tree], capture_output=True, text=True)
