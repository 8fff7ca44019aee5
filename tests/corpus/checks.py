"""What a compiled program of the corpus does, compared with its plain run: value, arguments afterwards, errors, gradients."""

from __future__ import annotations

import copy
import dataclasses
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import pullback as pb
from tests.corpus.case import Case
from tests.support.outcomes import Mismatch, outcome, same_error

TOLERANCE = 1e-10
"""The relative error of a float, by the largest element of its array: sums may be in another order."""


@dataclass(frozen=True)
class Differences:
    """How gradients are compared: the count of elements of an argument that are compared one by one, the others along one
    direction; a factor of the steps; and the error of a slope relative to the largest element of the gradient."""

    elements: int = 8
    scale: float = 1.0
    tolerance: float = 1e-5


LONG = Differences(elements=1, scale=0.01, tolerance=1e-4)
"""For large trip counts, which have more kinks: a smaller step meets few of them, and rounding errors are larger."""


@dataclass(frozen=True)
class Outcome:
    """``status``: "ok", "refused", "wrong" or "crash". ``detail`` is the first line of the error."""

    status: str
    detail: str = ""
    seconds: float = 0.0


def drawn(case: Case, seed: int, size: int) -> tuple[Any, ...]:
    return case.arguments(np.random.default_rng([seed, 77]), size)


