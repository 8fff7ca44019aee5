"""docs/math.md: every function has a row, no row is above what is allowed, and a smaller sample gives no greater error."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.elementary import page as math_page
from tests.support.elementary.recipes import DTYPES, compiled, names
from tests.support.elementary.sources import METHODS, SPECIAL

SHOWN = math_page.shown()


def test_every_function_has_a_row() -> None:
    assert list(SHOWN) == names()
    assert set(METHODS) == set(SPECIAL) == set(names())


def test_the_bounds_of_derivatives_are_those_of_the_sweep() -> None:
    text = math_page.PAGE.read_text()
    assert math_page.with_derivatives(text) == text, "python -m tests.support.elementary.page derivatives"


@pytest.mark.parametrize("name", names())
def test_no_row_is_above_what_is_allowed(name: str) -> None:
    assert max(SHOWN[name]) <= math_page.GOALS.get(name, 2.0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", names())
def test_rows(name: str, dtype: str) -> None:
    arguments = math_page.small(name, dtype)
    error, where = math_page.greatest(name, compiled(name, *arguments), arguments)
    assert error <= SHOWN[name][0 if dtype == "f64" else 1], where


@pytest.mark.long
@pytest.mark.parametrize("name", ["exp", "log", "sin", "cos"])
def test_every_float32(name: str) -> None:
    for start in range(0, 2**32, 2**26):
        x = math_page.within(name, np.arange(start, start + 2**26, dtype=np.uint32).view(np.float32))
        if x.size:
            error, where = math_page.greatest(name, compiled(name, x), (x,))
            assert error <= 1.0, where
