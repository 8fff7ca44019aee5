"""The tracer's core: operators, ufuncs, promotion, arguments and results."""

import functools
import math
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.special

from pullback.ir import OPS
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.tracer import parameters_of, signature, trace
from tests.support.tracing import X, check, evaluate, run, same

Pair = namedtuple("Pair", "first second")
FLOATS = ["f2", "f4", "f8"]
NUMBERS = ["?", "i1", "i4", "i8", "u1", "u4", "u8", *FLOATS]


# operators and ufuncs

ARITHMETIC: list[Callable[[Any, Any], Any]] = [
    lambda x, y: x + y,
    lambda x, y: x * y,
    lambda x, y: x / y,
    np.maximum,
    np.hypot,
    np.logaddexp,
    np.arctan2,
    lambda x, y: (x < y, x <= y, x == y, x != y, x > y, x >= y),
]


@pytest.mark.parametrize("function", ARITHMETIC)
@pytest.mark.parametrize("left", NUMBERS)
@pytest.mark.parametrize("right", NUMBERS)
def test_two_dtypes_promote_as_in_numpy(function: Any, left: str, right: str) -> None:
    x, y = np.array([0, 1, 3, 2]).astype(left), np.array([2, 1, 2, 5]).astype(right)
    try:
        function(x, y)
    except TypeError:
        with pytest.raises(TypeError):
            run(function, x, y)
        return
    with np.errstate(all="ignore"):
        same(run(function, x, y), function(x, y), exact=False)


@pytest.mark.parametrize("scalar", [True, 2, 0.5, np.float32(0.5), np.float64(0.5), np.int8(3), np.bool_(True)], ids=repr)
@pytest.mark.parametrize("dtype", NUMBERS)
def test_scalars_promote_as_in_numpy(scalar: Any, dtype: str) -> None:
    x = np.array([0, 1, 3]).astype(dtype)
    check(lambda x: (x + scalar, scalar * x, x / 2.0, np.maximum(scalar, x), x == scalar, scalar < x), x)
    check(lambda x, s: (x + s, s * x, np.maximum(s, x), x < s), x, scalar)


