"""Bad input: each is one error at the user's own file and line that says what was met and what to write instead.

The line at which an error must point carries the comment ``# here``.
"""

import inspect
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir import OPS
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.tracer.arrays.ufuncs import call_op
from pullback.tracer.user_code.source import shown

Array = Any
X = np.linspace(0.1, 0.7, 4)


def unrolled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a compiled function that refuses branches on values."""
    return pb.jit(function, loops="unroll")


def marked_line(function: Callable[..., Any]) -> tuple[str, int]:
    """The file and line of a function's source that ends in ``# here``."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [k for k, line in enumerate(lines) if line.rstrip().endswith("# here")]
    return inspect.getsourcefile(function) or "", first + offset


def refused(function: Callable[..., Any], *args: Any, words: str, transform: Any = pb.jit, position: Any = None) -> pb.TraceError:
    """The TraceError of a call; checks that it is at the marked line and has the words, and that the next trace is not hurt."""
    with pytest.raises(pb.TraceError) as caught:
        transform(function)(*args)
    error = caught.value
    assert (error.file, error.line) == marked_line(position or function), error
    assert str(error).startswith(f"{shown(error.file)}:{error.line}: ")
    for word in words.split("|"):
        assert word in str(error), error
    np.testing.assert_array_equal(pb.jit(lambda x: x + 1)(X), X + 1)
    return error


# arguments


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (np.array([1, None, "a"]), "argument x of dtype object|numbers"),
        (np.array(["a", "b"]), "argument x of dtype <U1"),
        (np.array(["2020-01-01"], "M8[D]"), "argument x of dtype datetime64[D]"),
        (np.array([1], "m8[s]"), "argument x of dtype timedelta64[s]"),
        (np.array([b"a"]), "argument x of dtype |S1"),
        (np.zeros(2, [("a", "f8")]), "argument x of dtype [('a', '<f8')]"),
        (np.zeros(2, np.longdouble), "float64"),
        (np.zeros(2, np.clongdouble), "complex128"),
        (np.ma.masked_array([1.0, 2.0]), "MaskedArray|np.asarray"),
        (np.ones((1, 1)).view(np.matrix), "matrix|np.asarray"),
        ([np.zeros(2), np.array([None])], "argument x[1] of dtype object"),
        ({"a": np.array(["b"])}, "argument x['a'] of dtype <U1"),
    ],
)
def test_arguments_that_are_not_numbers(argument: Any, words: str) -> None:
    def call(x: Any) -> None:
        pb.jit(lambda x: x)(x)  # here

    with pytest.raises(pb.TraceError) as caught:
        call(argument)
    assert (caught.value.file, caught.value.line) == marked_line(call)
    for word in words.split("|") if "|S1" not in words else [words]:
        assert word in str(caught.value)


def test_a_subclass_is_refused_after_an_array_was_taken() -> None:
    f = pb.jit(lambda x: x * 2)
    f(np.ones((1, 1)))
    with pytest.raises(pb.TraceError, match="matrix"):
        f(np.ones((1, 1)).view(np.matrix))


def test_an_outside_value_that_is_never_the_same() -> None:
    class Fickle:
        def __getattr__(self, name: str) -> Any:
            return object()

    fickle = Fickle()

    def f(x: Array) -> Array:
        return x if fickle.table is None else x * 2

    with pytest.raises(pb.TraceError, match=r"<Fickle>.table from outside.*another object"):
        pb.jit(f)(X)


def test_arguments_without_a_hash() -> None:
    def call() -> None:
        pb.jit(lambda x, s: x)(X, bytearray(b"a"))  # here

    with pytest.raises(pb.TraceError, match="bytearray cannot be a static argument") as caught:
        call()
    assert (caught.value.file, caught.value.line) == marked_line(call)


def test_ragged_lists_and_strings_met_inside() -> None:
    def ragged(x: Array) -> Array:
        return x + np.array([[1.0], [1.0, 2.0]])

    with pytest.raises(ValueError, match="inhomogeneous"):
        pb.jit(ragged)(X)

    def ragged_traced(x: Array) -> Array:
        return np.array([x, x[:2]])

    with pytest.raises((pb.TraceError, ValueError)):
        pb.jit(ragged_traced)(X)

    def text(x: Array) -> Array:
        return x + np.array(["a", "b", "c", "d"])  # here

    refused(text, X, words="<U1")

    def objects(x: Array) -> Array:
        return x * np.array([None, 1, 2, 3])  # here

    refused(objects, X, words="object")


