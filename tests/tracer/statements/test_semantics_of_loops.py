"""What rolled loops and compiled branches have in common with plain Python: types of results, ints, errors, indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb

X = np.array([1.5, -2.0, 0.25, 3.0])


def total(x: Any, n: Any) -> Any:
    s = x[0]
    for i in range(n):
        s = s + x[i % len(x)] * i
    return s


def halvings(x: Any) -> Any:
    count = 0
    while x > 1:
        x = x / 2
        count += 1
    return count, x, x > 0.75


def sign(x: Any) -> Any:
    if x > 0:
        return 1
    return -1


def sum_of_squares(x: Any) -> Any:
    s = 0.0
    for i in range(3000):
        s += (x + i) ** 2
    return s, i


def last_element(x: Any) -> Any:
    y = x[0].item()
    for i in range(3000):
        y = x[i % 4].item() + 0.5 * y
    return y, x[1], float(x[2]), int(x[3]), len(x), x.shape, x[0] > x[1], x[0].item() > 1.0


TYPES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (lambda x: x * 2, (1.5,)),
    (lambda x: x * 2, (3,)),
    (lambda x: x * 2, (True,)),
    (lambda x: x * 2, (1j,)),
    (lambda x: x * 2, (np.float64(1.5),)),
    (lambda x: x * 2, (np.float32(1.5),)),
    (lambda x: x, (2,)),
    (lambda x: (x, +x, float(x), x + 0), (2.5,)),
    (lambda x: (x * 2, np.float64(x * 2), x * 2), (2.5,)),
    (lambda x: (not x, x and 1.5, x or 2), (0,)),
    (lambda x, y: (x > y, x == y, max(x, y), divmod(x, y), abs(x), round(x), x // y, x**2), (1.5, -2.0)),
    (lambda x, y: (x > y, x == y, max(x, y), abs(x), x // y), (np.float64(1.5), -2.0)),
    (lambda x: (np.sin(x), math.sin(x), np.add(x, 1), x + np.float64(1)), (1.5,)),
    (lambda x: {"a": [x * 2, (x > 1, x * 1j)], "b": None}, (1.5,)),
    (lambda x: (x.sum(), x.sum().item(), x.max() > 1, bool(x.max() > 1), x[0], x.tolist()), (X,)),
    (halvings, (10.0,)),
    (halvings, (np.float64(10.0),)),
    (sign, (2.0,)),
    (sign, (np.float64(-2.0),)),
    (sum_of_squares, (0.5,)),
    (sum_of_squares, (np.float64(0.5),)),
    (last_element, (X,)),
]


def typed(value: Any) -> Any:
    """Return a value with the types of everything in it, and the values of arrays as lists."""
    if isinstance(value, list | tuple):
        return type(value), [typed(x) for x in value]
    if isinstance(value, dict):
        return [(k, typed(x)) for k, x in value.items()]
    return type(value), value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("at", range(len(TYPES)))
def test_results_have_the_types_of_plain_python(at: int) -> None:
    function, arguments = TYPES[at]
    compiled = pb.jit(function)
    for _ in range(5):  # in Python and natively
        assert typed(compiled(*arguments)) == typed(function(*arguments))
    assert typed(pb.jit(function, verify=2)(*arguments)) == typed(function(*arguments))


def test_values_beside_derivatives_have_the_types_of_plain_python() -> None:
    def f(x: float) -> float:
        return x * x

    assert typed(pb.value_and_grad(f)(1.5)) == typed((2.25, np.float64(3.0)))
    assert typed(pb.jvp(f, (1.5,), (1.0,))) == typed((2.25, np.float64(3.0)))
    assert typed(pb.vjp(f, 1.5)[0]) == typed(2.25)
    assert typed(pb.value_and_grad(lambda x: (f(x), x > 1), has_aux=True)(1.5)) == typed(((2.25, True), np.float64(3.0)))
    assert typed(pb.jit(pb.checkpoint(f))(1.5)) == typed(2.25)
    with pytest.raises(ZeroDivisionError):
        pb.jit(lambda x: 1 / pb.value_and_grad(f)(x)[0])(0.0)


def test_a_result_that_is_numpys_on_one_path_has_the_type_of_the_path(tmp_path: Any) -> None:
    def f(x: float) -> Any:
        return np.sin(x) if x > 0 else x

    def in_trees(x: float, y: Any) -> Any:
        level = 1.0
        for v in y:
            level = v if v > x else level
        return level, {"level": [level, f(x)]}

    for x in (-1.5, 1.5, -2.0, 2.0):
        assert typed(pb.jit(f)(x)) == typed(f(x))
        assert repr(pb.jit(in_trees)(x, X)) == repr(in_trees(x, X))
    def listed(x: float, y: Any) -> Any:
        levels = [0.0]
        for v in np.tile(y, 20):
            levels.append(v * x)
        levels.append(1.0)
        return levels

    assert [typed(v) for v in pb.jit(listed)(1.5, X)] == [typed(v) for v in listed(1.5, X)]

    def rounded(x: float, y: Any) -> Any:
        return f(x), np.sum(np.exp(y) * y), {"mean": np.mean(np.sin(y))}

    verified = pb.jit(rounded, verify=4)
    for x in (-1.5, 1.5):
        np.testing.assert_allclose(verified(x, X)[1], rounded(x, X)[1])
    outer = pb.jit(lambda x: (pb.jit(f)(x), pb.jit(f)(x) * np.float64(2)))
    for x in (-1.5, 1.5):
        assert repr(outer(x)) == repr((f(x), f(x) * np.float64(2)))
    loaded = pb.load(pb.export(f, 1.0, path=tmp_path / "f").library, trust=True)
    assert [repr(loaded(x)) for x in (-1.5, 1.5)] == [repr(f(x)) for x in (-1.5, 1.5)]
    np.testing.assert_array_equal(pb.vmap(f)(np.array([-1.5, 1.5])), [-1.5, np.sin(1.5)])
    assert [pb.grad(f)(x) for x in (-1.5, 1.5)] == [1.0, np.cos(1.5)]


def test_a_loaded_function_returns_python_numbers(tmp_path: Any) -> None:
    def f(x: float, y: Any) -> Any:
        return x * 2, x > 1, y[0]

    built = pb.export(f, 1.0, X, path=tmp_path / "f")
    assert typed(pb.load(built.library, trust=True)(1.5, X)) == typed(f(1.5, X))


# ints as bounds


def programs(compiled: Any) -> int:
    """Return the number of programs of a function."""
    return sum(map(len, compiled._entries.by_key.values()))


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (total, [(X, np.int64(n)) for n in (3, 1000, 0, 17, -2)]),
        (lambda x, n: sum_to(int(n), x), [(X, np.float64(n)) for n in (3, 1000, 0)]),
        (lambda x, n: sum_to(int(n[0]), x), [(X, np.array([n, 1])) for n in (3, 1000, 0)]),
        (lambda x, n: sum_to(n.item(), x), [(X, np.int64(n)) for n in (3, 1000, 0)]),
        (lambda x, b: x * 2 if b else x + 1, [(X, np.bool_(b)) for b in (True, False)]),
        (lambda x, n: x * 2 if n > 3 else x + 1, [(X, np.int64(n)) for n in (1, 5)]),
        (lambda x, n: x**n, [(X, np.int64(n)) for n in (1, 2, 5)]),
    ],
)
def test_ints_of_numpy_decide_nothing_in_the_trace(function: Any, calls: Sequence[Any]) -> None:
    compiled = pb.jit(function, guards=False)
    for arguments in calls:
        np.testing.assert_allclose(compiled(*arguments), function(*arguments), rtol=1e-14)
    assert programs(compiled) == 1


def sum_to(n: int, x: Any) -> Any:
    s = x[0]
    for i in range(n):
        s = s + x[i % 4] * i
    return s


def test_lengths_are_bounds_under_symbolic_sizes() -> None:
    def f(x: Any) -> Any:
        s = x[0]
        for i in range(1, len(x)):
            s = s * 0.5 + x[i] / (x.shape[0] - i)
        return s

    compiled = pb.jit(f, dynamic=True, guards=False)
    for n in (3, 400, 50, 1):
        x = np.linspace(0.5, 1.0, n)
        assert compiled(x) == f(x)


def test_an_int_of_numpy_is_static_where_a_shape_needs_it() -> None:
    def f(n: Any) -> Any:
        x = np.zeros(n)
        for i in range(n):
            x[i] = i
        return x

    compiled = pb.jit(f)
    for n in (3, 5):
        np.testing.assert_array_equal(compiled(np.int64(n)), f(n))


def test_a_python_int_is_no_longer_static_after_many_values() -> None:
    def f(x: Any, n: int) -> Any:
        return sum_to(n, x) * 0.5**n if n % 3 else x[1]

    compiled = pb.jit(f)
    for n in range(30):
        np.testing.assert_allclose(compiled(X, n), f(X, n), rtol=1e-14)
    assert programs(compiled) == 9


def test_a_counter_that_is_returned_and_passed_again_compiles_few_programs() -> None:
    @pb.jit
    def step(x: float, t: int) -> Any:
        t = t + 1
        return x - 0.1 * x / (1 - 0.9**t), t

    x, t = 1.0, 0
    for _ in range(30):
        x, t = step(x, t)
    assert t == 30 and type(t) is int and programs(step) == 9


# objects, classes and texts


def kind_of(x: Any) -> Any:
    match x:
        case bool():
            return "bool", x
        case int(y):
            return "int", y
        case float():
            return "float", x
        case _:
            return "other", x


def same_sign(x: Any, y: Any) -> Any:
    return (x > 0) is (y > 0), (x > 0) is not (y > 0), (x > 0) is True, 1.0 if (x > 0) is (y > 0) else 2.0


WAYS: list[dict[str, Any]] = [{}, {"guards": True}, {"loops": "unroll", "guards": True}]


@pytest.mark.parametrize("options", WAYS, ids=str)
def test_tests_of_identity_and_class_are_plain_pythons(options: dict[str, Any]) -> None:
    for x in (1.5, 2, True, np.float64(1.5), np.float32(1.5), np.int64(2), 1j, X):
        expected = typed(kind_of(x))
        assert typed(pb.jit(kind_of, **options)(x)) == expected
        assert typed(pb.jit(lambda x: kind_of(x), **options)(x)) == expected
    for kind in (float, np.float64):
        for x in (1.0, -1.0):
            for y in (2.0, -2.0):
                assert typed(pb.jit(same_sign, **options)(kind(x), kind(y))) == typed(same_sign(kind(x), kind(y)))


def no_source(text: str) -> Any:
    """Return the function ``f`` of a text that is no file's."""
    names: dict[str, Any] = {}
    exec(text, names)
    return names["f"]


