"""Maps that read across memory in CUDA C, against the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from tests.support.cuda.host_programs import Make, emitted, expected, run_program, scheduled, traced
from tests.support.cuda.targets import on_each
from tests.support.golden_files import assert_same


def some(*shape: int, dtype: str = "f8") -> Any:
    return np.random.default_rng(len(shape)).integers(0, 50, shape).astype(dtype)


@on_each
def test_transposes(machine: Make) -> None:
    def call(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any) -> Any:
        return (
            a + a.T, b.T * 2, np.transpose(c, (2, 0, 1)) + 1, np.transpose(c, (0, 2, 1)) - np.transpose(c, (0, 2, 1))[::-1],
            d.T | d.T[:1], e.T + 1.0, f.T + 1, np.transpose(c, (1, 0, 2)) + 1,
            np.transpose(c, (2, 1, 0)) * np.transpose(c, (2, 1, 0))[::-1, ::-1],
        )  # fmt: skip

    args = [some(65, 65), some(33, 100, dtype="f4"), some(5, 40, 67), some(9, 50) > 20, some(0, 5), some(40, 3, dtype="i1")]
    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
def test_gradients_through_transposes(machine: Make) -> None:
    call = pb.value_and_grad(lambda x, y: np.sum(np.sin(x.T * y) @ np.ones(40)))
    function, values = traced(call, some(40, 70) / 9, some(70, 40) / 7)
    assert_same(run_program(machine, function, values), expected(function, values), bitwise=False, rtol=1e-9)


@on_each
def test_tiles_at_one_computed_index(machine: Make) -> None:
    def call(a: Any, b: Any, y: Any) -> Any:
        return y + (np.sin(y) * a[1:81:2, 2:].T + b[1:81:2, 2:].T)

    function, values = traced(call, some(81, 72), some(81, 72) / 7, some(70, 40))
    assert_same(run_program(machine, function, values), expected(function, values), bitwise=False, rtol=1e-12)


def test_what_lies_the_right_way_needs_no_tiles() -> None:
    function, _ = traced(lambda x: np.sin(x) * 2, some(9, 8))
    assert "__shared__" not in emitted(scheduled(function)[0])[0].body
