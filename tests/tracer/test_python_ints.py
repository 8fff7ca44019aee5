"""Python ints as NumPy 2 has them (NEP 50): arguments and constants that meet arrays of every integer dtype, within and out of
bounds. Each program runs plain and compiled and must give the same values of the same dtypes, or the same exception."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir.text import print_function
from pullback.tracer import trace

DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
EXTREMES = (
    0, 1, -1, 127, 128, -128, -129, 255, 256, 300, 2**31, -(2**31) - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63),
    -(2**63) - 1,
)  # fmt: skip
LARGE = [n for n in EXTREMES if not -(2**63) <= n < 2**63]

Program = Callable[[Any, Any], Any]


def _in_place(function: Callable[[Any, Any], Any]) -> Program:
    """The program that gives a copy of its first argument after ``function`` has written to it."""

    def program(a: Any, n: Any) -> Any:
        x = a.copy()
        function(x, n)
        return x

    return program


ARITHMETIC: dict[str, Program] = {
    **{
        u.__name__: u
        for u in (
            np.add, np.subtract, np.multiply, np.maximum, np.minimum, np.fmax, np.fmin, np.gcd, np.lcm, np.bitwise_and,
            np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift, np.floor_divide, np.remainder, np.fmod, np.divmod,
            np.true_divide, np.logical_and, np.logical_xor, np.hypot, np.copysign,
        )
    },
    "n - a": lambda a, n: n - a,
    "n // a": lambda a, n: n // a,
    "n << a": lambda a, n: n << a,
    "n ^ a": lambda a, n: n ^ a,
    "clip low": lambda a, n: np.clip(a, n, None),
    "clip high": lambda a, n: np.clip(a, None, n),
    "a.clip": lambda a, n: a.clip(n, 100),
    "dot": lambda a, n: np.dot(a, n),
    "outer": lambda a, n: np.outer(a, n),
    "multiply.outer": lambda a, n: np.multiply.outer(a, n),
    "subtract.outer": lambda a, n: np.subtract.outer(n, a),
    "dtype=": lambda a, n: np.add(a, n, dtype=np.int16, casting="unsafe"),
    "out=": lambda a, n: np.add(a, n, out=np.zeros_like(a)),
    "where=": lambda a, n: np.add(a, n, out=np.zeros_like(a), where=a > 5),
    "empty": lambda a, n: a[:0] + n,
    "0-d": lambda a, n: a[0] + n,
}  # fmt: skip

COMPARISONS: dict[str, Program] = {
    **{f"a {name} n": o for name, o in (("<", operator.lt), ("<=", operator.le), ("==", operator.eq), ("!=", operator.ne))},
    "n > a": lambda a, n: n > a,
    "n >= a": lambda a, n: n >= a,
    **{u.__name__: u for u in (np.greater, np.greater_equal, np.less, np.equal, np.not_equal)},
    "less of n, a": lambda a, n: np.less(n, a),
    "greater.outer": lambda a, n: np.greater.outer(a, n),
    "not_equal.outer": lambda a, n: np.not_equal.outer(n, a),
    "0-d": lambda a, n: a[1] <= n,
    "empty": lambda a, n: a[:0] < n,
    "out=": lambda a, n: np.less(a, n, out=np.zeros(a.shape, bool)),
    "of n and n": lambda a, n: (n < 100, n == 255, n <= 300, n != n),
    "of n and beyond": lambda a, n: (n < 2**63, n > -(2**64), n == 2**64, n <= 2**63),
    "isin": lambda a, n: np.isin(a, n),
    "where a < n": lambda a, n: np.where(a < n, a, 0),
    "count": lambda a, n: np.count_nonzero(a == n),
    "array_equal": lambda a, n: np.array_equal(a, n),
}

CONVERSIONS: dict[str, Program] = {
    "asarray": lambda a, n: np.asarray(n, dtype=a.dtype) + a,
    "array": lambda a, n: np.array(n, dtype=a.dtype) + a,
    "array of a list": lambda a, n: np.array([n, 1], dtype=a.dtype),
    "array of lists": lambda a, n: np.array([[n], [1]], dtype=a.dtype),
    "full": lambda a, n: np.full(3, n, dtype=a.dtype),
    "full_like": lambda a, n: np.full_like(a, n),
    "where": lambda a, n: np.where(a > 5, a, n),
    "select": lambda a, n: np.select([a > 5], [a], n),
    "choose": lambda a, n: np.choose(a % 2, [a, n]),
    "piecewise": lambda a, n: np.piecewise(a, [a > 5], [n, 1]),
    "insert": lambda a, n: np.insert(a, 0, n),
    "append": lambda a, n: np.append(a, n) if -(2**63) <= n < 2**63 else a,
    "concatenate": lambda a, n: np.concatenate([a, np.asarray([n], a.dtype)]),
    "pad": lambda a, n: np.pad(a, 1, constant_values=n),
    "max initial": lambda a, n: np.max(a, initial=n),
    "minimum.reduce initial": lambda a, n: np.minimum.reduce(a, initial=n),
    "searchsorted": lambda a, n: np.searchsorted(np.sort(a), n) if -(2**63) < n < 2**63 else 0,
    "bool": lambda a, n: np.bool_(n) & (a > 5),
}

WRITES: dict[str, Program] = {
    name: _in_place(function)
    for name, function in {
        "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "//=": operator.ifloordiv, "|=": operator.ior,
        "^=": operator.ixor, "<<=": operator.ilshift,
        "a[0] =": lambda a, n: operator.setitem(a, 0, n),
        "a[...] =": lambda a, n: operator.setitem(a, ..., n),
        "a[1:] =": lambda a, n: operator.setitem(a, slice(1, None), n),
        "a[[0, 1]] =": lambda a, n: operator.setitem(a, [0, 1], n),
        "a[mask] =": lambda a, n: operator.setitem(a, a > 5, n),
        "a[:2] = [n, 1]": lambda a, n: operator.setitem(a, slice(2), [n, 1]),
        "a[1:] += n": lambda a, n: operator.setitem(a, slice(1, None), a[1:] + n),
        "fill": lambda a, n: a.fill(n),
        "flat": lambda a, n: operator.setitem(a.flat, slice(None), n),
        "put": lambda a, n: np.put(a, [0], n),
        "place": lambda a, n: np.place(a, a > 5, n),
        "putmask": lambda a, n: np.putmask(a, a > 5, n),
        "copyto": np.copyto,
        "copyto where": lambda a, n: np.copyto(a, n, where=a > 5),
        "put_along_axis": lambda a, n: np.put_along_axis(a, np.array([0]), n, 0),
        "add.at": lambda a, n: np.add.at(a, 0, n) if -(2**63) < n < 2**63 else None,
        "maximum.at": lambda a, n: np.maximum.at(a, [0], n) if -(2**63) < n < 2**63 else None,
    }.items()
}  # fmt: skip

PROGRAMS = {
    f"{kind}: {name}": program
    for kind, programs in (("ufunc", ARITHMETIC), ("compare", COMPARISONS), ("convert", CONVERSIONS), ("write", WRITES))
    for name, program in programs.items()
}


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    """The values and dtypes that a call gives, or the exception that it raises."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            result = function(*args)
        except (OverflowError, ValueError, TypeError, ZeroDivisionError) as error:
            return type(error).__name__, str(error)
        except pb.TraceError as error:
            assert "more than 64 bits" in str(error), error
            return None
    parts = result if isinstance(result, tuple) else (result,)
    return [(np.asarray(part).dtype.name, np.asarray(part).tolist()) for part in parts]