SHOWN = {
    "f-string": "f'{x}', x",
    "joined": "f'x = {x} of {x}', x",
    "str": "str(x)",
    "in a list": "[x, repr(x)]",
    "in a dict": "{'k': f'{x}'}",
    "%": "'x = %s' % (x,)",
    "format": "'{}'.format(x)",
    "+": "'x = ' + str(x)",
    "length": "len(str(x))",
    "equal": "str(x) == '1.5'",
    "in": "'5' in str(x)",
    "number": "float(f'{x}')",
    "key": "{str(x): 1}",
    "branch": "1 if str(x) == '1.5' else 2",
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("x", [1.5, X], ids=["number", "array"])
def test_texts_of_traced_values_are_right_or_refused(name: str, x: Any) -> None:
    """A text that stands for a traced value reaches no result."""
    function = no_source(f"def f(x): return {SHOWN[name]}")
    if not (name == "number" and x is X):
        with pytest.raises(pb.TraceError):
            pb.jit(function)(x)
    with pytest.raises(pb.TraceError):
        pb.jit(pb.vmap(function))(np.stack([np.asarray(x)] * 2))


def test_texts_with_source() -> None:
    def shown(x: Any) -> Any:
        return f"{x}", str(x), [repr(x)]

    for x in (1.5, X):
        assert pb.jit(shown)(x) == shown(x)
        with pytest.raises(pb.TraceError, match="a text of a traced value"):
            pb.jit(shown, loops="unroll")(x)
    for function in (lambda x: float(f"{x}"), lambda x: len(str(x)), lambda x: str(x) == "1.5"):
        for options in ({}, {"loops": "unroll"}):
            with pytest.raises(pb.TraceError, match="a text of a traced value"):
                pb.jit(function, **options)(1.5)


def test_texts_are_shown_while_a_function_is_traced(capsys: Any) -> None:
    function = no_source("def f(x):\n    print(x, f'{x} {x!r}', 'x = ' + str(x))\n    return x")
    with pytest.raises(pb.TraceError, match="print of a text of a traced value"):
        pb.jit(function)(1.5)
    pb.jit(function, effects="trace")(1.5)
    text = "traced Python float x"
    assert capsys.readouterr().out == f"{text} {text} {text} x = {text}\n"


# ints of Python and of NumPy in one variable


def branch_of_both(x: float, a: Any) -> Any:
    return (2**62 if x > 0 else a[1]) * 4


def loop_of_both(x: float, a: Any) -> Any:
    k = 3
    while x > 1:
        k = k * 3
        x = x / 2
        if x < 0:
            k = a[1]
    return k


def carry_of_both(a: Any, n: Any) -> Any:
    h = a[0]
    for i in range(n):
        h = h * 3
        if h % 5 == 1:
            h = i
    return h


def hash_of_numpy(a: Any, n: Any) -> Any:
    h = 0
    i = 0
    while i < n:
        h = h * 31 + a[i % 3]
        i += 1
    return h


INTS = np.array([3, 1, 2])


@pytest.mark.parametrize(
    ("function", "few", "many"),
    [
        (branch_of_both, (-1.0, INTS), (1.0, INTS)),
        (loop_of_both, (2.0**20, INTS), (2.0**50, INTS)),
        (carry_of_both, (INTS, np.int64(10)), (INTS, np.int64(50))),
    ],
)
def test_an_int_that_is_pythons_on_one_path_does_not_wrap(function: Any, few: Any, many: Any) -> None:
    compiled = pb.jit(function, guards=False)
    assert compiled(*few) == function(*few)
    with pytest.raises(OverflowError):
        compiled(*many)


def test_ints_of_numpy_wrap() -> None:
    with np.errstate(all="ignore"):
        assert typed(pb.jit(hash_of_numpy, guards=False)(INTS, np.int64(40))) == typed(hash_of_numpy(INTS, 40))


# ints of loops: no wrapping, and the index as an int


def grown(step: Callable[[int], Any]) -> Callable[[float, int], Any]:
    """Return a function that applies a step of ints as often as a float says."""

    def f(x: float, k: int) -> Any:
        while x > 0:
            k = step(k)
            x -= 1
        return k

    return f


STEPS: dict[str, Callable[[int], Any]] = {
    "<<": lambda k: k << 3,
    "**": lambda k: k**2,
    "*": lambda k: k * -7,
    "abs": lambda k: abs(k) * -2,
    "-": lambda k: -k - 2**61,
    "~": lambda k: ~k * 3,
    "+": lambda k: k + k,
    "large +": lambda k: k + 2**61,
    "//": lambda k: k * 7 // 2,
    "max": lambda k: max(k * 5, 3),
    "sum": lambda k: sum([k, k, 1]),
    "% of a product": lambda k: k * k % 2**50,
    "hash": lambda k: ((k ^ 5) * 1099511628211) % 2**40,
}


@pytest.mark.parametrize("name", STEPS)
def test_ints_of_loops_are_exact_or_overflow(name: str) -> None:
    function = grown(STEPS[name])
    compiled = pb.jit(function, guards=False)
    exact = 0
    for trips in (0, 1, 2, 3, 5, 8, *((20, 70) if name != "**" else ())):
        expected = function(float(trips), 3)
        try:
            result = compiled(float(trips), 3)
        except OverflowError:
            assert trips > 1
        else:
            assert typed(result) == typed(expected)
            exact += 1
    assert exact >= 2


def fnv(n: int) -> int:
    h = 14695981039346656037
    for i in range(n):
        h = ((h ^ i) * 1099511628211) % 2**64
    return h


def fibonacci(n: int) -> int:
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def factorial(n: int) -> int:
    r = 1
    for i in range(1, n + 1):
        r *= i
    return r


def powers_sum(n: int) -> int:
    return sum(i**4 for i in range(n))


@pytest.mark.parametrize("function", [fnv, fibonacci, factorial, powers_sum])
def test_static_ints_that_overflow_are_computed_by_python(function: Any) -> None:
    for n in (5, 20, 60, 1000):
        assert typed(pb.jit(function)(n)) == typed(function(n))


def index_powers(x: Any) -> Any:
    s = 0.0
    for i in range(3000):
        s = s + x**i * 0.5**i
    return s


def index_int_powers(x: int) -> Any:
    s = 0
    for i in range(3000):
        s += 0**i + 1**i + (-1) ** i + i**0 + i**2
    return s, s + x


def index_kinds(x: float) -> Any:
    s = 0.0
    for i in range(3000):
        if isinstance(i, int) and type(i) is int:
            s += x
        if isinstance(i, bool | float | np.integer):
            s -= 100
    return s


def index_promotion(x: Any) -> Any:
    s = x[0] * 0
    for i in range(3000):
        s = s + x[i % 3] * i + i % 3
    return s, s * 1


def index_methods(x: int) -> Any:
    s = 0
    for i in range(3000):
        s += i.bit_length() + i.real + i.imag + ((i & 5) | (i >> 2) ^ (i << 3)) - ~i
        s += int(float(i)) + abs(-i) + round(i) + min(i, 5) + divmod(i, 7)[1]
    return s + x


def index_truth(x: float) -> Any:
    s = 0.0
    for i in range(3000):
        s += (1 if i else x) + (i if i and i < 10 else 0.5) + (i == 17 or i in (3, 5)) + [1.0, 2.0, 4.0][i % 3]
    return s, i, i / 2


def index_of_numpy(x: float) -> Any:
    s = 0.0
    for i in range(3000):
        s = s + np.float32(0.5) * i + np.sqrt(i) + np.int64(i)
    return s * x


def index_division(x: float) -> Any:
    s = 0.0
    for i in range(1, 3000):
        s += 1 / i + i // 7 + i % 7 + i / 3
    return s * x


INDICES: list[tuple[Any, tuple[Any, ...]]] = [
    *((index_powers, (x,)) for x in (0.9, 0.0, np.float64(-0.9), np.array([0.5, 0.25, 0.0]), np.float32(0.5))),
    (index_int_powers, (1,)),
    (index_kinds, (0.5,)),
    *((index_promotion, (np.array([1, 0, 2]).astype(dtype),)) for dtype in ("f4", "f8", "i4", "i8")),
    (index_methods, (1,)),
    (index_truth, (0.25,)),
    (index_of_numpy, (1.0,)),
    (index_division, (1.0,)),
]


@pytest.mark.parametrize("at", range(len(INDICES)))
def test_the_index_of_a_rolled_loop_is_an_int(at: int) -> None:
    function, arguments = INDICES[at]
    with np.errstate(all="ignore"):
        expected = function(*arguments)
        result = pb.jit(function, guards=False)(*arguments)
    flat = [(a, b) for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True)]
    for a, b in flat:
        assert type(a) is type(b) and np.asarray(a).dtype == np.asarray(b).dtype
        np.testing.assert_allclose(a, b, rtol=1e-6 if np.asarray(b).dtype == np.float32 else 1e-13)


