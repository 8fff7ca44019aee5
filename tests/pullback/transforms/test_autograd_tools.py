"""HIPS autograd's tools by their names: fixed points, ``odeint``, optimisers, ``flatten``, ``check_grads``, ``const_graph``."""

from typing import Any

import numpy as np
import pytest
import scipy.integrate

import pullback as pb

Y0, T, A = np.array([1.0, 0.5]), np.linspace(0.0, 1.5, 3), np.array([1.3, 0.2])
W = np.array([[0.3, -1.0], [0.7, 2.0], [-0.4, 0.6]])
FINE = {"rtol": 1e-10, "atol": 1e-10}


def newton(a: Any) -> Any:
    return lambda x: (x + a / x) / 2


def far(x: Any, y: Any) -> Any:
    return np.abs(x - y)


def root(a: Any) -> Any:
    return pb.fixed_point(newton, a, 1.0, far, 1e-14)


def test_fixed_point() -> None:
    np.testing.assert_allclose([root(2.0), pb.jit(root)(2.0)], np.sqrt(2))
    np.testing.assert_allclose(pb.grad(root)(2.0), 0.5 / np.sqrt(2))
    np.testing.assert_allclose(pb.grad(pb.grad(root))(2.0), -0.25 / 2**1.5)
    np.testing.assert_allclose(pb.vmap(root)(np.array([2.0, 3.0])), np.sqrt([2, 3]))
    np.testing.assert_allclose(pb.jvp(root, (2.0,), (1.0,)), [np.sqrt(2), 0.5 / np.sqrt(2)])
    np.testing.assert_allclose(pb.jacfwd(pb.grad(root))(2.0), -0.25 / 2**1.5)
    np.testing.assert_allclose(pb.grad(lambda x0: pb.fixed_point(newton, 2.0, x0, far, 1e-14))(1.5), 0.0)


def test_fixed_point_of_containers() -> None:
    def step(p: Any) -> Any:
        return lambda x: {"u": np.cos(p["w"] * x["u"] + x["v"][0] / 10), "v": [np.sin(x["u"]) / 2]}

    def apart(x: Any, y: Any) -> Any:
        return np.sum(np.abs(x["u"] - y["u"])) + np.max(np.abs(x["v"][0] - y["v"][0]))

    def loss(p: Any) -> Any:
        result = pb.fixed_point(step, p, {"u": np.zeros(2), "v": [np.zeros(2)]}, apart, 1e-13)
        return np.sum(result["u"] ** 2) + np.sum(result["v"][0])

    assert pb.check_grad(loss, order=2)({"w": np.array([0.5, 0.7]), "name": "cosine"}).is_right


def rhs(y: Any, t: Any, a: Any, k: Any) -> Any:
    return [y[1], -a[0] * y[0] - a[1] * y[1] * t + k]


def states(y0: Any, t: Any, a: Any) -> Any:
    return pb.odeint(rhs, y0, t, (a, 1), **FINE)


def test_odeint_is_scipy_s() -> None:
    expected = scipy.integrate.odeint(rhs, Y0, T, (A, 1), **FINE)
    for f in (states, pb.jit(states), pb.jit(lambda y0, t, a: scipy.integrate.odeint(rhs, y0, t, (a, 1), **FINE))):
        np.testing.assert_allclose(f(Y0, T, A), expected, rtol=1e-9)
    first = pb.jit(lambda y: pb.odeint(lambda t, y: -t * y, y, T, tfirst=True))(2.0)
    np.testing.assert_allclose(first, 2 * np.exp(-(T[:, None] ** 2) / 2), rtol=1e-6)
    assert (first.shape, first.dtype) == ((3, 1), np.float64)


def test_odeint_derivatives() -> None:
    """By the first state, the times and the arguments; reverse, forward, and one of the other."""
    loss = lambda y0, t, a: np.sum(W * states(y0, t, a) ** 2)  # noqa: E731
    assert pb.check_grad(loss, rtol=1e-5)(Y0, T, A).is_right
    gradient = pb.grad(loss, argnums=(0, 1, 2))
    moves = (Y0[::-1], np.array([0.1, -0.2, 0.3]), A * A)
    _, slope = pb.jvp(loss, (Y0, T, A), moves)
    np.testing.assert_allclose(slope, sum(np.sum(g * m) for g, m in zip(gradient(Y0, T, A), moves, strict=True)), rtol=1e-7)


@pytest.mark.long
def test_odeint_second_derivatives() -> None:
    """Forward over reverse and reverse over reverse: both derive the adjoint."""

    def loss(y0: Any) -> Any:
        return np.sum(W[:2] * pb.odeint(lambda y, t, a: -a * np.sin(y) * t, y0, T[:2], (A,), **FINE) ** 3)

    gradient, move, h = pb.grad(loss), Y0[::-1], 1e-5
    expected = (gradient(Y0 + h * move) - gradient(Y0 - h * move)) / (2 * h)
    np.testing.assert_allclose(pb.jvp(gradient, (Y0,), (move,))[1], expected, rtol=1e-5)
    np.testing.assert_allclose(pb.grad(lambda y0: np.sum(gradient(y0) * move))(Y0), expected, rtol=1e-5)


