"""Loops of functions whose source is not at hand, against plain Python: values, gradients, and what is unrolled."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
import pytest

import pullback as pb

TEXT = """
def recurrence(x, y):
    s = 0.0
    for k in range(200):
        s = s * y[0] / 4 + np.sin(x[k])
    return s

def rows_of_a_matrix(x, y):
    out = np.zeros(100)
    for i, row in enumerate(x.reshape(100, 2)):
        out[i] = np.sin(row) @ np.cos(y[:2]) + np.exp(-row[1] ** 2) * i
        out[i] += np.tanh(row[0] * row[1]) * np.sqrt(1 + row[0] ** 2)
        y = y + 0.01 * row[0]
    return out, y

def written_elements(x, y):
    n = 30
    D = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            D[i, j] = (x[i] - y[j]) ** 2 * (i + 2 * j)
    return D

def last_values(x, y):
    for i in range(3, 300, 2):
        d = x[5] * i
        e = d + 1
    return i, d, e

def pairs(x, y):
    s = 0.0
    for a, b in zip(x, y):
        s = s * 0.5 + a * b
    for i, (a, b) in enumerate(zip(x, y), start=2):
        s += i * a * b
    for v in reversed(x):
        s = s * 0.9 + v
    for i in reversed(range(150)):
        s = s * 0.9 + x[i] * i
    return s

def first_iteration_of_another_type(x, y):
    best, n = None, 0
    for v in x:
        best = v if best is None else np.maximum(best, v)
        n += 1
    return best, n

def triangle(x, y):
    A = np.outer(y, y)[:12, :12] + 9 * np.eye(12)
    for k in range(12):
        for i in range(k + 1, 12):
            f = A[i, k] / A[k, k]
            for j in range(k, 12):
                A[i, j] = A[i, j] - f * A[k, j]
    return A

def growing_iterations(x, y):
    n = 24
    factor, total = np.eye(n), np.zeros(n)
    for i in range(n):
        for j in range(i):
            s = x[i] * y[j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k] / 50
            factor[i, j] = s / (1 + factor[j, j] ** 2)
        factor[i, i] = np.sqrt(1 + factor[i, 0] ** 2)
    for i in range(n):
        r = 0.0
        for j in range(i):
            r += factor[i, j] * j
        total[i] = r
    return factor, total

def nested_function(x, y):
    def settle(a):
        t = a
        for _ in range(150):
            t = t * 0.99 + 0.01 * np.cos(t)
        return t
    return settle(y[0]) + settle(y[1])

def object_state(x, y):
    class State:
        pass
    s = State()
    s.total, s.count = 0.0, 0
    for i in range(180):
        s.total += x[i] * 0.5
        s.count += 1
    return s.total, s.count

def list_items(x, y):
    s = [y[0], 0.0]
    for i in range(190):
        s[1] += s[0] * x[i]
        s[0] = s[0] * 0.99
    return s

def nonlocal_variable(x, y):
    total = 0.0
    def add(v):
        nonlocal total
        total = total + v * v
    for i in range(150):
        add(x[i])
    return total

def exchanged(x, y):
    a, b = y.copy(), y * 2
    for i in range(400):
        a, b = b, a * 0.5 + np.cos(b) * 0.1 * x[3]
        a = a + np.sin(b) * 0.01
        b = b - 0.01 * a * i / 400
    return a, b

def caught_outside(x, y):
    s = 1.0
    with np.errstate(all="ignore"):
        for i in range(180):
            s = s * 0.9 + x[i]
    return s

def argument_written(x, y):
    for i in range(150):
        x[i] = x[i] * 0.5 + x[i - 1]
    return x[149]

ROLLED = [f for f in globals().values() if callable(f)]

def left_by_break(x, y):
    s = 0.0
    for i in range(190):
        s += x[i]
        if i == 150:
            break
    return s, i

def left_by_return(x, y):
    s = 0.0
    for i in range(190):
        s += x[i]
        if i == 150:
            return s
    return -1.0

def comprehension(x, y):
    return np.array([v * 2 for v in x]), [i * x[i] for i in range(150)], sum(v * v for v in x)

def appended(x, y):
    out = []
    for i in range(150):
        out.append(x[i] * 2)
    return np.array(out)

def index_of_a_list(x, y):
    w, s = [1.0, 2.0, 3.0], 0.0
    for i in range(160):
        s += w[i % 3] * x[i]
    return s

