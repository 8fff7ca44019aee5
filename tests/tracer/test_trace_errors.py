"""Gradients of functions inside a trace, and errors at the user's line."""

import contextlib
import inspect
import multiprocessing
import operator
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
import scipy.special

from pullback.tracer import TraceError, current, gradient_call, trace
from tests.support.tracing import X, check, evaluate, refuses, run, same

STEPS = np.array([1.0, 2.0, 3.0])

# gradients


def loss(w: Any, x: Any) -> Any:
    return np.add.reduce(np.sin(w["a"] * x) * w["b"])


def test_gradient_of_containers() -> None:
    def function(w: Any, x: Any) -> Any:
        return gradient_call(loss, (w, x))

    value, aux, gradient = run(function, {"a": X, "b": 2.0}, X)
    np.testing.assert_allclose(value, loss({"a": X, "b": 2.0}, X))
    assert aux is None
    np.testing.assert_allclose(gradient["a"], np.cos(X * X) * X * 2)
    np.testing.assert_allclose(gradient["b"], np.sin(X * X).sum())


def test_argnums_and_argnames() -> None:
    def product(x: Any, y: Any, *, z: Any) -> Any:
        return x * y * z

    def call(*args: Any, **options: Any) -> Any:
        return run(lambda: gradient_call(product, (2.0, 3.0), {"z": 5.0}, **options)[2])

    same(call(), np.float64(15))
    same(call(argnums=1), np.float64(10))
    same(call(argnums=-1), np.float64(10))
    same(call(argnums=(1, 0)), (np.float64(10), np.float64(15)))
    same(call(argnames="z"), np.float64(6))
    same(call(argnames=("z", "x")), (np.float64(6), np.float64(15)))
    same(call(argnums=0, argnames="z"), (np.float64(15), np.float64(6)))
    for options, message in (
        ({"argnums": 2}, "argnums 2, but the call has 2"),
        ({"argnames": "q"}, "argnames 'q'"),
        ({"argnums": (0, -2)}, "name an argument twice"),
    ):
        with pytest.raises(TraceError, match=message):
            call(**options)


def test_aux_and_captured_values() -> None:
    def function(x: Any, y: Any) -> Any:
        scaled = y * 2

        def inner(x: Any) -> Any:
            z = x * scaled * STEPS
            return z.sum(), {"z": z, "y": y, "n": 3}

        return gradient_call(inner, (x,), has_aux=True)

    value, aux, gradient = run(function, X, X + 1)
    same((value, gradient), ((X * (X + 1) * 2 * STEPS).sum(), (X + 1) * 2 * STEPS), exact=False)
    same(aux, {"z": X * ((X + 1) * 2) * STEPS, "y": X + 1, "n": 3}, exact=False)


