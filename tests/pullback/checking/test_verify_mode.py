"""``pb.jit(verify=n)``: the first calls are compared with plain Python; a difference is an error with its line."""

from __future__ import annotations

import copy
import inspect
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.checking.verification import copied_arrays
from pullback.checking.verify_mode import Verified, Verifying
from pullback.compiled.function import Jitted
from pullback.ir import OPS, Function
from pullback.ir.passes import pipeline
from pullback.programs import pipeline as programs_pipeline
from tests.fuzz.calls import defined

RNG = np.random.default_rng(4)
X = RNG.normal(size=(4, 3))
STATE = np.zeros(3)
CALLS = np.zeros(1)


def marked_line(function: Callable[..., Any], mark: str) -> int:
    """The line of a function's source that ends with a comment."""
    lines, first = inspect.getsourcelines(function)
    return first + next(k for k, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}"))


def counts() -> None:
    CALLS[0] += 1


def loss(p: Any, x: Any) -> Any:
    h = np.sin(x @ p["w"])  # sin
    g = h * 2 + p["b"]
    return {"mean": np.mean(g**2), "parts": (g, h[::-1])}


P = {"w": RNG.normal(size=3), "b": 0.3}


class Model:
    def __init__(self) -> None:
        self.w = np.arange(3.0)
        self.seen = np.zeros(1)

    @pb.jit(verify=2)
    def step(self, x: Any) -> Any:
        self.seen[0] += 1
        return x @ self.w

    @classmethod
    @pb.jit(verify=1)
    def made(cls, x: Any) -> Any:
        return x * 2


def swaps(one: str, other: str) -> Any:
    """A pass that is wrong: one op becomes another."""

    def wrong(function: Function) -> Function:
        body = function.body
        kept = tuple(replace(i, op=OPS[other]) if i.op.name == one else i for i in body.instructions)
        return replace(function, body=replace(body, instructions=kept))

    return wrong


@pytest.fixture(autouse=True)
def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program is known."""
    monkeypatch.setattr(programs_pipeline, "templates", programs_pipeline.Templates())


@pytest.fixture
def wrong_sin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "OPTIMIZE", [*pipeline.OPTIMIZE, swaps("sin", "cos")])


RIGHT: list[tuple[Any, tuple[Any, ...]]] = [
    (loss, (P, X)),
    (pb.value_and_grad(lambda p, x: loss(p, x)["mean"]), (P, X)),
    (pb.grad(lambda p, x: loss(p, x)["mean"]), (P, X)),
    (pb.hessian(lambda w: np.sum(np.tanh(w) ** 3)), (X[0],)),
    (pb.vmap(lambda x: np.sort(x)[::-1]), (X,)),
    (lambda x: (x.sum() - x[::-1].sum(), np.sum(x - x.mean())), (RNG.normal(size=1000),)),
    (lambda x: np.floor(np.sum(x) * 3.0 + 1e-17), (np.full(10, 0.1),)),
    (lambda x: (x == x[::-1], x.astype("f4"), x > 0, x.max(), [None, "name", 3]), (X,)),
    (lambda x: 1 / (x * 0) + np.sqrt(x), (X,)),
    (lambda x: np.linalg.solve(x.T @ x, x[0]), (X,)),
    (lambda x, k: x.astype("f2") * k, (X, 3)),
    (lambda n, x: x[:n] * n, (2, X)),
    (lambda x: pb.while_loop(lambda s: s < 100, lambda s: s * 2, x), (1.5,)),
    (lambda x: np.full(3, x), (np.uint8(3),)),
    (lambda z: z.conj() * 1j, (X + 1j,)),
]


@pytest.mark.parametrize("at", range(len(RIGHT)))
def test_what_is_right_passes(at: int) -> None:
    f, arguments = RIGHT[at]
    verified = pb.jit(f, verify=2)
    expected = pb.jit(f)(*copy.deepcopy(arguments))
    for _ in range(4):
        result = verified(*arguments)
        for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(a, b)
    assert type(verified) is Verified


@pytest.mark.usefixtures("wrong_sin")
def test_a_wrong_op_is_named_with_its_line() -> None:
    with pytest.raises(pb.VerificationError) as raised:
        pb.jit(loss, verify=1)(P, X)
    error = raised.value
    assert (error.line, error.source) == (marked_line(loss, "sin"), 'h = np.sin(x @ p["w"])  # sin')
    assert error.file == __file__
    assert error.what == "result['mean']"
    plain = loss(P, X)["mean"]
    assert error.expected == str(plain)
    assert "float64[]" in error.found
    assert str(error).startswith(f"verify: loss: result['mean'] differs: compiled {error.found}, plain Python {plain}")
    assert raised.traceback[-1].path.name == "test_verify_mode.py"


@pytest.mark.usefixtures("wrong_sin")
@pytest.mark.parametrize("transform", [pb.value_and_grad, pb.jacfwd])
def test_a_wrong_op_in_what_is_transformed(transform: Any) -> None:
    """Values are compared with plain Python; where there is none, with the interpreter."""

    def f(x: Any) -> Any:
        y = np.sin(x)  # sin
        return np.sum(y * y)

    inner = pb.jit(f, verify=1)
    for verified in (transform(inner), pb.jit(transform(f), verify=1)):
        with pytest.raises(pb.VerificationError) as raised:
            verified(X)
        assert raised.value.line == marked_line(f, "sin")


def test_a_wrong_derivative_of_the_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x))  # cos comes of this

    monkeypatch.setattr(pipeline, "OPTIMIZE", [*pipeline.OPTIMIZE, swaps("cos", "sin")])
    with pytest.raises(pb.VerificationError, match=r"result\[1\] differs at \[0, 0\]") as raised:
        pb.jit(pb.value_and_grad(f), verify=1)(X)
    assert raised.value.line == marked_line(f, "cos comes of this")


@pytest.fixture
def limit() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(3000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.usefixtures("limit")
def test_state_that_no_guard_sees() -> None:
    def scaled(x: Any) -> Any:
        y = np.cos(x)
        return y * sys.getrecursionlimit()  # here

    f = pb.jit(scaled, verify=2)
    f(X)
    sys.setrecursionlimit(3001)
    with pytest.raises(pb.VerificationError, match=r"result differs at \[0, 0\]") as raised:
        f(X)
    assert raised.value.line == marked_line(scaled, "here")


def test_the_trace_differs_from_plain_python() -> None:
    """Python's integers grow, those of a program have 64 bits. The line is the first after which a variable differs."""

    def grows(x: Any) -> Any:
        k = int(x)
        b = k * k * k  # here
        return b + 1

    with pytest.raises(pb.VerificationError) as raised:
        pb.jit(grows, verify=1)(2.0**40)
    assert raised.value.line == marked_line(grows, "here")
    assert "exception differs: compiled raises OverflowError" in str(raised.value)
    assert "plain Python gives a result" in str(raised.value)


