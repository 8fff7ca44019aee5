"""The gallery: each program has a stored page and picture, which are those of its present text; with ``-m long`` each runs."""

from __future__ import annotations

import ast
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES, ROOT

PROGRAMS = sorted((EXAMPLES / "gallery").glob("plot_*.py"))
STORED = ROOT / "docs" / "gallery"
MOST_BYTES = 3_000_000
"""The size of all stored pictures together: a clone of the repository stays small."""
NOTEBOOKS = sorted((ROOT / "docs" / "tutorial").glob("*.ipynb"))


def test_there_are_programs_and_notebooks() -> None:
    assert len(PROGRAMS) >= 20
    assert len(NOTEBOOKS) == 3


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_the_stored_page_is_of_the_present_program(path: Path) -> None:
    """`make docs-full` stores it anew."""
    assert (STORED / f"{path.name}.md5").read_text() == hashlib.md5(path.read_bytes()).hexdigest()
    pictures = sorted((STORED / "images").glob(f"sphx_glr_{path.stem}_*.png"))
    page = (STORED / f"{path.stem}.rst").read_text()
    assert pictures and all(picture.name in page for picture in pictures)
    assert (STORED / "images" / "thumb" / f"sphx_glr_{path.stem}_thumb.png").exists()
    assert " object at 0x" not in page and "Total running time" not in page


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_says_what_it_is(path: Path) -> None:
    title, rule, *rest = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()
    assert len(rule) == len(title) and set(rule) == {"="}
    assert 1 <= " ".join(rest).count(". ") + 1 <= 3


def test_pictures_are_small() -> None:
    sizes = [path.stat().st_size for path in STORED.rglob("*.png")]
    assert sum(sizes) < MOST_BYTES


def test_nothing_is_stored_without_a_program() -> None:
    assert {path.stem for path in STORED.glob("*.rst")} == {path.stem for path in PROGRAMS}


@pytest.mark.long
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_runs(path: Path) -> None:
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
