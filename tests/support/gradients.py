"""Gradients of one op or of a small function, by the grad pass and by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pullback.ir import DTYPES, OPS, ArrayType, Builder, Function, Value
from pullback.ir.core.types import F64
from pullback.ir.interpret import interpret
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.verify import verify
from tests.support.op_cases import Case

Loss = Callable[[Builder, Sequence[Value]], Value]


def weighted_sum(b: Builder, results: Sequence[Value], weights: Sequence[Value]) -> Value:
    """The float64 sum of all elements of the results, each times its weight; of complex ones the real part."""
    total = None
    for result, weight in zip(results, weights, strict=True):
        product = b.mul(result, weight)
        part = b.sum(product, axes=tuple(range(product.type.rank))) if product.type.rank else product
        part = b.cast(part, dtype=F64) if part.type.dtype is not F64 else part
        total = part if total is None else b.add(total, part)
    assert total is not None
    return total


def with_gradient(loss: Loss, types: Sequence[Any], wrt: Sequence[int], extra: Sequence[Any] = ()) -> Function:
    """A function of values of ``types`` and ``extra`` that returns the loss and its gradients, before ``grad`` expands it."""
    b = Builder()
    parameters = [Value(t, f"p{k}") for k, t in enumerate((*types, *extra))]
    results = b.emit(OPS["gradient"], parameters, {"wrt": tuple(wrt)}, [region_of(loss, (*types, *extra))])
    return b.function("f", parameters, results)


def region_of(loss: Loss, types: Sequence[Any]) -> Any:
    b = Builder()
    parameters = [Value(t, f"q{k}") for k, t in enumerate(types)]
    return b.block(parameters, [loss(b, parameters)])


def gradient_of_gradient(loss: Loss, types: Sequence[Any], wrt: Sequence[int], extra: Sequence[Any] = ()) -> Function:
    """As ``with_gradient``, of the loss's gradients weighed by further parameters."""
    weights = [types[k] for k in wrt]
    count = len(types) + len(extra)

    def second(b: Builder, parameters: Sequence[Value]) -> Value:
        inner = region_of(loss, (*types, *extra))
        _, *result = b.emit(OPS["gradient"], parameters[:count], {"wrt": tuple(wrt)}, [inner])
        return weighted_sum(b, result, parameters[count:])

    return with_gradient(second, types, wrt, (*extra, *weights))


def loss_of(case: Case, repeat: bool = False) -> tuple[Loss, list[Any]]:
    """The weighted sum of an op's float results as a loss, and the types of the weights it reads after the operands."""
    count = 1 if repeat else len(case.types)
    weights = [t for t in case.results() if t.dtype.is_inexact]

    def loss(b: Builder, parameters: Sequence[Value]) -> Value:
        operands = [parameters[0]] * len(case.types) if repeat else parameters[:count]
        floats = [v for v in case.emit(b, operands) if v.type.dtype.is_inexact]
        return weighted_sum(b, floats, parameters[count : count + len(weights)])

    return loss, weights


def check_by_differences(
    function: Function,
    arguments: Sequence[Any],
    wrt: Sequence[int],
    rng: np.random.Generator,
    step: float = 1e-6,
    tolerance: float = 2e-6,
) -> None:
    """The gradients that follow the function's first result agree with its central differences along random directions."""
    expanded = verify(grad(verify(function)))
    _, *gradients = interpret(expanded, *arguments)
    assert len(gradients) == len(wrt)
    for position, gradient in zip(wrt, gradients, strict=True):
        x = np.asarray(arguments[position])
        assert (gradient.dtype, gradient.shape) == (x.dtype, x.shape)
        for _ in range(2 if x.size else 0):
            direction = rng.uniform(0.5, 1.0, x.shape) * rng.choice([-1, 1], x.shape)
            if x.dtype.kind == "c":
                direction = direction * np.exp(1j * rng.uniform(0.0, 6.3, x.shape))
            values = []
            for sign in (1, -1):
                moved = list(arguments)
                moved[position] = x + sign * step * direction
                values.append(float(interpret(expanded, *moved)[0]))
            difference = (values[0] - values[1]) / (2 * step)
            scale = 1 + abs(values[0]) + np.sum(np.abs(gradient))
            np.testing.assert_allclose(np.sum(gradient * direction).real, difference, rtol=0, atol=tolerance * scale)


def derivative(build: Callable[..., Value], *arguments: Any, order: int = 1, passes: Sequence[Any] = ()) -> list[Any]:
    """The derivatives of the sum of the elements of ``build(b, *values)`` by each float argument.

    Of a higher order: those of the sum of the elements of the derivative by the first of them, of the order below.
    """
    arrays = [np.asarray(a) for a in arguments]
    names = {d.numpy: d for d in DTYPES.values() if d.name != "bf16"}
    types = [ArrayType(names[a.dtype], a.shape) for a in arrays]
    wrt = [k for k, t in enumerate(types) if t.dtype.is_float]

    def loss(b: Builder, parameters: Sequence[Value]) -> Value:
        return total(b, build(b, *parameters))

    function = with_gradient(raised(loss, types, wrt, order), types, wrt)
    for step in passes:
        function = step(function)
    with np.errstate(all="ignore"):
        return list(interpret(verify(grad(function)), *arrays)[1:])


def total(b: Builder, x: Any) -> Value:
    result: Value = b.sum(x, axes=tuple(range(x.type.rank))) if x.type.rank else x
    return result


def raised(loss: Loss, types: Sequence[Any], wrt: Sequence[int], order: int) -> Loss:
    """The sum of the elements of the loss's first gradient, ``order - 1`` times over."""
    if order == 1:
        return loss
    inner = raised(loss, types, wrt, order - 1)

    def next_loss(b: Builder, parameters: Sequence[Value]) -> Value:
        result = b.emit(OPS["gradient"], parameters, {"wrt": tuple(wrt[:1])}, [region_of(inner, types)])
        return total(b, result[1])

    return next_loss
