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
    """Return ``true_fun(*operands) if pred else false_fun(*operands)``, where ``pred`` is a traced scalar: only one of them runs.

    Under `vmap`, with a predicate for each row, both run, and each row selects its own result.

    Parameters
    ----------
    pred : bool or scalar
        The condition; a number is compared with zero. If it is already known during the trace, only the branch taken is traced.
    true_fun, false_fun : callable
        The branches. They must return the same containers of arrays of the same shapes and dtypes; a Python number takes the
        dtype of its counterpart. They may read other values of the enclosing function.
    *operands : array, number or container of them
        The arguments of the branch, which receives copies.

    Returns
    -------
    array, number or container of them
        The result of the branch taken.

    Raises
    ------
    TraceError
        If the branches do not match, and for a predicate that is not a scalar.

    See Also
    --------
    switch : One of several branches.
    numpy.where : Selects element by element; both sides are computed.

    Examples
    --------
    >>> @pb.grad
    ... def slope(x):
    ...     return pb.cond(x > 0, lambda x: np.sqrt(x), lambda x: 0 * x, x)
    >>> slope(4.0), slope(-1.0)
    (np.float64(0.25), np.float64(0.0))
    """
    result: R = _run(control.cond, _cond, (true_fun, false_fun), pred, true_fun, false_fun, *operands)
    return result


@with_users_frames
def switch(index: Any, branches: Sequence[Callable[..., R]], *operands: Any) -> R:
    """Return ``branches[index](*operands)``, where ``index`` is a traced integer: only that branch runs.

    Parameters
    ----------
    index : int
        The position of the branch. An index below 0 selects the first branch, one past the end the last.
    branches : sequence of callable
        Functions whose results match, as in `cond`.
    *operands : array, number or container of them
        The arguments of the branch, which receives copies.

    Returns
    -------
    array, number or container of them
        The result of the branch taken.

    Raises
    ------
    TraceError
        If the branches do not match, and for an index that is not an integer scalar.

    See Also
    --------
    cond : Two branches, selected by a truth value.

    Examples
    --------
    >>> @pb.jit
    ... def apply(k, x):
    ...     return pb.switch(k, [np.sin, np.cos, np.tanh], x)
    >>> apply(1, 0.0)
    np.float64(1.0)
    """
    result: R = _run(control.switch, _switch, branches, index, tuple(branches), *operands)
    return result


