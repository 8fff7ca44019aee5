"""Nothing outside is frozen in silence: programs whose outside changes between calls give what plain Python gives, or an error.

The programs are in tests/outside: each starts at a line ``=== name``; its function ``f`` is called with an array, and again
after each of the statements behind ``-->`` (continued behind ``...``). Those of refused.txt raise a TraceError with the words
behind ``---``.
"""

import copy
import functools
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.tracer import current, trace
from tests.support.paths import TESTS

X = np.array([0.5, 1.5, 2.5])
FOLDER = TESTS / "outside"

SETTINGS = """
RATE = 0.3
class Config:
    lr = 0.3
def helper(x):
    return x * RATE
"""


def programs(*files: str) -> Any:
    """Name and text of each program."""
    for file in files:
        for part in re.split(r"^=== ", (FOLDER / f"{file}.txt").read_text(), flags=re.MULTILINE)[1:]:
            name, text = part.split("\n", 1)
            yield pytest.param(text, id=name.replace(" ", "-"))


def module(name: str, folder: Path, text: str) -> types.ModuleType:
    """A module of the user's."""
    built = types.ModuleType(name)
    built.__file__ = str(folder / f"{name}.py")
    built.__dict__.update(np=np, x0=X)
    Path(built.__file__).write_text(text)
    sys.modules[name] = built
    exec(compile(text, built.__file__, "exec"), built.__dict__)
    return built


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OUTSIDE", "0")
    module("outside_settings", tmp_path, SETTINGS)
    with warnings.catch_warnings(action="ignore"):
        yield
    for name in ("outside_settings", "outside_program"):
        sys.modules.pop(name, None)


def split(text: str, mark: str) -> tuple[str, list[str]]:
    """A program, and the statements behind the marks."""
    program, *changes = re.split(rf"^{mark} ", text, flags=re.MULTILINE)
    return program, [c.strip().replace("\n... ", "\n") for c in changes]


def outcome(function: Callable[..., Any]) -> Any:
    """The result of a call, or its error."""
    try:
        return function(X)
    except Exception as error:
        return error


def same(result: Any, expected: Any) -> None:
    if isinstance(expected, Exception):
        assert type(result) is type(expected), result
        return
    if isinstance(result, Exception):
        raise result
    result, expected = np.asarray(result), np.asarray(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=1e-14)


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("text", list(programs("values", "objects", "super", "python")))
def test_calls_see_what_changed(text: str, tmp_path: Path) -> None:
    program, changes = split(text, "-->")
    user = module("outside_program", tmp_path, program)
    compiled = pb.jit(user.f)
    same(outcome(compiled), outcome(user.f))
    for change in changes:
        exec(change, user.__dict__)
        plain = user.f if "def f(" not in change else compiled.__wrapped__
        same(outcome(compiled), outcome(plain))
        same(outcome(compiled), outcome(plain))


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("text", list(programs("refused")))
def test_what_would_be_frozen_is_refused(text: str, tmp_path: Path) -> None:
    program, (words,) = split(text, "---")
    user = module("outside_program", tmp_path, program)
    with pytest.raises(pb.TraceError) as caught:
        pb.jit(user.f)(X)
    assert words in str(caught.value)
    assert caught.value.file in (user.__file__, __file__)
    assert current() is None


class Rate:
    value = 0.25


RATES = {"a": 0.75, "n": 2}
WEIGHTS = np.ones(3)


def scaled(x: Any) -> Any:
    return x * Rate.value * RATES["a"] + RATES["n"]


def test_gradients_see_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    slope = pb.grad(lambda x: np.sum(scaled(x) * WEIGHTS))
    np.testing.assert_allclose(slope(X), np.full(3, 0.1875))
    monkeypatch.setattr(Rate, "value", 0.5)
    np.testing.assert_allclose(slope(X), np.full(3, 0.375))
    monkeypatch.setitem(RATES, "a", np.arange(3.0))
    np.testing.assert_allclose(slope(X), 0.5 * np.arange(3.0))


