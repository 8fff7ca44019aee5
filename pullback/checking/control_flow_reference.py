"""Control flow in plain Python on NumPy arrays: the reference that compiled branches and loops are checked against."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from pullback import tree
from pullback.tracer.transforms.branches import running

Function = Callable[..., Any]

_plain: ContextVar[bool] = ContextVar("pullback_plain", default=False)
_silent: ContextVar[bool] = ContextVar("pullback_silent", default=False)


@contextmanager
def in_python(*, prints: bool = True) -> Iterator[None]:
    """Run branches and loops called outside a trace in plain Python within this context; ``prints=False`` silences
    ``pb.print``."""
    plain, silent = _plain.set(True), _silent.set(not prints)
    try:
        yield
    finally:
        _silent.reset(silent)
        _plain.reset(plain)


def is_silent() -> bool:
    """Whether ``pb.print`` prints nothing outside a trace."""
    return _silent.get()


def is_plain() -> bool:
    """Whether branches and loops run in plain Python."""
    return _plain.get()


def _call(function: Function, *args: Any) -> Any:
    """Call a function on copies of the arrays."""
    with running():
        return function(*tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, args))


def cond(pred: Any, true_fun: Function, false_fun: Function, *operands: Any) -> Any:
    return _call(true_fun if pred else false_fun, *operands)


def switch(index: Any, branches: Sequence[Function], *operands: Any) -> Any:
    return _call(branches[min(max(operator.index(index), 0), len(branches) - 1)], *operands)


def while_loop(cond_fun: Function, body_fun: Function, init_val: Any, checkpoint: Any = None) -> Any:
    state = init_val
    while _call(cond_fun, state):
        state = _call(body_fun, state)
    return state


def fori_loop(lower: Any, upper: Any, body_fun: Function, init_val: Any, checkpoint: Any = None) -> Any:
    state = init_val
    for i in range(lower, upper):
        state = _call(body_fun, i, state)
    return state


def scan(
    f: Function, init: Any, xs: Any = None, length: int | None = None, reverse: bool = False, checkpoint: Any = None
) -> tuple[Any, Any]:
    leaves = tree.leaves(xs)
    size = len(leaves[0]) if leaves else operator.index(length)  # type: ignore[arg-type]
    if not size:
        zeros = tree.map(lambda x: np.zeros(x.shape[1:], x.dtype), xs)
        return init, tree.map(lambda y: np.zeros((0, *np.shape(y)), np.asarray(y).dtype), _call(f, init, zeros)[1])
    carry, rows = init, [None] * size
    for k in reversed(range(size)) if reverse else range(size):
        carry, rows[k] = _call(f, carry, tree.map(lambda x, k=k: x[k], xs))
    return carry, tree.map(_stacked, *rows)


def _stacked(*parts: Any) -> Any:
    """Stack rows into an array; Python numbers take the dtype of the other rows."""
    return np.stack([np.asarray(part, np.result_type(*parts)) for part in parts])


def map(f: Function, xs: Any) -> Any:
    return scan(lambda _, x: (None, f(x)), None, xs)[1]


def associative_scan(fn: Function, elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    size = np.shape(tree.leaves(elems)[0])[axis]
    if not size:
        return tree.map(np.copy, elems)
    parts = [tree.map(lambda x, k=k: np.take(x, [k], axis), elems) for k in range(size)]
    prefixes: list[Any] = []
    for part in reversed(parts) if reverse else parts:
        prefixes.append(_call(fn, prefixes[-1], part) if prefixes else part)
    return tree.map(lambda *xs: np.concatenate(xs, axis), *(reversed(prefixes) if reverse else prefixes))


PLAIN: Mapping[str, Function] = {f.__name__: f for f in (cond, switch, while_loop, fori_loop, scan, map, associative_scan)}