def plain(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Run a program in plain Python. A division by zero or an overflow is an error."""
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        return function(*arguments)


def quiet(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return function(*arguments)


def same_tree(path: str, expected: Any, result: Any) -> None:
    """Raise Mismatch if containers, dtypes, shapes or elements differ. A scalar may be a Python number or NumPy's."""
    if isinstance(expected, tuple | list):
        if type(result) is not type(expected) or len(result) != len(expected):
            raise Mismatch(f"{path} is {result!r}; plain: {expected!r}")
        for k, (e, r) in enumerate(zip(expected, result)):
            same_tree(f"{path}[{k}]", e, r)
    elif isinstance(expected, dict):
        if type(result) is not type(expected) or list(result) != list(expected):
            raise Mismatch(f"{path} is {result!r}; plain: {expected!r}")
        for key, e in expected.items():
            same_tree(f"{path}[{key!r}]", e, result[key])
    elif dataclasses.is_dataclass(expected):
        if type(result) is not type(expected):
            raise Mismatch(f"{path} is {result!r}; plain: {expected!r}")
        for field in dataclasses.fields(expected):
            same_tree(f"{path}.{field.name}", getattr(expected, field.name), getattr(result, field.name))
    elif expected is None or isinstance(expected, str):
        if result is not expected and result != expected:
            raise Mismatch(f"{path} is {result!r}; plain: {expected!r}")
    else:
        same_leaf(path, expected, result)


def same_leaf(path: str, expected: Any, result: Any) -> None:
    e, r = np.asarray(expected), np.asarray(result)
    if (e.dtype, e.shape) != (r.dtype, r.shape) or isinstance(result, np.ndarray) != (e.ndim > 0):
        raise Mismatch(f"{path} is a {type(result).__name__} {r.dtype}{r.shape}; plain: {e.dtype}{e.shape}")
    if e.dtype.kind in "fc" and np.array_equal(np.isnan(e), np.isnan(r)):
        e, r = np.nan_to_num(e), np.nan_to_num(r)
    scale = np.max(np.abs(e), initial=0.0) if e.dtype.kind in "fc" else 0
    error = np.max(np.abs(e - r), initial=0.0) if scale else 0.0
    if not (error <= TOLERANCE * scale if scale else np.array_equal(e, r)):
        raise Mismatch(f"{path} is {result!r}; plain: {expected!r}")


def finite_leaves(tree: Any) -> list[Any]:
    """Return the float leaves of a result, and raise Mismatch if one is not finite."""
    leaves = [leaf for leaf in pb.tree.leaves(tree) if np.asarray(leaf).dtype.kind in "fc"]
    if not all(np.all(np.isfinite(leaf)) for leaf in leaves):
        raise Mismatch(f"the plain run is not finite: {tree!r}")
    return leaves


def assessed(check: Callable[[], float]) -> Outcome:
    """Run a check, which returns the CPU seconds of its first call."""
    try:
        return Outcome("ok", seconds=check())
    except Mismatch as error:
        return Outcome("wrong", str(error).splitlines()[0])
    except pb.TraceError as error:
        return Outcome("refused", str(error).splitlines()[0])
    except Exception as error:
        return Outcome("crash", f"{type(error).__name__}: {error}".splitlines()[0])


def check_value(case: Case, size: int, **options: Any) -> float:
    """Compare value and arguments afterwards with the plain run for each data set. Return the CPU seconds of the first call.

    ``options`` are those of ``pb.jit``.
    """
    compiled, seconds = pb.jit(case.function, **options), []
    for seed in range(case.seeds):
        before, expected_arguments = drawn(case, seed, size), drawn(case, seed, size)
        expected = plain(case.function, expected_arguments)
        finite_leaves(expected)
        written = outcome(same_tree, "arguments", before, expected_arguments)
        if isinstance(written, Mismatch) != case.writes:
            raise Mismatch(f"the plain run {'writes' if written else 'does not write'} into its arguments")
        began = time.process_time()
        result = quiet(compiled, before)
        seconds.append(time.process_time() - began)
        same_tree("result", expected, result)
        same_tree("arguments", expected_arguments, before)
    return seconds[0]


def check_error(case: Case, **options: Any) -> float:
    """Compare the error of the plain run with that of the compiled program, which has succeeded for other arguments before and
    writes nothing when it raises."""
    assert case.failing is not None
    before, others, unchanged = (case.failing(np.random.default_rng(5)) for _ in range(3))
    expected = outcome(case.function, *others)
    if not isinstance(expected, Exception):
        raise Mismatch("the plain run raises nothing")
    compiled = pb.jit(case.function, **options)
    quiet(compiled, drawn(case, 0, case.size))
    result = outcome(compiled, *before)
    if isinstance(result, pb.TraceError):
        raise result
    same_error(expected, result)
    same_tree("arguments", unchanged, before)
    return 0.0


def scalarised(function: Callable[..., Any], cotangents: Sequence[Any]) -> Callable[..., Any]:
    """Return the sum of the float results of a function, each times its cotangent."""

    def loss(*arguments: Any) -> Any:
        total = 0.0
        leaves = [leaf for leaf in pb.tree.leaves(function(*arguments)) if is_float(leaf)]
        for leaf, cotangent in zip(leaves, cotangents, strict=True):
            total = total + np.sum(leaf * cotangent)
        return total

    return loss


def is_float(leaf: Any) -> bool:
    return isinstance(leaf, float) or getattr(getattr(leaf, "dtype", None), "kind", "i") in "fc"


def check_gradient(case: Case, size: int, differences: Differences = Differences(), **options: Any) -> float:
    """Compare gradients with differences of the plain run, for some elements of each argument and along one direction.

    Return the CPU seconds of the first call of value and gradient. ``options`` are those of ``pb.jit``.
    """
    seconds, compiled, shapes = [], None, None
    for seed in range(case.seeds):
        arguments = drawn(case, seed, size)
        leaves = finite_leaves(plain(case.function, copy.deepcopy(arguments)))
        rng = np.random.default_rng(11)
        loss = scalarised(case.function, [rng.uniform(0.5, 1.5, np.shape(leaf)) for leaf in leaves])
        if compiled is None or shapes != [np.shape(leaf) for leaf in leaves]:
            compiled = pb.jit(pb.value_and_grad(loss, argnums=case.argnums), **options)
            shapes = [np.shape(leaf) for leaf in leaves]
        began = time.process_time()
        value, gradients = quiet(compiled, copy.deepcopy(arguments))
        seconds.append(time.process_time() - began)
        same_leaf("value", np.float64(plain(loss, copy.deepcopy(arguments))), value)
        for k, gradient in zip(case.argnums, gradients, strict=True):
            same_slopes(case, loss, arguments, k, np.asarray(gradient), differences)
    return seconds[0]


def same_slopes(case: Case, loss: Callable[..., Any], arguments: Sequence[Any], k: int, gradient: Any, how: Differences) -> None:
    """Raise Mismatch if a gradient is not that of differences, for some elements and along one direction."""
    x = np.asarray(arguments[k])
    if (gradient.shape, gradient.dtype) != (x.shape, np.dtype(float)):
        raise Mismatch(f"the gradient by argument {k} is {gradient.dtype}{gradient.shape}; the argument: {x.dtype}{x.shape}")
    rng = np.random.default_rng(3)
    steps = [case.step * how.scale * direction(x, rng)]
    for element in rng.permutation(x.size)[: how.elements]:
        steps.append(np.zeros(x.shape))
        steps[-1].flat[element] = steps[0].flat[element]
    scale = max(float(np.max(np.abs(gradient), initial=0.0)), 1e-8)
    for step in steps:
        values = []
        for shift in (-2, -1, 1, 2):
            moved = list(copy.deepcopy(arguments))
            moved[k] = x + shift * step if x.ndim else float(x + shift * step)
            values.append(float(plain(loss, moved)))
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12
        bound = how.tolerance * scale * np.sum(np.abs(step)) + 1e-13 * max(map(abs, values))
        if not abs(np.sum(gradient * step) - difference) <= bound:
            raise Mismatch(f"the slope by argument {k} is {np.sum(gradient * step)!r}; by differences: {difference!r}")


def check_second(case: Case, size: int, how: Differences = Differences(), **options: Any) -> float:
    """Compare the derivative of the gradient along one direction with differences of the gradient, which are right if
    ``check_gradient`` passes. Return the CPU seconds of the first call."""
    seconds = []
    for seed in range(case.seeds):
        arguments = drawn(case, seed, size)
        leaves = finite_leaves(plain(case.function, copy.deepcopy(arguments)))
        rng = np.random.default_rng(11)
        gradient = pb.grad(scalarised(case.function, [rng.uniform(0.5, 1.5, np.shape(x)) for x in leaves]), argnums=case.argnums)
        weights = [rng.uniform(0.5, 1.5, np.shape(arguments[k])) for k in case.argnums]
        slope = along(gradient, weights)
        began = time.process_time()
        second = quiet(pb.jit(pb.grad(slope, argnums=case.argnums), **options), copy.deepcopy(arguments))
        seconds.append(time.process_time() - began)
        steps = [case.step * how.scale * direction(arguments[k], rng) for k in case.argnums]
        compiled, values = pb.jit(slope, **options), []
        for shift in (-2, -1, 1, 2):
            moved = list(copy.deepcopy(arguments))
            for k, step in zip(case.argnums, steps):
                moved[k] = arguments[k] + shift * step if np.ndim(step) else float(arguments[k] + shift * step)
            values.append(float(quiet(compiled, moved)))
        difference = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / 12
        parts = [np.sum(g * step) for g, step in zip(second, steps)]
        scale = sum(np.sum(np.abs(g)) * np.max(np.abs(step)) for g, step in zip(second, steps))
        if not abs(sum(parts) - difference) <= how.tolerance * scale + 1e-11 * max(map(abs, values)) + 1e-15:
            raise Mismatch(f"the second derivative is {sum(parts)!r}; by differences: {difference!r}")
    return seconds[0]


def along(gradient: Callable[..., Any], weights: Sequence[Any]) -> Callable[..., Any]:
    """Return the sum of a gradient's elements, each times its weight."""
    return lambda *arguments: sum(np.sum(g * w) for g, w in zip(gradient(*arguments), weights))


def direction(x: Any, rng: np.random.Generator) -> Any:
    """Return steps of about the size of the elements, at least a tenth of the largest; of zeros, one."""
    largest = np.max(np.abs(x), initial=0.0)
    size = np.maximum(np.abs(x), 0.1 * largest) if largest else np.ones(np.shape(x))
    return size * rng.uniform(0.5, 1.0, np.shape(x))