def test_values_from_outside_are_inputs_and_not_constants() -> None:
    """A schedule that changes a number at each step is traced once."""

    class Config:
        lr = 0.3

    class Model:
        def __init__(self) -> None:
            self.options = types.SimpleNamespace(decay=0.7)

        def step(self, x: Any) -> Any:
            return x * Config.lr * self.options.decay

    model = Model()
    traced = trace(model.step, (X,))
    Config.lr, model.options.decay = 0.9, 0.1
    assert traced.holds()
    assert traced.arguments([X]) is not None and traced.arguments([X])[1:] == [0.9, 0.1]


def test_long_lists_are_one_guard() -> None:
    table = [float(k) for k in range(200)]
    words = {f"w{k}": k for k in range(500)}

    def f(x: Any) -> Any:
        return x * np.array(table)[3] + words["w7"] + len(table)

    traced = trace(f, (X,))
    assert len([g for g in traced.guards if g.how == "plain"]) == 2
    assert len(traced.inputs) <= 2
    assert traced.holds()
    table[3] = 7.5
    assert not traced.holds()
    compiled = pb.jit(f)
    same(compiled(X), f(X))
    words["w7"] = 9
    same(compiled(X), f(X))


def test_a_list_that_holds_itself_is_refused() -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    with pytest.raises(pb.TraceError, match="holds itself"):
        pb.jit(lambda x: x * loop[0])(X)


class Point:
    def __init__(self, x: Any) -> None:
        self.x = x


def test_objects_that_hold_traced_values_are_results() -> None:
    point = pb.jit(lambda x: Point(2 * x))(X)
    assert type(point) is Point
    np.testing.assert_array_equal(point.x, 2 * X)


def test_results_are_of_the_users_own_classes() -> None:
    def f(x: Any) -> Any:
        return x, Point, Point(3), scaled

    _, kind, point, function = pb.jit(f)(X)
    assert kind is Point and type(point) is Point and function is scaled


# whose code is followed


def test_a_package_whose_function_is_transformed_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "site-packages" / "outside_installed"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("from outside_installed.rates import scaled\n")
    (folder / "rates.py").write_text(SETTINGS + "def scaled(x):\n    return helper(x) * Config.lr\n")
    monkeypatch.syspath_prepend(str(folder.parent))
    import outside_installed  # type: ignore[import-not-found]

    compiled = pb.jit(outside_installed.scaled)
    same(compiled(X), X * 0.3 * 0.3)
    monkeypatch.setattr(sys.modules["outside_installed.rates"], "RATE", 0.5)
    monkeypatch.setattr(sys.modules["outside_installed.rates"].Config, "lr", 0.75)
    same(compiled(X), X * 0.5 * 0.75)
    for name in ("outside_installed", "outside_installed.rates"):
        del sys.modules[name]


class Layer:
    bias = 0.125

    def __init__(self) -> None:
        self.weight = 0.5
        self.parts = [1.5]

    def __call__(self, x: Any) -> Any:
        return x * self.weight * self.parts[0] + self.bias


