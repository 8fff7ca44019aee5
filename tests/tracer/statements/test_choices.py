"""Values that are one of several, as values decide, under `pb.jit(loops="roll")`: None or an array, one of a few texts."""

import enum
import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb

X = np.array([0.5, -0.25, 0.75, 0.125, -1.0, 0.375])
MANY, FEW, NONE = np.int64(6), np.int64(2), np.int64(0)


class Phase(enum.Enum):
    RISING = 1
    FALLING = 2


def smallest(x: Any, n: Any) -> Any:
    """The smallest positive element of the first ones, or None."""
    best = None
    for i in range(n):
        if x[i] > 0.2 and (best is None or x[i] < best):
            best = x[i]
    return best


def pair(x: Any, n: Any) -> Any:
    best = None
    for i in range(n):
        if best is None or x[i] < best[0]:
            best = x[i], i
    return 0.0 if best is None else best[0] * (1 + best[1])


def negated(x: Any, n: Any) -> Any:
    seen = None
    i = 0
    while i < n:
        if seen is not None and not seen < x[i]:
            seen = 0.5 * (seen + x[i])
        elif seen is None and x[i] < 0.6:
            seen = x[i] * 2
        i += 1
    if seen is None:
        return x[0]
    return seen


def found(x: Any, n: Any) -> Any:
    for i in range(n):
        if x[i] > 0.6:
            return x[i] * i
    return None


def states(x: Any, n: Any) -> Any:
    state, total = "open", 0.0
    for i in range(n):
        if state == "open":
            total = total + x[i]
            state = "moving" if total > 0.3 else "open"
        elif state in ("moving", "stuck"):
            total = total - 2 * x[i]
            state = "stuck" if total < 0 else "open"
    return total * (2.0 if state != "stuck" else 3.0)


def phases(x: Any, n: Any) -> Any:
    phase, y = Phase.RISING, x[0]
    while n > 0:
        if phase is Phase.RISING:
            y = y * 1.5
            if y > 2:
                phase = Phase.FALLING
        elif phase == Phase.FALLING:
            y = y * 0.25
        n = n - 1
    return y if phase is not Phase.FALLING else -y


def structures(x: Any, n: Any) -> Any:
    """Dicts, tuples, None and a text."""
    record: Any = None
    for i in range(n):
        if record is None or x[i] > record["value"]:
            record = {"at": i, "value": x[i]}
    return ("none", x[0]) if record is None else ("some", record["value"] * record["at"])


FUNCTIONS: list[Callable[..., Any]] = [smallest, pair, negated, found, states, phases, structures]


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    return a is b if a is None or isinstance(a, enum.Enum) else type(a) is not type(None) and bool(a == b)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("count", [MANY, FEW, NONE, 6, 1])
def test_values(function: Callable[..., Any], count: Any) -> None:
    for x in (X, -X, np.zeros(6)):
        assert equal(function(x, count), pb.jit(function, loops="roll")(x, count))


def total(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of a number, which is 0 where the result is None."""

    def number(x: Any, n: Any) -> Any:
        result = function(x, n)
        if result is None:
            return 0.0 * x[0]
        value = result[1] if isinstance(result, tuple) else result
        return np.sin(value)

    return number


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("count", [MANY, NONE])
def test_gradients(function: Callable[..., Any], count: Any) -> None:
    if function is structures:
        function = lambda x, n: structures(x, n)[1]  # noqa: E731
    number = total(function)
    compiled = pb.jit(number, loops="roll")
    slope = pb.grad(compiled)
    direction = np.array([0.3, -0.7, 0.2, 0.9, -0.4, 0.6])
    along = pb.grad(lambda x: np.sum(slope(x, count) * direction))
    step = 1e-6 * direction
    for x in (X, -X):
        difference = (number(x + step, count) - number(x - step, count)) / 2e-6
        np.testing.assert_allclose(np.sum(slope(x, count) * direction), difference, rtol=1e-6, atol=1e-8)
        second = (slope(x + step, count) - slope(x - step, count)) / 2e-6
        np.testing.assert_allclose(along(x), second, rtol=1e-5, atol=1e-7)


def test_rows_under_vmap() -> None:
    number = total(smallest)
    rows = np.stack([X, -X, np.zeros(6)])
    got = pb.vmap(pb.jit(number, loops="roll"), in_axes=(0, None))(rows, MANY)
    np.testing.assert_array_equal(got, [number(row, MANY) for row in rows])
    with pytest.raises(pb.TraceError):
        pb.vmap(pb.jit(smallest, loops="roll"), in_axes=(0, None))(rows, MANY)


def from_text(text: str, name: str) -> Any:
    namespace: dict[str, Any] = {"np": np}
    file = f"<choices {text}>"
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return namespace[name]


@pytest.mark.parametrize(
    "use",
    ["y + 1.0", "1.0 < y", "np.sin(y)", "y[0]", "-y", "y.sum()", "len(y)", "np.add(y, a)", "y @ a", "a - y", "y == a", "type(y)",
     "isinstance(y, float)", "y is a", "y in (1.0, 2.0)", "bool(y)", "f'{y}'", "np.clip(a, y, None)", "np.sum(a, axis=y)",
     "abs(y)", "not y"],
)  # fmt: skip
def test_an_operation_on_what_may_be_none_is_pythons_or_refused(use: str) -> None:
    for value in ("a", "np.float64(c)", "(a, c)"):
        function = from_text(f"def f(a, c):\n    y = None\n    if c > 0:\n        y = {value}\n    return {use}\n", "f")
        for c in (1.0, -1.0):
            try:
                want = function(np.ones(2), c)
            except Exception as error:
                want = error
            try:
                got = pb.jit(function, guards=False)(np.ones(2), c)
            except pb.TraceError:
                continue
            except Exception as error:
                got = error
            if isinstance(want, Exception):
                assert type(got) is type(want)
                assert str(got) == str(want) or use == "1.0 < y"
            else:
                np.testing.assert_equal(got, want)


def test_none_as_a_number_raises_at_the_line() -> None:
    function = from_text("def f(a, c):\n    y = None\n    if c > 0:\n        y = a\n    return y * 2\n", "f")
    compiled = pb.jit(function, loops="roll")
    assert compiled(1.5, 1.0) == 3.0
    with pytest.raises(TypeError, match="unsupported operand") as caught:
        compiled(1.5, -1.0)
    assert ":5" in str(caught.value.__notes__)


def test_a_test_that_proves_the_value_costs_no_check() -> None:
    function = from_text(
        "def f(a, c):\n    y = None\n    if c > 0:\n        y = a\n"
        "    if y is None or y > 3:\n        return 0.0\n    return y * 2\n", "f"
    )
    assert " check " not in str(pb.jit(function, loops="roll").stages(1.5, 1.0))
