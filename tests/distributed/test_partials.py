"""Partial results as bytes, and the tree up which they are combined: stacked, or pair by pair."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.distributed import partials
from pullback.distributed.partials import Layout, packed, unpacked
from pullback.ir.passes.rows import combine
from pullback.ir.passes.rows.combine import COMBINATIONS

FLOATS = np.array([0.0, -0.0, 1.5, -2.25, np.nan, np.inf, -np.inf, 1e-300])


def blocks_of(name: str, count: int) -> tuple[Layout, list[list[Any]]]:
    """The layout of a reduction and the partial results of blocks: special values in every position."""
    rng = np.random.default_rng(count)
    shapes = [(2, 3), (), (0, 4)]
    if name in ("argmax", "argmin"):
        arrays = [[rng.integers(0, 99, (2, 3)), rng.choice(FLOATS, (2, 3))] for _ in range(count)]
    elif name in ("bitand", "bitor"):
        arrays = [[rng.random(s) < 0.5 for s in shapes] for _ in range(count)]
    else:
        arrays = [[rng.choice(FLOATS, s).astype(t) for s, t in zip(shapes, ("f8", "f4", "f8"))] for _ in range(count)]
    return ((name, tuple((x.dtype.str, x.shape) for x in arrays[0])),), arrays


def tree(name: str, level: list[Any]) -> Any:
    """The tree as its docstring says it, for one pair after another."""
    while len(level) > 1:
        pairs = [COMBINATIONS[name](tuple(a), tuple(b)) for a, b in zip(level[::2], level[1::2])]
        level = pairs + (level[-1:] if len(level) % 2 else [])
    return level[0]


@pytest.mark.parametrize("most", [0, 2**20], ids=["pair by pair", "stacked"])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 64])
@pytest.mark.parametrize("name", list(COMBINATIONS))
def test_bytes_are_combined_as_arrays_are(monkeypatch: pytest.MonkeyPatch, name: str, count: int, most: int) -> None:
    for module in (partials, combine):
        monkeypatch.setattr(module, "MOST_STACKED", most)
    layout, arrays = blocks_of(name, count)
    (results,) = unpacked(layout, [packed(each) for each in arrays])
    (together,) = combine.combined([name], [[tuple(each)] for each in arrays])
    for result, same, expected in zip(results, together, tree(name, arrays), strict=True):
        assert result.dtype == expected.dtype and result.shape == expected.shape and result.flags.writeable
        for each in (result, same):
            np.testing.assert_array_equal(each, expected)
            if expected.dtype.kind == "f":
                np.testing.assert_array_equal(np.signbit(each)[~np.isnan(each)], np.signbit(expected)[~np.isnan(expected)])