# what would need a value


def test_a_branch() -> None:
    def branch(x: Array) -> Array:
        if x[0] > 0:  # here
            return x
        return -x

    refused(branch, X, transform=unrolled, words="a Python branch (if)|return np.where(x[0] > 0, x, -x)")

    def loop(x: Array) -> Array:
        while np.sum(x) < 10.0:  # here
            x = x * 2
        return x

    refused(loop, X, transform=unrolled, words="a Python branch")

    def chained(x: Array) -> Array:
        return 1 if 0 < x[0] < 1 else 0  # here

    refused(chained, X, transform=unrolled, words="np.where((0 < x[0]) & (x[0] < 1), 1, 0)")


def test_a_branch_in_a_helper_is_reported_there() -> None:
    def helper(x: Array) -> Array:
        return x if x.sum() > 0 else -x  # here

    def caller(x: Array) -> Array:
        return helper(x) + 1

    refused(caller, X, words="a Python branch", transform=unrolled, position=helper)


def test_conversions() -> None:
    def to_float(x: Array) -> Array:
        return x * next(map(float, x))  # here

    refused(to_float, X, words="float()")

    def to_int(x: Array) -> Array:
        return x * next(map(int, x))  # here

    refused(to_int, X, words="int()")

    def to_index(x: Array, n: Array) -> Array:
        return sum(x[i] for i in range(n))  # here

    refused(to_index, X, np.array(3), transform=unrolled, words="range|static_argnames")

    def to_text(x: Array) -> Any:
        return len(f"{x.sum():.3f}")  # here

    refused(to_text, X, words="a format of a traced value")

    def to_format(x: Array) -> Array:
        print(f"{x.sum():.3f}")  # here
        return x

    refused(to_format, X, transform=lambda f: pb.jit(f, effects="trace"), words="print")


def test_a_shape_that_depends_on_data() -> None:
    np.testing.assert_array_equal(pb.jit(lambda x: x[x > 0.3])(X), X[X > 0.3])
    np.testing.assert_array_equal(pb.jit(lambda x: np.nonzero(x)[0])(X), np.nonzero(X)[0])
    np.testing.assert_array_equal(pb.jit(np.unique)(X), np.unique(X))
    np.testing.assert_allclose(pb.jit(lambda x, n: np.zeros(n) + x.sum())(X, np.array(3)), np.full(3, X.sum()))


def test_functions_that_cannot_be_traced() -> None:
    def text(x: Array) -> Array:
        return np.array2string(x)  # here

    refused(text, X, words="array2string")

    def draw(x: Array) -> Array:
        return x + np.random.normal(size=4)  # here

    refused(draw, X, words="random|argument")


# state


def test_a_traced_value_after_its_trace() -> None:
    queue: SimpleQueue[Any] = SimpleQueue()

    def keep(x: Array) -> Array:
        queue.put(x * 2)
        return x

    pb.jit(keep)(X)
    kept = queue.get()

    def use() -> Any:
        return kept + 1  # here

    with pytest.raises(pb.TraceError, match=r"traced value used after its trace") as caught:
        use()
    assert (caught.value.file, caught.value.line) == marked_line(use)

    def use_in_another(x: Array) -> Array:
        return x + kept  # here

    refused(use_in_another, X, words="after its trace")


# gradients


def test_results_that_have_no_gradient() -> None:
    def vector(x: Array) -> Array:
        return x * 2  # here

    refused(vector, X, words="shape (4,)|.sum()", transform=pb.grad)

    def integer(x: Array) -> Array:
        return np.argmax(x)  # here

    refused(integer, X, words="int64|float", transform=pb.grad)

    def call_pair(x: Array) -> Any:
        return pb.grad(lambda x: (x.sum(), x))(x)  # here

    with pytest.raises(pb.TraceError, match=r"tuple(?s:.)*has_aux"):
        call_pair(X)

    def call_no_aux(x: Array) -> Any:
        return pb.grad(lambda x: x.sum(), has_aux=True)(x)

    with pytest.raises(pb.TraceError, match=r"has_aux(?s:.)*pair"):
        call_no_aux(X)