def test_gradients_of_gradients() -> None:
    def derivative(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: gradient_call(function, (x,))[2]

    first = derivative(lambda x: np.sin(x) * x)
    np.testing.assert_allclose(run(first, 0.7), np.cos(0.7) * 0.7 + np.sin(0.7))
    np.testing.assert_allclose(run(derivative(first), 0.7), 2 * np.cos(0.7) - 0.7 * np.sin(0.7))
    np.testing.assert_allclose(run(derivative(derivative(first)), 0.7), -3 * np.sin(0.7) - 0.7 * np.cos(0.7))
    outer = derivative(lambda x: x * gradient_call(lambda y: x * y * y, (3.0,))[2])
    np.testing.assert_allclose(run(outer, 0.7), 2 * 0.7 * 6)


def test_gradient_of_a_float32_stays_float32() -> None:
    _, _, gradient = run(lambda x: gradient_call(lambda x, s: (x * s).sum(), (x, 2.0), argnums=(0, 1)), X.astype("f4"))
    assert gradient[0].dtype == np.float32
    assert gradient[1].dtype == np.float64


def test_a_constant_function_has_zero_gradients() -> None:
    same(run(lambda x: gradient_call(lambda x: 3.0, (x,)), X), (np.float64(3), None, np.zeros(3)))
    same(run(lambda x, y: gradient_call(lambda x: y, (x,)), X, 2.5), (np.float64(2.5), None, np.zeros(3)))


def test_errors_of_gradients() -> None:
    def not_a_scalar(x: Any) -> Any:
        return gradient_call(lambda x: x * 2, (x,))  # here

    refuses(not_a_scalar, X, message=r"returned an array of shape \(3,\)")

    def integer(x: Any) -> Any:
        return gradient_call(lambda v: v.sum() * 1.0, (x,))  # here

    refuses(integer, np.arange(3), message=r"argument v is of dtype int64.*\.astype\(float\)")
    refuses(integer, 3, message="argument v is a Python int")
    refuses(integer, X > 1, message="argument v is of dtype bool")

    def two(x: Any) -> Any:
        return gradient_call(lambda x: (x, x), (x,))  # here

    refuses(two, 1.0, message="returned a tuple")

    def count(x: Any) -> Any:
        return gradient_call(lambda x: x.sum() > 1, (x,))  # here

    refuses(count, X, message="returned bool")


# errors


def branch(x: Any) -> Any:
    y = x * 2
    return x if y > 1 else y  # here


def looped(n: Any) -> Any:
    return list(range(n))  # here


def to_float(x: Any) -> Any:
    return list(map(float, [x]))  # here


def to_int(x: Any) -> Any:
    return list(map(int, [x]))  # here


def to_array(x: Any) -> Any:
    return threading.local() if np.lib.stride_tricks.as_strided(x) else 0  # here


def formatted(x: Any) -> Any:
    return {f"{x:.3f}": x}  # here


def unsupported(x: Any) -> Any:
    return np.array2string(x)  # here


def unsupported_ufunc(x: Any) -> Any:
    return scipy.special.mathieu_a(1, x)  # here


def unsupported_method(x: Any) -> Any:
    return x.tobytes()  # here


def inner_helper(x: Any) -> Any:
    return hash(x)


def objects(x: Any) -> Any:
    return x + np.array(["a"])  # here


def undefined(x: Any) -> Any:
    return np.exp(x, where=x > 1)  # here


@pytest.mark.parametrize(
    "function, argument, message",
    [
        (
            branch,
            1.0,
            r"Python branch.*y is traced Python float, from y = x \* 2 at .*test_trace_errors.py:\d+\n.*np\.where\(y > 1, x, y\)",
        ),
        (branch, X[0], r"Python branch.*np\.where\(y > 1, x, y\)"),
        (looped, np.array(3), "static_argnames"),
        (to_float, X[0], r"float\(\) of a traced value"),
        (to_int, 1.0, r"int\(\) of a traced value"),
        (to_array, X, "a traced|not supported"),
        (formatted, 1.0, "a format of a traced value"),
        (unsupported, np.eye(2), "np.array2string of traced arrays is not supported"),
        (unsupported_ufunc, X, "scipy.special.mathieu_a of traced arrays is not supported"),
        (unsupported_method, X, r"\.tobytes of a traced array"),
        (objects, X, "an array of dtype <U1 cannot be traced"),
        (undefined, X, "where= but no out="),
    ],
)
def test_errors_at_the_users_line(function: Any, argument: Any, message: str) -> None:
    refuses(function, argument, message=message, rolls=function is not branch)


@pytest.mark.parametrize(
    "argument, message",
    [
        (np.array([1, "a"], object), "argument x of dtype object"),
        (np.array(["a"]), "argument x of dtype <U1"),
        (np.array(["2020-01-01"], "M8[D]"), r"argument x of dtype datetime64\[D\]"),
        (np.array([1j], np.clongdouble), "argument x of dtype (clongdouble|complex256)"),
        (np.longdouble(1), "argument x of dtype (longdouble|float128)"),
        (np.ma.masked_array([1.0]), "argument x is a MaskedArray"),
        (bytearray(b"a"), "type bytearray cannot be a static argument"),
    ],
)
def test_arguments_that_cannot_be_traced(argument: Any, message: str) -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(TraceError, match=message) as caught:
        trace(lambda x: x, (argument,))
    assert caught.value.line == line


def test_the_place_is_that_of_the_helper() -> None:
    with pytest.raises(TraceError) as caught:
        trace(lambda x: inner_helper(x * 2), (X[0],))
    assert caught.value.line == inspect.getsourcelines(inner_helper)[1] + 1


def test_ragged_lists_raise_as_in_numpy() -> None:
    with pytest.raises(ValueError, match="inhomogeneous"):
        trace(lambda x: np.add(x, [[1.0], [1.0, 2.0]]), (X,))
    with pytest.raises(ValueError, match="inhomogeneous"):
        trace(lambda x: np.add(x, [x, 1.0]), (X,))


def test_values_do_not_outlive_their_trace() -> None:
    queue: SimpleQueue[Any] = SimpleQueue()

    def leak(x: Any) -> Any:
        queue.put(x * 2)
        return x

    trace(leak, (X,))
    kept = queue.get()
    with pytest.raises(
        TraceError,
        match=r"after its trace.*\n +kept \+ 1\n  kept is traced f64\[3\], from queue.* at .*test_trace_errors\.py:\d+\n",
    ):
        kept + 1
    with pytest.raises(TraceError, match="used after its trace"):
        trace(lambda x: x + kept, (X,))

    def leak_from_gradient(x: Any) -> Any:
        inside = threading.local()

        def inner(x: Any) -> Any:
            inside.value = x * 2
            return x.sum()

        gradient_call(inner, (x,))
        return inside.value + 1  # here

    refuses(leak_from_gradient, X, message="used after its trace")


def started(work: Any, *args: Any) -> None:
    thread = threading.Thread(target=work, args=args)
    thread.start()
    thread.join()


def test_another_thread_cannot_use_a_traced_value() -> None:
    errors: list[BaseException] = []

    def work(x: Any) -> None:
        try:
            x + 1
        except TraceError as error:
            errors.append(error)

    with ThreadPoolExecutor(1) as pool:

        def function(x: Any) -> Any:
            pool.submit(work, x).result()
            return x

        with pytest.raises(TraceError, match="a traced value in another thread than the one that traces"):
            trace(function, (X,))


def test_threads_and_processes_are_not_started_by_a_traced_function() -> None:
    def pooled(x: Any) -> Any:
        with ThreadPoolExecutor(2) as pool:
            return pool.submit(np.sum, x).result()

    def forked(x: Any) -> Any:
        multiprocessing.Process(target=print, args=(1,)).start()
        return x

    for function, name in ((pooled, "ThreadPoolExecutor"), (forked, "Process"), (lambda x: (started(print), x)[1], "Thread")):
        with pytest.raises(TraceError, match=f"a {name} in a traced function: its work would run once"):
            trace(function, (X,))


def test_threads_trace_independently() -> None:
    results: dict[int, Any] = {}
    barrier = threading.Barrier(4, timeout=30)

    def work(k: int) -> None:
        def function(x: Any) -> Any:
            y = x * k
            barrier.wait()
            return y + k

        results[k] = run(function, X)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        same(results[k], X * k + k)


def test_a_trace_inside_a_trace_is_independent() -> None:
    def function(x: Any) -> Any:
        inner = trace(lambda y: y * 3, (X,))
        assert len(inner.function.instructions) == 3
        return x + len(inner.inputs)

    check_value = evaluate(trace(function, (X,)), [X])
    same(check_value, X + 1)


def test_iterators_are_refused_as_results() -> None:
    def rows(x: Any) -> Any:
        yield x

    with pytest.raises(TraceError, match="returns a generator"):
        trace(rows, (X,))


def test_an_error_leaves_no_state() -> None:
    def failing(x: Any) -> Any:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        trace(failing, (X,))
    assert current() is None


def test_a_refusal_survives_being_wrapped() -> None:
    def wrapping(x: Any) -> Any:
        try:
            return hash(x)  # here
        except TraceError as error:
            raise ValueError("setting an array element with a sequence.") from error

    refuses(wrapping, X[0], message=r"a key of a dict or set")

    def own(x: Any) -> Any:
        with contextlib.suppress(TraceError):
            hash(x)  # here
        raise KeyError("mine")

    refused = refuses(own, X[0], message=r"a key of a dict or set")
    assert refused.__notes__ == ["  (caught inside the traced function, which then raised KeyError: 'mine')"]

    def another_way(x: Any) -> Any:
        try:
            return hash(x)  # here
        except Exception:
            return 0.0

    refused = refuses(another_way, X[0], message=r"a key of a dict or set")
    assert refused.__notes__ == ["  (caught inside the traced function: what it did instead is not what the program does)"]


def test_what_numpy_raises_for_every_value_of_a_type_is_raised() -> None:
    def idiom(x: Any) -> Any:
        try:
            return float(x)
        except TypeError:
            return x.sum()

    check(idiom, X)
    for ask in (bool, float, int, operator.index, "{:.3f}".format, lambda x: 0 < x < 1):
        with pytest.raises((ValueError, TypeError)) as expected:
            ask(X)
        with pytest.raises(expected.type, match=re.escape(str(expected.value))):
            trace(ask, (X,))
    for ask, weak in ((range, 1.5), (operator.index, np.float64(1.5)), ("{:d}".format, 1.5)):
        with pytest.raises((ValueError, TypeError)) as expected:
            ask(weak)
        with pytest.raises(expected.type, match=re.escape(str(expected.value))):
            trace(ask, (weak,))


def test_views_and_writes() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        part = y[1:]
        last = part[1:]
        kept = last.copy()
        y[1] = 5.0
        part += 1
        last *= 3
        return y, part, last, kept, y.T

    check(function, X)

    def stale(x: Any) -> Any:
        y = x[:, None].T * np.ones((3, 3)).T
        line = y.ravel()
        y[0] = 5.0
        return line * 2  # here

    refuses(stale, X, message="a view is read after its array was written")