def test_counts_are_of_each_program() -> None:
    def counted(x: Any) -> Any:
        pb.callback(counts, None)
        return x + 1

    f = pb.jit(counted, verify=2)
    CALLS[0] = 0
    for _ in range(5):
        f(X)
    assert CALLS[0] == 2 * 2 + 3
    for _ in range(5):
        f(X.astype("f4"))
    assert CALLS[0] == 2 * (2 * 2 + 3)
    assert type(f) is Verified


def test_later_calls_are_those_of_any_function() -> None:
    f, plain = pb.jit(lambda x: x * 2, verify=1), pb.jit(lambda x: x * 2)
    for _ in range(8):
        f(X)
        plain(X)
    assert type(f) is Verified
    assert type(f).__call__ is Jitted.__call__
    assert f.explain(X).path == plain.explain(X).path
    g = pb.jit(lambda x: x * 3, verify=3)
    g(X)
    assert type(g) is Verifying
    assert "verify" in g.explain(X).path


def test_writes_are_compared_and_done_once() -> None:
    def adds(x: Any, y: Any) -> Any:
        x += y[0]
        STATE[0] += 1
        return x.sum()

    f = pb.jit(adds, verify=2)
    STATE[:] = 0
    x = np.zeros(6)[::2]
    for k in range(1, 5):
        assert f(x, np.ones(2)) == 3 * k
        assert STATE[0] == k
    model = Model()
    for k in range(1, 4):
        np.testing.assert_allclose(model.step(X), X @ model.w)
        assert model.seen[0] == k
    np.testing.assert_array_equal(Model.made(X), 2 * X)


@pytest.mark.usefixtures("wrong_sin")
def test_a_wrong_write_is_undone() -> None:
    def writes(x: Any) -> Any:
        x[0] = np.sin(x[1])  # sin
        STATE[:] = np.sin(x[1])

    x, before = X.copy(), STATE.copy()
    with pytest.raises(pb.VerificationError, match=r"argument x afterwards differs at \[0, 0\]") as raised:
        pb.jit(writes, verify=1)(x)
    assert raised.value.line == marked_line(writes, "sin")
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(STATE, before)


def test_exceptions_are_compared() -> None:
    def picks(x: Any, k: Any) -> Any:
        return np.take(x, k)

    f = pb.jit(picks, verify=2)
    for _ in range(3):
        with pytest.raises(IndexError, match="index 70 is out of bounds for axis 0 with size 12"):
            f(X, np.array(70))
    with pytest.raises(np.linalg.LinAlgError):
        pb.jit(np.linalg.inv, verify=1)(np.zeros((2, 2)))

    with pytest.raises(pb.TraceError):
        pb.jit(lambda x: list({x[0], x[1]}), verify=1)(X[0])


