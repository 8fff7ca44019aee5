"""Sets from outside and sets of the call keep the types of their elements, of which equal ones may have several."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

SETS: list[set[Any]] = [
    {1, 2}, {np.int64(0), 1, 2}, {np.int64(1), 2}, {1.5, 2}, {np.float64(1.0), 2, 3}, {True, 2}, {1, 2.0}, {1.0, 2.0},
    {0.0}, {-0.0}, {(1, 2), (2,)}, {(1.0, 2), (2,)},
]  # fmt: skip
KEYS = (np.int64(2), np.int64(1), np.int64(5), 2)
outside: set[Any] = set()


def replaced(items: set[Any], k: Any) -> Any:
    items.discard(k)
    items.add(k)


def added(items: set[Any], k: Any) -> Any:
    items.add(k)


def updated(items: set[Any], k: Any) -> Any:
    items.discard(k)
    items.update({1, k})
    return len(items)


def read(items: set[Any], k: Any) -> Any:
    return k in items, list(items)


def replaced_outside(k: Any) -> Any:
    replaced(outside, k)


def added_outside(k: Any) -> Any:
    added(outside, k)


def updated_outside(k: Any) -> Any:
    return updated(outside, k)


def read_outside(k: Any) -> Any:
    return read(outside, k)


def shown(function: Callable[..., Any], items: set[Any], *arguments: Any) -> str:
    result = function(*arguments)
    return repr((result, sorted(items, key=repr)))


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("function", [replaced, added, updated, read])
def test_an_argument(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    for k in KEYS:
        for items in SETS:
            own, other = copy.copy(items), copy.copy(items)
            assert shown(compiled, own, own, k) == shown(function, other, other, k)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("function", [replaced_outside, added_outside, updated_outside, read_outside])
def test_a_set_from_outside(function: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pb.jit(function)
    for k in KEYS:
        for items in SETS:
            texts = []
            for f in (compiled, function):
                own = copy.copy(items)
                monkeypatch.setitem(globals(), "outside", own)
                texts.append(shown(f, own, k))
            assert texts[0] == texts[1]


def test_an_argument_that_changes_between_calls() -> None:
    compiled = pb.jit(lambda items, x: (7 in items, len(items), x * 2))
    items = {1, 2}
    for _ in range(3):
        assert compiled(items, 1.5) == (False, 2, 3.0)
    items.add(7)
    assert compiled(items, 1.5) == (True, 3, 3.0)
