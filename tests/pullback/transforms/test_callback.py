"""``pb.callback``: Python functions in compiled programs, with the types that were declared, in program order."""

import gc
import sys
import weakref
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.host import HostFunction
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.text import parse_module
from pullback.ir.verify import verify, verify_module
from pullback.programs.pipeline import template_counts
from pullback.tracer.arrays.frame import Called

X = np.array([0.5, 1.5, 2.5])
Pair = namedtuple("Pair", "a b")
SCALE = 3.0
met: list[Any] = []


def one(x: Any) -> Any:
    return np.sum(pb.callback(scipy.special.zeta, x + 2, x + 2, 1.0) * x)


def containers(x: Any) -> Any:
    count, sizes = 2, {"n": 4}

    def inner(pair: Any, options: Any, *, word: str) -> Any:
        assert (type(pair.a), type(pair.b), options, word) == (np.ndarray, float, {"mode": None, "k": (1, "a")}, "w")
        return {"big": pair.a * count * SCALE, "rest": (float(pair.b), None, int(sizes["n"]), Pair(pair.a > 1, np.float32(1)))}

    types = {"big": x, "rest": (float, None, int, Pair(pb.ShapeDtypeStruct((3,), bool), np.float32))}
    result = pb.callback(inner, types, Pair(x, 2.5), {"mode": None, "k": (1, "a")}, word="w")
    return result, result["rest"][0] * np.float32(2), result["rest"][2] + 1


def sizes(x: Any) -> Any:
    empty = pb.callback(lambda a: a[:0], np.zeros((0, 2)), x.reshape(-1, 1) * np.ones(2))
    return (
        empty,
        pb.callback(lambda a: np.asarray(a.sum()), np.zeros(()), x[::-1]),
        pb.callback(lambda a: a.T, np.zeros((2, 3)), x[:, None] * np.ones(2)),
    )


def methods(x: Any) -> Any:
    items, before = met, len(met)
    pb.callback(met.append, None, x)
    pb.callback(lambda a: items.append(a), None, x[0])
    return pb.callback(lambda: len(met) - before, int)


def no_result(x: Any) -> Any:
    assert pb.callback(met.append, None, x) is None
    return x * 2


def nested(x: Any) -> Any:
    return pb.callback(pb.jit(lambda a: a * SCALE), x, x)


