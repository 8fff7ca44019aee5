"""Random NumPy functions, written as source text, give what NumPy gives: with other data and shapes too, and with gradients.

A function is grown line by line, and each line is kept only if plain NumPy can run it. Lines slice, index, write through views,
reduce, rearrange and mix dtypes.
"""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import pullback as pb
from tests.fuzz.calls import defined, rearranged

Pick = Callable[[int], int]

DTYPES = ("f8", "f8", "f4", "i8", "i4", "u1", "?")
EXTENTS = (1, 2, 3, 4, 5)
LINES = 9
MOST_ELEMENTS = 400
LARGEST = 1e6
OTHER_SHAPES = (
    {1: 1, 2: 5, 3: 7, 4: 6, 5: 9},
    {1: 1, 2: 3, 3: 4, 4: 5, 5: 2},
    {1: 2, 2: 2, 3: 3, 4: 4, 5: 5},
    {1: 1, 2: 1, 3: 17, 4: 33, 5: 1},
)

OPERATORS = ("+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "&", "|", "^")
NUMBERS = ("2", "0.5", "-3", "True", "np.float32(1.5)", "np.int64(3)")
UNARY = (
    "sin",
    "abs",
    "sign",
    "floor",
    "square",
    "sqrt",
    "exp",
    "negative",
    "logical_not",
    "isnan",
    "rint",
    "invert",
    "cbrt",
    "reciprocal",
)
BINARY = ("maximum", "minimum", "hypot", "logaddexp", "arctan2", "fmod", "copysign")
REDUCTIONS = ("sum", "mean", "max", "min", "prod", "argmax", "argmin", "any", "all", "var", "std", "cumsum")
MOVES = (
    "{x}.T", "{x}.ravel()", "{x}.copy()", "{x}[None]", "{x}.flatten()", "np.flip({x}, {a})", "np.roll({x}, 1, {a})",
    "np.concatenate([{x}, {x}], axis={a})", "np.stack([{x}, {x}])", "np.swapaxes({x}, 0, -1)", "np.repeat({x}, 2, axis={a})",
    "np.tile({x}, 2)", "{x}.astype('{d}')", "np.diff({x}, axis={a})", "np.squeeze({x})", "np.zeros_like({x})", "np.pad({x}, 1)",
    "np.outer({x}, {x})", "{x} @ {x}.T", "np.dot({x}, {x}.T)", "np.tensordot({x}, {x}, 0)", "np.moveaxis({x}, 0, -1)",
    "np.broadcast_to({x}, (2, *{x}.shape))", "np.triu({x})", "np.atleast_2d({x})", "np.take({x}, [0, 0], axis={a})",
    "np.where({x} > 0, {x}, {y})", "np.clip({x}, -1, 2)", "{x}.reshape({x}.shape[::-1])", "np.trace(np.atleast_2d({x}))",
)  # fmt: skip
WRITES = (
    "{x}[{i}] = {y}", "{x}[{i}] += {y}", "{x}[{i}] *= {n}", "{x}[{i}] = {x}[::-1]", "{x} += {y}", "{x} *= {n}",
    "np.add({x}, {y}, out={x})", "{x}.fill(2)", "{x}[{x} > 0] = {n}",
)  # fmt: skip


class Source:
    """A function in the making: its arguments, its lines, and what each name is bound to."""

    def __init__(self, pick: Pick, rng: np.random.Generator, dtypes: Sequence[str]) -> None:
        self.pick = pick
        self.dtypes = dtypes
        self.arguments = [argument(self.one(dtypes), self.shape(), rng) for _ in range(1 + pick(2))]
        self.values: dict[str, Any] = {f"a{k}": a for k, a in enumerate(self.arguments)}
        self.lines: list[str] = []

    def one(self, options: Any) -> Any:
        return options[self.pick(len(options))]

    def shape(self) -> tuple[int, ...]:
        return tuple(self.one(EXTENTS) for _ in range(self.one((0, 1, 1, 2, 2, 3))))

    def text(self, lines: Sequence[str], returned: str) -> str:
        body = "\n".join(f"    {line}" for line in (*lines, f"return [{returned}]"))
        return f"def f({', '.join(f'a{k}' for k in range(len(self.arguments)))}):\n{body}\n"

    def index(self, x: Any) -> str:
        parts = []
        for extent in x.shape:
            n = self.pick(max(extent, 1))
            options = (
                f"{n}",
                f"{-1 - n}",
                f"{n}:",
                f":{n + 1}",
                "::2",
                "::-1",
                f":{-n}:-1" if n else "None, :",
                f"[{n}, 0]",
                "...",
            )
            parts.append(self.one(options))
            if parts[-1] == "...":
                break
        return ", ".join(parts) or "()"

    def candidate(self) -> tuple[str, str]:
        """A line, and the name that it binds or writes."""
        arrays = [n for n, v in self.values.items() if isinstance(v, np.ndarray) and v.ndim] or ["a0"]
        x, y, new = self.one(arrays), self.one([*self.values, *NUMBERS]), f"v{len(self.lines)}"
        value = self.values[x]
        axis = self.pick(max(np.ndim(value), 1))
        kind = self.pick(7)
        if kind == 0:
            return f"{new} = {self.one(list(self.values))} {self.one(OPERATORS)} {y}", new
        if kind == 1:
            return f"{new} = np.{self.one(UNARY)}({self.one(list(self.values))})", new
        if kind == 2:
            return f"{new} = np.{self.one(BINARY)}({x}, {y})", new
        if kind == 3:
            options = self.one(("", f"axis={axis}", f"axis={axis}, keepdims=True", "keepdims=True"))
            return f"{new} = {x}.{self.one(REDUCTIONS)}({options})", new
        if kind == 4:
            return f"{new} = {x}[{self.index(np.asarray(value))}]", new
        if kind == 5:
            return f"{new} = " + self.one(MOVES).format(x=x, y=y, a=axis, d=self.one(self.dtypes)), new
        write = self.one(WRITES).format(x=x, y=y, n=self.one(NUMBERS), i=self.index(np.asarray(self.values[x])))
        return write, x

    def grow(self) -> None:
        """Add a line, unless NumPy refuses it, it writes into an argument, or its value is out of bounds."""
        line, name = self.candidate()
        try:
            result = plain(defined(self.text([*self.lines, line], name)), copy.deepcopy(self.arguments))[0]
        except Exception:
            return
        if is_fit(result):
            self.lines.append(line)
            self.values[name] = result


def is_fit(value: Any) -> bool:
    if not isinstance(value, np.ndarray | np.generic) or value.size > MOST_ELEMENTS or value.dtype.str[1:] not in (*DTYPES, "b1"):
        return False
    return bool(np.all(np.abs(np.asarray(value, float)) < LARGEST))


def argument(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    """An array in one of several memory orders."""
    values = np.asarray(3 * rng.normal(size=shape))
    return rearranged(np.asarray(np.abs(values) if dtype == "u1" else values).astype(dtype), rng)


def plain(function: Callable[..., Any], arguments: Sequence[Any]) -> list[Any]:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        result: list[Any] = function(*arguments)
    return result


def agree(function: Callable[..., Any], compiled: Callable[..., Any], arguments: Sequence[Any], text: str) -> None:
    """Both give the same and leave the same in their arguments, where NumPy gives something."""
    written, inputs = copy.deepcopy(list(arguments)), copy.deepcopy(list(arguments))
    try:
        expected = plain(function, written)
    except Exception:
        return
    if not all(map(is_fit, expected)):
        return
    try:
        result = compiled(*inputs)
    except pb.TraceError as error:
        assert is_allowed(error), f"{error}\n{text}"
        return
    for e, f in zip([*expected, *written], [*result, *inputs], strict=True):
        tolerance = 1e-3 if any(np.asarray(v).dtype.itemsize < 8 for v in expected if v.dtype.kind == "f") else 1e-8
        assert (f.dtype, f.shape) == (e.dtype, e.shape), text
        np.testing.assert_allclose(f, e, rtol=tolerance, atol=tolerance * (1 + np.max(np.abs(e), initial=0)), err_msg=text)


def is_allowed(error: pb.TraceError) -> bool:
    """Whether an error is of the writes that cannot be followed: through some views, and into what is differentiated."""
    return "view" in error.message or "differentiated" in error.message


def has_singular_points(text: str) -> bool:
    """Whether differences say nothing where an operand is zero: roots, and powers with exponents that vary."""
    return "np.sqrt" in text or re.search(r"\*\* [av]", text) is not None


class Seeded:
    """Choices from NumPy's generator, in the place of hypothesis's."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, within: tuple[int, int]) -> int:
        return int(self.rng.integers(within[0], within[1] + 1))


def drawn(data: st.DataObject | Seeded, low: int, high: int) -> int:
    return data.draw((low, high)) if isinstance(data, Seeded) else data.draw(st.integers(low, high))


def grown(data: st.DataObject | Seeded, dtypes: Sequence[str]) -> tuple[Source, np.random.Generator]:
    rng = np.random.default_rng(drawn(data, 0, 10_000))
    source = Source(lambda n: drawn(data, 0, n - 1), rng, dtypes)
    for _ in range(LINES):
        source.grow()
    return source, rng


def run_values(data: st.DataObject | Seeded) -> None:
    source, rng = grown(data, DTYPES)
    text = source.text(source.lines, ", ".join(source.values))
    function = defined(text)
    compiled = pb.jit(function)
    agree(function, compiled, source.arguments, text)
    agree(function, compiled, [argument(a.dtype.str[1:].replace("b1", "?"), a.shape, rng) for a in source.arguments], text)
    other = OTHER_SHAPES[rng.integers(len(OTHER_SHAPES))]
    shapes = [tuple(other[e] for e in a.shape) for a in source.arguments]
    agree(
        function, compiled, [argument(a.dtype.str[1:].replace("b1", "?"), s, rng) for a, s in zip(source.arguments, shapes)], text
    )


def run_gradients(data: st.DataObject | Seeded) -> None:
    source, rng = grown(data, ("f8",))
    text = source.text(source.lines, ", ".join(source.values))
    function = defined(text)

    def loss(*arguments: Any) -> Any:
        total = 0.0
        for k, result in enumerate(function(*arguments)):
            if result.dtype.kind == "f":
                total = total + np.sum(np.cos(result) * (1.0 + k + 0.37 * np.arange(result.size).reshape(result.shape)))
        return total

    xs = [np.array(a) for a in source.arguments]
    direction = [rng.normal(size=x.shape) for x in xs]
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        steps = (0.0, 1e-6, -1e-6, 4e-6, -4e-6)
        here, *moved = [float(loss(*(np.asarray(x + h * d) for x, d in zip(xs, direction)))) for h in steps]
    fine, coarse, one_sided = (moved[0] - moved[1]) / 2e-6, (moved[2] - moved[3]) / 8e-6, (moved[0] - here) / 1e-6
    is_smooth = abs(fine - coarse) < 1e-3 * (1 + abs(fine)) and abs(one_sided - fine) < 1e-2 * (1 + abs(fine))
    if not np.isfinite([fine, coarse]).all() or not is_smooth or has_singular_points(text):
        return
    try:
        value, gradients = pb.value_and_grad(loss, argnums=tuple(range(len(xs))))(*copy.deepcopy(xs))
    except pb.TraceError as error:
        assert is_allowed(error), f"{error}\n{text}"
        return
    assert value == pytest.approx(here, rel=1e-5), text
    actual = sum(float(np.sum(g * d)) for g, d in zip(gradients, direction, strict=True))
    assert actual == pytest.approx(fine, rel=2e-3, abs=2e-3), text


LIMITS: Any = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "phases": (Phase.generate,)}


@settings(max_examples=36, derandomize=True, **LIMITS)
@given(st.data())
def test_random_functions(data: st.DataObject) -> None:
    run_values(data)


@settings(max_examples=36, derandomize=True, **LIMITS)
@given(st.data())
def test_gradients_of_random_functions(data: st.DataObject) -> None:
    run_gradients(data)
