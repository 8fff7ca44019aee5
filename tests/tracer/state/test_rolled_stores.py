"""Stores to what is outside in loops and branches that values decide: each program is one program for all values, and leaves what
plain Python leaves on a second copy of its state."""

import re
import types
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from tests.tracer.state.test_stores import described, module, state_of

TEXT = (Path(__file__).parent / "rolled_programs.txt").read_text()
IDENTITIES = (Path(__file__).parent / "identity_programs.txt").read_text()
LENGTH = 260
"""Elements of an argument: more than a loop may have that unrolls."""
SCALES = (0.25, 1.0, 0.15, 4.0)
SHORT = [[0.5, 1.5, 2.5], [-0.5, -2.25, 1.25], [2.0, -9.5, 1.5], [0.2, 0.1, 0.2], [0.3, -1.1, 0.2]]


def parts(text: str) -> list[tuple[str, str]]:
    """The titles of programs, with their texts."""
    pairs = [part.split("\n", 1) for part in re.split(r"^=== ", text, flags=re.MULTILINE)[1:]]
    return [(title, body) for title, body in pairs]


PROGRAMS = [pytest.param(text, id=title.replace(" ", "-")) for title, text in parts(TEXT)]
STORED = [
    pytest.param(text, title.endswith(" rolled"), id=title.rpartition(" ")[0].replace(" ", "-"))
    for title, text in parts(IDENTITIES)
]


def inputs() -> list[Any]:
    """Arguments that take other paths, one after another."""
    rng = np.random.default_rng(0)
    return [rng.normal(size=LENGTH) * scale + 0.1 for scale in SCALES]


def built(text: str, tmp_path: Path, *names: str) -> list[types.ModuleType]:
    return [module(name, tmp_path, text) for name in names]


@pytest.mark.parametrize("text", PROGRAMS)
def test_calls_leave_what_plain_python_leaves(text: str, tmp_path: Path) -> None:
    mine, plain = built(text, tmp_path, "mine", "plain")
    compiled = pb.jit(mine.f, guards=False)
    for x in inputs():
        result, expected = compiled(x), plain.f(x)
        assert described(result, {}) == described(expected, {})
        assert state_of(mine) == state_of(plain)
    assert "unrolled" not in str(compiled.explain(inputs()[0]))


@pytest.mark.parametrize("text", PROGRAMS)
def test_gradients_store_once(text: str, tmp_path: Path) -> None:
    """The gradient of the state at the call, in a direction, by a central difference on copies of the state."""
    mine, plain = built(text, tmp_path, "mine", "plain")
    compiled = pb.jit(pb.value_and_grad(mine.f), guards=False)
    rng = np.random.default_rng(1)
    for k, x in enumerate(inputs()):
        direction, values = rng.normal(size=LENGTH), []
        for sign in (1, -1):
            (other,) = built(text, tmp_path, "other")
            for earlier in inputs()[:k]:
                other.f(earlier)
            values.append(other.f(x + sign * 1e-7 * direction))
        value, gradient = compiled(x)
        assert described(value, {}) == described(plain.f(x), {})
        assert state_of(mine) == state_of(plain)
        np.testing.assert_allclose(gradient @ direction, (values[0] - values[1]) / 2e-7, rtol=2e-5, atol=1e-6)


def objects(x: Any) -> list[Any]:
    """The objects in a state, in order: containers, arrays and numbers."""
    inside = x if isinstance(x, list | tuple) else list(x.values()) if isinstance(x, dict) else []
    inside = list(vars(x).values()) if hasattr(x, "__dict__") else inside
    return [*([] if isinstance(x, tuple) else [x]), *(y for item in inside for y in objects(item))]


def same(values: list[Any]) -> list[int]:
    """For each value the first one that is the same object, -1 for a number."""
    plain = (float, int, str, type(None), np.generic)
    return [-1 if isinstance(x, plain) else next(k for k, y in enumerate(values) if x is y) for x in values]


