"""Stores to what is outside the traced function: each program leaves what plain Python leaves on a second copy of its state."""

import re
import sys
import types
from collections import deque
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import pullback as pb

TEXT = (Path(__file__).parent / "programs.txt").read_text()
INPUTS = [np.array([0.5, 1.5, 2.5]), np.array([-0.5, 0.25, 1.25]), np.array([2.0, 0.5, 1.5]), np.array([0.0, 0.1, 0.2])]


def programs() -> Any:
    """The text of each program, and the number of programs that its calls need at most, 0 if there is no bound."""
    for part in re.split(r"^=== ", TEXT, flags=re.MULTILINE)[1:]:
        title, text = part.split("\n", 1)
        name, count = title.rsplit(" ", 1)
        yield pytest.param(text, int(count), id=name.replace(" ", "-"))


def module(name: str, folder: Path, text: str) -> types.ModuleType:
    """A module of the user's."""
    built = types.ModuleType(name)
    built.__file__ = str(folder / f"{name}.py")
    Path(built.__file__).write_text(text)
    sys.modules[name] = built
    built.__dict__["np"] = np
    exec(compile(text, built.__file__, "exec"), built.__dict__)
    return built


def state_of(user: types.ModuleType) -> Any:
    return described(user.look() if hasattr(user, "look") else user.__dict__.get("state"), {})


def described(x: Any, numbers: dict[int, int]) -> Any:
    """A value with the types of all that is in it, in which an object that is met again is its number."""
    if isinstance(x, bool | int | str | None | type):
        return x.__name__ if isinstance(x, type) else (type(x).__name__, x)
    if isinstance(x, float | complex | np.generic):
        return type(x).__name__, float(f"{x:.10g}") if isinstance(x, float) else complex(x)
    if id(x) in numbers:
        return "same", numbers[id(x)]
    numbers[id(x)] = len(numbers)
    if isinstance(x, np.ndarray):
        return "array", x.dtype.str, x.shape, [float(f"{v:.10g}") for v in x.ravel()]
    if isinstance(x, dict):
        return type(x).__name__, [(described(k, numbers), described(v, numbers)) for k, v in x.items()]
    if isinstance(x, list | tuple | deque):
        return type(x).__name__, [described(v, numbers) for v in x]
    if isinstance(x, set):
        return "set", sorted(x)
    return type(x).__name__, described(vars(x), numbers)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(("text", "count"), programs())
def test_calls_leave_what_plain_python_leaves(text: str, count: int, tmp_path: Path) -> None:
    mine, plain = module("mine", tmp_path, text), module("plain", tmp_path, text)
    compiled = pb.jit(mine.f)
    for x in INPUTS:
        result, expected = compiled(x), plain.f(x)
        assert described(result, {}) == described(expected, {})
        assert state_of(mine) == state_of(plain)
    info = compiled.cache_info()
    assert not count or info.templates_built + info.templates_loaded + info.templates_instantiated <= count


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize(("text", "count"), programs())
def test_gradients_store_once(text: str, count: int, tmp_path: Path) -> None:
    """The gradient of the state at the call, by central differences on copies of the state."""
    mine, plain = module("mine", tmp_path, text), module("plain", tmp_path, text)
    compiled = pb.value_and_grad(mine.f)
    for k, x in enumerate(INPUTS):
        differences = []
        for direction in np.eye(3) * 1e-6:
            values = []
            for sign in (1, -1):
                other = module("other", tmp_path, text)
                for earlier in INPUTS[:k]:
                    other.f(earlier)
                values.append(other.f(x + sign * direction))
            differences.append((values[0] - values[1]) / 2e-6)
        value, gradient = compiled(x)
        assert described(value, {}) == described(plain.f(x), {})
        assert state_of(mine) == state_of(plain)
        np.testing.assert_allclose(gradient, differences, rtol=1e-5, atol=1e-7)


