#!/usr/bin/python3
"""Writes debian/copyright: our own part, then the holders and licence of each crate in
vendor/, as its files and its Cargo.toml name them.

    debian/copyright.py TREE            the text for this unpacked source tarball
    debian/copyright.py --check TREE    compares it with debian/copyright

`make copyright` makes the tree and writes the file.
"""

import re
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

HEAD = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: poolcounterd
Source: https://repository.invalid
Comment: Neither code nor packaging of the poolcounter that Debian shipped before
 is used here; the entries of its changelog are kept in debian/changelog.
 .
 debian/copyright.py writes this file. Of a crate that names no holder in its
 files, it names the authors in Cargo.toml.

Files: *
Copyright: 2026 the poolcounterd authors
License: Expat or Apache-2.0
"""

# Names of SPDX and those of Debian's format.
NAMES = {"MIT": "Expat", "GPL-2.0+": "GPL-2+", "Apache-2.0 WITH LLVM-exception": "Apache-2.0 with LLVM exception"}

# The text of each licence that a vendored crate may have: a file of a crate that contains it,
# or what to say of a text that Debian has. Ask before adding one: a passing check is not a reason.
TEXTS = {
    "Expat": "vendor/serde/LICENSE-MIT",
    "Apache-2.0": "On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.",
    "Apache-2.0 with LLVM exception": "vendor/rustix/LICENSE-Apache-2.0_WITH_LLVM-exception",
    "BSD-3-Clause": "vendor/sha1_smol/LICENSE",
    "GPL-2+": "On Debian systems, the text is in /usr/share/common-licenses/GPL-2.",
    "Unicode-3.0": "vendor/unicode-ident/LICENSE-UNICODE",
    "Unlicense": "vendor/memchr/UNLICENSE",
}

# Files with a licence of their own that no line `SPDX-License-Identifier` in them names.
EXCEPTIONS = {"vendor/sha1_smol/src/simd.rs": "MIT"}

# What else is in a file with the text: holders, other licences, what Debian has in a file.
NOT_THE_TEXT = {
    "BSD-3-Clause": r"\A.*?(?=Redistribution and use)|\n-----\n.*",
    "Apache-2.0 with LLVM exception": r"\A.*(?=--- LLVM Exceptions to the Apache 2.0 License ----)",
}

# How a line begins, in a text or a comment.
BEGIN = r"^[/*#!;\s-]*"
SIGN = r"(?:\(c\)|©|ⓒ)"
# A holder's line ends with a comma or "and" if the next one has more holders.
REST = r"(?:[^\n]*(?:,|\band)[ \t]*\n[/*#!; \t]*(?=[A-Z]))*[^\n]*"
HOLDERS = [
    re.compile(rf"{BEGIN}copyright\b(?:\s*{SIGN})*(?:[ ,:]|by )*(\d{{4}}{REST}|[A-Z]{REST})$", re.I | re.M),
    # With a year also in the middle of a line.
    re.compile(rf"\bcopyright\b(?:\s*{SIGN})*(?:[ ,:]|by )*(\d{{4}}{REST})$", re.I | re.M),
    re.compile(rf"{BEGIN}{SIGN}[ ,]*(\d{{4}}{REST})$", re.I | re.M),
    re.compile(rf"{BEGIN}SPDX-FileCopyrightText:\s*(?:copyright\b)?(?:\s*{SIGN})?[ ,:]*(\S[^\n]*)$", re.I | re.M),
]
NO_HOLDER = re.compile(r"^(owner|notice|licen[cs]e|holder|and |statement|law|interest|\[yyyy|in the|the copyright|\(c\)$)", re.I)
LICENCE_FILE = re.compile(r"licen[cs]e|copying|copyright", re.I)
SPDX = re.compile(r"^[/*#\s]*SPDX-License-Identifier: ([^*\n]*)", re.M)

# By what the text of a licence is recognised, whatever space there is between the words.
MARKS = {
    "Expat": "Permission is hereby granted, free of charge, to any person obtaining a copy of this software",
    "Apache-2.0": r"Apache License Version 2\.0, January 2004",
    "BSD-3-Clause": "Redistribution and use in source and binary forms",
    "Unicode-3.0": "Unicode License v3",
    "Unlicense": "This is free and unencumbered software released into the public domain",
    "GPL": "GNU (Lesser |Library |Affero )?General Public Licen[cs]e",
    "MPL": "Mozilla Public Licen[cs]e",
}


def main():
    *options, tree = sys.argv[1:]
    text = copyright_of(Path(tree))
    if "--check" not in options:
        print(text, end="")
    elif text != Path(__file__).with_name("copyright").read_text():
        sys.exit("debian/copyright is not that of the crates in vendor/: run `make copyright`, and read what it changes")


def copyright_of(tree):
    groups = defaultdict(list)
    for crate in sorted((tree / "vendor").iterdir()):
        package = tomllib.loads((crate / "Cargo.toml").read_text())["package"]
        if not package.get("license"):
            sys.exit(f"{crate.name}: its Cargo.toml names no licence, at most a file: may it be shipped?")
        licence = debian_name(package["license"])
        holders = holders_of(crate, package)
        groups[holders, licence].append(f"vendor/{crate.name}/*")
        for path in text_files(crate):
            name = str(path.relative_to(tree))
            named = SPDX.search(read(path))
            other = debian_name(EXCEPTIONS.get(name) or named and named[1].strip() or package["license"])
            expect_texts_of(path, name, other)
            if other != licence:
                groups[tuple(found_in([path])) or holders, other].append(name)
    # Of several paragraphs that fit a file, the last counts: those of single files follow.
    ordered = sorted(groups.items(), key=lambda group: (not group[1][0].endswith("/*"), group[1]))
    paragraphs = [paragraph(files, holders, licence) for (holders, licence), files in ordered]
    licences = {"Expat", "Apache-2.0"} | {name for _, licence in groups for name in parts(licence)}
    return "\n".join([HEAD, *paragraphs, *(text_of(tree, name) for name in sorted(licences))])


def expect_texts_of(path, name, licence):
    """Ends if a file of a licence has only the texts of others than `licence`, or any file asks for more."""
    text = " ".join(re.sub(r"^[/*#!;\s]*", "", line) for line in read(path).splitlines())
    found = {known for known, mark in MARKS.items() if re.search(mark.replace(" ", r"\s+"), text, re.I)}
    named = {known for known in found if any(part.startswith(known) for part in parts(licence))}
    is_licence = re.match(r"(un)?licen[cs]e", path.name, re.I)
    if is_licence and not named or {"GPL", "MPL"} & (found - named):
        sys.exit(f"{name} has to be that of {licence}, but its text is {' and '.join(sorted(found)) or 'unknown'}: may it be shipped?")


def text_files(crate):
    return [path for path in sorted(crate.rglob("*")) if path.is_file() and path.suffix not in (".json", ".toml", ".lock")]


def read(path):
    return path.read_bytes().decode(errors="replace")


def holders_of(crate, package):
    """Those that the crate's files name; and, unless its own licence names them, its authors."""
    files = text_files(crate)
    # Not Unicode's, the holder of the tables in a crate of somebody else.
    own = [path for path in files if LICENCE_FILE.match(path.name) and path.name != "LICENSE-UNICODE"]
    return tuple(sorted({*found_in(files), *([] if found_in(own) else authors(crate, package))}))