@pytest.mark.parametrize(
    ("argument", "words"),
    [(np.arange(3), "int64"), (3, "a Python int"), (np.array([True]), "bool"), ((1.0, 2), "argument x[1]")],
)
def test_arguments_that_have_no_gradient(argument: Any, words: str) -> None:
    def call(x: Any) -> None:
        pb.grad(lambda x: np.sum(x[0] * 2.0))(x)  # here

    with pytest.raises(pb.TraceError) as caught:
        call(argument)
    assert (caught.value.file, caught.value.line) == marked_line(call)
    assert words in str(caught.value) and "float" in str(caught.value)


def test_arguments_that_are_not_there() -> None:
    f = pb.grad(lambda x: x * 2.0, argnums=1)
    with pytest.raises(pb.TraceError, match="argnums 1, but the call has 1"):
        f(1.0)
    with pytest.raises(pb.TraceError, match="argnames 'y'"):
        pb.grad(lambda x: x * 2.0, argnames="y")(1.0)
    with pytest.raises(pb.TraceError, match="twice"):
        pb.grad(lambda x: x * 2.0, argnums=(0, -1))(1.0)


def test_an_op_without_a_rule() -> None:
    ruleless = Elementwise(name="ruleless", reference=np.sinh, llvm="recipe")
    try:

        def wants(x: Array) -> Array:
            return np.sum(call_op(ruleless, x) * 2)  # here

        refused(wants, X, words="no gradient rule|ruleless", transform=pb.grad)

        def does_not_want(x: Array) -> Array:
            return np.sum(x**2) + (call_op(ruleless, x) > 0).sum()

        np.testing.assert_allclose(pb.grad(does_not_want)(X), 2 * X)
    finally:
        del OPS["ruleless"]


# errors of NumPy and of compiled code


def test_numpys_own_errors_are_numpys() -> None:
    def shapes(x: Array) -> Array:
        return x + np.ones(3)

    for function, kind in (
        (shapes, ValueError),
        (lambda x: x @ np.ones((3, 2)), ValueError),
        (lambda x: x.reshape(3, 3), ValueError),
        (lambda x: np.sum(x, axis=2), ValueError),
        (lambda x: x[7], IndexError),
        (lambda x: np.concatenate([x, x[None]]), ValueError),
        (lambda x: x.absent, AttributeError),
        (lambda x: np.zeros(4, int) ** -1 + x, ValueError),
        (lambda x: np.left_shift(x, 1), TypeError),
    ):
        with pytest.raises(kind):
            function(X)
        with pytest.raises(kind) as caught:
            pb.jit(function)(X)
        assert __file__ in {frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)}


def test_a_check_in_compiled_code_names_the_line() -> None:
    def pick(x: Array, i: Array) -> Array:
        return x * 2 + x[i]  # here

    compiled = pb.jit(pick)
    np.testing.assert_array_equal(compiled(X, 3), pick(X, 3))
    for i in (4, -5, np.array([0, 9, 1, 2])):
        with pytest.raises(IndexError) as caught:
            compiled(X, i)
        file, line = marked_line(pick)
        assert any(f"{shown(file)}:{line}" in note for note in caught.value.__notes__)
    np.testing.assert_array_equal(compiled(X, -1), pick(X, -1))

    def power(x: Array, n: Array) -> Array:
        return x**n  # here

    whole = np.arange(4)
    np.testing.assert_array_equal(pb.jit(power)(whole, 2), whole**2)
    with pytest.raises(ValueError, match="negative") as raised:
        pb.jit(power)(whole, -2)
    file, line = marked_line(power)
    assert any(f"{shown(file)}:{line}" in note for note in raised.value.__notes__)


def test_the_first_failure_wins() -> None:
    def two(x: Array, i: Array, n: Array) -> Array:
        return x[i], n ** (i - 9)

    compiled = pb.jit(two)
    with pytest.raises(IndexError):
        compiled(X, 7, np.arange(3))
    with pytest.raises(ValueError, match="negative"):
        compiled(X, 2, np.arange(3))


def test_a_check_of_a_shared_template_names_its_own_line() -> None:
    def first(x: Array, i: Array) -> Array:
        return x[i]

    def second(x: Array, i: Array) -> Array:
        return x[i]  # here

    with pytest.raises(IndexError):
        pb.jit(first)(X, 9)
    with pytest.raises(IndexError) as caught:
        pb.jit(second)(X, 9)
    file, line = marked_line(second)
    assert caught.value.__notes__ == [f"  at {shown(file)}:{line}, in compiled code: return x[i]  # here"]
