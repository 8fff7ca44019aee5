"""Ints and bools among the arguments: traced like any number, and static from the point where their value is needed."""

import ast
import dataclasses
import math
import re
import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import scipy.signal
import scipy.special

import pullback as pb
from pullback.tracer import trace
from tests.support.api import traces
from tests.tables.surface import ARGUMENTS, SECTIONS, Tried, function_of, read, refused

X = np.arange(1.0, 6.0)
Call = Callable[..., Any]


def same(result: Any, expected: Any) -> None:
    if isinstance(expected, list | tuple):
        assert len(result) == len(expected)
        for f, e in zip(result, expected, strict=True):
            same(f, e)
        return
    if isinstance(expected, str):
        assert result == expected
        return
    assert np.shape(result) == np.shape(expected)
    np.testing.assert_allclose(result, expected, rtol=1e-13)


@dataclasses.dataclass
class Options:
    count: int
    is_short: bool


def branches(n: int) -> Any:
    if n > 3:
        return "many"
    return "two" if n == 2 else "few"


# The value itself is needed: one program for each value.
STATIC: list[Call] = [
    lambda x, n: sum((x * k for k in range(n)), 0.0),
    lambda x, n: x[: n + 1].reshape(1, n + 1),
    lambda x, n: np.zeros(n) + x[0],
    lambda x, n: np.ones((n, 2)) * x[0],
    lambda x, n: x[:n],
    lambda x, n: x[n:][::-1],
    lambda x, n: x**n,
    lambda x, n: np.power(x, n),
    lambda x, n: (x.sum(), branches(n)),
    lambda x, n: x if n else -x,
    lambda x, n: [x[0]] * n,
    lambda x, n: (x, f"{n}", str(n + 1)),
    lambda x, n: x * {1: 0.5, 2: 1.5, 3: 2.5}[n],
    lambda x, n: x * [5.0, 6.0, 7.0, 8.0][n],
    lambda x, n: x * (n if n in (1, 2) else 7),
    lambda x, n: x * math.factorial(n),
    lambda x, n: np.repeat(x, n),
    lambda x, n: np.sum(x.reshape(5, 1), axis=n - 1 if n < 3 else 0),
    lambda x, n: x * n.bit_length(),
    lambda x, n: 2**n * x + n**-1,
    lambda x, n: x * (n if n % 2 else n // 2),
    lambda x, n: pb.grad(lambda v: np.sum(v**n))(x),
]

# Those that reach NumPy or SciPy where they need the number: among other numbers, in keywords, functions that are not followed.
STATIC += [
    lambda x, n: np.pad(x, (n, 1)),
    lambda x, n: np.pad(x, ((n, n),), mode="edge"),
    lambda x, n: np.partition(x, n),
    lambda x, n: np.resize(x, n + 4),
    lambda x, n: np.hanning(n + 3) * x[0],
    lambda x, n: scipy.linalg.hilbert(n) * x[0],
    lambda x, n: scipy.signal.get_window("hann", n) * x[0],
    lambda x, n: np.mgrid[0:n] * x[0],
    lambda x, n: np.tile(np.diag(x), n)[np.mask_indices(4, np.triu, n)],
    lambda x, n: scipy.ndimage.gaussian_filter1d(x, 1.0, radius=n),
    lambda x, n: scipy.ndimage.gaussian_filter1d(x**2, 1.0, order=n) + 1,
    lambda x, n: scipy.ndimage.uniform_filter(x, size=n),
    lambda x, n: scipy.signal.savgol_filter(x, 2 * n - 1, 0, mode="nearest"),
    lambda x, n: scipy.special.multigammaln(x + 3, n),
    lambda x, n: scipy.special.jvp(1, x, n),
]

# Only arithmetic: one program.
TRACED: list[Call] = [
    lambda x, n: x * n,
    lambda x, n: x[n],
    lambda x, n: (x + n // 2, n * 3, n % 2 == 0),
    lambda x, n: np.where(n > 2, x, -x),
    lambda x, n: np.roll(x, n),
    lambda x, n: np.arange(1, 6) ** n,
    lambda x, n: x.sum() * np.sqrt(n),
    lambda x, n: np.full(3, n),
    lambda x, n: x * max(n, 2),
]


@pytest.mark.parametrize("function", STATIC)
def test_a_value_that_is_asked_for_is_static(function: Call) -> None:
    compiled = pb.jit(function)
    expected = {n: function(X, n) for n in (1, 2, 3)}
    before = traces()
    for n in (1, 2, 3, 2, 1):
        same(compiled(X, n), expected[n])
    assert traces() - before == 3


@pytest.mark.parametrize("function", TRACED)
def test_a_value_that_is_not_asked_for_is_traced(function: Call) -> None:
    compiled = pb.jit(function)
    before = traces()
    for n in (1, 2, 3, 4):
        same(compiled(X, n), function(X, n))
    assert traces() - before == 1


def test_bools_branch() -> None:
    def function(x: Any, flag: bool, *, options: Options) -> Any:
        if not flag:
            x = -x
        return x[: options.count] if options.is_short else x * options.count

    compiled = pb.jit(function)
    for flag in (True, False, np.True_):
        for options in (Options(2, True), Options(3, True), Options(3, False)):
            same(compiled(X, flag, options=options), function(X, flag, options=options))  # type: ignore[arg-type]


def test_containers_and_numpy_scalars() -> None:
    def function(x: Any, options: Any) -> Any:
        return x[: options["sizes"][1]] * options["scale"]

    compiled = pb.jit(function)
    before = traces()
    for size in (2, 3, np.int64(3), np.int64(4), 2):
        for scale in (1, 5):
            options = {"sizes": [0, size], "scale": scale}
            same(compiled(X, options), function(X, options))
    assert traces() - before == 4
    (pinned,) = trace(function, (X, {"sizes": [0, 2], "scale": 1})).pinned
    assert (pinned.index, pinned.describe, pinned.value) == (2, "options['sizes'][1]", 2)
    assert (pinned.loc.file, pinned.loc.line) == (__file__, function.__code__.co_firstlineno + 1)


def test_the_static_argument_depends_on_the_path() -> None:
    def function(x: Any, n: int, m: int) -> Any:
        return x[:m] if n == 1 else x * m

    compiled = pb.jit(function)
    before = traces()
    for n, m in ((1, 2), (1, 3), (2, 4), (2, 5), (1, 2), (2, 9)):
        same(compiled(X, n, m), function(X, n, m))
    assert traces() - before == 3


def test_gradients_and_methods() -> None:
    class Model:
        @pb.value_and_grad
        def loss(self, w: Any, steps: int) -> Any:
            for _ in range(steps):
                w = w * 2
            return np.sum(w)

    for steps in (1, 3):
        value, slope = Model().loss(X, steps)
        same((value, slope), (X.sum() * 2**steps, np.full(5, 2.0**steps)))


def test_floats_are_never_static() -> None:
    with pytest.raises(pb.TraceError, match="a Python branch"):
        pb.jit(lambda x, lam: x if lam > 0 else -x, loops="unroll")(X, 2.0)
    compiled = pb.jit(lambda x, lam: x if lam > 0 else -x)
    same((compiled(X, 2.0), compiled(X, -2.0)), (X, -X))


def test_python_numbers_and_sequences() -> None:
    """An int and a list give Python's result, not NumPy's."""

    def concatenated(n: int) -> Any:
        return n + [1, 2]  # type: ignore[operator]

    with pytest.raises(TypeError, match="unsupported operand"):
        pb.jit(concatenated)(3)
    with pytest.raises(TypeError, match="integer"):
        pb.jit(lambda lam: lam * [1, 2])(0.5)


def test_ints_that_leave_int64_are_static() -> None:
    def function(x: Any, n: int) -> Any:
        return x * (n * 2**62 % 97) + x[: n**70 % 3 + 4].sum()

    compiled = pb.jit(function)
    for n in (4, 5, 1, 4):
        same(compiled(X, n), function(X, n))


def test_what_python_raises_for_numbers_is_raised() -> None:
    for function in (lambda n: 3 // n, lambda n: 3 % n, lambda n: 1.5 / n, lambda n: n**-1):
        with pytest.raises(ZeroDivisionError):
            pb.jit(function)(0)
        same(pb.jit(function)(2), function(2))


def test_many_values_warn_once() -> None:
    @pb.jit
    def function(x: Any, n: int) -> Any:
        return sum((x for _ in range(n)), 0.0)  # needs the value of n

    def calls(count: int) -> list[Any]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for n in range(count):
                function(X, n)
        return caught

    assert not calls(16)
    (warning,) = calls(40)
    line = function.__wrapped__.__code__.co_firstlineno + 2
    assert warning.category is pb.RetraceWarning and warning.filename == __file__
    assert re.search(rf"each value of n \(asked for at \S*test_static_ints.py:{line}\)", str(warning.message))


class Window:
    def __init__(self, n: Any) -> None:
        self.n = n

    def __len__(self) -> Any:
        return self.n

    def __bool__(self) -> Any:
        return self.n > 2

    def __index__(self) -> Any:
        return self.n


def test_special_methods_give_python_numbers() -> None:
    def function(x: Any, n: int) -> Any:
        window = Window(n)
        return x[:window] if window else x * len(window)

    compiled = pb.jit(function)
    for n in (1, 3, 4, 1):
        same(compiled(X, n), function(X, n))


class _Ints(ast.NodeTransformer):
    """Puts names in the place of the ints of a call."""

    def __init__(self) -> None:
        self.values: list[int] = []

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int:
            return node
        self.values.append(node.value)
        return ast.Name(f"int{len(self.values) - 1}")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
                return self.visit_Constant(ast.Constant(-value))
        return self.generic_visit(node)  # type: ignore[return-value]


# Their ints are data, on whose values the shape of the result depends.
OF_DATA = {"nonzero", "argwhere", "bincount", "unique", "union1d", "setxor1d", "intersect1d", "setdiff1d"}


def accepted_as_arguments(tried: Tried, text: str) -> bool | None:
    """Whether a call is accepted with its ints as arguments; None if there are none, or it is not accepted as it is."""
    if ";" in text or "\\n" in text:
        return None
    ints = _Ints()
    written = ast.unparse(ast.fix_missing_locations(ints.visit(ast.parse(text, mode="eval"))))
    if not ints.values or refused(text, compiled=False):
        return None
    names = [name for name in ARGUMENTS if re.search(rf"\b{name}\b", written)]
    built = dict(function_of(text)[0].__globals__)
    exec(f"def call({', '.join([*names, *(f'int{k}' for k in range(len(ints.values)))])}):\n    return {written}\n", built)
    try:
        trace(built["call"], (*(ARGUMENTS[name] for name in names), *ints.values))
    except (pb.TraceError, TypeError, ValueError):
        return False
    return True


def ints_of(section: str, share: int) -> int:
    """Count the calls of a section that are accepted with their ints as arguments; all calls that were tried must be."""
    count = 0
    for tried in read(section).values():
        for text in tried.texts() if tried.name not in OF_DATA else ():
            if zlib.crc32(text.encode()) % share == 1 % share:
                outcome = accepted_as_arguments(tried, text)
                assert outcome is not False, text
                count += outcome is not None
    return count


@pytest.mark.parametrize("section", SECTIONS)
def test_ints_of_calls_may_be_arguments(section: str) -> None:
    ints_of(section, 6)


@pytest.mark.long
def test_ints_of_all_calls_may_be_arguments() -> None:
    assert sum(ints_of(section, 1) for section in SECTIONS) > 1000