def test_an_index_that_an_int8_does_not_hold_is_an_error() -> None:
    x = np.array([1, 0, 2], np.int8)
    for function in (index_promotion, pb.jit(index_promotion, guards=False)):
        with np.errstate(all="ignore"), pytest.raises(OverflowError, match="Python integer 128 out of bounds for int8"):
            function(x)


def test_errors_show_the_index_as_an_int() -> None:
    def f(x: float) -> float:
        for i in range(3000):
            x = x + i
            if x > 1000:
                raise ValueError(f"at {i}: {i:03d} {i!r} {i + 1} {x}")
        return x

    with pytest.raises(ValueError, match=r"at 45: 045 45 46 1035\.5"):
        pb.jit(f, guards=False)(0.5)


@pytest.mark.parametrize("x", [0.0, 0.9, -0.5])
def test_derivatives_of_powers_of_the_index(x: float) -> None:
    step = 1e-4
    first, second = pb.grad(index_powers), pb.grad(pb.grad(index_powers))
    slope = (index_powers(x + step) - index_powers(x - step)) / (2 * step)
    np.testing.assert_allclose(first(x), slope, rtol=1e-5)
    curvature = (index_powers(x + step) - 2 * index_powers(x) + index_powers(x - step)) / step**2
    np.testing.assert_allclose(second(x), curvature, rtol=1e-5)


