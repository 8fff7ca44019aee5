"""Derivatives of every op, of orders 1 and 2, reverse and forward, in float64 and float32, against exact ones.

Each differentiable op has a row: elementwise functions are swept over their whole domains (``rows`` in
tests/support/derivatives), other ops are held in the ways of its ``families`` and ``matrices``, or there is a written reason. The
subset that runs always takes one of sixteen powers of two and the special points; ``-m long`` takes all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pullback.ir import OPS, Op
from pullback.ir.interpret import interpret
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.verify import verify
from tests.support.derivatives import bounds as derivative_bounds
from tests.support.derivatives import families as derivative_families
from tests.support.derivatives import matrices as derivative_matrices
from tests.support.derivatives.bounds import AWAITED, BOUNDS, REASONS, WIDE
from tests.support.derivatives.families import FOURIER, MULTILINEAR, PROGRAMS
from tests.support.derivatives.formulas import EXACT
from tests.support.derivatives.matrices import MATRICES
from tests.support.derivatives.references import is_current, orders, read, reference
from tests.support.derivatives.rows import ROWS, points
from tests.support.derivatives.sweep import MODES, measured, of_library
from tests.support.gradients import gradient_of_gradient, loss_of, with_gradient
from tests.support.op_cases import Case, cases

REFERENCED = [name for name in ROWS if name in EXACT and name not in AWAITED]
SUBSET = 16
ORDERED = ("max", "min", "sort")


def differentiable() -> list[str]:
    """The ops of functions through which derivatives are taken: those with a rule, linear ones, and those with regions, which the
    passes know."""
    control = {"scan", "while", "switch", "custom", "group", "gradient", "jvp", "vmap"}
    return [
        op.name
        for op in OPS.values()
        if "func" in op.vocabularies and not op.nondifferentiable and (op.pullback or op.linear or op.name in control)
    ]


def test_every_differentiable_op_has_a_row_or_a_reason() -> None:
    swept = {*REFERENCED, *AWAITED}
    assert set(differentiable()) == swept.union(MULTILINEAR, FOURIER, PROGRAMS, MATRICES, derivative_families.REASONS)


def test_every_row_has_a_bound_and_a_great_one_a_reason() -> None:
    assert set(BOUNDS) == set(REFERENCED)
    for name, bounds in BOUNDS.items():
        assert len(bounds) == len(orders(ROWS[name].arity)), name
        assert name in REASONS or (max(bounds) <= WIDE and ROWS[name].without is None), name
    assert set(REASONS) <= set(BOUNDS)


@pytest.mark.parametrize("name", REFERENCED)
def test_references_are_of_the_points_of_the_row(name: str) -> None:
    assert is_current(name)


def check(name: str, dtype: str, mode: str, every: int) -> None:
    counts = []
    for errors, bound in zip(measured(name, dtype, mode, every), BOUNDS[name], strict=True):
        counts.append(errors.units.size)
        if errors.units.size:
            at = errors.worst()
            told = f"d{errors.index} of {name} at {errors.points[at].tolist()}: {errors.ours[at]!r}, not {errors.right[at]!r}"
            assert errors.units[at] <= bound, told
    assert max(counts) > 3


@pytest.mark.parametrize("name", REFERENCED)
def test_sweep(name: str) -> None:
    """If SciPy computes a function of several arguments, its other programs, slow to compile, are in the long run."""
    check(name, "f64", "reverse", SUBSET)
    if ROWS[name].arity == 1 or not of_library(name):
        check(name, "f64", "forward", SUBSET)
        check(name, "f32", "reverse", SUBSET)


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("name", REFERENCED)
def test_whole_sweep(name: str, dtype: str, mode: str) -> None:
    check(name, dtype, mode, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", REFERENCED)
def test_references_are_computed_again(name: str) -> None:
    """Some lines of each file, by the mpmath of today: those that it had an answer to in time."""
    x, values, _ = read(name)
    assert np.array_equal(x, points(name))
    known = np.flatnonzero(~np.isnan(values).all(axis=1))
    for k in np.random.default_rng(0).permutation(known)[:5]:
        again, _ = reference(name, x[k], 60.0)
        np.testing.assert_array_equal(again, values[k])


# ops that are linear in each element


def whole(rng: np.random.Generator, case: Case) -> list[Any]:
    """Return operands of small whole numbers; they differ by at least four for an op of ORDERED."""
    result = []
    for argument in case.arguments(rng):
        a = np.asarray(argument)
        if a.dtype.kind in "fc":
            spread = (rng.permutation(a.size) - a.size // 2) * 4 + 1 if case.op.name in ORDERED else rng.integers(-3, 4, a.size)
            parts = 1j * rng.integers(-3, 4, a.size) if a.dtype.kind == "c" else 0
            a = (spread + parts).reshape(a.shape).astype(a.dtype)
        result.append(a)
    return result


def small(case: Case, wanted: Sequence[int]) -> bool:
    sizes = [int(np.prod(case.types[k].shape)) for k in wanted]
    return 0 < sum(sizes) <= 24 and max(sizes) <= 12


def moved(arguments: Sequence[Any], k: int, position: Any, step: complex) -> list[Any]:
    result = [np.array(a) for a in arguments]
    result[k][position] += step
    return result


def steps(dtype: Any) -> tuple[complex, ...]:
    return (1.0, 1j) if np.dtype(dtype).kind == "c" else (1.0,)


@pytest.mark.parametrize("name", MULTILINEAR)
def test_derivatives_of_ops_linear_in_each_element_are_exact(name: str) -> None:
    """Operands are whole numbers: the derivative by an element is the change of the result if it grows by one, and the second
    derivative by two is the change by both minus the changes by each; a complex number is differentiated by its parts."""
    op: Op = OPS[name]
    rng = np.random.default_rng(sum(map(ord, name)))
    tried = 0
    for case in cases(op):
        wanted = [k for k, t in enumerate(case.types) if t.dtype.is_inexact and t.dtype.part.bits >= 32]
        results = case.results()
        if not wanted or not small(case, wanted) or not results[0].dtype.is_inexact or results[0].dtype.part.bits < 32:
            continue
        arguments = whole(rng, case)
        loss, extra = loss_of(case)
        weights = [(rng.integers(1, 5, t.shape)).astype(t.dtype.numpy) for t in extra]
        first = verify(grad(verify(with_gradient(loss, case.types, wanted, extra))))
        directions = [rng.integers(-2, 3, case.types[k].shape).astype(case.types[k].dtype.numpy) for k in wanted]
        second = verify(grad(verify(gradient_of_gradient(loss, case.types, wanted, extra))))
        base, *gradients = interpret(first, *arguments, *weights)
        _, *curvatures = interpret(second, *arguments, *weights, *directions)
        for k, gradient, curvature in zip(wanted, gradients, curvatures, strict=True):
            for position in np.ndindex(np.shape(gradient)):
                for step in steps(gradient.dtype):
                    there, *others = interpret(first, *moved(arguments, k, position, step), *weights)
                    assert np.real(gradient[position] * step) == there - base, (str(case), k, position)
                    change = sum(np.sum(np.real(d * (o - g))) for d, o, g in zip(directions, others, gradients, strict=True))
                    assert np.real(curvature[position] * step) == change, (str(case), k, position)
        tried += 1
    assert tried


@pytest.mark.parametrize("name", FOURIER)
def test_derivatives_of_fourier_transforms_are_the_transposed_sums(name: str) -> None:
    """Against the transforms of single elements: within 16 u log2(2 n) of the sum of the sizes of the terms."""
    rng = np.random.default_rng(7)
    for case in cases(OPS[name]):
        wanted = [0]
        if not np.prod(case.types[0].shape) or not np.prod(case.results()[0].shape):
            continue
        arguments = [np.asarray(a) for a in case.arguments(rng)]
        loss, extra = loss_of(case)
        weights = [np.asarray(rng.integers(1, 5, t.shape)).astype(t.dtype.numpy) for t in extra]
        function = verify(grad(verify(with_gradient(loss, case.types, wanted, extra))))
        (gradient,) = interpret(function, *arguments, *weights)[1:]
        unit = np.finfo(gradient.dtype).eps / 2
        scale = 16 * unit * np.log2(2 * max(arguments[0].shape)) * float(np.sum(np.abs(weights[0])))
        for position in np.ndindex(gradient.shape):
            for step in steps(gradient.dtype):
                # Linear: the derivative by an element is the transform of that element alone.
                kind = np.complex128 if gradient.dtype.kind == "c" else np.float64
                alone = moved([np.zeros(arguments[0].shape, kind)], 0, position, step)
                image = case.op.function(alone[0], **case.params)
                exact = np.real(np.sum(image * weights[0]))
                assert abs(np.real(gradient[position] * step) - exact) <= scale, (str(case), position)


# programs and matrices


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, mode: str) -> None:
    errors = derivative_families.of_program(name, mode)
    assert max(errors) <= PROGRAMS[name].bound, errors


@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name: str) -> None:
    check_matrix(name, "reverse", np.float64)


@pytest.mark.long
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MATRICES)
def test_matrices_in_both_modes_and_formats(name: str, mode: str, dtype: Any) -> None:
    check_matrix(name, mode, dtype)


def check_matrix(name: str, mode: str, dtype: Any) -> None:
    row = MATRICES[name]
    for kind in row.kinds:
        errors = derivative_matrices.of_matrix(name, kind, mode, dtype)
        bounds = derivative_bounds.MATRICES[name]
        assert all(e <= b for e, b in zip(errors, bounds, strict=True)), (kind, errors)