@pytest.mark.parametrize("is_gradient", [False, True], ids=["call", "gradient"])
@pytest.mark.parametrize(("text", "is_rolled"), STORED)
def test_arrays_are_the_objects_that_they_are_in_python(text: str, is_rolled: bool, is_gradient: bool, tmp_path: Path) -> None:
    mine, plain = built(text, tmp_path, "mine", "plain")
    compiled = pb.value_and_grad(lambda x: np.sum(mine.f(x))) if is_gradient else pb.jit(mine.f)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if is_rolled else "ignore", pb.RetraceWarning)
        for values in SHORT:
            x, y = np.array(values), np.array(values)
            before = objects(mine.state), objects(plain.state)
            result, expected = compiled(x), plain.f(y)
            assert state_of(mine) == state_of(plain)
            a, b = ([], []) if is_gradient else ([result], [expected])
            assert described(a, {}) == described(b, {})
            assert same([x, *a, *before[0], *objects(mine.state)]) == same([y, *b, *before[1], *objects(plain.state)])
            x += 1
            y += 1
            assert state_of(mine) == state_of(plain)


class State:
    """Attributes to which the functions below store."""

    n: Any = 0


def counting(state: State) -> Any:
    def f(x: Any) -> Any:
        total = 0.0
        for v in x:
            if v > 0:
                state.n += 1
            total += v**3
        return total

    return f


def test_a_call_that_raises_stores_nothing(tmp_path: Path) -> None:
    text = """
class Model:
    def __init__(self):
        self.n, self.large = 0, []
state = Model()
def f(x):
    for v in x:
        state.n += 1
        if v > 2:
            state.large.append(v)
        if v > 5:
            raise ValueError(f"large at {state.n}")
    return state.n * x[0]
"""
    (mine,) = built(text, tmp_path, "mine")
    compiled = pb.jit(mine.f, guards=False)
    x = np.ones(LENGTH)
    compiled(x)
    x[7], x[100] = 3.0, 9.0
    with pytest.raises(ValueError, match=f"large at {LENGTH + 101}"):
        compiled(x)
    assert (mine.state.n, mine.state.large) == (LENGTH, [])
    x[100] = 1.0
    compiled(x)
    assert (mine.state.n, mine.state.large) == (2 * LENGTH, [3.0])


def test_second_derivatives_store_once() -> None:
    state, x = State(), np.linspace(-1, 1, LENGTH)
    f = counting(state)
    second = pb.grad(lambda x: np.sum(pb.grad(f)(x)))
    np.testing.assert_allclose(second(x), 6 * x, atol=1e-12)
    second(x)
    assert state.n == LENGTH


def test_rows_of_a_batch_store_nothing() -> None:
    state = State()
    with pytest.raises(pb.TraceError, match=r"stores to <State>\.n"):
        pb.vmap(counting(state))(np.ones((4, LENGTH)))
    assert state.n == 0


def test_functions_that_run_once_for_several_calls_store_nothing() -> None:
    state = State()

    def stores(x: Any) -> Any:
        state.n += 1
        return x

    for f in (
        lambda x: pb.cond(x[0] > 0, stores, lambda x: -x, x),
        lambda x: pb.map(stores, x),
    ):
        with pytest.raises(pb.TraceError, match=r"stores to <State>\.n"):
            pb.jit(f)(np.ones(LENGTH))
    assert state.n == 0


def test_nested_compiled_functions_store_in_order() -> None:
    state = State()

    @pb.jit
    def inner(v: Any) -> Any:
        state.n += 1
        return v * state.n

    @pb.jit
    def outer(x: Any) -> Any:
        total = 0.0
        for v in x:
            total += inner(v)
            if v > 1:
                state.n *= 2
        return total

    other, x = State(), np.ones(LENGTH)
    x[[3, 50]] = 2.0
    total = 0.0
    for v in x:
        other.n += 1
        total += v * other.n
        if v > 1:
            other.n *= 2
    np.testing.assert_allclose(outer(x), total)
    assert state.n == other.n


