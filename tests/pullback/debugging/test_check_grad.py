"""``pb.check_grad``: right gradients pass, wrong ones and wrong values are named."""

from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.checking.divergence import diverging_instruction
from pullback.debugging.find_nan import examine
from pullback.ir import OPS
from tests.support.tracing import marked_line

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 3))


def loss(p: Any, x: Any, *, scale: float = 1.0) -> Any:
    h = np.tanh(x @ p["w"] + p["b"])
    return np.mean(h**2) * scale


class Model:
    rate = 0.7

    def plain(self, x: Any) -> Any:
        return np.exp(-x * self.rate)

    @pb.jit
    def compiled(self, x: Any) -> Any:
        return np.exp(-x * self.rate)


def writes(x: Any) -> Any:
    x[0] = x[1] * 2.0
    return np.sum(x * x)


P = {"w": RNG.normal(size=3), "b": 0.3}
RIGHT: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (loss, (P, X), {}),
    (loss, (P, X), {"order": 3}),
    (loss, (P, X), {"argnums": 0}),
    (loss, (P, X), {"argnums": (-1,)}),
    (pb.jit(loss), (P, X), {}),
    (pb.grad(loss), (P, X), {"argnums": 0}),
    (pb.jit(pb.value_and_grad(loss)), (P, X), {"argnums": 1}),
    (Model().plain, (X,), {"order": 2}),
    (Model().compiled, (X,), {}),
    (pb.jit(lambda x, n: x**n, static_argnames="n"), (X, 3), {"order": 2}),
    (writes, (np.arange(3.0),), {}),
    (lambda z: np.abs(z) ** 3 + np.sin(z).real, (X[0] + 1j * X[1],), {"order": 2, "modes": ("fwd", "rev")}),
    (lambda z, c: {"a": z * np.conj(c), "b": np.exp(c)}, (X[0] + 1j * X[1], 2 + 1j), {"order": 2}),
    (lambda z: np.fft.fft(z) * 1j, ((X[0] + 1j * X[1]).astype(np.complex64),), {}),
    (lambda x: (np.cumsum(x), {"s": np.sin(x).sum(), "n": x > 0}), (RNG.normal(size=(40, 50)),), {}),
    (lambda x: np.abs(x), (np.array([0.0, 1e-9, -3.0, 2.0]),), {}),
    (lambda x: np.maximum(x, 0.0) + np.floor(3 * x), (np.array([0.0, -0.4, 0.5]),), {}),
    (lambda x: np.cumprod(x[::-1]), (np.array([3.0, -1.0, 2.0]),), {"order": 2}),
    (lambda x: np.exp(x), (X.astype(np.float32),), {}),
    (lambda x: np.exp(x), (np.float32(0.5),), {}),
    (lambda x: np.exp(x), (X.astype(np.float16),), {}),
    (lambda x: x * 1e-12, (1e-12,), {}),
    (lambda x: np.sum(x**2), (X * 1e9,), {"order": 2}),
    (lambda x: np.sqrt(x).sum(), (np.array([1e-20, 1.0]),), {}),
    (lambda x: x**3, (1e6,), {}),
    (lambda x: np.sin(1e3 * x), (1.0,), {}),
    (lambda p: p["x"] * p["n"], ({"x": 2.0, "n": 3},), {}),
    (lambda x: np.linalg.norm(x), (np.zeros(2),), {}),
    (lambda x: x.sum(), (np.zeros((0, 3)),), {}),
    (lambda x: 3.0 + 0.0 * x, (np.array(2.0),), {}),
    (lambda x: np.where(x > 0, np.log(np.where(x > 0, x, 1.0)), x), (np.array([-1.0, 2.0]),), {"order": 2}),
]


@pytest.mark.parametrize("f, args, options", RIGHT, ids=range(len(RIGHT)))
def test_right_gradients_pass(f: Any, args: Any, options: Any) -> None:
    report = pb.check_grad(f, **options)(*args)
    assert report.is_right and not report.wrong and report.value is None
    assert all(s.is_right for s in report.slopes)
    assert {s.order for s in report.slopes} <= set(range(1, options.get("order", 1) + 1))
    assert str(report).startswith(f"{report.function}: {len(report.slopes)} derivative")
    assert bool(report.slopes) == bool(np.size(args[0]))