def found_in(files):
    """The holders that these files name."""
    texts = [read(path) for path in files]
    holders = [holder for text in texts for form in HOLDERS for holder in form.findall(text)]
    return sorted({tidy(holder) for holder in holders if not NO_HOLDER.match(holder)})


def tidy(holder):
    holder = re.sub(r"\n[/*#!;\s]*", " ", holder)
    # Links of Markdown.
    holder = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", holder).replace("`", "")
    holder = re.sub(r"\s*\(@\w+\)|[.,]? (See the COPYRIGHT|All rights reserved).*", "", holder, flags=re.I)
    holder = re.sub(r"^(\d{4})\D(\d{4})", r"\1-\2", " ".join(holder.split()))
    return re.sub(r"^([\d-]+),", r"\1", holder).strip(" .,*/")


def authors(crate, package):
    if not package.get("authors") and not package.get("repository"):
        sys.exit(f"{crate.name}: neither its files nor its Cargo.toml name a holder")
    return package.get("authors") or [f"the contributors of {package['repository']}"]


def debian_name(spdx):
    """`(MIT OR Apache-2.0) AND Unicode-3.0` is, as Debian writes it, `Expat or Apache-2.0, and Unicode-3.0`."""
    name = re.sub(r"\((.*?)\) AND ", r"\1, and ", re.sub(r" OR |/", " or ", spdx))
    for old, new in NAMES.items():
        name = re.sub(rf"(?<![\w.-]){re.escape(old)}(?![\w.-])", new, name)
    unknown = [part for part in parts(name) if part not in TEXTS]
    if unknown:
        sys.exit(f"{spdx}: debian/copyright.py has no text for {unknown}: may it be shipped?")
    return name


def parts(licence):
    return re.split(r",? and | or ", licence)


def paragraph(files, holders, licence):
    indent = "\n           "
    return f"Files: {f'{chr(10)}       '.join(files)}\nCopyright: {indent.join(holders)}\nLicense: {licence}\n"


def text_of(tree, name):
    text = TEXTS[name]
    if text.startswith("vendor/"):
        text = (tree / text).read_text()
        text = re.sub(NOT_THE_TEXT.get(name, r"\A$"), "", text, flags=re.S).strip()
    if name.startswith("Apache-2.0 with"):
        text = TEXTS["Apache-2.0"] + "\n\n" + text
    lines = "\n".join(f" {line.rstrip()}" if line.strip() else " ." for line in text.splitlines())
    return f"License: {name}\n{lines}\n"


if __name__ == "__main__":
    main()
