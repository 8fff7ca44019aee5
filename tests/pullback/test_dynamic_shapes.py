"""``pb.jit(dynamic=True)``: one trace serves other sizes, and every condition on sizes that a function evaluates is a guard."""

from __future__ import annotations

import copy
import datetime
import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.process import counters
from tests.fuzz import calls as fuzz_calls
from tests.fuzz import test_fuzz_source
from tests.support.symbolic import check
from tests.tables import (
    control_programs,
    inplace_elements,
    inplace_functions,
    inplace_loops,
    inplace_masks,
    inplace_outside,
    inplace_views,
)
from tests.tables.beyond_calls import ROWS as BEYOND
from tests.tables.floor_calls import ROWS as FLOOR
from tests.tables.inplace import PROGRAMS

Call = Callable[..., Any]

assert all((inplace_elements, inplace_functions, inplace_loops, inplace_masks, inplace_outside, inplace_views))


def bits(result: Any) -> Any:
    leaves, tree = pb.tree.flatten(result) if hasattr(pb, "tree") else ([result], "")
    return repr(tree), [(type(x), np.asarray(x).dtype, np.asarray(x).shape, np.asarray(x).tobytes()) for x in leaves]


def runs(function: Call, *calls: Any) -> int:
    """Return the number of traces with symbolic sizes for these calls, and check that each result has the bits of the function
    compiled for its shape."""
    dynamic, static = pb.jit(again(function), dynamic=True), pb.jit(function)
    before = _traced()
    actual = [dynamic(*copy.deepcopy(call)) for call in calls]
    count = _traced() - before
    for call, result in zip(calls, actual, strict=True):
        assert bits(result) == bits(static(*copy.deepcopy(call)))
    return count


def again(function: Any) -> Any:
    """The function without what was compiled of it."""
    if not isinstance(function, FunctionType):
        return function
    return FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)


