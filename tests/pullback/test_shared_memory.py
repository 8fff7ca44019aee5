"""A stress test of shared memory: arguments, arrays from outside, donated arrays and arrays of ``out`` are views of one block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
N = 16
OUTSIDE = np.zeros(N)

FUNCTIONS: dict[str, Callable[[Array, Array, Array], tuple[Array, Array]]] = {
    "elements": lambda a, b, c: (a + b * c, a - c),
    "other elements": lambda a, b, c: (a[::-1] * 2 + b, np.where(a > b, a, c)),
    "sorted": lambda a, b, c: (np.sort(a) - c, np.sort(b)[::-1] * a),
    "sums": lambda a, b, c: (np.cumsum(a) * b, np.dot(b, c) * a),
    "returned": lambda a, b, c: (b, a + c),
    "returned later": lambda a, b, c: (a * b, c),
    "updated": lambda a, b, c: (np.concatenate([a[1:] + b[:-1], c[:1]]), a + 1),
    "products": lambda a, b, c: (a @ np.outer(b, c), np.linalg.solve(np.eye(N) + np.outer(a, a), b)),
    "outside": lambda a, b, c: (a * OUTSIDE, OUTSIDE[::-1] + b * c),
}
COMPILED = {name: pb.jit(function) for name, function in FUNCTIONS.items()}
DONATING = {(name, k): pb.jit(f, donate=k) for name, f in FUNCTIONS.items() for k in ((0,), (1,), (0, 2))}


def view_of(rng: np.random.Generator, block: Array) -> Array:
    """N of its elements, from somewhere on, every one or every other one, forwards or backwards."""
    step = int(rng.choice([1, 1, 1, 2, -1, -2]))
    start = int(rng.integers(len(block) - (N - 1) * abs(step)))
    result = block[start : start + (N - 1) * abs(step) + 1 : abs(step)]
    return result if step > 0 else result[::-1]


def check(result: Any, expected: Any, what: str) -> None:
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=what)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("seed", range(12))
def test_views_of_one_block(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng([seed, sorted(FUNCTIONS).index(name)])
    for turn in range(6):
        block = rng.normal(size=int(rng.integers(3, 8)) * N)
        args = [view_of(rng, block) for _ in range(3)]
        monkeypatch.setitem(globals(), "OUTSIDE", view_of(rng, block))
        what = f"{seed}, {turn}"
        expected = [np.array(r) for r in FUNCTIONS[name](*map(np.array, args))]
        before = block.copy()

        plain = COMPILED[name](*args)
        check(plain, expected, what)
        np.testing.assert_array_equal(block, before)
        whole = [r for r in plain if not any(r is a for a in args)]
        assert not any(np.shares_memory(r, block) for r in whole)

        outs = tuple(None if rng.random() < 0.3 else view_of(rng, block) for _ in expected)
        arguments = [o for o in outs if o is not None]
        if len(arguments) == 2 and np.shares_memory(*arguments):
            with pytest.raises(ValueError, match="shares memory"):
                COMPILED[name].into(outs, *args)
        else:
            after = before.copy()
            for out, r in zip(outs, expected, strict=True):
                if out is not None:
                    places = (out.ctypes.data - block.ctypes.data) // 8
                    after[places + np.arange(N) * (out.strides[0] // 8)] = r
            check(COMPILED[name].into(outs, *args), expected, what)
            np.testing.assert_allclose(block, after, rtol=1e-12, atol=1e-12, err_msg=what)
        block[:] = before

        donated = list(DONATING)[int(rng.integers(3)) + 3 * list(FUNCTIONS).index(name)]
        read = [*(a for k, a in enumerate(args) if k not in donated[1]), OUTSIDE if name == "outside" else block[:0]]
        kept = [np.array(a) for a in read]
        check(DONATING[donated](*args), expected, what)
        for a, b in zip(read, kept, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{what}: an array that is not donated was written")