def test_an_exception_on_one_side() -> None:
    """Integers are converted to int64 where Python's int has any size."""

    def whole(x: Any) -> Any:
        return int(x) // 2  # here

    with pytest.raises(pb.VerificationError, match=r"exception differs: compiled raises OverflowError.*gives a result") as raised:
        pb.jit(whole, verify=1)(1e30)
    assert raised.value.line == marked_line(whole, "here")


def test_nan_and_zeros() -> None:
    x = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf])
    assert np.isnan(pb.jit(lambda x: np.maximum(x, -x), verify=1)(x)[:2]).all()


@pytest.mark.parametrize("options", [{"check": True}, {"debug": True}])
def test_options_that_look_at_every_call(options: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="leave one of them out"):
        pb.jit(loss, verify=1, **options)


@pytest.mark.parametrize(("verify", "error"), [(-1, ValueError), (1.5, TypeError), (True, TypeError), ("1", TypeError)])
def test_a_bad_number_of_calls(verify: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="verify"):
        pb.jit(loss, verify=verify)


def test_what_cannot_be_copied() -> None:
    class Locked:
        def __init__(self) -> None:
            self.w = 2.0

        def __deepcopy__(self, memo: Any) -> Any:
            raise TypeError("one of a kind")

    with pytest.raises(TypeError, match=r"cannot be copied for plain Python .one of a kind.; compile without verify"):
        pb.jit(lambda m, x: x * m.w, verify=1)(Locked(), X)


def test_copies_lie_and_overlap_as_the_arrays_do() -> None:
    base = np.arange(24.0).reshape(4, 6)
    arrays = [base[::-1, ::2], base[1:], np.broadcast_to(base[0, :1], (3,)), base[:0], np.asfortranarray(base), base[2:3, 2]]
    result = copied_arrays(arrays)
    for x in arrays:
        built = result[id(x)]
        np.testing.assert_array_equal(built, x)
        assert built.strides == x.strides or not x.size
        assert built.flags.writeable == x.flags.writeable
        assert not np.shares_memory(built, x)
    assert np.shares_memory(result[id(arrays[0])], result[id(arrays[1])])
    result[id(arrays[1])][1, 2] = -1.0
    assert result[id(arrays[5])][0] == -1.0
    assert base.min() == 0.0


def test_into_and_guards_and_dynamic_and_donation() -> None:
    out = np.zeros(4)
    f = pb.jit(lambda x: x.sum(1), verify=1)
    assert f.into(out, X) is out
    np.testing.assert_allclose(out, X.sum(1))
    g = pb.jit(lambda x: x * 2 if x[0] > 0 else -x, guards=True, verify=1)
    for x in (np.ones(3), -np.ones(3), np.ones(3)):
        np.testing.assert_array_equal(g(x), 2 * x if x[0] > 0 else -x)
    h = pb.jit(lambda x: np.cumsum(x), dynamic=True, verify=1)
    for n in (3, 4, 0):
        np.testing.assert_allclose(h(np.ones(n)), np.arange(1.0, n + 1))
    s = pb.jit(lambda x: x + 1, donate=0, verify=1)
    for _ in range(3):
        np.testing.assert_array_equal(s(np.zeros(5000)), np.ones(5000))


@pb.jit(verify=1)
def module_level(x: Any) -> Any:
    return x + 1


def test_copies_and_transforms_are_verified() -> None:
    assert pickle.loads(pickle.dumps(module_level)) is module_level
    f = pb.jit(lambda x: np.sum(x**2), verify=1)
    assert isinstance(pb.grad(f), Verified)
    assert isinstance(copy.deepcopy(f), Verified)
    assert pb.jit(f) == pb.jit(f)
    f(X)
    np.testing.assert_allclose(pb.grad(f)(X), 2 * X)


def test_print_in_plain_python_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    def shows(x: Any) -> Any:
        pb.print("x", x)
        return x

    f = pb.jit(shows, verify=2)
    for k in range(3):
        f(float(k))
    assert capsys.readouterr().out == "x 0.0\nx 1.0\nx 2.0\n"


@pytest.mark.parametrize("text", ["return a0 + 1", "return np.cumsum(a0)[::-1]", "return a0 ** 2 // 3"])
def test_source_that_was_executed(text: str) -> None:
    """Without a file there is no line, and no error for it."""
    f = defined(f"def f(a0):\n    {text}\n")
    arguments: Sequence[Any] = (np.arange(5),)
    np.testing.assert_array_equal(pb.jit(f, verify=1)(*arguments), f(*arguments))