def test_arguments_are_read_through(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, options = Layer(), types.SimpleNamespace(rate=0.75)

    def f(x: Any, layer: Layer, kind: type[Layer], options: types.SimpleNamespace, function: Any) -> Any:
        return function(layer(x) * kind.bias * options.rate)

    compiled = pb.jit(f)
    for _ in range(2):
        same(compiled(X, layer, Layer, options, scaled), f(X, layer, Layer, options, scaled))
        monkeypatch.setattr(Layer, "bias", 0.375)
        monkeypatch.setattr(Rate, "value", 0.625)
        layer.weight, options.rate = 0.1, 0.2
    with pytest.raises(pb.TraceError, match="a random draw"):
        pb.jit(lambda x, rng: x + rng.normal())(X, np.random.default_rng(0))


def test_a_bound_method_is_one_argument() -> None:
    layer = Layer()
    calls: SimpleQueue[int] = SimpleQueue()

    def f(x: Any, function: Any) -> Any:
        calls.put(1)
        return function(x)

    compiled = pb.jit(f)
    for _ in range(3):
        same(compiled(X, layer.__call__), layer(X))
    assert calls.qsize() == 1


def test_copies_of_objects_belong_to_the_trace() -> None:
    layer = Layer()

    def f(x: Any) -> Any:
        shallow, deep = copy.copy(layer), copy.deepcopy(layer)
        shallow.weight = x
        deep.parts[0] = x[0]
        return shallow(x) + deep(x) + layer.parts[0]

    compiled = pb.jit(f)
    same(compiled(X), f(X))
    layer.weight = 0.1
    same(compiled(X), f(X))
    assert layer.parts == [1.5]


# errors leave no trace behind


class Mine(Exception):
    pass


@pytest.mark.parametrize("kind", [Mine, KeyboardInterrupt, SystemExit, RecursionError, pb.TraceError])
def test_the_users_own_errors_come_out_unchanged(kind: type[BaseException]) -> None:
    error = kind("mine")
    flag = [True]

    def f(x: Any) -> Any:
        y = x * 2
        if flag[0]:
            raise error
        return y

    def outer(x: Any) -> Any:
        return pb.grad(lambda v: f(v).sum())(x)

    for function, expected in ((f, X * 2), (outer, np.full(3, 2.0))):
        flag[0] = True
        compiled = pb.jit(function)
        with pytest.raises(kind) as caught:
            compiled(X)
        assert caught.value is error
        assert current() is None
        flag[0] = False
        same(compiled(X), expected)


def test_an_error_in_a_context_and_a_generator_is_the_users() -> None:
    steps: list[str] = []

    def count(x: Any) -> Any:
        try:
            yield x
            raise Mine("late")
        finally:
            assert x is not None

    def f(x: Any) -> Any:
        with np.errstate(all="ignore"):
            return sum(count(x), 0.0)

    before = np.geterr()
    with pytest.raises(Mine, match="late"):
        pb.jit(f)(X)
    assert np.geterr() == before and current() is None and steps == []


# what a traced value says of itself


def test_a_traced_value_says_that_it_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        print(x, f"{x}", repr(x[0]))
        return x

    pb.jit(f, effects="trace")(X)
    assert capsys.readouterr().out == "traced f64[3] x traced f64[3] x traced f64[]\n"


def test_a_traced_value_passes_for_an_array() -> None:
    def f(x: Any, k: Any) -> Any:
        assert isinstance(x, np.ndarray) and type(x) is np.ndarray and issubclass(type(x), np.ndarray)
        assert isinstance(x.sum(), np.float64) and type(x.sum()) is np.float64
        assert isinstance(k, float) and type(k) is float
        assert hasattr(x, "shape") and not hasattr(x, "no_such_attribute")
        return x * k

    same(pb.jit(f)(X, 2.5), X * 2.5)


def test_guards_are_cheap() -> None:
    """Each guard is one read and one comparison in Python: ten take a few microseconds at most on any machine."""
    import timeit

    traced = trace(lambda x: scaled(x) * WEIGHTS if RATES["n"] == 2 else x, (X,))
    seconds = min(timeit.repeat(traced.holds, number=200, repeat=5)) / 200
    assert seconds / len(traced.guards) < 5e-6


class NotConverged(RuntimeError):
    """An exception of the user's."""


def test_a_class_that_is_used_as_it_is_is_not_returned() -> None:
    def best(x: float) -> Any:
        result = None
        if x > 100:
            raise NotConverged("too large")
        return result

    assert pb.jit(best)(2.0) is None


def counting(function: Any) -> Any:
    """Return a function that counts its calls, up to a limit."""

    @functools.wraps(function)
    def wrapper(x: Any) -> Any:
        return function(x) * wrapper.limit  # type: ignore[attr-defined]

    wrapper.limit = 3  # type: ignore[attr-defined]
    return wrapper


@counting
def squared(x: Any) -> Any:
    return x * x


def test_attributes_of_a_wrapper_are_read() -> None:
    compiled = pb.jit(lambda x: squared(x) + 1.0)
    assert compiled(2.0) == 13.0
    squared.limit = 5
    try:
        assert compiled(2.0) == 21.0
    finally:
        squared.limit = 3
