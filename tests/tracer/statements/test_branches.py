"""Python's own branches on traced values under `pb.jit(loops="roll")`: values, gradients, writes, errors, refusals."""

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb


def rolled(function: Callable[..., Any]) -> Callable[..., Any]:
    return pb.jit(function, loops="roll")


def strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose branches are compiled, or refused."""
    return pb.jit(function, loops="roll", guards=False)


def clamp(x: float) -> Any:
    if x > 1:
        return 1.0 * x * x
    elif x < -1:
        return -x
    return 0.5 * x


def saturated(x: Any) -> Any:
    y = 2 * x
    if y > 3:
        y = 3.0
    elif y < 0 and not x < -5:
        y = y * 0.1
    return y


def nested(x: Any, y: Any) -> Any:
    result = 0.0
    if x > 0:
        if y > 0:
            result = x * y
        else:
            result = x - y if 0 < x <= 2 else x + y
    else:
        if y > x or y < -3:
            return result - x
        result = y
    return result * 2


def by_row(x: Any) -> Any:
    out = np.zeros(4)
    for i in range(4):
        if x[i] > 0:
            out[i] = x[i] ** 2
        else:
            out[i] = -x[i]
    return np.sum(out * x)


CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (clamp, [(2.0,), (-3.0,), (0.3,)]),
    (saturated, [(1.0,), (2.5,), (-1.0,), (-6.0,)]),
    (nested, [(1.0, 2.0), (1.0, -2.0), (3.0, -1.0), (-1.0, 0.5), (-1.0, -2.0), (-1.0, -4.0)]),
    (by_row, [(np.array([1.0, -2.0, 3.0, -0.5]),), (np.array([-1.0, 2.0, -3.0, 0.5]),)]),
]


@pytest.mark.parametrize(("function", "calls"), CASES)
def test_values_and_gradients(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> None:
    compiled, slope = rolled(function), pb.grad(rolled(function))
    second = pb.grad(lambda *arguments: np.sum(slope(*arguments)))
    for arguments in calls:
        assert compiled(*arguments) == function(*arguments)
        step = 1e-6 * np.ones(np.shape(arguments[0]))
        (x, *rest) = arguments
        difference = (function(x + step, *rest) - function(x - step, *rest)) / 2e-6
        np.testing.assert_allclose(np.sum(slope(*arguments)), difference, rtol=1e-6, atol=1e-8)
        around = (np.sum(slope(x + step, *rest)) - np.sum(slope(x - step, *rest))) / 2e-6
        np.testing.assert_allclose(np.sum(second(*arguments)), around, rtol=1e-5, atol=1e-7)
    assert compiled.cache_info().compiles <= 2  # type: ignore[attr-defined]


def test_a_side_that_is_not_taken_neither_fails_nor_gives_nan() -> None:
    @rolled
    def root(x: Any, y: Any) -> Any:
        return np.sqrt(x) if x > 0 else 0.0 * x

    assert pb.grad(root)(-1.0, 0.0) == 0

    @rolled
    def row(x: Any, k: int) -> Any:
        return x[k] if 0 <= k < 3 else -1.0

    assert [row(np.arange(3.0), k) for k in (0, 2, 3, 100, -1)] == [0, 2, -1, -1, -1]


BOUNDED = """
def bounded(x, n):
    if not 0 < x < 10:
        raise ValueError("x is out of range")
    assert n != 5, "five"
    return x * n
