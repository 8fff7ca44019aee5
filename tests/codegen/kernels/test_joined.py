"""Joined arrays: one loop a part, tables for parts that are the same function, and values and gradients that are NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.kernels.groups import joined
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.kernel import For
from pullback.ir.text import parse_function
from tests.support.targets import compiled

FORMS: dict[str, Callable[..., Any]] = {
    "stacked": lambda *xs: np.stack(xs),
    "stacked last": lambda *xs: np.stack(xs, -1),
    "concatenated": lambda *xs: np.concatenate(xs),
    "along the last axis": lambda *xs: np.concatenate([x.T for x in xs], -1),
    "functions of all": lambda *xs: (np.sin(np.concatenate(xs)), np.sum(np.cos(np.stack(xs)))),
    "functions of each": lambda *xs: np.concatenate([np.sin(x) * (k + 1) for k, x in enumerate(xs)]),
    "constants between": lambda *xs: np.concatenate([xs[0], np.zeros_like(xs[0]), *[x + 1 for x in xs]]),
    "reversed": lambda *xs: np.concatenate([x[::-1] for x in xs]),
    "slices": lambda *xs: np.concatenate([*(x[1:] for x in xs), xs[0][:1]]),
    "nested": lambda *xs: np.concatenate([np.concatenate(xs[:2]), np.concatenate(xs)]),
    "repeated": lambda *xs: np.concatenate([xs[0], xs[0], xs[1], xs[1], xs[0]]),
    "shared": lambda *xs: np.stack([x * xs[0] + xs[-1] for x in xs]),
    "two joins of the same parts": lambda *xs: np.concatenate(xs) + np.concatenate(xs[::-1]),
    "a part that is read elsewhere": lambda *xs: np.concatenate(xs) * np.concatenate([xs[0]] * len(xs)) + xs[0].sum(),
    "read at other indices": lambda *xs: np.concatenate(xs)[::-1] * np.concatenate(xs),
    "rows": lambda *xs: np.vstack([*xs, xs[0] * 2]),
    "columns": lambda *xs: np.hstack([*xs, xs[0] * 2]),
    "scalars": lambda *xs: np.stack([x.sum() for x in xs]),
    "weighted": lambda *xs: np.concatenate(xs) * np.arange(sum(x.size for x in xs)).reshape(np.concatenate(xs).shape),
}


@pytest.mark.parametrize("count", [2, 3, 5, 20])
@pytest.mark.parametrize("name", FORMS)
def test_values_and_gradients(name: str, count: int) -> None:
    form, rng = FORMS[name], np.random.default_rng(1)
    for shape in ((9,), (1,), (6, 5), (2, 3, 4)) if count < 20 else ((9,), (6, 5)):
        if name == "slices" and shape == (1,):
            continue
        xs, towards = ([rng.normal(size=shape) for _ in range(count)] for _ in range(2))
        results, expected = pb.jit(form)(*xs), form(*xs)
        results, expected = (r if isinstance(r, tuple) else (r,) for r in (results, expected))
        cotangents = [rng.normal(size=np.shape(e)) for e in expected]
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, wanted, rtol=1e-12, atol=1e-12)

        def weighted(*xs: Any, cotangents: Any = cotangents) -> Any:
            results = form(*xs)
            results = results if isinstance(results, tuple) else (results,)
            return sum(np.sum(r * c) for r, c in zip(results, cotangents, strict=True))

        gradient = pb.grad(weighted, tuple(range(count)))(*xs)
        step = 1e-6
        ends = [weighted(*(x + sign * step * t for x, t in zip(xs, towards, strict=True))) for sign in (1, -1)]
        slope = sum(np.sum(g * t) for g, t in zip(gradient, towards, strict=True))
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "complex128", "int16", "bool"])
def test_dtypes(dtype: str) -> None:
    xs = [(np.random.default_rng(k).normal(size=(7, 3)) * 9).astype(dtype) for k in range(6)]
    for name in ("stacked", "stacked last", "concatenated", "along the last axis", "reversed", "repeated"):
        np.testing.assert_array_equal(pb.jit(FORMS[name])(*xs), FORMS[name](*xs))


def test_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that begin and end anywhere in the parts, empty parts among them."""
    monkeypatch.setattr(joined, "BLOCK", 8)
    xs = [np.random.default_rng(n).normal(size=n) for n in (0, 5, 8, 1, 0, 40, 3, 0)]
    joined_of = pb.jit(lambda *xs: (np.concatenate(xs), np.concatenate(xs).max(), np.concatenate([*xs, xs[1] * 2, -xs[2]])))
    whole = np.concatenate(xs)
    first, largest, second = joined_of(*xs)
    np.testing.assert_array_equal(first, whole)
    assert largest == whole.max()
    np.testing.assert_array_equal(second, np.concatenate([whole, xs[1] * 2, -xs[2]]))


def test_code_does_not_grow_with_parts_that_are_the_same_function() -> None:
    """A run of parts is one loop, and nothing is selected."""
    names = [f"%x{k}" for k in range(12)]
    text = f"""pullback-ir 2
func f({", ".join(f"{name}: f64[5]" for name in names)}) -> (f64[60]) {{
  %y: f64[60] = concat {", ".join(names)} {{axis=0, starts={[5 * k for k in range(12)]}}}
  %z: f64[60] = sin %y
  return %z
}}"""
    (kernel,) = compiled(parse_function(text)).lowered.functions[1:]
    assert sum(isinstance(i.op, For) for i in walk(kernel.body)) == 3
    assert not any(i.op.name == "select" for i in walk(kernel.body))


@pytest.mark.parametrize("count", [5, 20, 40])
def test_a_part_after_a_run_of_equal_numbers(count: int) -> None:
    """The number that a run reads from its table is not that of a later part."""

    def f(p: float, q: float) -> Any:
        return np.array([p] * count + [q] * count + [p * 2 + q, q - p])

    np.testing.assert_array_equal(pb.jit(f)(1.5, -3.0), f(1.5, -3.0))
    np.testing.assert_array_equal(pb.grad(lambda p: np.sum(f(p, 2.0)))(1.5), count + 1.0)


@pytest.mark.parametrize("count", [4, 20])
def test_a_run_of_numbers_of_which_another_part_is_computed(count: int) -> None:
    """The numbers that a run reads from its table are not those from which an earlier part was computed."""

    def f(p: float, q: float, *rest: float) -> Any:
        return np.array([np.where(p < q, p, q), q, *rest, p * q])

    xs = np.arange(1.0, count + 3.0)
    np.testing.assert_array_equal(pb.jit(f)(*xs), f(*xs))
    cotangents = np.random.default_rng(0).normal(size=count + 3)
    gradients = pb.grad(lambda *xs: np.sum(f(*xs) * cotangents), tuple(range(count + 2)))(*xs)
    expected = [*([cotangents[0] + 2 * cotangents[-1]]), cotangents[1] + cotangents[-1], *cotangents[2:-1]]
    np.testing.assert_allclose(gradients, expected, rtol=1e-14)