def _traced() -> int:
    return counters.snapshot().runs.get("trace", 0)


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def loss(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


def of_batch(n: int, d: int = 5) -> Any:
    return normal(d), normal(n, d), normal(n)


# programs


@pytest.mark.parametrize("name", FLOOR)
def test_functions_that_autograd_has(name: str) -> None:
    function, arguments = FLOOR[name]
    check(lambda *given: function(*given), *arguments)


@pytest.mark.parametrize("name", BEYOND)
def test_functions_beyond(name: str) -> None:
    function, arguments = BEYOND[name]
    check(lambda *given: function(*given), *arguments)


@pytest.mark.parametrize("name", control_programs.PROGRAMS)
def test_control_flow(name: str) -> None:
    check(control_programs.PROGRAMS[name][0], *control_programs.PROGRAMS[name][1])


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_writes(program: Any) -> None:
    check(program.function, *program.arguments)


@pytest.mark.parametrize("seed", range(60))
def test_random_calls(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = fuzz_calls.Program(lambda n: int(rng.integers(n)), rng)
    for _ in range(6):
        program.step()
    if program.lines:
        check(fuzz_calls.defined(program.text()), *copy.deepcopy(program.arguments))


@pytest.mark.parametrize("seed", range(60))
def test_random_functions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = test_fuzz_source.Source(lambda n: int(rng.integers(n)), rng, test_fuzz_source.DTYPES)
    for _ in range(test_fuzz_source.LINES):
        source.grow()
    check(fuzz_calls.defined(source.text(source.lines, ", ".join(source.values))), *source.arguments)


# values


def test_one_trace_serves_other_sizes() -> None:
    assert runs(pb.value_and_grad(loss), of_batch(8), of_batch(9), of_batch(100, 7), of_batch(8), of_batch(2, 2)) == 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.sum() / len(x),
        lambda x: (1 / x.shape[0], x.shape, x.size, x.ndim, x.nbytes),
        lambda x: x * math.sqrt(x.size) + math.log(len(x)) - np.sqrt(x.shape[1]) * float(len(x)),
        lambda x: x[1:] - x[:-1],
        lambda x: (x[len(x) // 2], x[-1], x[: len(x) // 3], x[::2], x[::-3], x[-3:]),
        lambda x: x.reshape(-1) + x.ravel() * x.size,
        lambda x: x.reshape(x.shape[1], x.shape[0]).T @ np.ones((x.shape[1], 2)),
        lambda x: np.zeros(x.shape) + np.full((len(x), 1), 2.0) + np.eye(*x.shape),
        lambda x: np.arange(len(x))[:, None] * x + np.linspace(0, 1, x.shape[1]) + np.arange(0.5, len(x), 1.0).sum(),
        lambda x: np.sin(np.arange(x.size) * 0.1).reshape(x.shape) + x,
        lambda x: (x[np.arange(len(x)), np.arange(len(x)) % x.shape[1]], x[np.triu_indices(x.shape[1])]),
        lambda x: np.where(np.tri(len(x), dtype=bool), x @ x.T, -np.inf).max(axis=1),
        lambda x: (np.arange(len(x)), np.arange(3) * len(x), [1.5] * 3 + [len(x)]),
        lambda x: pb.random.normal(pb.random.key(1), x.shape) + x,
        lambda x: np.linalg.svd(x, full_matrices=False)[1] + np.linalg.inv(x.T @ x + np.eye(x.shape[1])).sum(),
        lambda x: x.mean(axis=0) + x.var(axis=0) * np.float32(len(x)),
        lambda x: np.concatenate([x, x[:1], np.ones((2, x.shape[1]))]),
        lambda x: np.pad(x, ((1, 1), (0, 0))).cumsum(axis=0),
        lambda x: np.broadcast_to(x.sum(axis=1)[:, None], (2, *x.shape)),
        lambda x: np.sort(x, axis=0)[::-1] + np.argmax(x, axis=1)[:, None],
        lambda x: np.fft.rfft(x, axis=0, norm="ortho"),
        lambda x: pb.fori_loop(0, x.shape[0], lambda i, s: s + x[i], np.zeros(x.shape[1])),
        lambda x: pb.scan(lambda c, r: (c + r.sum(), c * r), 0.0, x),
        lambda x: pb.vmap(lambda r: r / np.sqrt(r @ r + len(r)))(x),
        lambda x: pb.grad(lambda v: np.sum(np.tanh(v) ** 2) / v.size)(x),
        lambda x: pb.jvp(lambda v: np.sin(v).sum(axis=0) / len(v), (x,), (x,)),
        lambda x: pb.jit(lambda v: v.sum(axis=1) * v.shape[0])(x),
        lambda x: {"rows": len(x), "half": [len(x) / 2, len(x) % 3, -(-len(x) // 4), divmod(len(x), 5)]},
        lambda x: (max(len(x), 2) * x).sum() + min(x.shape),
        lambda x: np.prod(x.shape) * x.sum() + round(len(x) / 3) + abs(-len(x)) + len(x) ** 2,
    ],
    ids=lambda f: str(f.__code__.co_firstlineno),
)
def test_results_are_those_of_numbers(function: Call) -> None:
    calls = [(normal(n, d),) for n, d in ((24, 8), (25, 9), (31, 7), (48, 6), (100, 30))]
    assert runs(function, *calls) <= len(calls)


def test_what_needs_no_number_is_traced_once() -> None:
    def function(x: Any) -> Any:
        n, d = x.shape
        y = x[1:].reshape(-1, d)[: n // 2] * math.sqrt(n) / float(x.size) + np.zeros((n // 2, d))
        return np.sum(y) / n + np.mean(x), x.shape, len(x) * 2.5

    assert runs(function, *((normal(n, d),) for n, d in ((20, 8), (21, 8), (300, 9), (64, 31)))) == 1


def test_static_arguments_and_containers_are_told_apart() -> None:
    def function(p: Any, k: Any, power: Any) -> Any:
        return {"y": p["x"].sum() ** power / len(p["x"]) + k}

    dynamic = pb.jit(function, static_argnames="power", dynamic=True)
    before = _traced()
    for n, k, power in ((10, 1.5, 2), (11, 2.5, 2), (12, 1.5, 3), (13, 0.5, 3)):
        expected = function({"x": normal(n)}, k, power)["y"]
        np.testing.assert_allclose(dynamic({"x": normal(n)}, k, power)["y"], expected, rtol=1e-13)
    assert _traced() - before == 2


def test_closures_are_read_at_each_call() -> None:
    scale = np.array([2.0])

    def make() -> Call:
        return lambda x: x.sum() * scale[0] / len(x)

    dynamic = pb.jit(make(), dynamic=True)
    assert dynamic(np.ones(6)) == 2.0
    scale[0] = 3.0
    before = _traced()
    assert dynamic(np.ones(7)) == 3.0
    assert _traced() == before


def test_a_changed_global_is_traced_again_for_all_sizes() -> None:
    flags = {"double": True}

    def function(x: Any) -> Any:
        return x.sum() * 2 if flags["double"] else x.sum()

    dynamic = pb.jit(function, dynamic=True)
    assert dynamic(np.ones(6)) == 12
    flags["double"] = False
    assert dynamic(np.ones(7)) == 7
    assert dynamic(np.ones(6)) == 6


def test_arrays_made_of_sizes_are_made_again() -> None:
    def function(x: Any) -> Any:
        n = len(x)
        wave = np.sin(np.arange(n) * 0.1) + np.linspace(0, 1, n) ** 2
        return (wave[:, None] * x)[np.arange(n), 0] / np.hypot(n, 2.0), np.arange(n) % 3, wave[::2].sum()

    assert runs(function, *((normal(n, 3),) for n in (20, 21, 300))) == 1


def test_an_array_made_of_sizes_is_not_written() -> None:
    def function(x: Any) -> Any:
        places = np.arange(len(x))
        try:
            places[0] = 7
        except TypeError:
            return x
        return x * places

    dynamic = pb.jit(function, dynamic=True)
    for n in (4, 5):
        np.testing.assert_array_equal(dynamic(np.ones(n)), [7, *range(1, n)])
    assert "writes into an array that NumPy made of sizes" in dynamic.explain(np.ones(5)).numbers_since


@pytest.mark.parametrize(
    "write",
    [
        lambda a: np.put(a, [0], 7), lambda a: np.copyto(a, 7), lambda a: np.add.at(a, [1], 7), lambda a: a.fill(7),
        lambda a: next(iter(a.reshape(1, -1))).fill(7), lambda a: memoryview(a).__setitem__(0, 7), lambda a: a.sort(),
        lambda a: np.negative(a, out=a), lambda a: a.__setitem__(slice(2), 7), lambda a: np.asarray(a).__setitem__(0, 7),
    ],
    ids=lambda f: str(f.__code__.co_firstlineno),
)  # fmt: skip
def test_an_array_made_of_sizes_is_not_written_by_others(write: Call) -> None:
    def function(x: Any) -> Any:
        places = np.arange(len(x))[::-1].copy()
        write(places)
        return x + places

    dynamic, static = pb.jit(again(function), dynamic=True), pb.jit(function)
    for n in (4, 5, 4):
        try:
            expected = static(np.ones(n))
        except Exception as error:
            with pytest.raises(type(error)):
                dynamic(np.ones(n))
        else:
            np.testing.assert_array_equal(dynamic(np.ones(n)), expected)


def test_lists_given_to_numpy_may_change_afterwards() -> None:
    def function(x: Any) -> Any:
        bounds = [len(x), 2 * len(x)]
        total = np.prod(bounds)
        bounds.append(3)
        steps = np.array([1, 2])
        moved = np.dot(steps, np.arange(len(x))[:2])
        steps[0] = 5
        return x * total + np.prod(bounds) + moved + np.dot(steps, np.arange(len(x))[:2])

    assert runs(function, (normal(40),), (normal(50),), (normal(60),)) == 1


def test_what_numbers_do_not_raise_is_found_where_it_is_caught() -> None:
    def function(x: Any) -> Any:
        try:
            days = datetime.timedelta(len(x)).days
        except TypeError:
            days = -1
        return x * days

    dynamic = pb.jit(function, dynamic=True)
    for n in (4, 5):
        np.testing.assert_array_equal(dynamic(np.ones(n)), np.full(n, float(n)))
    assert "something else" in dynamic.explain(np.ones(5)).numbers_since


def test_an_except_clause_is_no_obstacle() -> None:
    def function(x: Any) -> Any:
        try:
            return x.sum() / len(x)
        except ZeroDivisionError:
            return 0.0

    assert runs(function, (normal(40),), (normal(50),), (normal(60),)) == 2


# guards


def explained(function: Call, first: Any, second: Any) -> Any:
    dynamic = pb.jit(again(function), dynamic=True)
    dynamic(*first)
    return dynamic.explain(*second)


def branch(x: Any) -> Any:
    if len(x) > 10:  # here
        return x.sum()
    return x.max()


BRANCH = branch.__code__.co_firstlineno + 1


def test_a_branch_asks_for_the_relation_alone() -> None:
    assert runs(branch, *((normal(n),) for n in (20, 11, 300))) == 1
    assert runs(branch, *((normal(n),) for n in (20, 11, 5, 9, 30, 6))) == 2


def test_a_failed_guard_is_named() -> None:
    result = explained(branch, (normal(20),), (normal(6),))
    assert result.status == "size guard failed" and not result.is_compiled
    (change,) = result.changes
    assert (change.name, change.old, change.new) == (f"x.shape[0] > 10 (test_dynamic_shapes.py:{BRANCH}): x.shape[0]", "20", "6")
    assert f"x.shape[0] > 10 (test_dynamic_shapes.py:{BRANCH}): x.shape[0] is 6, was 20" in str(result)


def test_other_sizes_are_explained() -> None:
    result = explained(branch, (normal(20),), (normal(21),))
    assert (result.status, result.is_compiled, result.template) == ("other sizes", True, "known")
    assert [(g.text, g.loc.line) for g in result.size_guards] == [("x.shape[0] > 10", BRANCH)]
    assert "it is not traced" in result.headline


@pytest.mark.parametrize(
    ("function", "first", "second", "guard"),
    [
        (lambda x, y: x + y, (normal(5), normal(5)), (normal(5), normal(1)), "y.shape[0] == x.shape[0]"),
        (lambda x: [v * 2 for v in x], (normal(5),), (normal(6),), "x.shape[0] == 5"),
        (lambda x: sum(x[k] for k in range(len(x))), (normal(5),), (normal(6),), "x.shape[0] == 5"),
        (lambda x: x * {5: 2.0, 6: 3.0}[len(x)], (normal(5),), (normal(6),), "x.shape[0] == 5"),
        (lambda x: (x, f"{len(x)} rows"), (normal(5),), (normal(6),), "x.shape[0] == 5"),
        (lambda x: x * (2.0 if len(x) % 2 else 3.0), (normal(5),), (normal(6),), "(x.shape[0] % 2) != 0"),
        (lambda x: x[:10], (normal(16),), (normal(6),), "x.shape[0] >= 10"),
        (lambda x: x * (1.0 if len(x) / 2 > 3.5 else 2.0), (normal(8),), (normal(6),), "(x.shape[0] / 2) > 3.5"),
        (lambda x, y: x[0] + y[: len(x)], (normal(4), normal(6)), (normal(4), normal(3)), "x.shape[0] <= y.shape[0]"),
        (lambda x: x * (2.0 if x.shape == (5, 4) else 1.0), (normal(5, 4),), (normal(5, 5),), "x.shape[1] == 4"),
        (lambda x: x * (2.0 if x.size in (12, 20) else 1.0), (normal(5, 4),), (normal(5, 5),), "x.shape[0] * x.shape[1] == 20"),
    ],
    ids=lambda p: str(p) if isinstance(p, str) else "",
)
def test_kinds_of_guards(function: Call, first: Any, second: Any, guard: str) -> None:
    result = explained(function, first, second)
    assert result.status == "size guard failed"
    assert result.changes and all(change.name.startswith(f"{guard} (test_dynamic_shapes.py:") for change in result.changes)


def test_crossing_a_size_class_is_a_guard() -> None:
    def function(x: Any) -> Any:
        return np.sum(np.exp(-np.sum((x[:, None, :] - x[None, :, :]) ** 2, axis=-1)))

    assert runs(function, (normal(20, 3),), (normal(30, 3),)) == 1
    assert runs(function, (normal(20, 3),), (normal(30, 4),)) == 2
    assert runs(function, (normal(20, 40),), (normal(30, 50),)) == 1
    assert explained(function, (normal(20, 3),), (normal(20, 4),)).status == "size guard failed"


# what stays as it was


def test_errors_are_those_of_numbers() -> None:
    def function(x: Any) -> Any:
        if len(x) == 7:
            raise ValueError(f"seven rows: {len(x)}")
        return x.reshape(4, -1)

    dynamic = pb.jit(function, dynamic=True)
    assert dynamic(normal(8)).shape == (4, 2)
    with pytest.raises(ValueError, match="seven rows: 7"):
        dynamic(normal(7))
    with pytest.raises(ValueError, match=r"cannot reshape array of size 9 into shape \(4,newaxis\)"):
        dynamic(normal(9))
    before = _traced()
    assert dynamic(normal(12)).shape == (4, 3)
    assert _traced() == before
    assert not dynamic.explain(normal(16)).numbers_since


def test_what_cannot_be_symbolic_is_traced_with_numbers() -> None:
    def function(x: Any) -> Any:
        return pb.callback(lambda v: v * 2.0, x, x)

    dynamic = pb.jit(function, dynamic=True)
    np.testing.assert_array_equal(dynamic(np.ones(3)), 2 * np.ones(3))
    np.testing.assert_array_equal(dynamic(np.ones(4)), 2 * np.ones(4))
    assert "calls functions of Python" in str(dynamic.explain(np.ones(4)))


def test_types_of_sizes_are_those_of_numbers() -> None:
    def function(x: Any) -> Any:
        n = len(x)
        assert type(n) is int and isinstance(n, int) and type(n / 2) is float and isinstance(n > 2, bool)
        match n:
            case int():
                return x * n
        return x

    assert runs(function, (normal(5),), (normal(6),)) == 1


def test_donated_state_is_updated_in_place() -> None:
    def step(state: Any, x: Any) -> Any:
        return state - 0.1 * x / len(x)

    dynamic = pb.jit(step, donate="state", dynamic=True)
    for n in (8, 9, 30):
        state, x = normal(n), np.cos(normal(n))
        expected = pb.jit(step)(state.copy(), x)
        result = dynamic(state, x)
        assert result is state
        np.testing.assert_array_equal(result, expected)


def test_writes_reach_the_caller() -> None:
    def function(x: Any) -> Any:
        x[1:] += x[:-1] * len(x)
        return x.sum()

    assert runs(function, *((normal(n),) for n in (8, 9, 30))) == 1
    mine, other = normal(9), normal(9)
    pb.jit(function, dynamic=True)(mine)
    function(other)
    np.testing.assert_allclose(mine, other)


def test_the_option_is_inherited() -> None:
    before = _traced()
    gradient = pb.grad(pb.jit(lambda x: np.sum(np.sin(x)) / len(x), dynamic=True))
    for n in (5, 6, 70):
        assert gradient(normal(n)).shape == (n,)
    assert _traced() - before == 1


def test_calls_become_native() -> None:
    dynamic = pb.jit(loss, dynamic=True)
    for n in (8, 9, 30, 8, 9, 30) * 3:
        assert bits(dynamic(*of_batch(n))) == bits(pb.jit(loss)(*of_batch(n)))


def test_other_dtypes_ranks_and_orders_are_traced() -> None:
    def function(x: Any) -> Any:
        return x.sum(axis=0) / len(x)

    x = normal(6, 4)
    assert runs(function, (x,), (x.astype(np.float32),), (x[0],), (x.T,), (normal(8, 9),)) == 4