# order of operations, errors, carries, effects

Z = np.random.default_rng(0).normal(size=3000)


def ordered(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        s = s + x[i] * 0.1
    return s


def split(x: Any) -> Any:
    s = 0.0
    for i in range(len(x)):
        if i == 0:
            s = x[i] * 0.3
        elif i % 2:
            s = s * 0.99 + x[i]
        else:
            s = s - x[i - 1] / 3
    return s


def peeled(x: Any) -> Any:
    best = None
    total = 0
    for v in x:
        total += v * 0.1
        if best is None or v < best:
            best = v
    return best, total


@pytest.mark.parametrize("function", [ordered, split, peeled])
def test_rolled_and_unrolled_loops_give_equal_bits(function: Any) -> None:
    expected = typed(function(Z))
    assert typed(pb.jit(function, guards=False)(Z)) == expected
    assert typed(pb.jit(function, guards=True, loops="unroll")(Z[:400])) == typed(function(Z[:400]))


def doubled(x: Any, n: Any) -> Any:
    for i in range(n):
        x[i] = x[i - 1] * 2
    return x


def test_a_call_that_raises_writes_nothing() -> None:
    compiled = pb.jit(doubled, guards=False)
    x = np.arange(1.0, 7.0)
    with pytest.raises(IndexError, match="index 6 is out of bounds for axis 0 with size 6"):
        compiled(x, np.int64(9))
    np.testing.assert_array_equal(x, np.arange(1.0, 7.0))
    np.testing.assert_array_equal(compiled(x, np.int64(6)), doubled(np.arange(1.0, 7.0), 6))


def deleted(x: float, n: Any) -> Any:
    y = 2.0
    for i in range(n):
        if i == 3:
            del y
            y = x
    return y


def unbound(x: float, n: Any) -> Any:
    for i in range(n):
        y = x * i
    return y


def named(x: float, n: Any) -> Any:
    k = 0
    while (y := x / 2) > n:
        x = y
        k += 1
    else:
        k = -k
    return x, y, k


def indexed(x: float, n: Any) -> Any:
    values = [1.5, 2.5, 4.0]
    return values[n] if n < len(values) and values[n] > x else -1.0


def divided(x: float, n: Any) -> Any:
    return x / n if n != 0 else 0.0


def handled(x: float, n: Any) -> Any:
    try:
        for i in range(10):
            x = x / (i - n)
    except ZeroDivisionError as error:
        return str(error), x
    return x, x


def stepped(x: float, n: Any) -> Any:
    for i in range(9, 1, -n):
        x = x * 0.5 + i
    return x


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("function", [deleted, unbound, named, indexed, divided, handled, stepped])
@pytest.mark.parametrize("n", [0, 1, 2, 5, 12])
def test_names_and_errors_are_pythons(function: Any, n: int) -> None:
    def outcome(f: Any) -> Any:
        try:
            return typed(f(2.0, np.int64(n)))
        except Exception as error:
            return type(error), str(error)

    with np.errstate(all="ignore"):
        expected = outcome(function)
    if function not in (divided, handled):  # NumPy's numbers divide by zero without an error
        assert outcome(pb.jit(function)) == expected
    assert outcome(lambda x, k: pb.jit(function)(x, int(k))) == outcome(lambda x, k: function(x, int(k)))


def counted(x: float) -> Any:
    while x > 1:
        x = x / 2 if x > 3 else x - 1 / (x - 0.5)
    return x


def test_an_inactive_row_does_not_fail_and_keeps_its_bits() -> None:
    x = np.array([0.1, 0.5, 5.0, 100.0, 1.0])
    assert pb.vmap(counted)(x).tolist() == [counted(v) for v in x.tolist()]
    assert pb.vmap(divided)(np.ones(3), np.array([0.0, 1.0, 2.0])).tolist() == [0.0, 1.0, 0.5]


def advanced(x: float) -> Any:
    numbers = iter(range(10))
    for i in range(3000):
        x = x + (1 if i > 9 else next(numbers))
    return x


def generated(x: float) -> Any:
    def items() -> Any:
        for i in range(5):
            yield x * i

    return sum(items())


def scoped(x: float) -> Any:
    s = 0
    for _ in range(4):
        s += len(locals())
    return s * x


@pytest.mark.parametrize("function", [advanced, generated, scoped])
def test_what_has_unknown_effects_is_not_rolled(function: Any) -> None:
    assert typed(pb.jit(function)(2.0)) == typed(function(2.0))
