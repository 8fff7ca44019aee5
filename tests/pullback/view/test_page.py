"""The page: one file that refers to no other, in which nothing of the user's is markup, of a bounded size."""

from __future__ import annotations

import base64
import html
import json
import re
import webbrowser
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.view import page
from pullback.view.contents import Contents, Stage
from pullback.view.page import encoded, page_of
from pullback.view.stage_texts import folds_of
from pullback.view.view import View
from tests.pullback.view import programs


@pytest.fixture(scope="module")
def hostile() -> View:
    return pb.grad(programs.hostile).view(np.ones(5), größe=3.0)


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] == "script":
            self.scripts[-1] += data


def contents_in(text: str) -> Any:
    return json.loads(Elements(text).scripts[0])


def stage_in(text: str, name: str) -> Any:
    (stage,) = (s for s in contents_in(text)["stages"] if s["name"] == name)
    return json.loads(zlib.decompress(base64.b64decode(stage["data"])))


def test_nothing_of_the_users_is_markup(hostile: View) -> None:
    parsed = Elements(hostile.html)
    tags = [tag for tag, _ in parsed.elements]
    assert tags.count("script") == 2 and "img" not in tags and "b" not in tags
    assert hostile.html.count("</script>") == 2
    data = contents_in(hostile.html)
    assert data["sources"][0]["lines"] == Path(programs.__file__).read_text(encoding="utf-8").splitlines()
    assert "größe" in data["arguments"]


def test_titles_are_escaped() -> None:
    text = page_of(Contents(title="</title><script>", device="cpu", arguments=""))
    assert "<title>&lt;/title&gt;&lt;script&gt; - pullback</title>" in text


TEXTS = ("</script>", "<!--<script>", "\u2028\u2029", "\ud800", "]]>", "&amp;", "größe", "C:\\temp\\x.py")


@pytest.mark.parametrize("value", TEXTS)
def test_encoded_values_are_read_back(value: str) -> None:
    text = encoded({"value": [value, 1.5, None, True]})
    assert not set("<>&") & set(text) and text.isascii()
    assert json.loads(text) == {"value": [value, 1.5, None, True]}


def test_the_page_refers_to_no_other_file(hostile: View) -> None:
    for _, attributes in Elements(hostile.html).elements:
        assert not {"src", "srcset", "action", "poster"} & set(attributes)
        assert attributes.get("href") in (None, "data:,")
    own = re.sub(r'<script type="application/json".*?</script>', "", hostile.html, flags=re.DOTALL)
    assert set(re.findall(r"\bhttps?://[^\s\"')]+", own)) == {"http://www.w3.org/2000/svg"}
    loads = ("fetch(", "XMLHttpRequest", "WebSocket", "import(", "importScripts", "sendBeacon", "url(", "@import", "innerHTML")
    assert [word for word in loads if word in own] == []


def test_the_texts_of_the_stages_are_in_the_page(hostile: View) -> None:
    for stage in hostile.contents.stages:
        text, runs, folds = stage_in(hostile.html, stage.name)
        assert text.split("\n") == list(stage.lines)
        places = [at for at, count in zip(runs[::2], runs[1::2], strict=True) for _ in range(count)]
        assert places == list(stage.places) and [tuple(f) for f in folds] == list(stage.folds)


def test_a_large_stage_loses_lines_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "MOST_OF_A_STAGE", 20_000)
    rng = np.random.default_rng(0)
    lines = ("func f {", *(f"  %{k} = {rng.random()!r}" for k in range(5000)), "}")
    stage = Stage(name="trace", lines=lines, places=(-1,) * len(lines), folds=((0, len(lines) - 1),))
    text = page_of(Contents(title="f", device="cpu", arguments="", stages=(stage,)))
    shown, runs, folds = stage_in(text, "trace")
    kept = shown.split("\n")
    (packed,) = contents_in(text)["stages"]
    assert 500 < len(kept) < 5000 and kept == list(lines[: len(kept)])
    assert packed["omitted"] == len(lines) - len(kept) and len(packed["data"]) <= 20_000
    assert sum(runs[1::2]) == len(kept) and folds == [[0, len(kept) - 1]]


def test_blocks_that_fold() -> None:
    ir = ["func f() {", "  %0 = for %1 {", "    %2 = load %x", "    yield %2", "  }", "  return %0", "}", "", "kernel k() {", "}"]
    assert list(folds_of(ir)) == [(0, 6), (1, 4)]
    asm = ["\t.text", "k0:", "\tpushq\t%rbp", ".LBB0_1:", "\tretq", ".Lfunc_end0:", "\t.size\tk0, .Lfunc_end0-k0"]
    assert list(folds_of(asm)) == [(1, 6)]


def test_the_first_stage(hostile: View, tmp_path: Path) -> None:
    path = hostile.save(tmp_path / "größe.html", stage="llvm")
    assert contents_in(path.read_text(encoding="utf-8"))["stage"] == "llvm"
    with pytest.raises(ValueError, match=r"no stage 'ptx' of this call; there are trace, .*, cuda$"):
        hostile.save(tmp_path / "other.html", stage="ptx")
    assert not (tmp_path / "other.html").exists()


def test_a_notebook_shows_the_page(hostile: View) -> None:
    (frame,) = Elements(hostile._repr_html_()).elements
    assert frame[0] == "iframe" and frame[1]["srcdoc"] == hostile.html and frame[1]["sandbox"] == "allow-scripts"
    assert html.unescape(hostile._repr_html_()).count("<iframe") == 1


def test_without_a_browser_the_file_is_written(hostile: View, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: bool(opened.append(url)))
    with pytest.warns(UserWarning, match="no browser could be started; the page is in"):
        path = hostile.open()
    assert path.read_text(encoding="utf-8") == hostile.html and opened == [path.as_uri()]


def test_the_headline_says_what_is_shown(hostile: View) -> None:
    assert re.fullmatch(r"grad\(hostile\): \d+ operations, \d+ kernels?; stages trace, .*, cuda", str(hostile))
    failed = programs.called.view(np.ones(3))
    assert failed.headline.startswith("called: ") and "a Python branch (if) on a traced value" in str(failed)
    assert "a Python branch" in failed.html