"""


def from_text(text: str, name: str) -> Callable[..., Any]:
    """Return a function of a text that a line cache has; pytest rewrites assertions, and a test's source is not its code's."""
    file = f"<test {hash(text)}>"
    namespace: dict[str, Any] = {"np": np, "pb": pb}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    function: Callable[..., Any] = namespace[name]
    return function


def test_checks_raise_what_python_raises() -> None:
    bounded = rolled(from_text(BOUNDED, "bounded"))
    assert bounded(2.0, 3) == 6
    with pytest.raises(ValueError, match="x is out of range"):
        bounded(-1.0, 3)
    with pytest.raises(AssertionError, match="five"):
        bounded(1.0, 5)


def test_joined_scalars_are_not_arrays() -> None:
    """An augmented assignment rebinds one name of a scalar, and not the others."""

    def magnitude(x: Any) -> Any:
        z = x if x >= 0 else -x
        s = z
        s += 1.0
        return z, s

    def counts(x: Any) -> Any:
        count, total, seen = 0, 0.0, []
        for v in x:
            if v > 0:
                count += 1
                total += v
            seen.append((count, total))
        return seen

    x = np.array([0.3, -1.0, 2.0])
    assert rolled(magnitude)(-2.0) == magnitude(-2.0)
    assert rolled(counts)(x) == counts(x)


def test_an_exception_keeps_its_text() -> None:
    @rolled
    def look_up(x: float) -> Any:
        if x > 1:
            raise KeyError("large")
        if x < -1:
            raise RuntimeError
        return x

    assert look_up(0.5) == 0.5
    with pytest.raises(KeyError) as caught:
        look_up(2.0)
    assert caught.value.args == ("large",)
    with pytest.raises(RuntimeError):
        look_up(-2.0)


def test_writes_into_arguments_are_in_their_branch() -> None:
    @rolled
    def update(x: Any, c: float) -> Any:
        first = x[:2]
        if c > 0:
            x[0] = c
            first[1] = 2 * c
        return x.sum()

    for c, after in ((3.0, [3.0, 6.0, 1.0]), (-3.0, [1.0, 1.0, 1.0])):
        x = np.ones(3)
        assert update(x, c) == sum(after)
        assert x.tolist() == after


def test_a_returned_argument_has_the_contents_of_its_path() -> None:
    @rolled
    def choose(x: Any, c: float) -> Any:
        x[0] = 5.0
        if c > 0:
            x[1] = c
            return x, c
        return x, -c

    x = np.zeros(2)
    assert choose(x, 2.0)[0].tolist() == [5.0, 2.0]
    assert choose(x, -2.0)[1] == 2.0


def test_sums_in_place_of_chosen_numbers_make_new_ones() -> None:
    @rolled
    def counts(x: Any) -> Any:
        count, seen = 0, []
        for v in x:
            if v > 1:
                count += 1
            seen = [*seen, count]
        first = count if x[0] > 0 else 2 * count
        second = first
        second += 1
        return np.array(seen), first, second

    seen, first, second = counts(np.array([1.0, 2.0, 3.0, 0.5]))
    assert seen.tolist() == [0, 1, 2, 2]
    assert (first, second) == (2, 3)


@pytest.mark.parametrize("written", ["a", "b"])
@pytest.mark.parametrize("returned", ["a", "b"])
def test_a_write_is_seen_under_the_other_name_of_an_array(written: str, returned: str) -> None:
    function = from_text(f"def f(a, c):\n    b = a if c > 0 else 2 * a\n    {written}[0] = 1.0\n    return {returned}\n", "f")
    for c in (1.0, -1.0):
        own, other = np.full(2, 3.0), np.full(2, 3.0)
        assert np.array_equal(strict(function)(own, c), function(other, c))
        assert np.array_equal(own, other)


@pytest.mark.parametrize(
    "body",
    [
        "b = [a]\n    if c > 0:\n        b.append(c)\n    return b[-1]",
        "b, d = [a], [2 * a]\n    e = b if c > 0 else d\n    e[0] = c\n    return b[0]",
        "b = d = [a]\n    if c > 0:\n        b = [2 * a]\n    b[0] = c\n    return d[0]",
        "b = d = [a]\n    while c > 2:\n        c = c - 1\n        b = [2 * b[0]]\n    b[0] = c\n    return d[0]",
        "if c > 0:\n        return a\n    return c",
        "it = iter([1, 2])\n    return a * next(it) if c > 0 else a",
    ],
)
def test_what_has_no_common_meaning_is_refused(body: str) -> None:
    function = from_text(f"def f(a, c):\n    {body}\n", "f")
    with pytest.raises(pb.TraceError, match="branch"):
        strict(function)(np.zeros(2), 1.0)


def test_the_error_says_why_it_was_not_rolled() -> None:
    @strict
    def pair(x: Any) -> Any:
        if x > 0:
            return abs
        return x

    with pytest.raises(pb.TraceError, match="a Python branch") as caught:
        pair(1.0)
    assert "not rolled: what is returned has other structures" in str(caught.value)


def test_a_recursion_that_values_end_is_refused() -> None:
    def factorial(n: Any) -> Any:
        return 1.0 if n <= 1 else n * factorial(n - 1)

    with pytest.raises(pb.TraceError, match="branch"):
        strict(factorial)(5.0)


def test_helpers_methods_and_lambdas_are_followed() -> None:
    class Gate:
        def __init__(self, level: float) -> None:
            self.level = level

        def open(self, x: Any) -> Any:
            if x > self.level:
                return x
            return 0.0

    gate = Gate(0.5)
    relu = lambda x: x if x > 0 else 0.0  # noqa: E731

    @rolled
    def f(x: Any) -> Any:
        return gate.open(x) + relu(x)

    assert [f(v) for v in (1.0, 0.25, -1.0)] == [2.0, 0.25, 0.0]


def test_rows_of_a_batch_choose_for_themselves() -> None:
    x = np.array([2.0, -3.0, 0.3])
    np.testing.assert_array_equal(pb.vmap(rolled(clamp))(x), [clamp(v) for v in x])
    np.testing.assert_allclose(pb.vmap(pb.grad(rolled(clamp)))(x), [4.0, -1.0, 0.5])


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="loops='other'"):
        pb.jit(clamp, loops="other")  # type: ignore[call-overload]
    for options in ({}, {"guards": False}, {"loops": "roll", "guards": True}):
        assert [pb.jit(clamp, **options)(x) for x in (3.0, -2.0, 0.5)] == [9.0, 2.0, 0.25]
    with pytest.raises(pb.TraceError, match="a Python branch"):
        pb.jit(clamp, loops="unroll")(1.0)


def test_a_value_that_two_frames_read_is_one_capture() -> None:
    @pb.jit
    def f(x: Any, c: float) -> Any:
        def body(i: Any, s: Any) -> Any:
            a = x.copy()
            return pb.cond(c > 0, lambda: a + x + s, lambda: a * x - s)

        return pb.fori_loop(0, 3, body, np.zeros(3))

    np.testing.assert_array_equal(f(np.arange(3.0), 1.0), 6 * np.arange(3.0))


def forks(count: int, at_end: str) -> Any:
    """Return a function of branches of which each side may leave, one after another."""
    lines = ["def f(x, y):", "    t = x", "    for i in range(3):"]
    for k in range(count):
        lines += [f"        if x > {k}:", "            t = t * 1.5", f"            if y * t > {10 * k + 7}:"]
        lines += ["                " + ("return t" if k % 3 else at_end), "        t = t + y"]
    return from_text("\n".join([*lines, "    return t - 1.0", ""]), "f")


@pytest.mark.parametrize("at_end", ["break", "continue", "return -t"])
@pytest.mark.parametrize("count", [2, 5, 16])
def test_what_follows_branches_that_may_leave_is_traced_once(count: int, at_end: str) -> None:
    function = forks(count, at_end)
    compiled = rolled(function)
    for x in (-1.0, 0.5, 2.5, 20.0):
        for y in (-1.0, 0.3, 2.0):
            assert compiled(x, y) == function(x, y)
            difference = (function(x + 1e-6, y) - function(x - 1e-6, y)) / 2e-6
            np.testing.assert_allclose(pb.grad(compiled)(x, y), difference, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "body",
    [
        "while (y := x / 2) > 0.1 and y < 50:\n        x = y\n        c = c + y\n    return x + c * y",
        "if not (d := x * c) > 1:\n        return d\n    if (e := d * 2) is None or e > 5:\n        return e\n"
        "    return d if (g := e - d) < 3 else g",
        "if (y := x * c) > 1 and y < 5:\n        return y * y\n    return x + y",
        "v = [y for k in range(3) if (y := x * k) is not None]\n    return v[1] * y if x > 1 else v[2] + y",
    ],
)  # fmt: skip
def test_names_bound_in_expressions(body: str) -> None:
    function = from_text(f"def f(x, c):\n    {body}\n", "f")
    for x, c in ((9.0, 0.2), (2.0, 0.9), (2.0, 4.0), (0.3, 0.3)):
        assert rolled(function)(x, c) == function(x, c)
        difference = (function(x + 1e-6, c) - function(x - 1e-6, c)) / 2e-6
        np.testing.assert_allclose(pb.grad(rolled(function))(x, c), difference, rtol=1e-6, atol=1e-8)
