"""Checks of random programs with stores and effects against plain Python: results, the whole state, texts in order, errors."""

from __future__ import annotations

import logging
import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

import pullback as pb
from pullback.ir import Function
from pullback.ir.core.value import Value
from pullback.ir.interpret import interpret
from pullback.ir.passes.hoist_guards import guards_first
from pullback.ir.passes.inline_custom import uncustom
from pullback.ir.passes.pipeline import BEFORE_GRAD, run
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.passes.transforms.reverse import GradientError
from pullback.programs import pipeline
from pullback.programs.pipeline import Template
from tests.fuzz.python_checks import OUTSIDE
from tests.fuzz.python_control import arguments_of
from tests.fuzz.python_expressions import LENGTH
from tests.fuzz.python_stores import FILE, module_of, text_of
from tests.fuzz.test_fuzz_gradients import slope
from tests.support.outcomes import said

LOGGER = "pullback-fuzz-stores"
"""The logger of the programs."""


class InterpretedExecutable:
    """What a template executes: a function that is interpreted."""

    home: Mapping[int, int] = {}
    device = SimpleNamespace(name="cpu")

    def __init__(self, function: Function) -> None:
        self._function = guards_first(uncustom(grad(run(function, BEFORE_GRAD))))

    def instance(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        return sizes

    def call(self, sizes: Mapping[str, int], arguments: Sequence[Any], chosen: Any = None) -> list[Any]:
        typed = [self._typed(x, p) for x, p in zip(arguments, self._function.parameters, strict=True)]
        with np.errstate(all="ignore"):
            # A result may be a view of an argument, which is written afterwards.
            return list(map(np.array, interpret(self._function, *typed, sizes=sizes)))

    @staticmethod
    def _typed(argument: Any, parameter: Value) -> Any:
        return np.asarray(argument, parameter.type.dtype.numpy)


@contextmanager
def interpreted() -> Iterator[None]:
    """Interpret the functions that are traced in this context."""

    def template(abstract: Any, layouts: Any, device: str, over: Any) -> Template:
        return Template(executable=InterpretedExecutable(abstract.function), passed_through=())

    with mock.patch.object(pipeline, "template_of_key", template):
        yield


class Record:
    """What a program prints, logs and warns, in order. As a file, it has the name of a stream."""

    def __init__(self, entries: list[Any], name: str) -> None:
        self._entries, self._name = entries, name

    def write(self, text: str) -> int:
        if self._entries and self._entries[-1][0] == self._name:
            text = self._entries.pop()[1] + text
        self._entries.append((self._name, text))
        return len(text)

    def flush(self) -> None:
        pass


class Handler(logging.Handler):
    """A handler of log records that adds their contents to a list."""

    def __init__(self, entries: list[Any]) -> None:
        super().__init__()
        self._entries = entries

    def emit(self, record: logging.LogRecord) -> None:
        self._entries.append(("log", record.levelname, record.getMessage(), record.lineno, record.funcName))


def performed(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the result of a call, or its exception, and what it prints, logs and warns."""
    entries: list[Any] = []

    def shown(message: Any, category: Any, filename: str, lineno: int, *others: Any) -> None:
        if not category.__module__.startswith("pullback"):
            entries.append(("warning", category.__name__, str(message), filename, lineno))

    logger, handler = logging.getLogger(LOGGER), Handler(entries)
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    with redirect_stdout(Record(entries, "out")), redirect_stderr(Record(entries, "err")), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", category=RuntimeWarning, message=".*(encountered|invalid value)")
        warnings.showwarning = shown  # type: ignore[assignment]
        try:
            result = function(*arguments)
        except Exception as error:
            result = error.with_traceback(None)
    return result, entries


JOINED = [{"float32", "float64"}, {"int64", "float64"}, {"int64", "float32"}, {"bool", "int64"}, {"bool", "float64"}]
"""Pairs of types of NumPy's numbers of which a variable has the second one where it has it on another path."""


class Number:
    """A number in a description. Numbers of NumPy are equal too if their types are joined. ``is_rough``: all are, and have 12
    digits."""

    def __init__(self, x: Any, is_rough: bool) -> None:
        self._x, self._is_rough = x, is_rough

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Number):
            return False
        x, y, kinds = self._x, other._x, [type(self._x), type(other._x)]
        if self._is_rough:
            return bool(np.isclose(x, y, rtol=1e-12, atol=1e-14, equal_nan=True))
        if kinds[0] is kinds[1]:
            return bool(x == y) or (x != x and y != y)
        is_joined = all(issubclass(kind, np.generic) for kind in kinds) and {x.dtype.name, y.dtype.name} in JOINED
        return is_joined and bool(np.float32(x) == np.float32(y))

    def __repr__(self) -> str:
        return f"{type(self._x).__name__} {self._x!r}"


class Description:
    """A description of values by types and contents, in which an object that is met again is its number. ``is_rough``: as for
    numbers."""

    def __init__(self, is_rough: bool = False) -> None:
        self._is_rough = is_rough
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []

    def of(self, x: Any) -> Any:
        """Return the description of a value."""
        if x is None or isinstance(x, str | type):
            return x
        if isinstance(x, bool | int | float | complex | np.generic):
            return Number(x, self._is_rough)
        if isinstance(x, FunctionType | MethodType):
            return x.__name__
        if isinstance(x, tuple):
            return "tuple", [self.of(item) for item in x]
        if id(x) in self._numbers:
            return "same", self._numbers[id(x)]
        self._numbers[id(x)] = len(self._numbers)
        self._kept.append(x)
        return type(x).__name__, self._contents(x)

    def _contents(self, x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x.shape, [Number(item, self._is_rough) for item in x.ravel()]
        if isinstance(x, dict):
            return [(self.of(key), self.of(value)) for key, value in x.items()], getattr(x, "default_factory", None)
        if isinstance(x, list | deque):
            return [*map(self.of, x)], getattr(x, "maxlen", None)
        if isinstance(x, set):
            return [self.of(item) for item in sorted(x, key=repr)]
        if isinstance(x, Exception):
            return said(x)
        return self.of(vars(x))


class Side:
    """One side of a comparison: a module of a program, and how its function is called."""

    def __init__(self, text: str, file: str, transform: Callable[..., Any] | None) -> None:
        self.names = module_of(text, file)
        self.called = self.names["f"] if transform is None else transform(self.names["f"])

    def call(self, arguments: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return what a call gives, and what it prints, logs and warns."""
        return performed(self.called, arguments)

    def look(self) -> Any:
        return self.names["look"]()


def copies(arguments: Sequence[Any]) -> list[Any]:
    """Return arguments with copies of the arrays among them."""
    return [x.copy() if isinstance(x, np.ndarray) else x for x in arguments]


def state_differs(mine: Sequence[Any], theirs: Sequence[Any], is_rough: bool = False) -> str:
    """Return how two lists of values differ: in contents, in types, or in which objects are the same; empty if they do not."""
    a, b = Description(is_rough), Description(is_rough)
    for x, y in zip(mine, theirs, strict=True):
        mine_is, theirs_is = a.of(x), b.of(y)
        if mine_is != theirs_is:
            return f"{mine_is}; plain Python: {theirs_is}"
    return ""


def result_differs(result: Any, expected: Any) -> str:
    """Return how the outcomes of two calls differ; empty if they do not."""
    if isinstance(result, Exception) or isinstance(expected, Exception):
        words = [OUTSIDE.sub(r"axis \3", said(x)) if isinstance(x, Exception) else repr(x) for x in (result, expected)]
        is_same = type(result) is type(expected) and words[0] == words[1]
        return "" if is_same else f"{result!r}; plain Python: {expected!r}"
    return state_differs([result], [expected])


def float_arguments(seed: int) -> tuple[Any, ...]:
    """Return arguments with an array of floats: one of ints would refuse a number that is a float on another path."""
    p, q, n, a, v = arguments_of(seed)
    return p, q, n, a if a.dtype.kind == "f" else a.astype(float), v


def stores_differ(seed: int, transform: Callable[..., Any], calls: int) -> tuple[str, str]:
    """Call the program of a seed compiled and plain. Return how they differ and "", or "" and the reason for which it is refused,
    or two empty texts."""
    text, file = text_of(seed), FILE.format(seed)
    mine, plain = Side(text, file, transform), Side(text, file, None)
    done: list[Sequence[Any]] = []
    for call in range(calls):
        arguments = float_arguments(1000 * seed + call)
        ours, theirs = copies(arguments), copies(arguments)
        (result, said_by_mine), (expected, said_by_plain) = mine.call(ours), plain.call(theirs)
        if isinstance(result, pb.TraceError):
            return "", str(result)
        if isinstance(expected, Exception):  # a call that raises has stored nothing
            plain, theirs = Side(text, file, None), copies(arguments)
            for earlier in done:
                plain.call(copies(earlier))
        else:
            done.append(copies(arguments))
        differs = result_differs(result, expected)
        if not differs and (differs := state_differs([*mine.look(), ours], [*plain.look(), theirs])):
            differs = f"state: {differs}"
        if not differs and said_by_mine != said_by_plain:
            differs = f"said {said_by_mine}; plain Python: {said_by_plain}"
        if differs:
            return f"{seed}, call {call}, f{arguments}: {differs}\n{text}", ""
    return "", ""



def gradients_differ(seed: int, calls: int) -> tuple[str, str]:
    """Differentiate the program of a seed, whose result is one float, at several calls. Return as ``stores_differ``: the value,
    the state and the texts are those of plain Python, and the gradient is that of differences from the same state."""
    text, file = text_of(seed, is_loss=True), FILE.format(seed)
    mine, plain = Side(text, file, lambda f: pb.value_and_grad(f, argnums=(0, 1, 3))), Side(text, file, None)
    done: list[Sequence[Any]] = []
    for call in range(calls):
        arguments, direction = varied_arguments(seed, call)

        def moved(t: float, at: Sequence[Any] = arguments, along: Sequence[Any] = direction) -> float:
            other = Side(text, file, None)
            for earlier in done:
                other.call(copies(earlier))
            result, _ = other.call([x if d is None else x + t * d for x, d in zip(at, along, strict=True)])
            return float(result) if isinstance(result, float | int | np.number) else math.nan

        ours, theirs = copies(arguments), copies(arguments)
        with interpreted():
            result, said_by_mine = mine.call(ours)
        expected = slope(moved, 1.0)
        value, said_by_plain = plain.call(theirs)
        if isinstance(result, pb.TraceError | GradientError):
            return "", str(result)
        if isinstance(value, Exception):
            differs = result_differs(result, value)
            return (f"{seed}, call {call}, f{arguments}: {differs}\n{text}", "") if differs else ("", "")
        done.append(copies(arguments))
        if isinstance(result, Exception):
            return f"{seed}, call {call}, f{arguments}: {result!r}; plain Python: {value!r}\n{text}", ""
        along = sum(np.sum(g * direction[k]) for g, k in zip(result[1], (0, 1, 3), strict=True))
        differs = state_differs([result[0], *mine.look()], [value, *plain.look()], is_rough=True)
        if not differs and said_by_mine != said_by_plain:
            differs = f"said {said_by_mine}; plain Python: {said_by_plain}"
        if not differs and expected is not None and not np.allclose(along, expected, rtol=1e-4, atol=1e-6):
            differs = f"derivative {along}; differences: {expected}"
        if differs:
            return f"{seed}, call {call}, f{arguments}: {differs}\n{text}", ""
    return "", ""


def varied_arguments(seed: int, call: int) -> tuple[list[Any], list[Any]]:
    """Return arguments of a call, and a direction in which they change, None for those that do not."""
    rng = np.random.default_rng([seed, call, 37])
    count, ints = int(np.random.default_rng(seed).integers(0, 5)), np.random.default_rng(seed).integers(-4, 5, LENGTH)
    points = [float(rng.normal()), float(rng.normal()), count, rng.normal(size=LENGTH), ints]
    return points, [float(rng.normal()), float(rng.normal()), None, rng.normal(size=LENGTH), None]