def test_keywords_and_arguments_stay_as_they_are() -> None:
    x = np.arange(3.0)
    report = pb.check_grad(loss)(P, X, scale=2.0)
    assert {s.name for s in report.slopes} == {"p['w']", "p['b']", "x", "scale"}
    pb.check_grad(writes)(x)
    np.testing.assert_array_equal(x, np.arange(3.0))


@pytest.fixture
def wrong_rule(monkeypatch: Any) -> None:
    """arctanh and arcsinh with a derivative that is off at large operands."""
    for name, factor in (("atanh", 1.5), ("asinh", -1.0)):
        rule = OPS[name].pullback
        assert rule is not None

        def broken(b: Any, op: Any, inputs: Any, *rest: Any, rule: Any = rule, factor: float = factor) -> Any:
            (part,) = rule(b, op, inputs, *rest)
            x = inputs[0]
            is_large = b.lt(b.full(0.5, x.type), x)
            return [b.select(is_large, b.mul(part, b.full(factor, x.type)), part)]

        monkeypatch.setitem(OPS[name].__dict__, "pullback", broken)


def one_wrong(p: Any, x: Any) -> Any:
    return np.sum(np.sinh(x) * p["a"] + np.arctanh(p["k"][0]) ** 3)


def many_wrong(x: Any) -> Any:
    return np.sum(np.arcsinh(np.cosh(x) * x) ** 3)


def curved(x: Any) -> Any:
    return np.sum(np.arctan(np.arctanh(x) ** 2))


def test_a_wrong_rule_is_named_by_argument_and_place(wrong_rule: None) -> None:
    p = {"a": 2.0, "k": [np.array([[0.1, 0.2], [0.7, 0.3]])]}
    with pytest.raises(AssertionError, match=r"derivative by p\['k'\]\[0\] at \[1, 0\]: found .*, expected") as caught:
        pb.check_grad(one_wrong)(p, np.ones(2))
    report = caught.value.report  # type: ignore[attr-defined]
    (wrong,) = report.wrong
    assert (wrong.name, wrong.index, wrong.order) == ("p['k'][0]", (1, 0), 1)
    np.testing.assert_allclose(wrong.found, 1.5 * wrong.expected, rtol=1e-5)
    assert report.worst is wrong and report.value is None
    assert str(caught.value) == str(report)


def test_the_jacobian_names_the_element_of_the_result(wrong_rule: None) -> None:
    def f(x: Any, y: Any) -> Any:
        return {"a": np.sin(x), "b": (x[0], np.arctanh(x) * y)}

    with pytest.raises(AssertionError, match=r"derivative of result\['b'\]\[1\] at \[1\] by x at \[1\]: found") as caught:
        pb.check_grad(f, modes=["jac"])(np.array([0.1, 0.7]), 2.0)
    report = caught.value.report  # type: ignore[attr-defined]
    assert sum(s.what.startswith("of ") for s in report.slopes) == 5 * 3
    (wrong,) = report.wrong
    assert (wrong.what, wrong.name, wrong.index) == ("of result['b'][1] at [1]", "x", (1,))
    assert len(pb.check_grad(f)(np.array([0.1, 0.2]), 2.0).slopes) == 3 + 2 + 5 * 3


def test_forward_mode_beside_reverse() -> None:
    @pb.custom_vjp
    def f(x: Any) -> Any:
        return x**3

    f.defvjp(lambda x: (x**3, x), lambda x, ct: (3 * x**2 * ct,))
    f.defjvp(lambda primals, tangents: (primals[0] ** 3, 3 * primals[0] ** 2 * tangents[0] + 1e-5 * tangents[0]))
    pb.check_grad(f, modes=["rev"])(X)
    with pytest.raises(AssertionError, match="derivative in forward mode, beside reverse mode, by x in a random direction"):
        pb.check_grad(f)(X)


def test_the_gradient_in_float32() -> None:
    def unstable(x: Any) -> Any:
        return np.sum((x + 1e6) ** 2 - 2e6 * x)

    report = pb.check_grad(loss, f32=True)(P, X)
    assert sum(s.what == "in float32" for s in report.slopes) == 3 + 1 + X.size
    pb.check_grad(unstable)(X)
    with pytest.raises(AssertionError, match="derivative in float32 by x at"):
        pb.check_grad(unstable, f32=True)(X)


