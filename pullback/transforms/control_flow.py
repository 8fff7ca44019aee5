"""Control flow with JAX's names and signatures: branches on traced values, and loops that are not unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pullback.checking.control_flow_reference import PLAIN, is_plain
from pullback.tracer import current
from pullback.tracer.transforms import control_flow as control
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.transforms.api import jit

C = TypeVar("C")
R = TypeVar("R")

_cond = jit(control.cond)
_switch = jit(control.switch)
_while_loop = jit(control.while_loop, static_argnames=("checkpoint",))
_fori_loop = jit(control.fori_loop, static_argnames=("checkpoint",))
_scan = jit(control.scan, static_argnames=("length", "reverse", "checkpoint"))
_map = jit(control.map)
_associative_scan = jit(control.associative_scan, static_argnames=("reverse", "axis"))


def _run(traced: Callable[..., Any], compiled: Callable[..., Any], functions: Sequence[Any], *args: Any) -> Any:
    for function in functions:
        if not callable(function):
            raise TypeError(f"pb.{traced.__name__} takes a function, got {type(function).__name__}")
    if current() is not None:
        return traced(*args)
    return (PLAIN[traced.__name__] if is_plain() else compiled)(*args)


@with_users_frames
def cond(pred: Any, true_fun: Callable[..., R], false_fun: Callable[..., R], *operands: Any) -> R:
    """Return ``true_fun(*operands) if pred else false_fun(*operands)``, where ``pred`` is a traced scalar: only one of the two
    runs.

        pb.cond(x > 0, lambda x: np.sqrt(x), lambda x: 0 * x, x)

    ``pred`` is a bool, or a number that is compared with zero. Both functions are traced and must return the same containers
    of arrays of the same shapes and dtypes; a Python number takes the dtype of its counterpart. They may read other values of
    the enclosing function. They receive copies of the operands. If ``pred`` is already known during the trace, only the branch
    taken is traced.

    Under ``pb.vmap``, with a predicate for each row, both run, and each row selects its own result. Raises TraceError if the
    branches do not match, and for a predicate that is not a scalar.
    """
    result: R = _run(control.cond, _cond, (true_fun, false_fun), pred, true_fun, false_fun, *operands)
    return result


@with_users_frames
def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any) -> R:
    """Return ``branches[index](*operands)``, where ``index`` is a traced integer: only that branch runs.

    An index below 0 selects the first branch, one past the end the last. Everything else is as in ``pb.cond``.
    """
    result: R = _run(control.switch, _switch, branches, index, tuple(branches), *operands)
    return result


@with_users_frames
def while_loop(cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """Return the first of ``init_val, body_fun(init_val), ...`` for which ``cond_fun`` is false; the trip count depends on the
    data.

        x, steps = pb.while_loop(lambda s: abs(s[0] ** 2 - a) > 1e-9, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (a, 0))

    The carry is an array, a number, or a tree of them, of a fixed structure with fixed shapes and dtypes; Python numbers take
    the dtype that ``body_fun`` gives them. ``cond_fun`` returns a bool. Both functions may read other values of the enclosing
    function. ``body_fun`` receives a copy of the carry: it may write into it, and returns it.

    Derivatives of any order and either mode; reverse mode keeps the residuals of each iteration. With ``checkpoint="sqrt"`` it
    keeps the residuals of about the square root of the number of iterations, and recomputes the others, once the iterations
    are counted. Ctrl-C stops an infinite loop.

    Raises TraceError for a carry that changes its type, and for a condition that is not a bool.
    """
    result: C = _run(control.while_loop, _while_loop, (cond_fun, body_fun), cond_fun, body_fun, init_val, checkpoint)
    return result


@with_users_frames
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """Run ``for i in range(lower, upper): val = body_fun(i, val)`` from ``init_val`` as one loop in the program, not unrolled.

        pb.fori_loop(0, len(x), lambda i, total: total + x[i] * x[i - 1], 0.0)

    ``lower`` and ``upper`` are integers, which may be traced; ``i`` is an int64 that takes part in promotion like a Python
    int. The carry is as in ``pb.while_loop``. With ``checkpoint="sqrt"`` a gradient keeps the residuals of about the square
    root of the number of iterations, and recomputes the others; with a number of bytes, it does so if it would keep more.
    Raises TraceError for a carry that changes its type.
    """
    result: C = _run(control.fori_loop, _fori_loop, (body_fun,), lower, upper, body_fun, init_val, checkpoint)
    return result


@with_users_frames
def scan(
    f: Callable[[C, Any], tuple[C, Any]],
    init: C,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: str | int | None = None,
) -> tuple[C, Any]:
    """Loop over the rows of ``xs`` with a carry and collect results: ``carry, y = f(carry, x)`` for each row ``x``.

        total, running = pb.scan(lambda total, x: (total + x, total + x), 0.0, xs)

    Returns the last carry and the ``y`` of all rows, stacked along a new first axis. ``xs`` is an array or a tree of arrays
    with first axes of equal length, from which ``f`` receives a tree of rows; without arrays ``length`` is the number of times
    that ``f`` runs, with None for ``x``. ``reverse``: from the last row to the first; the results are in the order of the
    rows. The carry is as in ``pb.while_loop``, and ``checkpoint`` as in ``pb.fori_loop``. ``y`` is a tree of arrays and
    numbers, or None.

    Raises TraceError for a carry that changes its type, for first axes of different lengths, and for a ``length`` that differs
    from theirs.
    """
    result: tuple[C, Any] = _run(control.scan, _scan, (f,), f, init, xs, length, bool(reverse), checkpoint)
    return result


@with_users_frames
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Return ``np.stack([f(x) for x in xs])``, computed one row after the other, for trees of arrays and of results: a
    ``pb.scan`` without a carry.

    ``pb.vmap`` computes all rows at once, which is faster if the memory allows it.
    """
    return _run(control.map, _map, (f,), f, xs)


@with_users_frames
def associative_scan(fn: Callable[[C, C], C], elems: C, reverse: bool = False, axis: int = 0) -> C:
    """Return all prefixes of ``fn`` over the elements of ``elems`` along an axis: for ``np.add`` the result of ``np.cumsum``.

        products = pb.associative_scan(lambda a, b: b @ a, matrices)

    ``elems`` is an array or a tree of arrays of equal length along ``axis``. ``fn`` is associative; it takes and returns such
    trees with any number of elements along the axis, which it combines element by element. It is called on slices, about twice
    as often as the binary logarithm of the length. ``reverse``: all suffixes instead.

    Raises TraceError if lengths differ, and for a function that changes types.
    """
    result: C = _run(control.associative_scan, _associative_scan, (fn,), fn, elems, bool(reverse), axis)
    return result
