"""Derivatives of loops and branches: each program against itself unrolled in Python, through transforms of any order and kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.passes import pipeline
from pullback.ir.passes.transforms.expand import grad as expand_gradients
from pullback.tracer import trace
from tests.support.loop_programs import PROGRAMS, Compiled, Recorded
from tests.support.tracing import run

Function = Callable[..., Any]


def weights(like: Any, seed: int) -> Any:
    return pb.tree.map(lambda x: 1 + 0.5 * np.cos(seed * np.arange(1.0, x.size + 1).reshape(x.shape)), like)


def dot(left: Any, right: Any) -> Any:
    return sum(np.sum(a * b) for a, b in zip(pb.tree.leaves(left), pb.tree.leaves(right), strict=True))


def grad(f: Function) -> Function:
    return lambda *args: pb.grad(f, argnums=tuple(range(len(args))))(*args)


def along(f: Function) -> Function:
    return lambda *args: pb.jvp(f, args, tuple(weights(args, 1)))[1]


def of_gradient(f: Function) -> Function:
    """The gradient as one number."""
    return lambda *args: dot(grad(f)(*args), weights(args, 2))


ROWS = np.array([0.0, 0.11, -0.17])


def rows(x: Any, k: int | None = None) -> Any:
    """Arguments for each row, or for one."""
    result = [x + shift for shift in ROWS]
    return np.stack(result) if k is None else result[k]


def batched(f: Callable[[int | None], Function]) -> Function:
    return lambda *args: np.sum(pb.vmap(f(None))(*(rows(x) for x in args)) * np.cos(ROWS))


def one_by_one(f: Callable[[int | None], Function]) -> Function:
    return lambda *args: sum(f(k)(*(rows(x, k) for x in args)) * np.cos(ROWS)[k] for k in range(len(ROWS)))


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "value": lambda f: f,
    "grad": grad,
    "jvp": along,
    "grad of grad": lambda f: grad(of_gradient(f)),
    "jvp of grad": lambda f: along(of_gradient(f)),
    "grad of jvp": lambda f: grad(along(f)),
    "order 3": lambda f: grad(of_gradient(of_gradient(f))),
}
BY_ROWS: dict[str, tuple[Callable[[Function], Function], Callable[[Function], Function]]] = {
    "vmap": (lambda f: f, lambda f: f),
    "vmap of grad": (lambda f: f, of_gradient),
    "grad of vmap": (grad, lambda f: f),
    "vmap of grad of grad": (lambda f: f, lambda f: of_gradient(of_gradient(f))),
    "grad of vmap of grad": (grad, of_gradient),
    "grad of grad of vmap": (lambda f: grad(of_gradient(f)), lambda f: f),
    "jvp of vmap of grad": (along, of_gradient),
}  # fmt: skip


def agree(result: Any, expected: Any) -> None:
    for x, y in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-11)


def compare_unrolled(run: Function, program: str, transform: str) -> None:
    function, *args = PROGRAMS[program]
    plain = Recorded()
    with np.errstate(all="ignore"):
        value = function(plain, *args)
    looped = run(TRANSFORMS[transform](lambda *a: function(Compiled, *a)), *args)
    if transform == "value":
        agree(looped, value)
    else:
        agree(looped, run(TRANSFORMS[transform](lambda *a: function(plain.replay(), *a)), *args))


def compare_rows(run: Function, program: str, transform: str) -> None:
    function, *args = PROGRAMS[program]
    outer, inner = BY_ROWS[transform]
    plain = [Recorded() for _ in ROWS]
    with np.errstate(all="ignore"):
        for k, c in enumerate(plain):
            function(c, *(rows(x, k) for x in args))
    looped = run(outer(batched(lambda k: inner(lambda *a: function(Compiled, *a)))), *args)
    agree(looped, run(outer(one_by_one(lambda k: inner(lambda *a: function(plain[k].replay(), *a)))), *args))


def compiled(function: Function, *args: Any) -> Any:
    return pb.jit(function)(*args)


every_program = pytest.mark.parametrize("program", PROGRAMS)


@every_program
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_as_unrolled(program: str, transform: str) -> None:
    compare_unrolled(run, program, transform)


@every_program
@pytest.mark.parametrize("transform", BY_ROWS)
def test_rows_as_one_by_one(program: str, transform: str) -> None:
    compare_rows(run, program, transform)


@every_program
def test_compiled(program: str) -> None:
    compare_unrolled(compiled, program, "grad")


@pytest.mark.long
@every_program
def test_all_compiled(program: str) -> None:
    for transform in TRANSFORMS:
        compare_unrolled(compiled, program, transform)
    for transform in BY_ROWS:
        compare_rows(compiled, program, transform)


def gathered(x: Any, i: Any) -> Any:
    return pb.cond(i < 3, lambda: x[i] * 2.0, lambda: 0.0 * x[0])


def walked(x: Any, n: Any) -> Any:
    return pb.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.5 + x[s[0]] ** 2), (0, 0.0))[1]


def counted(x: Any, n: Any) -> Any:
    return pb.fori_loop(0, n, lambda i, s: s * 0.5 + np.sin(x[i] * s), 1.0)


@pytest.mark.parametrize(("function", "beyond"), [(gathered, False), (walked, True), (counted, True)])
def test_rows_that_do_not_run_do_not_fail(function: Function, beyond: bool) -> None:
    """Rows that do not run do not read out of bounds either; rows that run raise."""
    x, numbers = np.array([0.7, 1.1, 1.3]), np.array([0, 2, 3, 1])

    def total(x: Any) -> Any:
        return np.sum(pb.vmap(function, in_axes=(None, 0))(x, numbers))

    one_by_one = [pb.value_and_grad(function)(x, n) for n in numbers]
    agree(pb.jit(total)(x), sum(value for value, _ in one_by_one))
    agree(pb.jit(pb.grad(total))(x), sum(d for _, d in one_by_one))
    agree(pb.jit(pb.vmap(pb.grad(function), in_axes=(None, 0)))(x, numbers), np.stack([d for _, d in one_by_one]))
    if beyond:
        with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0 with size 3"):
            pb.jit(pb.vmap(function, in_axes=(None, 0)))(x, numbers + 1)


@pytest.mark.long
def test_rows_that_are_done_are_not_infinite() -> None:
    """One more iteration of a finished row takes the root of a negative number; sums over the rows are not affected."""
    rows, w = np.array([[0.9, 0.8], [0.4, 0.2], [3.0, 2.0]]), np.array([[0.5, 0.1], [0.2, 0.4]])

    def one(w: Any, x: Any) -> Any:
        return np.sum(pb.while_loop(lambda s: s[0] > 0.5, lambda s: np.sqrt(s - 0.3) @ w, x))

    def total(w: Any) -> Any:
        return np.sum(pb.vmap(one, in_axes=(None, 0))(w, rows))

    for derivative in (pb.grad, pb.hessian):
        agree(pb.jit(derivative(total))(w), sum(derivative(one)(w, x) for x in rows))


def sequences(function: Function, *args: Any) -> list[str]:
    """The types of what the forward loop gives for the gradient."""
    traced = trace(grad(function), args).function
    expanded = pipeline.run(traced, [*pipeline.BEFORE_GRAD, expand_gradients])
    loop = next(i for i in expanded.instructions if i.op.name in ("scan", "while"))
    return [str(v.type) for v in loop.results[loop.params["carried"] + (loop.op.name == "while") :]]


KEPT: dict[str, tuple[Function, list[str]]] = {
    "a counter": (lambda x: pb.while_loop(lambda s: s[0] < 9, lambda s: (s[0] + 2, s[1] * x[s[0] % 3]), (1, 1.0))[1], ["f64[*]"]),
    "a backward counter": (
        lambda x: pb.scan(lambda s, r: ((s[0] - 3, s[1] * x[s[0]] * r), None), (0, 1.0), x, reverse=True)[0][1],
        ["f64[3]"],
    ),
    "what stays as it is": (lambda x: pb.fori_loop(0, 5, lambda i, s: (s[0], s[0] * np.sin(s[1])), (x, x))[1][0], ["f64[5,3]"]),
    "what is read in turn": (lambda x: pb.fori_loop(0, 3, lambda i, s: s + x[i] ** 2, 0.0), []),
    "an element": (lambda x: pb.fori_loop(1, 3, _written, x.copy())[2], ["f64[2]"]),
    "linear": (lambda x: pb.scan(lambda h, r: (h * 0.5 + r, None), x[0], x)[0], []),
    "a row that is there": (lambda x: np.sum(pb.scan(lambda h, r: (h * r, h), x[0], x)[1]), ["f64[3]"]),
}


def _written(i: Any, a: Any) -> Any:
    a[i] = a[i - 1] ** 2
    return a


@pytest.mark.parametrize("name", KEPT)
def test_what_a_loop_keeps(name: str) -> None:
    function, expected = KEPT[name]
    assert sequences(function, np.array([0.7, 1.1, 1.3])) == expected


@pytest.mark.parametrize("checkpoint", [None, "sqrt", 100, 10**6])
def test_a_checkpointed_loop_keeps_the_square_root(checkpoint: Any) -> None:
    """The interpreter counts the kept values that are live at the same time."""

    def loop(x: Any) -> Any:
        return np.sum(pb.fori_loop(0, 400, lambda i, h: np.sin(h * x) + h * 0.1, x, checkpoint=checkpoint))

    x = np.array([0.7, 1.1, 1.3])
    function = expand_gradients(trace(grad(loop), (x,)).function)
    lengths: list[int] = []

    def observe(instruction: Any, operands: Any, results: Any) -> None:
        kept = range(instruction.params.get("carried", 0), len(results))
        lengths.extend(len(results[k]) for k in kept if instruction.op.name == "scan")

    result = interpret(function, x, observe=observe)
    agree(result, pb.grad(loop)(x))
    assert max(lengths) == (20 if checkpoint in ("sqrt", 100) else 400)


def test_the_memory_report_grows_as_the_square_root() -> None:
    def loop(x: Any, n: int) -> Any:
        return np.sum(pb.fori_loop(0, n, lambda i, h: np.sin(h * x) + h * 0.1, x, checkpoint="sqrt"))

    reports = [pb.grad(lambda x, n=n: loop(x, n)).memory(np.ones(50)) for n in (400, 1600, 6400)]
    assert [r.stack_bytes for r in reports] == [2 * k * 400 for k in (20, 40, 80)]
    assert all(r.peak_bytes - r.stack_bytes == reports[0].peak_bytes - reports[0].stack_bytes for r in reports)


@pytest.mark.parametrize("checkpoint", ["square", -1, 2.5, True])
def test_a_checkpoint_is_sqrt_or_bytes(checkpoint: Any) -> None:
    with pytest.raises(pb.TraceError, match='give "sqrt", or how many bytes the gradient may keep'):
        pb.jit(lambda x: pb.fori_loop(0, 3, lambda i, h: h * x, x, checkpoint=checkpoint))(1.0)


def over_a_logarithm(x: Any) -> Any:
    z = np.log(x)
    return np.sum(np.where(x > 0.5, pb.fori_loop(0, 3, lambda i, h: h * 0.5 + z * z, z), x))


def over_rows(x: Any) -> Any:
    _, ys = pb.scan(lambda h, r: (h * 0.5 + 1, np.sqrt(r) * h), 1.0, x)
    return np.sum(np.where(x > 0.5, ys, x))


def over_a_root(x: Any) -> Any:
    w = pb.while_loop(lambda s: s < 10.0, lambda s: s * s + np.sqrt(x[0]), 2.0 + x[1])
    return np.where(x[0] > 0, w, x[1] ** 2)


DEAD: dict[str, tuple[Function, Any, Any]] = {
    "elements of a carry": (over_a_logarithm, np.array([0.0, 1.2, 2.0]), 1.0),
    "rows": (over_rows, np.array([0.0, 1.2, 2.0]), 1.0),
    "a while": (over_a_root, np.array([0.0, 1.0]), 0.0),
}


@pytest.mark.parametrize("name", DEAD)
def test_a_loop_that_is_not_chosen_gives_no_nan(name: str) -> None:
    """At both orders; a row of a batch is no different."""
    function, x, first = DEAD[name]
    gradient, hessian = pb.jit(pb.grad(function))(x), pb.jit(pb.hessian(function))(x)
    assert gradient[0] == first
    assert np.isfinite(gradient).all() and np.isfinite(hessian).all()
    both = np.stack([x, x + 0.3])
    agree(pb.jit(pb.grad(lambda x: np.sum(pb.vmap(function)(x))))(both), np.stack([pb.grad(function)(row) for row in both]))
    agree(pb.jit(pb.vmap(pb.hessian(function)))(both)[0], hessian)