def test_integer_operators() -> None:
    x, y = np.array([-7, 7, 9, 0]), np.array([2, -2, 4, 3])
    check(lambda x, y: (x // y, x % y, x & y, x | y, x ^ y, ~x, x << abs(y), x >> abs(y), -x, +x, abs(x), x - y), x, y)
    check(lambda x: (5 // x, 5 % x, 5 - x, 1 << x, 7 & x, 2**x, divmod(x, 2), divmod(9, x)), np.array([1, 2, 3]))


def test_python_scalars_stay_weak() -> None:
    x = X.astype("f4")
    check(lambda x, n, a: x * (n / 2) + a**2 - n * n, x, 3, 0.5)
    assert trace(lambda n, a: (n + 1, a / n, n < a, -n), (3, 0.5)).weak == ("int", "float", "bool", "int")
    check(lambda x, n: x * ((n > 2) + (n == 3) + (n <= n) + (n < 2**40) + (n != 2.5) + (n >= True)), x, 3)
    same(run(lambda n: n / 2, 3), np.float64(1.5))
    same(run(lambda b: b + b, True), np.int64(2))


def test_ints_out_of_range() -> None:
    check(lambda x: (x == 300, x < 300, x > -1, x >= -5, x != -1), np.arange(3, dtype="u1"))
    with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
        run(lambda x: x + 300, np.arange(3, dtype="u1"))


def test_signed_compared_with_unsigned() -> None:
    x, y = np.array([-1, 0, 5, 2**62]), np.array([2**64 - 1, 0, 6, 3], "u8")
    check(lambda x, y: (x < y, x <= y, x > y, x >= y, x == y, x != y, y < x, y >= x, y == x), x, y)


def test_powers() -> None:
    check(lambda x: (x**2, x**0.5, x**-1, 2**x, x**x), X)
    check(lambda x: (x**2, x**3, np.power(x, 2)), np.array([1, -2, 3]))
    with pytest.raises(ValueError, match="negative integer powers"):
        run(lambda x: x**-1, np.array([1, 2]))
    check(lambda x, n: x**n, np.array([2, 3]), np.array([0, 3]))
    with pytest.raises(CheckFailed, match="negative integer powers"):
        run(lambda x, n: x**n, np.array([2, 3]), np.array([1, -1]))


def test_broadcasting() -> None:
    x, y = np.ones((2, 1, 3)), np.arange(4.0).reshape(4, 1)
    check(lambda x, y: (x + y, y * x, x - 1, np.float32(2) * y), x, y)
    check(lambda x, y: x + y, np.ones((0, 1)), np.ones((1, 3)))
    with pytest.raises(ValueError, match=r"operands could not be broadcast together with shapes \(3,\) \(4,\)"):
        run(lambda x, y: x + y, np.ones(3), np.ones(4))


def test_ufunc_keywords() -> None:
    check(lambda x: (np.add(x, 1, dtype="f4"), np.sin(x, dtype="f8")), X.astype("f4"))
    check(lambda x: np.add.outer(x, x[:2]), X)
    table = np.arange(6.0).reshape(2, 3)
    check(lambda x: (np.add.reduce(x), np.multiply.reduce(x, axis=1), np.maximum.reduce(x, axis=None)), table)
    check(lambda x: np.add.accumulate(x), X)


def test_where_and_out_write_into_a_traced_array() -> None:
    def function(x: Any) -> Any:
        y = x * 2
        z = np.exp(x, out=y, where=x > 1)
        assert z is y
        return y, np.zeros(3) + x

    check(function, X)


def test_special_functions() -> None:
    check(lambda x: (scipy.special.erf(x), scipy.special.expit(x), scipy.special.gammaln(x), scipy.special.psi(x)), X)
    same(run(lambda x: (math.sin(x), math.sqrt(x)), 0.5), (np.sin(0.5), np.sqrt(0.5)))


def test_functions_called_by_name_alone() -> None:
    same(run(np.tanh, X), np.tanh(X))
    same(run(functools.partial(np.arctan2, X), 2.0), np.arctan2(X, 2.0))
    same(run(lambda: 3 * X), 3 * X)


def test_in_place_operators() -> None:
    def function(x: Any) -> Any:
        y = x + 1
        z = y
        y *= 2
        y -= x
        total = 0.0
        total += x[0]
        return y, z, total

    check(function, X)


def test_attributes() -> None:
    def function(x: Any) -> Any:
        assert (x.shape, x.ndim, x.size, x.dtype, x.itemsize, x.nbytes, len(x)) == ((2, 3), 2, 6, np.dtype("f4"), 4, 24, 2)
        assert isinstance(x, np.ndarray)
        assert not isinstance(x, float)
        return x.T, x.real, [row.sum() for row in x]

    check(function, np.arange(6, dtype="f4").reshape(2, 3))


# arguments and results


@dataclass
class Params:
    weight: Any
    bias: Any


def test_containers_of_arguments_and_results() -> None:
    def function(p: Params, pair: Pair, *rest: Any, options: dict[str, Any], scale: float = 2.0) -> Any:
        assert isinstance(p, Params)
        assert isinstance(pair, Pair)
        out = pair.first @ p.weight + p.bias * scale
        return Pair(out, {"rest": list(rest), "option": options["a"][0], "name": "text", "n": 3, "none": None})

    p, pair = Params(np.ones((3, 2)), np.float32(0.5)), Pair(np.arange(6.0).reshape(2, 3), 1)
    check(function, p, pair, np.float64(1.5), X, options={"a": [X]}, scale=3.0)
    traced = trace(function, (p, pair, 1.5, X), {"options": {"a": [X]}})
    names = [v.name for v in traced.function.parameters]
    assert names == ["p_weight", "p_bias", "pair_first", "pair_second", "rest_0", "rest_1", "options_a_0"]
    assert traced.function.name == "function"


def test_static_arguments() -> None:
    def function(x: Any, n: int, mode: str = "up") -> Any:
        for _ in range(n):
            x = x + 1 if mode == "up" else x - 1
        return x

    parameters = parameters_of(function, ["n", "mode"])
    arguments = ((2, "up"), (3, "up"), (2, "down"), (2.0, "up"), (True, "up"))
    calls = [signature(parameters, (X, n), {"mode": m}) for n, m in arguments]
    assert len({c.key for c in calls}) == 5
    assert [len(c.leaves) for c in calls] == [1] * 5
    same(evaluate(trace(function, call=calls[2], parameters=parameters), [X]), X - 2)
    same(evaluate(trace(function, (X, 2), {"mode": "up"}, static_argnames=("n", "mode")), [X]), X + 2)
    with pytest.raises(ValueError, match="are no parameters of function"):
        parameters_of(function, "k")


def test_signatures() -> None:
    parameters = parameters_of(lambda x: x)

    def key(*args: Any, **kwargs: Any) -> Any:
        return signature(parameters, args, kwargs).key

    assert key(X) == key(X + 1)
    assert key([X, {"a": 1}]) == key([X, {"a": 2}])
    assert len({key(1), key(1.0), key(True), key(X), key(X[:2]), key(X.astype("f4"))}) == 6
    assert len({key(X), key("a"), key("b"), key([X]), key(x=X)}) == 5


def test_results_that_are_arguments_or_constants() -> None:
    same(run(lambda x: (x, x, X, np.float32(1), 2.5, "a"), X), (X, X, X, np.float32(1), 2.5, "a"))


def test_byte_order_and_strides() -> None:
    check(lambda x: x * 2, X.astype(">f8").astype("f8")[::2])
    traced = trace(lambda x: x * 2, (X.astype(">f8"),))
    same(evaluate(traced, [X.astype(">f8")]), X * 2)


def test_an_op_added_later_is_found() -> None:
    def doubled(x: Any) -> Any:
        return x * 2

    Elementwise(name="doubled_for_test", reference=doubled)
    try:
        traced = trace(lambda x: doubled(x), (X,))
        assert [i.op.name for i in traced.function.instructions] == ["doubled_for_test"]
        same(evaluate(traced, [X]), X * 2)
    finally:
        del OPS["doubled_for_test"]
