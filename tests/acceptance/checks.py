"""Programs with an oracle and a formula for the gradient, and the checks that each of them passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

import pullback as pb

Array = Any
TOLERANCE = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-4}


@dataclass(frozen=True, kw_only=True)
class Program:
    """``f(*args, **options)``, with plain loops and a formula to compare it with.

    ``oracle(*args, **options)`` computes the same by plain loops. ``formula(G, *args, **options)`` returns the gradients by the
    float arguments, in their order; G has the containers of the result. ``data``: the positions of float arguments without one.
    ``smooth``: finite differences are valid for the gradient. ``cancels``: the size of terms whose sum is 0 in exact arithmetic.
    """

    f: Callable[..., Any]
    args: tuple[Any, ...]
    oracle: Callable[..., Any]
    formula: Callable[..., Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    data: tuple[int, ...] = ()
    smooth: bool = True
    cancels: float = 0.0


def in_dtypes(names: Iterable[str]) -> list[Any]:
    """Parameters (name, dtype): every name in float64, every third in float32; float32 of the others is in the long run."""
    wide = [pytest.param(name, np.float64, id=f"{name}-float64") for name in names]
    return wide + [
        pytest.param(name, np.float32, id=f"{name}-float32", marks=() if not k % 3 else pytest.mark.long)
        for k, name in enumerate(names)
    ]


def floats(*args: Any) -> list[int]:
    """Return the positions of float arguments."""
    return [k for k, a in enumerate(args) if np.asarray(a).dtype.kind == "f"]


def draw(*shapes: Any, seed: int = 0, low: float = -2.0, high: float = 2.0) -> list[Array]:
    """Arrays of these shapes, numbers for ()."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(low, high, shape) for shape in shapes]


def cotangent(result: Any, seed: int = 7) -> Any:
    """Random weights for each number of a result, never the same twice."""
    rng = np.random.default_rng(seed)
    return pb.tree.map(
        lambda y: np.asarray(rng.uniform(0.3, 1.0, np.shape(y)) * rng.choice([-1, 1], np.shape(y)), y.dtype)[()], result
    )


def close(result: Any, expected: Any, tolerance: float, cancels: float = 0.0) -> None:
    """Trees of arrays agree elementwise to a relative tolerance, or to a tenth of it of the largest, or of what cancels."""
    result, expected = pb.tree.leaves(result), pb.tree.leaves(expected)
    assert len(result) == len(expected)
    for a, b in zip(result, expected, strict=True):
        assert np.shape(a) == np.shape(b)
        largest = np.max(np.abs(b), initial=cancels, where=np.isfinite(b))
        floor = np.finfo(np.asarray(a).dtype).tiny if np.asarray(a).dtype.kind == "f" else 0
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=max(tolerance / 10 * largest, floor))


def gradients(f: Callable[..., Any], G: Any, *args: Any) -> tuple[Any, list[Any]]:
    """The value and the gradients by all float arguments for a cotangent, from one compiled program."""

    def both(G: Any, *args: Any) -> Any:
        y, pull = pb.vjp(f, *args)
        return y, pull(G)

    y, result = pb.jit(both)(G, *args)
    return y, [result[k] for k in floats(*args)]


def check(program: Program, dtype: Any) -> None:
    """Value by NumPy and compiled as the oracle's; gradients as the formula's and, in float64, as differences."""
    f = partial(program.f, **program.options)
    exact = [a.astype(dtype).astype(float) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in program.args]
    args = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in exact]
    tolerance = TOLERANCE[np.dtype(dtype)]
    expected = program.oracle(*exact, **program.options)
    plain = f(*args)
    close(plain, expected, tolerance)
    G = cotangent(plain)
    y, result = gradients(f, G, *args)
    close(y, expected, tolerance)
    for leaf in pb.tree.leaves((plain, y)):
        assert leaf.dtype == dtype
    wrt = [k for k in floats(*args) if k not in program.data]
    result = [g for k, g in zip(floats(*args), result, strict=True) if k in wrt]
    wide = pb.tree.map(lambda g: np.asarray(g, float)[()], G)
    formula = program.formula(wide, *exact, **program.options)
    assert len(result) == len(formula)
    for k, g, expected in zip(wrt, result, formula, strict=True):
        assert isinstance(args[k], float) or g.dtype == args[k].dtype
        close(g, expected, tolerance, program.cancels)
    if program.smooth and dtype == np.float64:
        differences(f, wide, args, wrt, result)


def differences(f: Callable[..., Any], G: Any, args: Any, wrt: Any, result: Any, step: float = 1e-5) -> None:
    """Gradients agree with central differences of plain NumPy's values along random directions."""
    rng = np.random.default_rng(3)
    for k, g in zip(wrt, result, strict=True):
        for _ in range(2):
            direction = rng.uniform(0.5, 1.0, np.shape(g)) * rng.choice([-1, 1], np.shape(g))
            values = [total(G, f(*args[:k], args[k] + s * step * direction, *args[k + 1 :])) for s in (-2, -1, 1, 2)]
            slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * step)
            scale = np.sum(np.abs(g * direction)) + abs(values[0])
            np.testing.assert_allclose(np.sum(g * direction), slope, rtol=0, atol=1e-9 * (1 + scale))


def total(G: Any, y: Any) -> float:
    """The sum of a result's numbers, each times its weight, but for infinite ones."""
    return float(sum(np.sum(a * b, where=np.isfinite(b)) for a, b in zip(pb.tree.leaves(G), pb.tree.leaves(y), strict=True)))