@pytest.mark.parametrize("f", [one, containers, sizes, methods, no_result, nested])
def test_same_as_plain(f: Any) -> None:
    expected, result = pb.tree.flatten(f(X)), pb.tree.flatten(pb.jit(f)(X))
    assert str(result[1]) == str(expected[1])
    for a, b in zip(result[0], expected[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-15)
        assert np.asarray(a).dtype == np.asarray(b).dtype


def test_program_order_and_every_call() -> None:
    @pb.jit
    def f(x: Any) -> Any:
        for k in range(3):
            pb.callback(lambda a, k: met.append((k, a)), None, x[0] + k, k)
        return x

    for _ in range(2):
        met.clear()
        f(X)
        assert met == [(0, 0.5), (1, 1.5), (2, 2.5)]


def test_one_template_for_all_functions_and_shapes() -> None:
    def make(k: float) -> Any:
        return pb.jit(lambda x: pb.callback(lambda a: a * k, x, x) + 1)

    first = make(2.0)
    np.testing.assert_array_equal(first(X), X * 2 + 1)
    before = template_counts()
    np.testing.assert_array_equal(make(5.0)(X[:2]), X[:2] * 5 + 1)
    np.testing.assert_array_equal(first(X), X * 2 + 1)
    assert template_counts().built == before.built


def test_change_outside_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    @pb.jit
    def f(x: Any) -> Any:
        return pb.callback(lambda a: a * SCALE, x, x)

    np.testing.assert_array_equal(f(X), X * 3)
    monkeypatch.setattr(sys.modules[__name__], "SCALE", 4.0)
    np.testing.assert_array_equal(f(X), X * 4)


def test_arguments_are_the_function_s_own() -> None:
    met.clear()
    x = X.copy()

    @pb.jit
    def f(x: Any) -> Any:
        pb.callback(lambda a: met.append(a), None, x)
        return x

    f(x)
    met[0][:] = 7
    np.testing.assert_array_equal(x, X)


def raises(x: Any) -> Any:
    raise KeyError("of the function")


@pytest.mark.parametrize(
    ("f", "kind", "words"),
    [
        (lambda x: pb.callback(raises, x, x), KeyError, "of the function"),
        (
            lambda x: pb.callback(lambda a: a[:1], x, x),
            TypeError,
            "float64 of shape (1,), and float64 of shape (3,) was declared",
        ),
        (lambda x: pb.callback(lambda a: a.astype("f4"), x, x), TypeError, "float32 of shape (3,), and float64"),
        (lambda x: pb.callback(lambda a: (a, a), x, x), TypeError, "returned tuple(*, *), and * was declared"),
        (lambda x: pb.callback(lambda a: a, "f64", x), TypeError, "not by 'f64'"),
        (lambda x: pb.callback(lambda a: 1.5, int, x), TypeError, "int64 of shape () was declared"),
    ],
)
def test_errors(f: Any, kind: type, words: str) -> None:
    for function in (f, pb.jit(f)):
        with pytest.raises(kind) as caught:
            function(X)
        assert words in str(caught.value)
    assert caught.traceback[-1].path.name == "test_callback.py"


@pytest.mark.parametrize(
    ("f", "words"),
    [
        (lambda x: pb.callback(lambda a: a + x, x, x), "reads x, a traced value"),
        (lambda x: pb.grad(lambda v: np.sum(pb.callback(np.sin, v, v)))(x), "no derivative of its own"),
    ],
)
def test_trace_errors(f: Any, words: str) -> None:
    with pytest.raises(pb.TraceError) as caught:
        pb.jit(f)(X)
    assert words in str(caught.value)
    assert caught.value.file == __file__


def test_value_beside_a_gradient() -> None:
    """Where no cotangent flows a callback is no obstacle, and it runs once."""
    met.clear()

    def loss(x: Any) -> Any:
        pb.callback(met.append, None, x)
        return np.sum(x * x)

    value, slope = pb.value_and_grad(loss)(X)
    np.testing.assert_allclose(slope, 2 * X)
    assert value == np.sum(X * X) and len(met) == 1


def test_stages_run() -> None:
    """The texts of the stages parse, verify and mean the same, while the function is alive."""
    f = pb.jit(one)
    texts, trace = f.stages(X), f.examine((X,), {}).trace
    (count,) = (arguments.array for arguments in trace.inputs if isinstance(arguments, Called))
    for name in ("trace", "grad", "simplify", "fuse", "lower"):
        module = verify_module(parse_module(texts[name]))
        (result,) = interpret(module.functions[0], X, count, module=module)
        np.testing.assert_allclose(result, one(X))


def test_a_number_without_its_function() -> None:
    call = "%0: f64[] = callback %n {axes=0, constant=false, dtypes=[f64], ranks=[0], shape=[]}"
    text = f"func f(%n: i64[]) -> (f64[]) {{\n  {call}\n  return %0\n}}"
    (function,) = parse_module(f"pullback-ir 2\n\n{text}").functions
    with pytest.raises(LookupError, match="no function has number 0"):
        interpret(function, np.int64(0))


def test_functions_die_with_their_programs() -> None:
    class Held:
        def __call__(self, a: Any) -> Any:
            return a

    def run() -> Any:
        held = Held()
        pb.jit(lambda x: pb.callback(held, x, x))(X)
        return weakref.ref(held)

    dead = run()
    gc.collect()
    assert dead() is None


def test_along_an_axis() -> None:
    """Batched, the function is called for each index."""
    met.clear()
    text = """pullback-ir 2

func f(%n: i64[], %x: f64[4,3], %y: f64[3]) -> (f64[4,3]) {
  %0: f64[4,3] = vmap %n, %x, %y {batched=[1], fixed=[]} (%n0: i64[], %x0: f64[3], %y0: f64[3]) {
    %1: f64[3] = callback %n0, %x0, %y0 {axes=0, constant=false, dtypes=[f64], ranks=[1], shape=[3]}
    yield %1
  }
  return %0
}
"""
    (function,) = verify_module(parse_module(text)).functions
    held = HostFunction(lambda a, b: [met.append((a.shape, b.shape)) or a.cumsum() * b])
    a = np.arange(12.0).reshape(4, 3)
    (result,) = interpret(verify(grad(function)), np.int64(held.function_id), a, X)
    np.testing.assert_array_equal(result, a.cumsum(1) * X)
    assert met == [((3,), (3,))] * 4
