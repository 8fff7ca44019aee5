"""Control flow with JAX's names and signatures: branches on traced values, and loops that do not unroll."""

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
    """``true_fun(*operands) if pred else false_fun(*operands)``, where ``pred`` is a traced scalar: only one of the two runs.

        pb.cond(x > 0, lambda x: np.sqrt(x), lambda x: 0 * x, x)

    ``pred`` is a bool, or a number that is compared with zero. Both functions are traced and return the same containers of arrays
    of the same shapes and dtypes; a Python number takes the dtype of its partner. They may read other values of the function
    around. They get copies of the operands. Of a ``pred`` that is known while the function is traced only one is traced.

    Under ``pb.vmap``, with a predicate for each row, both run, and each row takes its own. Raises TraceError where the branches
    do not fit together, and for a predicate that is no scalar.
    """
    found: R = _run(control.cond, _cond, (true_fun, false_fun), pred, true_fun, false_fun, *operands)
    return found


@with_users_frames
def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any) -> R:
    """``branches[index](*operands)``, where ``index`` is a traced integer: only that branch runs.

    An index below 0 is 0, one past the end the last. Everything else is as of ``pb.cond``.
    """
    found: R = _run(control.switch, _switch, branches, index, tuple(branches), *operands)
    return found


@with_users_frames
def while_loop(cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """The last of ``init_val, body_fun(init_val), ...`` for which ``cond_fun`` is false; how many there are only the data knows.

        x, steps = pb.while_loop(lambda s: abs(s[0] ** 2 - a) > 1e-9, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1), (a, 0))

    What goes round, the carry, is an array, a number, or a tree of them, of one structure, and of one shape and dtype each;
    Python numbers take the dtype that ``body_fun`` gives them. ``cond_fun`` returns a bool. Both functions may read other values
    of the function around. ``body_fun`` gets a copy of the carry: it may write into it, and returns it.

    Derivatives of any order and either mode; reverse mode keeps what it needs of each turn. With ``checkpoint="sqrt"`` it keeps
    as much as for the square root of the turns, and runs them again, once they are counted. Ctrl-C stops a loop without end.

    Raises TraceError for a carry that changes its type, and for a condition that is no bool.
    """
    found: C = _run(control.while_loop, _while_loop, (cond_fun, body_fun), cond_fun, body_fun, init_val, checkpoint)
    return found


@with_users_frames
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """``for i in range(lower, upper): val = body_fun(i, val)`` from ``init_val``: one loop in the program, not unrolled.

        pb.fori_loop(0, len(x), lambda i, total: total + x[i] * x[i - 1], 0.0)

    ``lower`` and ``upper`` are integers, traced ones too; ``i`` is an int64 that takes part in promotion like a Python int. The
    carry is as in ``pb.while_loop``. With ``checkpoint="sqrt"`` a gradient keeps as much as for the square root of the turns, and
    runs them again; with a number of bytes, if it would keep more. Raises TraceError for a carry that changes its type.
    """
    found: C = _run(control.fori_loop, _fori_loop, (body_fun,), lower, upper, body_fun, init_val, checkpoint)
    return found


@with_users_frames
def scan(
    f: Callable[[C, Any], tuple[C, Any]],
    init: C,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: str | int | None = None,
) -> tuple[C, Any]:
    """A loop over the rows of ``xs`` that carries a state and collects results: ``carry, y = f(carry, x)`` for each row ``x``.

        total, running = pb.scan(lambda total, x: (total + x, total + x), 0.0, xs)

    Returns the last carry and the ``y`` of all rows, stacked along a new first axis. ``xs`` is an array or a tree of arrays with
    equally long first axes, of which ``f`` gets a tree of rows; without arrays ``length`` says how many times ``f`` runs, with
    None for ``x``. ``reverse``: from the last row to the first; the results are in the order of the rows. The carry is as in
    ``pb.while_loop``, and ``checkpoint`` as in ``pb.fori_loop``. ``y`` is a tree of arrays and numbers, or None.

    Raises TraceError for a carry that changes its type, for first axes of different lengths, and for a ``length`` that is none of
    theirs.
    """
    found: tuple[C, Any] = _run(control.scan, _scan, (f,), f, init, xs, length, bool(reverse), checkpoint)
    return found


@with_users_frames
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """``np.stack([f(x) for x in xs])``, one row after the other, for trees of arrays and of results: a ``pb.scan`` that carries
    nothing.

    ``pb.vmap`` computes all rows at once, which is faster where the memory allows it.
    """
    return _run(control.map, _map, (f,), f, xs)


@with_users_frames
def associative_scan(fn: Callable[[C, C], C], elems: C, reverse: bool = False, axis: int = 0) -> C:
    """All prefixes of ``fn`` over the elements of ``elems`` along an axis: for ``np.add`` what ``np.cumsum`` gives.

        products = pb.associative_scan(lambda a, b: b @ a, matrices)

    ``elems`` is an array or a tree of arrays that are equally long along ``axis``. ``fn`` is associative and takes and gives such
    trees with any number of elements along the axis, which it combines element by element. It is called about twice as often as
    the logarithm of their number says, on slices. ``reverse``: all suffixes instead.

    Raises TraceError where lengths differ, and for a function that changes types.
    """
    found: C = _run(control.associative_scan, _associative_scan, (fn,), fn, elems, bool(reverse), axis)
    return found