def differences(program: Program, dtype: str, numbers: Any, compile: Callable[[Any], Any] = pb.jit) -> Iterator[str]:
    """What a compiled program does otherwise than the plain one, for each number as its argument."""
    a = np.array([8, 5, 127, 3], dtype)
    compiled = compile(program)
    for n in numbers:
        expected, result = outcome(program, a, n), outcome(compiled, a, n)
        if result is None:  # refused; NumPy computes with objects, or raises
            assert not -(2**63) <= n < 2**64, result
        elif repr(expected) != repr(result):
            yield f"{dtype}, {n}: {result} where NumPy has {expected}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments(name: str) -> None:
    result = [d for dtype in DTYPES for d in differences(PROGRAMS[name], dtype, EXTREMES)]
    assert not result, "\n".join(result[:3])


TYPES: dict[str, Program] = {
    "int8": lambda a, n: np.int8(n) + a,
    "int16": lambda a, n: np.int16(n) + a,
    "int32": lambda a, n: np.int32(n) + a,
    "int64": lambda a, n: np.int64(n) + a,
    "uint8": lambda a, n: np.uint8(n) + a,
    "uint16": lambda a, n: np.uint16(n) + a,
    "uint32": lambda a, n: np.uint32(n) + a,
    "uint64": lambda a, n: np.uint64(n) + a,
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_number_types(dtype: str) -> None:
    result = list(differences(TYPES[dtype], dtype, EXTREMES))
    assert not result, "\n".join(result)


CONSTANTS = (-1, 128, 300, 2**63, 2**64, -(2**63) - 1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "uint64"])
def test_constants(dtype: str) -> None:
    def outcomes(compile: Callable[[Any], Any], program: Program, n: int) -> Any:
        return outcome(compile(lambda a: program(a, n)), np.array([8, 5, 127, 3], dtype))

    plain = {"a + n": np.add, "n // a": lambda a, n: n // a, "a < n": np.less, "n == a": lambda a, n: n == a}
    plain |= {name: PROGRAMS[name] for name in ("write: a[0] =", "write: fill", "convert: full", "convert: array of a list")}
    for name, program in plain.items():
        for n in CONSTANTS:
            assert repr(outcomes(pb.jit, program, n)) == repr(outcomes(lambda f: f, program, n)), (name, n)


def _line(error: BaseException) -> str:
    return "\n".join(getattr(error, "__notes__", ()))


def test_error_is_at_the_users_line() -> None:
    @pb.jit
    def f(a: Any, n: int) -> Any:
        b = a * 1
        return b + n

    a = np.array([8, 5], np.uint8)
    with pytest.raises(OverflowError, match=r"^Python integer 300 out of bounds for uint8\b"):
        f(a, 300)
    np.testing.assert_array_equal(f(a, 200), a + 200)
    with pytest.raises(OverflowError, match=r"^Python integer -7 out of bounds for uint8\b") as caught:
        f(a, -7)
    assert "return b + n" in _line(caught.value)
    np.testing.assert_array_equal(f(a, 3), a + 3)


def test_native_calls_look_too() -> None:
    """Calls that no longer pass through Python: of ints that are read, and of ints that are not."""
    read, unread = pb.jit(lambda a, n: a + n), pb.jit(lambda a, n: a * (n < 2**63))
    a = np.array([8, 5], np.uint8)
    for _ in range(6000):
        read(a, 3)
        unread(a, 3)
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        read(a, 300)
    with pytest.raises(OverflowError, match="too large"):
        read(a, 2**64)
    assert unread(a, 2**63).tolist() == [0, 0]
    assert unread(a, 5).tolist() == [8, 5]


def test_writes_nothing_where_it_raises() -> None:
    @pb.jit
    def f(a: Any, n: int) -> None:
        a[0] = 1
        a += n

    a = np.array([8, 5], np.uint8)
    f(a, 2)
    assert a.tolist() == [3, 7]
    with pytest.raises(OverflowError):
        f(a, 300)
    assert a.tolist() == [3, 7]


def _weighted(x: Any, a: Any, n: int) -> Any:
    return np.sum(x * (a + n)) + np.sum(np.where(a < n, x, 2 * x))


def test_transforms() -> None:
    x, a = np.array([1.0, 2.0]), np.array([8, 250], np.uint8)
    gradient = pb.grad(_weighted)
    np.testing.assert_array_equal(gradient(x, a, 3), (a + 3) + np.where(a < 3, 1, 2))
    np.testing.assert_array_equal(gradient(x, a, 9), (a + 9).astype(float) + np.where(a < 9, 1, 2))
    for _ in range(2):
        with pytest.raises(OverflowError, match="Python integer 300 out of bounds for uint8"):
            gradient(x, a, 300)
    for n in (3, 9):
        value, tangent = pb.jvp(lambda x, n=n: _weighted(x, a, n), (x,), (x,))
        assert value == tangent == _weighted(x, a, n)
    mapped = pb.jit(lambda x, n: pb.vmap(lambda row: row * (a + n))(x))
    rows = np.stack([x, 2 * x])
    np.testing.assert_array_equal(mapped(rows, 5), rows * (a + 5))
    with pytest.raises(OverflowError, match="Python integer -1 out of bounds for uint8"):
        mapped(rows, -1)


def test_loops() -> None:
    @pb.jit
    def f(a: Any, n: int) -> Any:
        total = np.zeros(3, np.uint8)
        for _ in range(a.shape[0]):
            total += n
        return total

    a = np.zeros(40)
    assert f(a, 2).tolist() == [80] * 3
    with pytest.raises(OverflowError, match="Python integer 256 out of bounds for uint8"):
        f(a, 256)


def test_compared_with_every_integer() -> None:
    """Comparisons of arrays of all dtypes with each other, with numbers of NumPy's and with Python ints."""
    numbers = [np.dtype(d).type(n) for d in DTYPES for n in EXTREMES if np.iinfo(d).min <= n <= np.iinfo(d).max]
    for dtype in DTYPES:
        info = np.iinfo(dtype)
        a = np.array([info.min, 0, 3, info.max], dtype)
        result = pb.jit(lambda a, *others: [(a < n, a == n, n <= a) for n in others])(a, *numbers[::3])
        for n, got in zip(numbers[::3], result, strict=True):
            for have, expected in zip(got, (a < n, a == n, n <= a), strict=True):
                np.testing.assert_array_equal(have, expected)


# arithmetic of Python ints, which have no bounds


def _power_of_two(n: int) -> int:
    return (1 << abs(n) % 90) + n


INTS: dict[str, Callable[[int], Any]] = {
    "n + 1": lambda n: n + 1,
    "n * n": lambda n: n * n,
    "n**3": lambda n: n**3,
    "n << 40": lambda n: n << 40,
    "1 << n": _power_of_two,
    "-n": operator.neg,
    "abs": abs,
    "n - 2**63": lambda n: n - 2**62 - 2**62,
    "3 * n + 1": lambda n: 3 * n + 1,
    "n >> 3": lambda n: n >> 3,
    "n // -1": lambda n: n // -1,
    "n % 7": lambda n: n % 7,
    "n % n": lambda n: n % (n * n + 1),
    "n ^ 5": lambda n: (n ^ 5, n | 6, n & -4, ~n),
    "n + 2**63": lambda n: n + 2**63,
    "n * 2**70": lambda n: n * 2**70,
    "n * n > 2**40": lambda n: n * n > 2**40,
    "sum": lambda n: sum([n, n, n]),
    "max": lambda n: max(n, 3) * 2**33,
    "n * n - n * n": lambda n: n * n - n * n,
    "polynomial": lambda n: n * n * n + 2 * n * n + 7,
    "near the end": lambda n: n * (2**32 - 1) + n,
}
LONG = (
    0, 1, 5, -3, 2**20, 2**31 - 1, 2**31, -(2**31) - 1, 2**40, -(2**40), 2**62, 2**63 - 1, -(2**63), 2**63, -(2**64), 7, 2**31, 5,
    88,
)  # fmt: skip


@pytest.mark.parametrize("name", INTS)
def test_arithmetic_is_exact(name: str) -> None:
    program = INTS[name]
    compiled = pb.jit(program)

    def values(function: Callable[[int], Any], n: int) -> Any:
        result = function(n)
        return [v.item() if isinstance(v, np.generic) else v for v in (result if isinstance(result, tuple) else (result,))]

    for n in LONG:
        for _ in range(2):
            assert values(compiled, n) == values(program, n), n


def test_arithmetic_before_an_array() -> None:
    compiled = pb.jit(lambda a, n: a + 2 * n)
    for dtype in DTYPES:
        result = list(differences(lambda a, n: a + 2 * n, dtype, LONG))
        assert not result, "\n".join(result[:3])
    a = np.array([8, 5], np.uint8)
    for _ in range(6000):  # by the native entry
        compiled(a, 3)
    for n in (2**31, 2**40, -1, 2**63):
        with pytest.raises(OverflowError):
            compiled(a, n)
    assert compiled(a, 4).tolist() == [16, 13]


def test_arithmetic_where_no_other_trace_helps() -> None:
    gradient = pb.grad(lambda x, n: np.sum(x) * (n * n * n))
    x = np.ones(2)
    np.testing.assert_array_equal(gradient(x, 3), [27, 27])
    with pytest.raises(OverflowError, match="more than 64 bits"):
        gradient(x, 2**22)
    powers = pb.jit(lambda n: pb.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 3), (0, 1)))
    assert powers(30) == (30, 3**30)
    with pytest.raises(OverflowError, match="more than 64 bits"):
        powers(60)
    scaled = pb.jit(lambda x, n: x * (n * n), dynamic=True)
    for n in (2, 2**31, 3, 2**33):
        np.testing.assert_array_equal(scaled(x, n), x * (n * n))


