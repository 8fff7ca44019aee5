"""Listings: the text of a module, with the location of each line."""

from __future__ import annotations

from pathlib import Path

import pytest

from pullback.ir.core.structure import NOWHERE, Loc
from pullback.ir.listing import list_module
from pullback.ir.text import parse_module, print_module
from tests.support.paths import TESTS

FILES = sorted((TESTS / "golden" / "passes").rglob("*.ir"))[::4]
TEXT = """pullback-ir 2

kernel k(%x: &f64[s0], %out: &f64[]) -> () {
  %0: f64[] = const {value=0.0}
  %1: i64[] = extent {size=s0}
  %2: f64[] = for %1, %0 {combine=[add]} (%i: i64[]) {
    %3: f64[] = load %x, %i @model.py:3
    %4: f64[] = sin %3 @model.py:4
    yield %4
  } @model.py:5 pullback(sum)
  store %2, %out
  return
}
"""


def test_lines_have_the_locations_of_their_instructions() -> None:
    module = parse_module(TEXT)
    (loop,) = (i for i in module.functions[0].instructions if i.regions)
    listing = list_module(module, {loop: {None: "first\nsecond"}})
    by_line = {text.strip(): loc for text, loc in zip(listing.lines, listing.locs, strict=True)}
    of_loop = Loc("model.py", 5, "pullback(sum)")
    assert [loc.line for loc in listing.locs] == [0, 0, 0, 0, 0, 5, 5, 5, 3, 4, 5, 5, 0, 0, 0]
    assert by_line["# first"] == by_line["# second"] == by_line["yield %4"] == of_loop
    assert by_line["%3: f64[] = load %x, %i"] == Loc("model.py", 3) and by_line["store %2, %out"] == NOWHERE


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_text_is_that_of_the_printer(path: Path) -> None:
    for text in path.read_text().split("=>"):
        if "pullback-ir" in text:
            module = parse_module(text)
            assert list_module(module).text == print_module(module)