def branch_on_the_index(x, y):
    s = 0.0
    for i in range(150):
        if i % 2 == 0:
            s += x[i]
    return s

def dictionary(x, y):
    d = {}
    for i in range(150):
        d[i] = x[i]
    return d[140]

def error_that_is_handled(x, y):
    s = 0.0
    try:
        for i in range(180):
            s += x[i]
            if i == 120:
                raise ValueError("stop")
    except ValueError:
        s = s + 1000
    return s

def error_that_is_handled_inside(x, y):
    s = 0.0
    for i in range(180):
        try:
            s += [x[0]][0] * x[i]
            if i == 120:
                raise ValueError("stop")
        except ValueError:
            break
    return s

def generator(x, y):
    def squares():
        for v in x:
            yield v * v
    return sum(squares())

def iterators_in_variables(x, y):
    it = zip(x, y)
    a, b = next(it)
    s = a * b
    for u, v in it:
        s = s * 0.5 + u * v
        if u > 2:
            break
    for k, (u, v) in enumerate(it):
        s = s * 0.5 + u * v * k
    first = enumerate(x)
    next(first)
    for k, (i, u) in enumerate(first):
        s = s * 0.5 + i * u * k
    return s, list(it), list(first)

def names_of_variables(x, y):
    for i in range(150):
        s = x[i] + len(locals())
    return s

def consumed_elsewhere(x, y):
    r = range(150)
    it = iter(range(5))
    next(it)
    s = 0.0
    for i in it:
        s += x[i]
    return s + len(r) + r[3] + sum(r) + x[list(range(3))][0], isinstance(r, range), dict(zip("ab", y))["a"]
"""
SPACE: dict[str, Any] = {"np": np, "math": math}
exec(compile(TEXT, "<a prompt>", "exec"), SPACE)
FUNCTIONS: list[Callable[..., Any]] = [f for f in SPACE.values() if type(f) is FunctionType]
ROLLED = [f for f in FUNCTIONS if f in SPACE["ROLLED"]]
OTHERS = [f for f in FUNCTIONS if f not in SPACE["ROLLED"]]
NAMES = [f.__name__ for f in ROLLED + OTHERS]


def arguments(seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=200), rng.normal(size=200) + 2


def same(expected: Any, result: Any) -> None:
    """Assert that two results are equal: containers and types, and numbers to rounding."""
    if isinstance(expected, tuple | list):
        assert type(result) is type(expected)
        for e, r in zip(expected, result, strict=True):
            same(e, r)
    else:
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning", "ignore::pullback.UnrollWarning")
@pytest.mark.parametrize("function", ROLLED + OTHERS, ids=NAMES)
def test_values(function: Callable[..., Any]) -> None:
    compiled = pb.jit(function)
    for seed in range(2):
        x, y = arguments(seed)
        x_plain, y_plain = x.copy(), y.copy()
        same(function(x_plain, y_plain), compiled(x, y))
        np.testing.assert_array_equal(x, x_plain)


@pytest.mark.parametrize("function", ROLLED, ids=NAMES[: len(ROLLED)])
def test_loops_are_one_of_the_program(function: Callable[..., Any]) -> None:
    explanation = pb.jit(function).explain(*arguments(0))
    assert any(s.how.startswith("rolled") for s in explanation.statements if s.kind == "loop")


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning", "ignore::pullback.UnrollWarning")
@pytest.mark.parametrize("function", ROLLED + OTHERS, ids=NAMES)
def test_gradients(function: Callable[..., Any]) -> None:
    def total(x: Any, y: Any) -> Any:
        result = function(x.copy(), y)
        parts = result if isinstance(result, tuple | list) else (result,)
        return sum(np.sum(np.array(p) * 1.0) * (k + 0.5) for k, p in enumerate(parts))

    x, y = arguments(3)
    step = 1e-6 * np.random.default_rng(1).normal(size=(2, 200))
    difference = (total(x + step[0], y + step[1]) - total(x - step[0], y - step[1])) / 2
    slopes = pb.grad(total, argnums=(0, 1))(x, y)
    np.testing.assert_allclose(np.sum(slopes[0] * step[0]) + np.sum(slopes[1] * step[1]), difference, rtol=2e-5, atol=1e-11)


def test_errors_are_pythons() -> None:
    space: dict[str, Any] = {}
    exec("def f(x, n):\n    for i in range(n):\n        d = x[i]\n    return d", space)
    compiled = pb.jit(space["f"])
    x = np.arange(300.0)
    assert compiled(x, 300) == 299.0
    with pytest.raises(IndexError, match="index 300 is out of bounds for axis 0 with size 300"):
        compiled(x, 301)
    with pytest.raises(UnboundLocalError):
        compiled(x, 0)


def test_lengths_of_arrays_are_those_of_the_call() -> None:
    space: dict[str, Any] = {}
    exec("def f(x):\n    s = 0.0\n    for v in x:\n        s = s * 0.5 + v\n    return s", space)
    compiled = pb.jit(space["f"])
    for n in (0, 1, 2, 50, 600):
        x = np.linspace(0.0, 1.0, n)
        same(space["f"](x), compiled(x))


TRUTHS = """
def flag_of_an_argument(p, q, flag):
    return p * 2 if flag is True else q