class Fit:
    """A loss with a counter, a history and the last point."""

    def __init__(self) -> None:
        self.calls, self.history, self.last = 0, list[float](), None

    def loss(self, w: Any) -> Any:
        self.calls += 1
        value = np.sum(100 * (w[1:] - w[:-1] ** 2) ** 2 + (1 - w[:-1]) ** 2)
        self.history.append(float(value))
        self.last = w
        return value


def slope(w: Any) -> Any:
    """The gradient of that loss."""
    result = np.zeros_like(w)
    result[:-1] = -400 * w[:-1] * (w[1:] - w[:-1] ** 2) - 2 * (1 - w[:-1])
    result[1:] += 200 * (w[1:] - w[:-1] ** 2)
    return result


def test_a_minimiser_and_a_history() -> None:
    mine, plain = Fit(), Fit()
    compiled = pb.value_and_grad(mine.loss)
    result = minimize(compiled, np.zeros(4), jac=True)
    expected = minimize(lambda w: (plain.loss(w), slope(w)), np.zeros(4), jac=True)
    np.testing.assert_allclose(result.x, expected.x, rtol=1e-6)
    assert (mine.calls, len(mine.history)) == (plain.calls, len(plain.history))
    np.testing.assert_allclose(mine.history, plain.history, rtol=1e-5, atol=1e-10)
    assert compiled.cache_info().templates_built == 1


def test_a_history_needs_no_new_trace() -> None:
    fit, x = Fit(), np.ones(4)
    compiled = pb.jit(fit.loss)
    for _ in range(3000):
        compiled(x)
    assert (fit.calls, len(fit.history)) == (3000, 3000)
    assert compiled.cache_info().templates_built <= 1
    assert fit.last is x


def test_a_call_that_raises_stores_nothing() -> None:
    fit, log = Fit(), list[Any]()

    def fails(x: Any) -> Any:
        fit.calls += 1
        log.append(x)
        if np.sum(x) > 3:
            raise ValueError("too large")
        return x

    compiled = pb.jit(fails)
    compiled(np.zeros(4))
    with pytest.raises(ValueError, match="too large"):
        compiled(np.ones(4))
    assert (fit.calls, len(log)) == (1, 1)


def test_second_derivatives_store_once() -> None:
    fit = Fit()

    def cubed(x: Any) -> Any:
        fit.calls += 1
        return np.sum(x**3)

    compiled = pb.grad(lambda x: np.sum(pb.grad(cubed)(x)))
    np.testing.assert_allclose(compiled(np.ones(2)), [6.0, 6.0])
    compiled(np.ones(2))
    assert fit.calls == 2


ONCE = {
    "hessian": pb.hessian,
    "rows of a Jacobian": pb.jacrev,
    "columns of a Jacobian": pb.jacfwd,
    "pushforward": lambda f: lambda x: pb.jvp(f, (x,), (x,)),
    "pullback": lambda f: lambda x: pb.vjp(f, x)[1](1.0),
    "gradient of a checkpoint": lambda f: pb.grad(lambda x: pb.checkpoint(f)(x)),
    "gradient of a checkpoint that keeps nothing": lambda f: pb.grad(lambda x: pb.checkpoint(f, policy="nothing")(x)),
    "gradient of a gradient of a checkpoint": lambda f: pb.grad(lambda x: np.sum(pb.grad(pb.checkpoint(f))(x))),
}


@pytest.mark.parametrize("transform", ONCE)
def test_derivatives_of_a_function_store_once(transform: str) -> None:
    fits = Fit(), Fit()
    plain = [[], []]  # type: list[list[Any]]

    def loss(fit: Any, history: list[Any], x: Any) -> Any:
        total = 0.0
        for v in x:
            if v > 0:
                fit.calls += 1
                total = total + v**3
        fit.last = x
        history.append(total)
        return total + np.sum(x**2)

    derivative = pb.jit(ONCE[transform](lambda x: loss(fits[0], plain[0], x)))
    without_stores = pb.jit(ONCE[transform](lambda x: loss(Fit(), [], x)))
    for x in (np.array([1.0, -2.0, 3.0]), -np.ones(3), np.ones(3)):
        result, expected = derivative(x), without_stores(x)
        np.testing.assert_array_equal(result, expected)
        loss(fits[1], plain[1], x)
        assert fits[0].calls == fits[1].calls and fits[0].last is fits[1].last
        assert plain[0] == plain[1]