def test_negative_shifts() -> None:
    shifted = pb.jit(lambda n: 1 << n)
    assert shifted(5) == 32
    with pytest.raises(ValueError, match="negative shift count"):
        shifted(-1)
    assert shifted(70) == 2**70


def test_counters_of_loops_have_no_checks() -> None:
    def f(x: Any, n: int) -> Any:
        return pb.fori_loop(0, n, lambda i, s: s + x[(i * 3 + n) % 4] * (i + 1), 0.0)

    def g(x: Any, n: int) -> Any:
        return pb.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] + x), (0, 0 * x))[1]

    for function in (f, g):
        text = print_function(trace(function, (np.ones(4), 5)).function)
        assert "64 bits" not in text


DIVISIONS: dict[str, Callable[..., Any]] = {
    "/": lambda x, m, n: x * (m / n),
    "//": lambda x, m, n: x * (m // n),
    "%": lambda x, m, n: x * (m % n),
    "divmod": lambda x, m, n: x * divmod(m, n)[1],
    "of a constant": lambda x, m, n: x * (7 // n),
    "of a bool": lambda x, m, n: x * (True / n),
}


@pytest.mark.parametrize("name", DIVISIONS)
@pytest.mark.parametrize("transform", [lambda f: f, pb.grad], ids=["value", "gradient"])
def test_a_known_program_divides_by_zero_as_python_does(name: str, transform: Callable[..., Any]) -> None:
    f = DIVISIONS[name]
    compiled = pb.jit(transform(f))
    assert compiled(1.0, 9, 4) == f(1.0, 9, 4)
    with pytest.raises(ZeroDivisionError) as pythons:
        f(1.0, 9, 0)
    with pytest.raises(ZeroDivisionError, match=re.escape(str(pythons.value))):
        compiled(1.0, 9, 0)


def test_ints_divide_by_zero_in_loops_and_under_floats() -> None:
    turns = pb.jit(lambda n: pb.fori_loop(0, 3, lambda k, s: s + 9 % (n - k), 0))
    assert turns(7) == 9 % 7 + 9 % 6 + 9 % 5
    with pytest.raises(ZeroDivisionError):
        turns(2)
    with pytest.raises(ZeroDivisionError, match="float division by zero"):
        pb.jit(lambda x, n: x / n)(2.0, 0)
    assert np.isinf(pb.jit(lambda x, n: x / n)(np.float64(2.0), 0))


def test_a_divisor_that_cannot_be_zero_is_not_checked() -> None:
    traced = trace(lambda x, n: pb.fori_loop(0, n, lambda k, s: s + k % 3 + 1 / (k + 1), x), (1.0, 5))
    assert "ZeroDivisionError" not in print_function(traced.function)


@pytest.mark.parametrize("k", [2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**25, -(2**63), -(2**63) - 1, -(10**25)])
def test_ints_that_are_no_indices_raise_numpys_errors(k: int) -> None:
    def read(x: Any) -> Any:
        return x[k]

    def row(x: Any) -> Any:
        return x.reshape(2, 2)[1, k]

    def write(x: Any) -> Any:
        x = x + 0
        x[k] = 1.0
        return x

    def added(x: Any) -> Any:
        np.add.at(x, k, 1.0)
        return x

    for function in (read, row, write, added):
        with pytest.raises((IndexError, OverflowError)) as plain:
            function(np.zeros(4))
        with pytest.raises(plain.type) as compiled:
            pb.jit(function)(np.zeros(4))
        assert str(compiled.value).splitlines()[0] == str(plain.value)
