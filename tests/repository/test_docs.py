"""The listings in the documentation are what the commands above them print, with no kernel on disk, or a function of the file
that is named above them; ``--bless`` writes them anew."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

LISTING = re.compile(r"(<!-- \$ pullback (?P<command>[^\n]+?) -->\n```\n)(?P<text>.*?)(```)", re.DOTALL)
FUNCTION = re.compile(r"(<!-- (?P<path>tests/[^\n]+?): (?P<name>\w+) -->\n```\n)(?P<text>.*?)(```)", re.DOTALL)
EVERY = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [path for path in EVERY if LISTING.search(path.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_listings_are_real(page: Path, bless: bool) -> None:
    environment = {**os.environ, "PULLBACK_CACHE_DIR": "off"}

    def listing(result: re.Match[str]) -> str:
        command = [sys.executable, "-m", "pullback", *shlex.split(result["command"])]
        output = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
        return f"{result[1]}{output.strip()}\n```"

    text = page.read_text()
    fresh = LISTING.sub(listing, text)
    if bless:
        page.write_text(fresh)
    assert fresh == text or bless


@pytest.mark.parametrize("page", [p for p in EVERY if FUNCTION.search(p.read_text())], ids=lambda path: path.name)
def test_functions_are_those_of_files(page: Path, bless: bool) -> None:
    def listing(result: re.Match[str]) -> str:
        parts = re.findall(r"^// .*?^}$", (ROOT / result["path"]).read_text(), re.DOTALL | re.MULTILINE)
        (shown,) = [part for part in parts if re.search(rf"\b{result['name']}\(", part)]
        return f"{result[1]}{shown}\n```"

    text = page.read_text()
    fresh = FUNCTION.sub(listing, text)
    if bless:
        page.write_text(fresh)
    assert fresh == text or bless


def test_there_are_listings() -> None:
    assert PAGES


def test_the_glossary_is_in_order_and_names_what_exists() -> None:
    """Words are alphabetical, files and folders are in the tree, and each source is in the list of sources."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    words, sources = text.split("\n## Sources\n")
    rows = [[cell.strip() for cell in row.split(" | ")] for row in re.findall(r"^\| (.*) \|$", words, re.MULTILINE)][2:]
    assert len(rows) >= 60
    names = [re.sub(r"[^a-z ]", "", row[0].lower()) for row in rows]
    assert names == sorted(names)
    for path in re.findall(r"`([a-z_/]+(?:\.py|/))`", words):
        assert (ROOT / path).exists(), path
    listed = {*re.findall(r"^- ([^:]+):", sources, re.MULTILINE), "ours"}
    for row in rows:
        for source in row[3].split("; "):
            assert any(source.startswith(name) for name in listed), source