@with_users_frames
def while_loop(cond_fun: Callable[[C], Any], body_fun: Callable[[C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """Return the first of ``init_val, body_fun(init_val), ...`` for which ``cond_fun`` is false.

    The trip count depends on the data. Derivatives exist of any order and in either mode. Ctrl-C stops an infinite loop.

    Parameters
    ----------
    cond_fun : callable
        Function of the carry that returns a bool.
    body_fun : callable
        Function from the carry to the next one. It receives a copy: it may write into it, and returns it. Both functions may read
        other values of the enclosing function.
    init_val : array, number or container of them
        The carry at the start, of a fixed structure with fixed shapes and dtypes; Python numbers take the dtype that ``body_fun``
        gives them.
    checkpoint : {"sqrt"} or int, optional
        Reverse mode keeps the residuals of each iteration. With "sqrt" it keeps those of about the square root of the number of
        iterations, and recomputes the others, once the iterations are counted; with a number of bytes, it does so if it would
        keep more.

    Returns
    -------
    array, number or container of them
        The last carry.

    Raises
    ------
    TraceError
        For a carry that changes its type, and for a condition that is not a bool.

    See Also
    --------
    fori_loop : A loop over a range.
    fixed_point : An iteration to convergence whose derivative is that of the equation.

    Examples
    --------
    >>> def root(a):
    ...     step = lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1)
    ...     return pb.while_loop(lambda s: abs(s[0] ** 2 - a) > 1e-9, step, (a, 0))
    >>> x, steps = pb.jit(root)(2.0)
    >>> round(x, 6), steps
    (1.414214, 4)
    """
    result: C = _run(control.while_loop, _while_loop, (cond_fun, body_fun), cond_fun, body_fun, init_val, checkpoint)
    return result


@with_users_frames
def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, C], C], init_val: C, checkpoint: str | int | None = None) -> C:
    """Run ``for i in range(lower, upper): val = body_fun(i, val)`` from ``init_val`` as one loop in the program, not unrolled.

    Parameters
    ----------
    lower, upper : int
        The range, whose bounds may be traced integers.
    body_fun : callable
        Function of ``(i, val)`` that returns the next ``val``. ``i`` is an int64 that takes part in promotion like a Python int.
    init_val : array, number or container of them
        The carry at the start, as in `while_loop`.
    checkpoint : {"sqrt"} or int, optional
        With "sqrt" a gradient keeps the residuals of about the square root of the number of iterations, and recomputes the
        others; with a number of bytes, it does so if it would keep more.

    Returns
    -------
    array, number or container of them
        The last carry.

    Raises
    ------
    TraceError
        For a carry that changes its type.

    See Also
    --------
    while_loop : A loop that ends by a condition.
    scan : A loop that collects a result of each iteration.

    Examples
    --------
    >>> @pb.jit
    ... def autocorrelation(x):
    ...     return pb.fori_loop(1, len(x), lambda i, total: total + x[i] * x[i - 1], 0.0)
    >>> autocorrelation(np.array([1.0, 2.0, 3.0]))
    np.float64(8.0)
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

    Parameters
    ----------
    f : callable
        Function of ``(carry, x)`` that returns ``(carry, y)``; ``y`` is a tree of arrays and numbers, or None.
    init : array, number or container of them
        The carry at the start, as in `while_loop`.
    xs : array or container of arrays, optional
        Arrays with first axes of equal length n, from which ``f`` receives a tree of rows.
    length : int, optional
        Without ``xs``, the number of times that ``f`` runs, with None for ``x``.
    reverse : bool, optional
        Run from the last row to the first; the results are in the order of the rows.
    checkpoint : {"sqrt"} or int, optional
        As in `fori_loop`.

    Returns
    -------
    carry : array, number or container of them
        The last carry.
    ys : array or container of arrays
        The ``y`` of all rows, stacked along a new first axis of length n.

    Raises
    ------
    TraceError
        For a carry that changes its type, for first axes of different lengths, and for a ``length`` that differs from theirs.

    See Also
    --------
    associative_scan : All prefixes of an associative function.
    map : A scan without a carry.

    Examples
    --------
    >>> pb.scan(lambda total, x: (total + x, total + x), 0.0, np.array([1.0, 2.0, 4.0]))
    (np.float64(7.0), array([1., 3., 7.]))
    """
    result: tuple[C, Any] = _run(control.scan, _scan, (f,), f, init, xs, length, bool(reverse), checkpoint)
    return result


@with_users_frames
def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Return ``np.stack([f(x) for x in xs])``, computed one row after the other: a `scan` without a carry.

    Parameters
    ----------
    f : callable
        Function of a row, which returns an array, a number or a container of them.
    xs : array or container of arrays
        Arrays with first axes of equal length n.

    Returns
    -------
    array or container of arrays
        The results, stacked along a new first axis of length n.

    Raises
    ------
    TraceError
        For first axes of different lengths.

    See Also
    --------
    vmap : All rows at once, which is faster if the memory suffices.

    Examples
    --------
    >>> pb.map(lambda row: np.sum(row**2), np.arange(6.0).reshape(3, 2))
    array([ 1., 13., 41.])
    """
    return _run(control.map, _map, (f,), f, xs)


@with_users_frames
def associative_scan(fn: Callable[[C, C], C], elems: C, reverse: bool = False, axis: int = 0) -> C:
    """Return all prefixes of ``fn`` over the elements of ``elems`` along an axis: for ``np.add`` the result of ``np.cumsum``.

    Parameters
    ----------
    fn : callable
        An associative function of two trees like ``elems``, with any number of elements along the axis, which it combines element
        by element. It is called on slices, about twice as often as the binary logarithm of the length.
    elems : array or container of arrays
        Arrays of equal length along ``axis``.
    reverse : bool, optional
        Return all suffixes instead.
    axis : int, optional
        The axis along which elements are combined; the first by default.

    Returns
    -------
    array or container of arrays
        The prefixes, with the shapes and dtypes of ``elems``.

    Raises
    ------
    TraceError
        If lengths differ, and for a function that changes types.

    See Also
    --------
    scan : A loop with a carry of any kind.
    numpy.cumsum : The prefixes of a sum.

    Examples
    --------
    The products of all leading matrices of a stack:

    >>> rotations = np.tile(np.array([[0.0, -1.0], [1.0, 0.0]]), (4, 1, 1))
    >>> pb.associative_scan(lambda a, b: b @ a, rotations)[-1]
    array([[1., 0.],
           [0., 1.]])
    """
    result: C = _run(control.associative_scan, _associative_scan, (fn,), fn, elems, bool(reverse), axis)
    return result