@pytest.mark.parametrize("transform", [pb.vmap, lambda f: pb.vmap(pb.hessian(f))])
def test_functions_that_run_several_times_store_nothing(transform: Any) -> None:
    fit = Fit()

    def squared(x: Any) -> Any:
        fit.calls += 1
        return np.sum(x**2)

    with pytest.raises(pb.TraceError, match="stores to <Fit>"):
        transform(squared)(np.ones((2, 2)))
    assert fit.calls == 0


def test_a_frozen_dataclass_raises_its_own_error() -> None:
    @dataclass(frozen=True)
    class Frozen:
        n: int = 0

    frozen, log = Frozen(), list[int]()

    def stores(x: Any) -> Any:
        log.append(1)
        frozen.n = 1  # type: ignore[misc]
        return x

    with pytest.raises(FrozenInstanceError):
        pb.jit(stores)(1.0)
    assert log == []


def test_verify_is_refused() -> None:
    with pytest.raises(TypeError, match="verify: the function stores to <Fit>"):
        pb.jit(Fit().loss, verify=1)(np.ones(4))


class Slots:
    __slots__ = ("last",)


@pytest.mark.parametrize("kind", [Fit, Slots])
def test_a_deletion_of_what_is_not_there_raises_pythons_error(kind: type) -> None:
    def deletes(x: Any) -> Any:
        del target.last
        return x

    target: Any = kind()
    compiled = pb.jit(deletes)
    target.last = 1.0
    assert compiled(2.0) == 2.0 and not hasattr(target, "last")
    with pytest.raises(AttributeError) as expected:
        deletes(2.0)
    for _ in range(2):
        with pytest.raises(AttributeError) as raised:
            compiled(2.0)
        assert str(raised.value) == str(expected.value)
    target.last = 3.0
    assert compiled(2.0) == 2.0 and not hasattr(target, "last")


CONFIG = """
n, last, items = 0, None, []
def count(v):
    global n, last
    n += 1
    last = v
    return v * n
def read():
    return n
"""
USER = """
import {0} as config
from {0} import count
def by_function(x):
    return count(x) + config.n + config.read()
def by_attribute(x):
    config.n += 2
    config.new = x
    config.items.append(x)
    setattr(config, "w", [x])
    return config.read() + config.n * x
def in_turns(x):
    before = config.n
    config.count(x)
    between = config.n
    config.n = 10
    return before, between, config.count(x), config.n, config.last, getattr(config, "absent", 5)
def deleted(x):
    config.temporary = x
    y = config.temporary * 2
    del config.temporary
    return y, hasattr(config, "temporary")
"""


@pytest.mark.parametrize("name", ["by_function", "by_attribute", "in_turns", "deleted"])
def test_attributes_of_a_module_are_the_globals_of_its_functions(name: str, tmp_path: Path) -> None:
    sides = []
    for side in ("mine", "plain"):
        config = module(f"{side}_config", tmp_path, CONFIG)
        sides.append((config, getattr(module(side, tmp_path, USER.format(f"{side}_config")), name)))
    (mine, compiled), (plain, expected) = sides
    compiled = pb.jit(compiled)
    for x in (0.5, 1.5, 2.5):
        assert described(compiled(x), {}) == described(expected(x), {})
        states = [{k: v for k, v in vars(m).items() if not k.startswith("_") and not callable(v)} for m in (mine, plain)]
        states = [{k: v for k, v in s.items() if k != "np"} for s in states]
        assert described(states[0], {}) == described(states[1], {})


def test_a_store_to_a_module_is_refused_in_rows(tmp_path: Path) -> None:
    module("rows_config", tmp_path, CONFIG)
    user = module("rows", tmp_path, USER.format("rows_config"))
    with pytest.raises(pb.TraceError, match=r"stores to rows_config\.\w"):
        pb.vmap(user.by_attribute)(np.ones(3))
