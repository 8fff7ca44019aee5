"""Control flow: the results of branches and loops against plain Python, and the errors of branches and loops that do not fit."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.checking.control_flow_reference import in_python
from tests.support.tracing import run
from tests.tables.control_programs import NO_DERIVATIVE, PROGRAMS, XS, W, collatz, matrix_powers


def plain(program: Callable[..., Any], *args: Any) -> Any:
    """Return the result of a program whose branches and loops run in plain Python."""
    with in_python(), np.errstate(all="ignore"):
        return program(*args)


def agrees(result: Any, expected: Any, rtol: float = 0.0) -> None:
    """Equal trees of equal types and values."""
    assert pb.tree.structure(result) == pb.tree.structure(expected)
    for x, y in zip(map(np.asarray, pb.tree.leaves(result)), map(np.asarray, pb.tree.leaves(expected)), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_plain_python(name: str) -> None:
    program, args = PROGRAMS[name]
    before = copy.deepcopy(args)
    expected = plain(program, *copy.deepcopy(args))
    agrees(run(program, *args), expected, 1e-13)
    agrees(pb.jit(program)(*args), expected, 1e-12)
    agrees(args, before)


def test_plain_runs_are_loops_of_python() -> None:
    steps, n = 0, 27
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    assert plain(collatz, 27) == steps == 111
    total, running = plain(lambda xs: pb.scan(lambda t, x: (t + x, t + x), 0.0, xs), XS)
    np.testing.assert_array_equal(running, np.cumsum(XS))
    assert total == running[-1]
    products = [W, W.T @ W, (W + 1) @ (W.T @ W), (W - 1) @ ((W + 1) @ (W.T @ W)), W @ ((W - 1) @ ((W + 1) @ (W.T @ W)))]
    np.testing.assert_allclose(plain(matrix_powers, W), np.stack(products), rtol=1e-13)


class Counter:
    def __init__(self) -> None:
        self.count, self.seen = 0, []  # type: ignore[var-annotated]

    def counting(self, i: Any, s: Any) -> Any:
        self.count += 1
        return s

    def keeping(self, i: Any, s: Any) -> Any:
        self.seen.append(s)
        return s


def in_a_list(x: Any) -> Any:
    rows: list[Any] = []
    pb.map(lambda r: rows.append(r) or r, x)
    return rows[0]


def in_an_array(x: Any) -> Any:
    total = np.zeros(3)

    def body(i: Any, s: Any) -> Any:
        total[:] += 1.0
        return s

    return pb.fori_loop(0, 3, body, x) + total


def in_a_variable(x: Any) -> Any:
    steps = 0

    def body(i: Any, s: Any) -> Any:
        nonlocal steps
        steps += 1
        return s

    return pb.fori_loop(0, 3, body, x), steps


def in_a_default(x: Any) -> Any:
    def body(i: Any, s: Any, kept: dict[str, Any] = {}) -> Any:  # noqa: B006
        kept["s"] = s
        return s

    return pb.fori_loop(0, 3, body, x)


def in_a_branch(x: Any) -> Any:
    taken: set[str] = set()
    return pb.cond(x[0] > 0, lambda: taken.add("yes") or x, lambda: x), len(taken)


def in_an_iterator(x: Any) -> Any:
    weights = iter([1.0, 2.0, 3.0])
    return pb.fori_loop(0, 3, lambda i, s: s * next(weights), x)


LEAKS: dict[str, Callable[..., Any]] = {
    "a list": in_a_list,
    "an array": in_an_array,
    "a variable": in_a_variable,
    "a default": in_a_default,
    "a set, in a branch": in_a_branch,
    "an iterator": in_an_iterator,
    "an attribute": lambda x: pb.fori_loop(0, 3, Counter().counting, x),
    "a list of an object": lambda x: pb.fori_loop(0, 3, Counter().keeping, x),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_a_body_changes_outside_of_itself_is_refused(name: str) -> None:
    with pytest.raises(pb.TraceError, match=r"from outside (it|the body of a loop)|uses the iterator"):
        pb.jit(LEAKS[name])(np.arange(3.0))


def test_a_known_predicate_leaves_one_branch() -> None:
    def never() -> Any:
        raise AssertionError("traced")

    def f(x: Any) -> Any:
        return pb.cond(len(x) > 2, lambda: x[2], never), pb.switch(-3, [lambda: x[0], never])

    assert pb.jit(f)(XS) == (XS[2], XS[0])


def test_only_the_branch_taken_runs() -> None:
    inside = pb.jit(lambda x, k: pb.cond(k < 5, lambda: x[k], lambda: 0.0))
    assert [inside(XS, 2), inside(XS, 7)] == [XS[2], 0.0]


def test_failures_in_bodies_name_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    def total(x: Any, n: Any) -> Any:
        def body(i: Any, s: Any) -> Any:
            pb.print("turn {i}", i=i)
            return s + x[i]

        return pb.fori_loop(0, n, body, 0.0)

    f = pb.jit(total)
    assert f(XS, 3) == np.sum(XS[:3])
    assert capsys.readouterr().out == "turn 0\nturn 1\nturn 2\n"
    with pytest.raises(IndexError, match="index 5 is out of bounds for axis 0 with size 5") as caught:
        f(XS, 7)
    assert "return s + x[i]" in caught.value.__notes__[0]
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        pb.jit(lambda a: pb.map(np.linalg.inv, a))(np.zeros((2, 2, 2)))


def test_a_call_outside_a_trace_compiles_once() -> None:
    def body(i: Any, s: Any) -> Any:
        return s * 0.5 + i

    first = pb.fori_loop(0, 3, body, 1.0)
    before = pb.cache_info()
    assert [pb.fori_loop(0, n, body, 1.0) for n in range(3, 6)] == [plain(pb.fori_loop, 0, n, body, 1.0) for n in range(3, 6)]
    assert pb.cache_info() == before
    assert first == pb.fori_loop(0, 3, lambda i, s: s * 0.5 + i, 1.0)
    assert pb.cache_info().compiles == before.compiles


def test_bodies_see_what_changes_outside() -> None:
    settings = {"rate": 2.5}
    model = Scaled()
    f = pb.jit(lambda x: pb.scan(model.step, 0.0, x)[0] * settings["rate"])
    assert f(XS) == np.sum(XS) * 2.5
    settings["rate"], model.scale = 3.5, 7.0
    assert f(XS) == 7.0 * np.sum(XS) * 3.5


class Scaled:
    scale = 1.0

    def step(self, total: Any, x: Any) -> Any:
        return total + self.scale * x, None


def test_the_arrays_of_a_closure_go_with_it() -> None:
    def built() -> tuple[Any, Any]:
        weights = np.ones(10)
        return (lambda i, s: s + weights[0]), weakref.ref(weights)

    body, weights = built()
    assert pb.fori_loop(0, 3, body, 0.0) == 3.0
    del body
    assert weights() is None


def test_loops_are_one_instruction_whatever_their_length() -> None:
    def f(x: Any) -> Any:
        return pb.scan(lambda h, row: (np.tanh(h + row), None), np.zeros(2), x)[0]

    short, long = (pb.jit(f).stages(np.ones((n, 2)))["trace"].count("\n") for n in (3, 3000))
    assert short == long


PEERS: dict[str, Callable[..., Any]] = {
    "cond": lambda f: f(np.sum(XS) > 0, lambda x: x * 2, lambda x: -x, XS),
    "switch": lambda f: f(5, [lambda x: x, lambda x: x * 2, lambda x: x * 3], XS),
    "while_loop": lambda f: f(lambda s: s[1] < 5, lambda s: (s[0] * 1.5, s[1] + 1), (2.0, 0)),
    "fori_loop": lambda f: f(2, 5, lambda i, s: s * i + 1.0, 1.0),
    "scan": lambda f: f(lambda s, x: (s + x, {"y": s * x}), 0.0, XS, reverse=True),
    "map": lambda f: f(lambda x: (x, x * x), XS),
    "associative_scan": lambda f: f(lambda a, b: (a[0] + b[0], a[1] * b[1]), (XS, XS), reverse=True),
}


@pytest.mark.parametrize("name", PEERS)
def test_calls_are_those_of_jax(name: str) -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.tree.leaves(PEERS[name](getattr(jax.lax, name)))
    for x, y in zip(pb.tree.leaves(PEERS[name](getattr(pb, name))), theirs, strict=True):
        np.testing.assert_allclose(x, np.asarray(y), rtol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in NO_DERIVATIVE])
def test_derivatives_are_difference_quotients(name: str) -> None:
    program, args = PROGRAMS[name]
    pb.check_grad(program, order=2, modes=("fwd", "rev"))(*args)
