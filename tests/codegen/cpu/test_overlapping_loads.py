"""Rows that loops read at several adjacent offsets: each is loaded once, and the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir.passes.size_classes import MOST_NEIGHBOURS, templated
from pullback.ir.shapes.extents import extents_of
from pullback.tracer import flatten, trace
from tests.support.targets import assert_close, compiled, run_targets

Array = Any
SIZES = (0, 1, 7, 8, 9, 16, 17, 33, 64, 150)


def differences(u: Array) -> Array:
    return u[1:] - u[:-1]


def weighted(u: Array) -> Array:
    """Read four of five adjacent offsets, all but the middle one."""
    return u[4:] * u[:-4] + (u[3:-1] - u[1:-3])


def far(u: Array) -> Array:
    """Places on both sides of what a vector holds."""
    last = u.shape[0] - 22
    return u[:last] + u[3 : 3 + last] * u[11 : 11 + last] - u[20 : 20 + last] + u[22 : 22 + last]


def total(u: Array) -> Array:
    return np.sum((u[2:] - u[1:-1]) * u[:-2])


def squares(u: Array) -> Array:
    """Read the rows above, at and below each element, each at three offsets."""
    parts = [u[i : u.shape[0] - 2 + i, j : u.shape[1] - 2 + j] for i in range(3) for j in range(3)]
    return sum((k + 1) * part for k, part in enumerate(parts))


def agree(function: Callable[..., Any], argument: Array, ulps: float, note: object) -> None:
    traced = trace(function, (argument,), {})
    values = traced.arguments(flatten(((argument,), {}))[0])
    assert values is not None
    results = run_targets(traced.function, values)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for a, e in zip(result, expected, strict=True):
            assert_close(a, e, ulps, floor=1.0 if ulps else 0.0, note=f"{note} on {target}")


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64"])
@pytest.mark.parametrize("form", [differences, weighted, far, total], ids=lambda form: form.__name__)
def test_lines(form: Callable[[Array], Array], dtype: str) -> None:
    """Sizes around a vector, several vectors an iteration, and a rest; numbers whose sums are exact."""
    least = {differences: 1, total: 2, weighted: 4, far: 22}[form]
    for size in SIZES:
        u = np.random.default_rng(size).integers(-2, 3, least + size).astype(dtype)
        agree(form, u, 0, (form.__name__, dtype, size))


@pytest.mark.parametrize("width", [1, 8, 16, 17, 33, 70])
def test_squares(width: int) -> None:
    u = np.random.default_rng(width).integers(-4, 5, (5, width + 2)).astype(float)
    agree(squares, u, 0, width)
    agree(squares, u.astype(np.float32), 0, width)
    agree(pb.grad(lambda u: np.sum(squares(u) ** 2)), u, 0, width)


def test_special_values_stay_in_their_lanes() -> None:
    u = np.zeros(100)
    u[::7] = np.resize([np.nan, np.inf, -np.inf, -0.0], u[::7].shape)
    for form in (differences, weighted, far):
        agree(form, u, 0, form.__name__)


def test_what_is_written_is_read_where_it_is() -> None:
    """A row of an array that the kernel also writes is no row to keep."""

    def form(u: Array) -> Array:
        u = u.copy()
        u[1:-1] += u[2:] - u[:-2]
        return u

    for size in (3, 17, 40, 100):
        agree(lambda u: pb.fori_loop(0, 3, lambda i, u: form(u), u), np.arange(float(size)) ** 2, 0, size)


def loads(function: Callable[..., Any], argument: Array, vector_bytes: int) -> tuple[int, int]:
    """Return the number of vectors that an iteration of the only vector loop loads, without masks, and the number it shuffles."""
    (kernel,) = compiled(trace(function, (argument,), {}).function).lowered.functions[1:]
    parts = emit(schedule(kernel), "k", Target(vector_bytes)).text.split("\nbody")
    plain = [part.partition("\nend")[0] for part in parts if "nontemporal" not in part and "masked" not in part]
    body = max(plain, key=lambda part: part.count(" = load <"))
    return body.count(" = load <"), body.count(" = shufflevector")


def test_a_row_is_loaded_once_where_a_vector_is_a_line() -> None:
    """Each of three rows: its vector, and the one before, of a slot; two are put together."""
    u = np.ones((50, 100))
    assert loads(squares, u, 64) == (3 + 3, 6)
    assert loads(squares, u, 32)[0] == 9


def names(function: Callable[..., Any], argument: Array) -> list[str]:
    result = templated(trace(function, (argument,), {}).function)
    return [name for name in extents_of(result.function) if result.sizes[name] <= MOST_NEIGHBOURS]


def test_starts_of_neighbours_are_numbers() -> None:
    """Only starts of adjacent parts are constants: one template serves all sizes, and all starts of a single part."""
    assert names(differences, np.ones(100)) == []
    assert names(lambda u: u[:98] - u[2:], np.ones(100)) == []
    assert len(names(lambda u: np.sum(u[2:]), np.ones(100))) == 1
    near = templated(trace(differences, (np.ones(100),), {}).function)
    other = templated(trace(differences, (np.ones(50),), {}).function)
    assert len(near.sizes) == len(other.sizes) == 2