@pytest.mark.parametrize("start", [2**63 - 5, 2**63 + 1, 2**62 + 1])
def test_a_counter_beyond_64_bits_is_right_or_raises(start: int) -> None:
    state = State()
    state.n = start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.RetraceWarning)
        try:
            pb.jit(counting(state))(np.ones(LENGTH))
        except OverflowError:
            assert state.n == start
        else:
            assert state.n == start + LENGTH


def test_an_int_argument_that_a_loop_counts_up_does_not_wrap() -> None:
    @pb.jit
    def counted(x: Any, n: int) -> int:
        for i in range(len(x)):
            for _ in range(i):
                n += 1
        return n

    x = np.ones(LENGTH)
    assert counted(x, 5) == 5 + LENGTH * (LENGTH - 1) // 2
    with pytest.raises(OverflowError):
        counted(x, 2**63 - 5)


def test_an_attribute_of_one_path_is_read() -> None:
    state = State()

    @pb.jit
    def f(x: Any) -> Any:
        if x[0] > 0:
            state.level = x[1]
        return state.level  # type: ignore[attr-defined]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.RetraceWarning)
        with pytest.raises(AttributeError):
            f(np.array([-1.0, 2.0]))
        assert f(np.array([1.0, 3.0])) == 3.0
        assert f(np.array([-1.0, 5.0])) == 3.0


def test_a_stored_counter_decides_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    state = State()

    @pb.jit
    def f(x: Any) -> Any:
        total = 0.0
        for v in x:
            state.n += 1
            total += v
            if state.n % 100 == 0:
                print("now", state.n)
        return total

    f(np.ones(LENGTH))
    f(np.ones(LENGTH))
    assert capsys.readouterr().out.split("\n") == [*(f"now {k}" for k in range(100, 2 * LENGTH, 100)), ""]


def test_loops_without_source_store(tmp_path: Path) -> None:
    """The loop of a function without source is traced between its items."""
    space: dict[str, Any] = {"state": State(), "np": np}
    exec("def f(x):\n    s = 0.0\n    for v in x:\n        state.n += 1\n        s = s + v * v\n    return s", space)
    compiled = pb.jit(space["f"])
    assert compiled(np.ones(LENGTH)) == LENGTH
    assert compiled(np.ones(LENGTH)) == LENGTH
    assert space["state"].n == 2 * LENGTH


def test_branches_change_what_was_stored_before() -> None:
    """A list or dict that the function made and stored is one object under both names."""
    state = State()

    @pb.jit
    def f(x: Any) -> Any:
        state.xs, state.d = [], {"n": 0}
        if x > 0:
            state.xs.append(1.0)
            state.d["n"] = 1
        return x * 2

    for x, xs, n in ((1.0, [1.0], 1), (-1.0, [], 0), (2.0, [1.0], 1)):
        f(x)
        assert (state.xs, state.d) == (xs, {"n": n})


def test_branches_followed_by_guards_leave_what_python_leaves() -> None:
    """None in a list of a length by value, lists as items of a dict from outside, and the order of a dict."""
    shared = [0.5]
    state, none, items = State(), list[Any](), {"g": shared, "h": [0.25]}
    order = OrderedDict(x=0.5, y=1.5)

    def f(x: Any) -> Any:
        if x > 0:
            none.append(None)
            items["g"] = [x]
        if x > 1:
            order.move_to_end("x")
        state.n += 1
        return x * 2

    compiled = pb.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pb.RetraceWarning)
        compiled(np.float64(-1.0))
        assert (none, list(order)) == ([], ["x", "y"])
        assert items["g"] is shared
        compiled(np.float64(0.5))
        assert (none, items["g"], list(order)) == ([None], [0.5], ["x", "y"])
        compiled(np.float64(2.0))
        assert (none, list(order), state.n) == ([None, None], ["y", "x"], 3)