def test_odeint_refuses() -> None:
    with pytest.raises(TypeError, match="does not take full_output"):
        pb.jit(lambda y: pb.odeint(rhs, y, T, (A, 1), full_output=True))(Y0)
    with pytest.raises(pb.TraceError, match="reads a, a traced value of the function around it"):
        pb.jit(lambda a: pb.odeint(lambda y, t: -a * y, 1.0, T))(2.0)


# values of these three after some steps on a quadratic, by the formulas of the papers in scalar arithmetic
def _sgd(g: Any, x: float, n: int) -> float:
    v = 0.0
    for _ in range(n):
        v = 0.9 * v - 0.1 * g(x)
        x += 0.1 * v
    return x


def _rmsprop(g: Any, x: float, n: int) -> float:
    s = 1.0
    for _ in range(n):
        s = 0.9 * s + 0.1 * g(x) ** 2
        x -= 0.1 * g(x) / (s**0.5 + 1e-8)
    return x


def _adam(g: Any, x: float, n: int) -> float:
    m = v = 0.0
    for i in range(1, n + 1):
        m, v = 0.9 * m + 0.1 * g(x), 0.999 * v + 0.001 * g(x) ** 2
        x -= 0.001 * (m / (1 - 0.9**i)) / ((v / (1 - 0.999**i)) ** 0.5 + 1e-8)
    return x


@pytest.mark.parametrize("name", ["sgd", "rmsprop", "adam"])
def test_optimisers(name: str) -> None:
    met: list[Any] = []

    def slope(p: Any, i: int) -> Any:
        return {"w": 2 * (p["w"] - 1), "b": [p["b"][0] * 0.5]}

    start = {"w": np.array([3.0, -1.0]), "b": [2.0]}
    result = getattr(pb.optimizers, name)(slope, start, lambda x, i, g: met.append((x, i, g)), num_iters=7)
    scalar = {"sgd": _sgd, "rmsprop": _rmsprop, "adam": _adam}[name]
    np.testing.assert_allclose(result["w"], [scalar(lambda x: 2 * (x - 1), x, 7) for x in (3.0, -1.0)])
    np.testing.assert_allclose(result["b"][0], scalar(lambda x: x / 2, 2.0, 7))
    assert [i for _, i, _ in met] == list(range(7))
    assert met[0][0]["b"] == [2.0] and met[0][2]["b"] == [1.0]

    def after(w: Any) -> Any:
        return np.sum(getattr(pb.optimizers, name)(lambda w, i: w**3, w, num_iters=3))

    assert pb.check_grad(after)(np.array([0.5, 1.5])).is_right


def test_flatten_and_const_graph(capsys: pytest.CaptureFixture[str]) -> None:
    vector, back = pb.flatten({"b": np.ones((2, 2)), "a": (3.0, [np.arange(2.0)])})
    np.testing.assert_array_equal(vector, [1, 1, 1, 1, 3, 0, 1])
    np.testing.assert_array_equal(back(vector * 2)["a"][1][0], [0, 2])

    def power(k: int, x: Any) -> Any:
        print(k)
        return x**k

    cube = pb.const_graph(power, 3)
    assert [cube(x) for x in (2.0, 4.0, 5.0)] == [8.0, 64.0, 125.0]
    assert capsys.readouterr().out == "3\n" * 3
    assert pb.const_graph(np.sin)(0.0) == 0.0


def test_check_grads() -> None:
    def f(x: Any, y: Any) -> Any:
        return np.sin(x) * y, {"s": np.sum(x * y**2)}

    x = np.array([0.5, 1.5])
    report = pb.check_grads(f, (0, 1))(x, 2.0)
    assert {s.order for s in report.slopes} == {1, 2}
    assert any("forward" in s.name for s in report.slopes) and any("forward" not in s.name for s in report.slopes)
    assert not any("forward" in s.name for s in pb.check_grads(f, modes=["rev"])(x, 2.0).slopes)

    @pb.custom_jvp
    def wrong(x: Any) -> Any:
        return x * x

    wrong.defjvp(lambda p, t: (wrong(*p), 3 * p[0] * t[0]))
    for modes in (["fwd"], ["rev"]):
        with pytest.raises(AssertionError, match="wrong"):
            pb.check_grads(wrong, modes=modes, order=1)(x)
    with pytest.raises(ValueError, match="modes"):
        pb.check_grads(f, modes=["forward"])(x, 2.0)
