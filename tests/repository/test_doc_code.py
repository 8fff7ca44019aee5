"""The Python blocks of the documentation run, page by page, each page in one namespace and a folder of its own.

A block after ``<!-- raises Error -->`` raises that error; a listing after ``<!-- prints -->`` is what the block above it prints,
and after ``<!-- message -->`` the message of its error. ``--bless`` writes the listings anew. docs/mistakes.md, whose programs
all raise, is run by test_mistakes.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import linecache
import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

import pullback as pb
from tests.support.paths import ROOT

BLOCK = re.compile(
    r"(?:<!-- raises (?P<raises>\w+) -->\n)?```python\n(?P<code>.*?)```\n"
    r"|<!-- (?P<kind>prints|message) -->\n```\n(?P<text>.*?)```\n",
    re.DOTALL,
)
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if "```python\n" in page.read_text() and page.name != "mistakes.md"
]


class Page:
    """Runs the blocks of one page in order and writes its listings."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.text = path.read_text()
        self.names: dict[str, Any] = {"__name__": path.stem}
        self.said = {"prints": "", "message": ""}
        self.blocks = 0

    def run(self) -> str:
        """The page with the listings that its blocks give."""
        return BLOCK.sub(self._block, self.text)

    def _block(self, result: re.Match[str]) -> str:
        if result["code"] is None:
            return f"<!-- {result['kind']} -->\n```\n{self.said[result['kind']].rstrip()}\n```\n"
        line = self.text.count("\n", 0, result.start("code"))
        text, name = "\n" * line + result["code"], "./" * self.blocks + self.path.name  # each block is a file, shown as the page
        self.blocks += 1
        code = compile(text, name, "exec", dont_inherit=True)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), warnings.catch_warnings(action="error"):
            if result["raises"] is None:
                exec(code, self.names)
            else:
                error = getattr(pb, result["raises"], None) or getattr(builtins, result["raises"])
                with pytest.raises(error) as caught:
                    exec(code, self.names)
                self.said["message"] = str(caught.value)
        self.said["prints"] = printed.getvalue()
        return result[0]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_code_runs(path: Path, bless: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(path, tmp_path)
    monkeypatch.chdir(tmp_path)
    fresh = Page(path).run()
    if bless:
        path.write_text(fresh)
    assert fresh == path.read_text()


@pytest.mark.parametrize(
    "path", [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")], ids=lambda p: p.name
)
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)", text):
        target = path.parent / link if link else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings], anchor


def test_there_are_pages_with_code() -> None:
    assert {"README.md", "quickstart.md", "sharp-edges.md", "coming-from.md"} <= {path.name for path in PAGES}