def patterns(p, q, flag):
    match (p > q, 1):
        case (True, 1):
            return p
        case (False, _):
            return q
    return p + q

def comparison(p, q, flag):
    c = p > q
    return p if c is False else q

def conversion(p, q, flag):
    x = np.array([p, q])
    if (p > 0) is True and bool(x[1]) is True and any([p > q, flag]) is not False:
        return x.sum()
    return x.min()
"""
exec(compile(TRUTHS, "<another prompt>", "exec"), SPACE)


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
@pytest.mark.parametrize("name", ["flag_of_an_argument", "patterns", "comparison", "conversion"])
def test_truths_are_the_objects_true_and_false(name: str) -> None:
    compiled = pb.jit(SPACE[name])
    for p, q, flag in ((1.0, 2.0, True), (2.0, 1.0, False), (-1.0, 0.0, True), (2.0, 1.0, True)):
        assert compiled(p, q, flag) == SPACE[name](p, q, flag)


def test_a_truth_that_no_guard_decides_is_refused() -> None:
    with pytest.raises(pb.TraceError):
        pb.jit(SPACE["comparison"], guards=False)(1.0, 2.0, True)
    with pytest.raises(pb.TraceError):
        pb.vmap(lambda p: SPACE["comparison"](float(p), 1.0, True))(np.arange(3.0))


PATTERNS = """
def kinds(p):
    match p:
        case bool():
            return 0.0
        case int(x):
            return x + 1.0
        case np.floating():
            return 5.0
        case float(y):
            return y + 2.0
        case np.ndarray():
            return 6.0
        case complex(real=z):
            return z
    return 2.0

def in_a_loop(p):
    t = 0.0
    for i in range(40):
        match p:
            case float():
                t += p * i
            case _:
                t -= 1.0
    return t

def mixed(q, a):
    for x in a:
        if x > 0:
            q = x
    match q:
        case np.floating():
            return 1.0 + q
    return 1.0 / q

def called_too(p):
    match float(p):
        case float(x):
            return x, float(p), isinstance(p, float)

def too_many(p):
    match p:
        case np.float64(x):
            return x
"""


@pytest.mark.parametrize("options", [{}, {"guards": True}, {"loops": "unroll"}])
def test_patterns_of_classes_match_traced_values(options: dict[str, Any]) -> None:
    space: dict[str, Any] = {"np": np}
    exec(PATTERNS, space)
    for p in (1.5, 2, True, np.float64(2.5), np.float32(1.5), np.int64(3), np.arange(3.0), 1.0 + 2.0j):
        for name in ("kinds", "in_a_loop"):
            np.testing.assert_equal(pb.jit(space[name], **options)(p), space[name](p))
    for p in (1.5, np.float64(2.5), 3):
        assert pb.jit(space["called_too"], **options)(p) == space["called_too"](p)
    with pytest.raises(TypeError, match=r"numpy.float64\(\) accepts 0 positional sub-patterns"):
        pb.jit(space["too_many"], **options)(np.float64(1.0))


@pytest.mark.filterwarnings("ignore::pullback.RetraceWarning")
def test_a_pattern_of_a_mixed_number_is_followed() -> None:
    space: dict[str, Any] = {"np": np}
    exec(PATTERNS, space)
    for a in (np.zeros(3), np.array([0.0, -1.0, 2.0])):
        assert pb.jit(space["mixed"])(0.5, a) == space["mixed"](0.5, a)