def test_large_jacobians_are_left_out() -> None:
    report = pb.check_grad(np.cumsum)(np.linspace(0, 1, 50))
    assert {s.what for s in report.slopes} == {"", "in forward mode, beside reverse mode,"}
    report = pb.check_grad(np.cumsum)(np.linspace(0, 1, 40))
    assert len(report.slopes) == 40 + 1 + 1600


def test_many_elements_are_checked_along_directions_and_then_singly(wrong_rule: None) -> None:
    with pytest.raises(AssertionError) as caught:
        pb.check_grad(many_wrong)(np.linspace(0.6, 0.9, 1000))
    wrong = caught.value.report.wrong  # type: ignore[attr-defined]
    assert {s.index is None for s in wrong} == {True, False}


def value_differs(x: Any) -> Any:
    a = x * 2.0
    y = np.sin(a) if "frame" in dir(x) else np.cos(a)  # here
    z = y + 1.0
    return {"r": z.sum()}


def path_differs(x: Any) -> Any:
    a = x * 2.0
    if "frame" in dir(x):  # here
        a = a + 1.0
    return a.sum()


def helper_differs(x: Any) -> Any:
    return helper(x * 2.0) + 1.0


def helper(x: Any) -> Any:
    return np.sum(x) if "frame" in dir(x) else np.sum(x) * 2.0


def written_differs(x: Any) -> Any:
    a = np.zeros(3)
    a[:2] = x[:2]
    a[2] = x[2] if "frame" in dir(x) else x[1]  # here
    return a * 2.0


def gradient_differs(x: Any) -> Any:
    g = pb.grad(lambda z: np.sum(z**3))(x)
    y = g * (1.5 if "frame" in dir(x) else 1.0)  # here
    return y.sum()


def dtype_differs(x: Any) -> Any:
    return x.astype(np.float32) if "frame" in dir(x) else x


DIFFERING = [
    (value_differs, "y", value_differs),
    (path_differs, "the next line", path_differs),
    (written_differs, "a", written_differs),
    (gradient_differs, "y", gradient_differs),
    (helper_differs, "the result", None),
    (dtype_differs, "the result", None),
]


@pytest.mark.parametrize("f, what, marked", DIFFERING, ids=lambda v: getattr(v, "__name__", ""))
def test_the_first_line_that_differs_is_named(f: Any, what: str, marked: Any) -> None:
    x = np.array([0.5, 1.5, 2.5])
    with pytest.raises(AssertionError, match="differs from its plain NumPy run") as caught:
        pb.check_grad(f)(x)
    value = caught.value.report.value  # type: ignore[attr-defined]
    assert (value.what, value.file) == (what, __file__)
    assert not caught.value.report.slopes  # type: ignore[attr-defined]
    if marked is not None:
        assert value.line == marked_line(marked)
        assert value.source in str(caught.value)
    assert value.found != value.expected


def test_compiled_code_is_compared_with_the_interpreter(monkeypatch: Any) -> None:
    def f(x: Any) -> Any:
        y = np.sinh(x)
        return np.cosh(y).sum()  # here

    call = examine(pb.value_and_grad(f), (np.ones(3),), {})
    assert diverging_instruction(call) is None
    monkeypatch.setitem(OPS["cosh"].__dict__, "function", np.cos)
    result = diverging_instruction(call)
    assert result is not None
    assert (result.what, result.line) == ("cosh as compiled", marked_line(f))


def test_what_cannot_be_checked() -> None:
    with pytest.raises(ValueError, match="no float argument"):
        pb.check_grad(lambda n: n * 2)(3)
    with pytest.raises(ValueError, match="no float result"):
        pb.check_grad(lambda x: x > 0)(X)
    with pytest.raises(ValueError, match="argnums 2, but the call has 1"):
        pb.check_grad(lambda x: x, argnums=2)(X)
    with pytest.raises(pb.TraceError):
        pb.check_grad(pb.jit(lambda x: 1.0 if x > 0 else x, loops="unroll"))(2.0)
    for x in (2.0, -2.0):
        pb.check_grad(lambda x: 1.0 if x > 0 else x)(x)
    with pytest.raises(AssertionError, match="nan"):
        pb.check_grad(lambda x: np.sqrt(x))(np.array([1.0, -1.0]))
    with pytest.raises(AssertionError, match=r"1 of 2 derivatives wrong\n  derivative by x at \[0\]: found nan, expected 0.0"):
        pb.check_grad(lambda x: np.sum(x * np.sqrt(x)))(np.array([0.0, 1.0]))
