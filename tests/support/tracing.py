"""What tests of the tracer share: a traced function is interpreted and compared with the plain one."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.passes.transforms.expand import grad as expand_gradients
from pullback.ir.verify import verify
from pullback.tracer import Trace, TraceError, current, flatten, trace, unflatten
from pullback.tracer.user_code.source import shown

X = np.array([0.5, 1.5, 2.5])


def evaluate(traced: Trace, leaves: list[Any]) -> Any:
    """What a traced function gives for these leaves, through the interpreter."""
    function = verify(expand_gradients(verify(traced.function)))
    values = traced.arguments(leaves)
    assert values is not None
    assert traced.holds()
    return unflatten(traced.out_tree, interpret(function, *values))


def run(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Trace a call and interpret it."""
    return evaluate(trace(function, args, kwargs), flatten((args, kwargs))[0])


def same(result: Any, expected: Any, exact: bool = True) -> None:
    """Equal trees: structure, dtypes, shapes and values."""
    found_leaves, found_tree = flatten(result, static_numbers=True)
    leaves, tree = flatten(expected, static_numbers=True)
    leaves = [np.asarray(x) for x in leaves]
    assert [x.dtype for x in found_leaves] == [x.dtype for x in leaves]
    assert [x.shape for x in found_leaves] == [x.shape for x in leaves]
    for x, y in zip(found_leaves, leaves, strict=True):
        np.testing.assert_allclose(x, y, rtol=0 if exact else 1e-6, atol=0)
    assert repr(found_tree) == repr(tree)


def check(function: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    with np.errstate(all="ignore"):
        expected = function(*args, **kwargs)
    same(run(function, *args, **kwargs), expected)
    same(pb.jit(function)(*args, **kwargs), expected, exact=False)


def marked_line(function: Callable[..., Any]) -> int:
    """The line of a function's source that ends with the comment ``here``."""
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if line.rstrip().endswith("# here"))


def refuses(function: Callable[..., Any], *args: Any, message: str, **options: Any) -> TraceError:
    """Tracing raises a TraceError with ``message`` at the marked line."""
    with pytest.raises(TraceError) as caught:
        trace(function, args, **options)
    assert current() is None
    error = caught.value
    file = function.__code__.co_filename
    assert error.file == file
    assert error.line == marked_line(function)
    assert str(error).startswith(f"{shown(file)}:{error.line}: ")
    assert re.search(message, str(error), re.DOTALL), error
    return error
