"""Write the page: its contents as JSON in a template with the style and the scripts, one file that refers to no other."""

from __future__ import annotations

import base64
import html
import json
import zlib
from dataclasses import asdict, replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from pullback.view.contents import Contents, Stage

SCRIPTS = ("core.js", "lines.js", "source.js", "stages.js", "kernels.js", "charts.js", "tables.js", "main.js")
"""The scripts of the page, in the order in which they run."""
MOST_OF_A_STAGE = 600_000
"""Largest number of characters that a compressed stage takes: ten of them, and the rest, are less than 8 MB."""
IN_SCRIPTS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
"""Characters of markup, and how JSON writes them."""


def page_of(contents: Contents, stage: str = "") -> str:
    """Return the page as HTML. ``stage``: the stage that it shows first. Raises ValueError for an unknown one."""
    if stage:
        contents.stage(stage)
    script = "\n".join(_resource(name) for name in SCRIPTS)
    parts = {
        "title": html.escape(f"{contents.title} - pullback"),
        "style": _resource("page.css"),
        "contents": encoded({**_plain(contents), "stage": stage}),
        "script": f'(() => {{\n"use strict";\n{script}\n}})();',
    }
    page, *pieces = _resource("page.html").split("{{")
    for piece in pieces:
        name, _, rest = piece.partition("}}")
        page += parts[name] + rest
    return page


def encoded(value: Any) -> str:
    """Return JSON that no HTML parser reads as markup."""
    text = json.dumps(value, separators=(",", ":"))
    for character, escape in IN_SCRIPTS.items():
        text = text.replace(character, escape)
    return text


def _plain(contents: Contents) -> dict[str, Any]:
    fields = asdict(replace(contents, stages=()))
    return {**fields, "stages": [_packed(stage) for stage in contents.stages]}


def _packed(stage: Stage) -> dict[str, Any]:
    """Return a stage with its text, places and folds compressed. One that is too large loses lines at its end."""
    data = _compressed(stage)
    while len(data) > MOST_OF_A_STAGE:
        count = len(stage.lines) * MOST_OF_A_STAGE * 9 // (len(data) * 10)
        stage = replace(
            stage, lines=stage.lines[:count], places=stage.places[:count],
            folds=tuple((first, min(last, count - 1)) for first, last in stage.folds if first < count - 1),
            omitted=stage.omitted + len(stage.lines) - count,
        )  # fmt: skip
        data = _compressed(stage)
    return {"name": stage.name, "data": data, "omitted": stage.omitted, "problem": stage.problem}


def _compressed(stage: Stage) -> str:
    if not stage.lines:
        return ""
    runs = [entry for at, same in groupby(stage.places) for entry in (at, sum(1 for _ in same))]
    text = json.dumps(["\n".join(stage.lines), runs, stage.folds], separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


@cache
def _resource(name: str) -> str:
    return files("pullback.view").joinpath("page", name).read_text(encoding="utf-8")
