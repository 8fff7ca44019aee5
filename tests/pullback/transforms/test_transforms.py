"""``jvp``, ``vjp``, ``linearize``, Jacobians, Hessians, ``vmap``, ``stop_gradient``: outside, inside and around each other."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg

import pullback as pb
from pullback.programs.pipeline import template_counts
from pullback.tree import leaves as tree_leaves
from tests.support.api import traces

Array = Any
RNG = np.random.default_rng(5)
X, W = RNG.uniform(0.3, 1.4, 3), RNG.normal(size=(2, 3))
Pair = namedtuple("Pair", "a b")

PAGE: dict[str, Callable[..., Any]] = {
    "elementwise": lambda np, x: np.sin(x) * np.exp(-x) + x**2.5,
    "matrix product": lambda np, x: np.tanh(np.array([[1.0, -2.0, 0.5], [0.3, 0.1, 2.0]]) @ x),
    "softmax": lambda np, x: np.exp(x) / np.sum(np.exp(x)),
    "outer": lambda np, x: np.cos(x[:, None] * x[None, :]),
    "norm": lambda np, x: x / np.sqrt(np.sum(x * x)),
    "solve": lambda np, x: np.linalg.solve(np.outer(x, x) + np.diag(x), np.cos(x)),
    "determinant": lambda np, x: np.linalg.det(np.outer(x, np.sin(x)) + np.eye(3)),
    "eigenvalues": lambda np, x: np.linalg.eigh(np.outer(x, x) + np.diag(np.arange(3.0)))[0],
    "select": lambda np, x: np.where(x > 0.8, np.log(x), x**3),
    "cumulative": lambda np, x: np.cumsum(x) * x[::-1],
    "indices": lambda np, x: x[np.array([0, 0, 2, 1])] * np.concatenate([x, x[:1]]),
    "sorted": lambda np, x: np.sort(x) * np.arange(1.0, 4.0),
    "extremes": lambda np, x: np.maximum(x, 0.7) * np.max(x) + np.std(x),
    "einsum": lambda np, x: np.einsum("i,j,k->jk", x, x, x),
    "scalar": lambda np, x: np.sum(np.sin(x)) * np.prod(x),
}


def own(name: str) -> Callable[[Any], Any]:
    return lambda x: PAGE[name](np, x)


def theirs(name: str) -> Callable[[Any], Any]:
    numpy_of_autograd = importlib.import_module("autograd.numpy")
    return lambda x: PAGE[name](numpy_of_autograd, x)


def close(result: Any, expected: Any, tolerance: float = 1e-9) -> None:
    assert np.shape(result) == np.shape(expected)
    np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", PAGE)
def test_jacobians_are_those_of_autograd(name: str) -> None:
    expected = importlib.import_module("autograd").jacobian(theirs(name))(X)
    for jacobian in (pb.jacfwd, pb.jacrev, pb.jacobian):
        close(jacobian(own(name))(X), expected)
    close(pb.jit(lambda x: pb.jacobian(own(name))(x) * 1.0)(X), expected)


@pytest.mark.parametrize("name", ["softmax", "solve", "determinant", "eigenvalues", "select", "extremes"])
def test_second_derivatives_do_not_depend_on_the_modes(name: str) -> None:
    f = own(name)
    expected = pb.hessian(f)(X)
    for outer, inner in ((pb.jacfwd, pb.jacfwd), (pb.jacrev, pb.jacfwd), (pb.jacrev, pb.jacrev)):
        close(outer(inner(f))(X), expected)
    step = 1e-6
    moved = [np.stack([pb.jacrev(f)(X + s * step * e) for e in np.eye(3)], -1) for s in (1, -1)]
    close((moved[0] - moved[1]) / (2 * step), expected, 1e-6 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("name", PAGE)
def test_maps_are_rows_of_the_jacobian(name: str) -> None:
    """jvp, linearize, vjp and vmap of each, outside of a trace and in one."""
    f = own(name)
    jacobian = pb.jacobian(f)(X)
    tangents = RNG.normal(size=(4, 3))
    shape = np.shape(f(X))
    cts = RNG.normal(size=(4, *shape))
    along = np.tensordot(tangents, jacobian, ([1], [len(shape)]))
    back = np.tensordot(cts, jacobian, len(shape)) if shape else cts[:, None] * jacobian

    def pushed(t: Array) -> Array:
        return pb.jvp(f, (X,), (t,))[1]

    def pulled(ct: Array) -> Array:
        return pb.vjp(f, X)[1](ct)[0]

    close(pushed(tangents[0]), along[0])
    close(pb.linearize(f, X)[1](tangents[1]), along[1])
    close(pulled(cts[0]), back[0])
    close(pb.jit(pushed)(tangents[2]), along[2])
    close(pb.jit(pulled)(cts[2]), back[2])
    close(pb.vmap(pushed)(tangents), along)
    close(pb.vmap(pulled)(cts), back)


@pytest.mark.parametrize("name", PAGE)
def test_vmap_is_a_stack_of_calls(name: str) -> None:
    f = own(name)
    rows = RNG.uniform(0.3, 1.4, (4, 3))
    expected = np.stack([f(row) for row in rows])
    close(pb.vmap(f)(rows), expected)
    close(pb.vmap(f, in_axes=1)(np.array(rows.T)), expected)
    close(pb.vmap(pb.jacrev(f))(rows), np.stack([pb.jacrev(f)(row) for row in rows]))
    weights = RNG.normal(size=expected.shape)
    gradient = pb.grad(lambda x: np.sum(pb.vmap(f)(x) * weights))(rows)
    close(gradient, np.stack([pb.vjp(f, row)[1](w)[0] for row, w in zip(rows, weights, strict=True)]))


def test_containers_and_several_arguments() -> None:
    def f(p: dict[str, Any], q: tuple[Any, Any]) -> Pair:
        return Pair(p["w"] @ p["x"] * q[0], {"s": np.sum(p["x"]) + q[1] ** 2})

    p, q = {"w": W, "x": X}, (2.0, np.float64(3.0))
    value, tangent = pb.jvp(f, (p, q), ({"x": X, "w": None}, (1.0, 0.0)))
    assert isinstance(value, Pair) and isinstance(tangent, Pair)
    close(tangent.a, W @ X * 2.0 + W @ X)
    close(tangent.b["s"], np.sum(X))
    value, pull = pb.vjp(f, p, q)
    dp, dq = pull(Pair(np.ones(2), {"s": 2.0}))
    close(dp["w"], np.outer(np.ones(2), X) * 2.0)
    close(dp["x"], W.sum(0) * 2.0 + 2.0)
    close(dq[0], np.sum(W @ X))
    close(dq[1], 2 * 2.0 * 3.0)
    jacobian = pb.jacobian(f, argnums=(0, 1))(p, q)
    assert jacobian.a[0]["w"].shape == (2, 2, 3) and jacobian.b["s"][1][0].shape == ()
    close(pb.jacfwd(f)(p, q).a["x"], 2.0 * W)
    close(pb.jacrev(f, argnames="q")(p, q=q).b["s"][1], 6.0)


def test_integers_have_no_tangents() -> None:
    def f(x: Array, k: int, index: Array) -> Any:
        return x[index] ** k, np.argmax(x), k

    index = np.array([2, 0])
    value, tangent = pb.jvp(f, (X, 2, index), (X, None, None))
    close(value[0], X[index] ** 2)
    close(tangent[0], 2 * X[index] ** 2)
    assert tangent[1] is None and tangent[2] is None
    _, pull = pb.vjp(f, X, 2, index)
    dx, dk, di = pull((np.ones(2), None, None))
    close(dx, [2 * X[0], 0.0, 2 * X[2]])
    assert dk is None and di is None


def test_aux() -> None:
    def f(x: Array) -> Any:
        return np.sum(x**2), {"norm": np.sqrt(np.sum(x**2)), "n": 3}

    value, tangent, aux = pb.jvp(f, (X,), (X,), has_aux=True)
    close(tangent, 2 * np.sum(X**2))
    assert aux["n"] == 3
    for built in (pb.vjp(f, X, has_aux=True), pb.linearize(f, X, has_aux=True)):
        close(built[0], value)
        close(built[2]["norm"], np.linalg.norm(X))
    close(pb.vjp(f, X, has_aux=True)[1](1.0)[0], 2 * X)
    for transform in (pb.jacfwd, pb.jacrev, pb.jacobian, pb.hessian):
        _, aux = transform(f, has_aux=True)(X)
        close(aux["norm"], np.linalg.norm(X))
    product, aux = pb.hvp(f, (X,), (W[0],), has_aux=True)
    close(product, 2 * W[0])


def test_hessian_vector_products() -> None:
    def f(x: Array, y: Array) -> Array:
        return np.sum(np.sin(x) * y) + np.sum(x) ** 2 * y[0]

    hessian = pb.hessian(lambda z: f(z[:3], z[3:]))(np.concatenate([X, W[0]]))
    product = pb.hvp(f, (X, W[0]), (W[1], X))
    close(np.concatenate(product), hessian @ np.concatenate([W[1], X]))
    close(pb.hvp(lambda x: f(x, X), (X,), (W[0],)), pb.hessian(lambda x: f(x, X))(X) @ W[0])


def test_a_branch_not_taken_has_no_tangent() -> None:
    def f(x: Array) -> Array:
        return np.where(x > 0, np.sqrt(np.where(x > 0, x, 0.0)), 0.0) + np.where(x > 0, np.log(x), x)

    x = np.array([-1.0, 0.0, 4.0])
    close(pb.jvp(f, (x,), (np.ones(3),))[1], [1.0, 1.0, 0.5])
    close(pb.jvp(pb.grad(lambda x: np.sum(f(x))), (x,), (np.ones(3),))[1], [0.0, 0.0, -1 / 32 - 1 / 16])


def test_stop_gradient() -> None:
    f = lambda x: np.sum(pb.stop_gradient(np.sin(x)) * x)  # noqa: E731
    close(pb.jit(f)(X), np.sum(np.sin(X) * X))
    close(pb.grad(f)(X), np.sin(X))
    close(pb.jvp(f, (X,), (W[0],))[1], np.sin(X) @ W[0])
    close(pb.hessian(f)(X), np.zeros((3, 3)))
    close(pb.vmap(pb.grad(f))(W), np.sin(W))
    assert pb.stop_gradient({"a": 1, "b": X})["b"] is X
    assert pb.jit(lambda n, x: x[: pb.stop_gradient({"n": n})["n"]] * 1)(2, X).shape == (2,)


AXES: list[tuple[Any, Any, Callable[..., Any], Callable[..., Any]]] = [
    (0, 0, lambda x, y: x * y, lambda x, y: x * y),
    ((0, None), 0, lambda x, y: x @ y.T, lambda x, y: x @ y.T),
    ((1, 1), 1, lambda x, y: x * y[0], lambda x, y: x * y[0]),
    ((-1, None), -1, lambda x, y: np.sum(x) * y, lambda x, y: np.stack([np.sum(c) * y for c in x.T], -1)),
    ((None, 1), (0, None), lambda x, y: (x[0] @ x[1] * y, x), lambda x, y: (x[0] @ x[1] * y.T, x)),
    ((0, 0), 0, lambda x, y: 2.0, lambda x, y: np.full(2, 2.0)),
    ((0, 0), None, lambda x, y: (1, "text", None), lambda x, y: (1, "text", None)),
]


@pytest.mark.parametrize(("in_axes", "out_axes", "f", "expected"), AXES)
def test_axes_of_vmap(in_axes: Any, out_axes: Any, f: Any, expected: Any) -> None:
    x, y = W, W + 1.0
    for call in (pb.vmap(f, in_axes, out_axes), pb.jit(lambda a, b: pb.vmap(f, in_axes, out_axes)(a, b))):
        result, wanted = call(x, y), expected(x, y)
        if not isinstance(wanted, tuple):
            result, wanted = (result,), (wanted,)
        for a, b in zip(result, wanted, strict=True):
            if isinstance(b, np.ndarray):
                close(a, b)
            else:
                assert a == b


def test_the_number_of_rows_may_be_given() -> None:
    for axes in (None, (None,), ({"a": None},)):
        result = pb.vmap(lambda p: (p["a"] * 2, 1.0), axes, (1, 0), axis_size=3)({"a": X})
        close(result[0], np.stack([X * 2] * 3, 1))
        close(result[1], np.ones(3))
    close(pb.vmap(lambda: X, axis_size=2)(), np.stack([X, X]))
    close(pb.vmap(pb.vmap(lambda x, k: x * k, (0, None), axis_size=len(X)), (None, 0))(X, np.arange(2.0)), np.stack([0 * X, X]))
    close(pb.grad(lambda x: np.sum(pb.vmap(lambda x: x**2, None, axis_size=3)(x)))(X), 6 * X)


def test_vmap_over_trees_keywords_and_nested() -> None:
    def f(p: dict[str, Any], scale: Array, *, shift: Array) -> Any:
        return {"y": p["w"] * scale + shift}

    result = pb.vmap(f, in_axes=({"w": 0, "unused": None}, None))({"w": W, "unused": X}, 2.0, shift=np.arange(2.0))
    close(result["y"], W * 2.0 + np.arange(2.0)[:, None])
    distances = pb.vmap(pb.vmap(lambda a, b: np.sqrt(np.sum((a - b) ** 2)), (None, 0)), (0, None))
    close(distances(W, W + 1), np.linalg.norm(W[:, None] - W[None] - 1, axis=-1))
    assert pb.vmap(lambda x: x * 2)(np.zeros((0, 3))).shape == (0, 3)


class Model:
    def __init__(self) -> None:
        self.w = W

    def predict(self, x: Array) -> Array:
        return np.tanh(self.w @ x)

    @pb.vmap
    def rows(self, x: Array) -> Array:
        return self.w @ x

    @pb.jacobian
    def slope(self, x: Array) -> Array:
        return np.tanh(self.w @ x)


def test_methods() -> None:
    model = Model()
    close(model.rows(W), W @ W.T)
    expected = model.slope(X)
    close(pb.jacrev(model.predict)(X), expected)
    close(pb.jvp(model.predict, (X,), (X,))[1], expected @ X)
    close(pb.vjp(model.predict, X)[1](np.ones(2))[0], expected.sum(0))
    model.w = 2 * W
    close(pb.jvp(model.predict, (X,), (X,))[1], model.slope(X) @ X)


def test_writes_reach_the_arguments() -> None:
    def f(x: Array) -> Array:
        x[0] = np.sum(x)
        return x[1] * 2

    rows = np.arange(6.0).reshape(3, 2)
    close(pb.vmap(f)(rows), [2.0, 6.0, 10.0])
    close(rows, [[1.0, 1.0], [5.0, 3.0], [9.0, 5.0]])
    y, pull = pb.vjp(f, X.copy())
    close(y, X[1] * 2)
    close(pull(1.0)[0], [0.0, 2.0, 0.0])


def test_a_cotangent_belongs_to_the_point_of_the_call() -> None:
    x = X.copy()
    _, pull = pb.vjp(lambda x: x**2, x)
    x[:] = 0
    close(pull(np.ones(3))[0], 2 * X)


def test_checks_that_fail_for_a_row_fail() -> None:
    with pytest.raises(IndexError, match="in row 1\n"):
        pb.vmap(lambda x, k: x[k])(W, np.array([0, 7]))
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix, in row 2\n"):
        pb.vmap(np.linalg.inv)(np.stack([np.eye(2), np.eye(2), np.zeros((2, 2)), np.zeros((2, 2))]))
    with pytest.raises(np.linalg.LinAlgError, match=r"not positive definite, in row \(0, 1\)\n"):
        pb.vmap(pb.vmap(pb.grad(lambda a: np.linalg.cholesky(a)[0, 0])))(np.stack([np.eye(2), -np.eye(2)])[None])
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix\n"):
        pb.jit(np.linalg.inv)(np.zeros((3, 2, 2)))


def test_new_sizes_compile_nothing() -> None:
    def f(x: Array) -> Array:
        return np.linalg.solve(np.outer(x, x) + np.eye(x.size), np.cos(x))

    mapped, jacobian = pb.vmap(f), pb.jacobian(lambda x: np.tanh(x[1:] * x[:-1]))
    mapped(np.ones((4, 3))), jacobian(np.ones(5))
    before = template_counts().built
    mapped(np.ones((7, 3))), mapped(np.ones((2, 5))), jacobian(np.ones(9))
    assert template_counts().built == before


def test_calls_are_traced_once() -> None:
    def f(x: Array) -> Array:
        return np.sin(x) * 3.0

    pb.jvp(f, (X,), (X,))
    _, pull = pb.vjp(f, X)
    pull(X)
    before = traces()
    pb.jvp(f, (X + 1,), (X,))
    pb.vjp(f, X + 1)[1](X)
    assert traces() == before


def test_a_value_and_its_derivatives_share_what_they_compute() -> None:
    def both(x: Array) -> Any:
        y, pull = pb.vjp(lambda x: np.sum(np.exp(x)), x)
        return y, pull(1.0), pb.jvp(lambda x: np.sum(np.exp(x)), (x,), (x,))

    text = pb.jit(both).stages(X)["simplify"]
    assert text.count(" = exp ") == 1


def test_prints_show_once(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: Array) -> Array:
        pb.print("x is", x)
        return x * 2

    pb.jit(lambda x: pb.vjp(f, x)[1](x))(np.array([1.0]))
    assert capfd.readouterr().out.count("x is") == 1
    pb.vmap(f)(np.array([1.0, 2.0]))
    assert capfd.readouterr().out == "x is [1. 2.]\n"


Z = np.array([1.2 + 0.7j, -0.4 + 0.2j])


def test_complex_numbers() -> None:
    """Of real results by complex numbers: d/dx - i d/dy; complex functions of complex numbers count as holomorphic."""
    real = lambda z: np.abs(z) ** 2 * np.real(z[0])  # noqa: E731
    holomorphic = lambda z: np.sin(z) * z[0]  # noqa: E731
    expected = np.diag(np.cos(Z) * Z[0]) + np.outer(np.sin(Z), [1, 0])
    for jacobian in (pb.jacfwd, pb.jacrev, pb.jacobian):
        close(jacobian(real)(Z), np.diag(2 * np.conj(Z)) * Z[0].real + np.outer(np.abs(Z) ** 2, [1, 0]))
        close(jacobian(holomorphic)(Z), expected)
        close(jacobian(lambda x: np.exp(1j * x))(X), np.diag(1j * np.exp(1j * X)))
    close(pb.jvp(holomorphic, (Z,), (1j * Z,))[1], expected @ (1j * Z))
    close(pb.vjp(holomorphic, Z)[1](Z)[0], Z @ expected)
    close(pb.jvp(real, (Z,), (1j * Z,))[1], -(np.abs(Z) ** 2) * Z[0].imag)
    close(pb.vmap(holomorphic)(np.stack([Z, 2 * Z])), np.stack([holomorphic(Z), holomorphic(2 * Z)]))
    with pytest.raises(pb.TraceError, match="a Hessian by complex numbers"):
        pb.hessian(lambda z: np.sum(real(z)))(Z)


def test_a_derivative_that_cannot_be_had_is_an_error_where_it_is_needed() -> None:
    def f(a: Array) -> Any:
        return scipy.linalg.schur(a)[0], a @ a

    a = W.T @ W
    _, tangent = pb.jvp(lambda a: f(a)[1], (a,), (a,))
    close(tangent, 2 * a @ a)
    close(pb.jvp(lambda a: np.floor(f(a)[0]) + f(a)[1], (a,), (a,))[1], 2 * a @ a)
    with pytest.raises(pb.TraceError, match="no derivative of schur"):
        pb.jvp(f, (a,), (a,))


def chain(h: Array, weights: list[Array]) -> Array:
    for w in weights:
        h = np.tanh(h @ w)
    return h


def in_blocks(block: Callable[..., Any], weights: list[Array], x: Array) -> Array:
    for k in range(0, len(weights), 3):
        x = block(x, weights[k : k + 3])
    return np.sum(x**2)


def test_checkpoint_keeps_less_and_gives_the_same() -> None:
    weights, x = list(RNG.normal(size=(9, 16, 16)) / 4), RNG.normal(size=(64, 16))
    plain = pb.grad(lambda ws: in_blocks(chain, ws, x))
    kept = pb.grad(lambda ws: in_blocks(pb.checkpoint(chain), ws, x))
    for a, b in zip(kept(weights), plain(weights), strict=True):
        close(a, b)
    assert kept.memory(weights).peak_bytes < 0.85 * plain.memory(weights).peak_bytes


POLICIES: dict[str, dict[str, Any]] = {
    "nothing": {"policy": "nothing"},
    "contractions": {"policy": "contractions"},
    "everything": {"policy": "everything"},
    "a function": {"policy": lambda op, place: op == "tanh" and place.startswith("test_transforms.py:")},
    "no bytes": {"budget": 0},
    "some bytes": {"budget": 40_000},
    "all bytes": {"budget": 1 << 30},
}


@pytest.mark.parametrize("options", POLICIES.values(), ids=POLICIES.keys())
def test_policies_of_checkpoint_change_no_value(options: dict[str, Any]) -> None:
    weights, x = list(RNG.normal(size=(9, 8, 8)) / 4), RNG.normal(size=(12, 8))
    plain = pb.grad(lambda ws: in_blocks(chain, ws, x))
    kept = pb.grad(lambda ws: in_blocks(pb.checkpoint(**options)(chain), ws, x))
    for a, b in zip(kept(weights), plain(weights), strict=True):
        close(a, b)
    square = pb.checkpoint(lambda x: np.sum(np.tanh(x @ x) @ x), **options)
    close(pb.hessian(square)(x[:3, :3]), pb.hessian(lambda x: np.sum(np.tanh(x @ x) @ x))(x[:3, :3]))
    batch = RNG.normal(size=(2, 3, 3))
    close(pb.vmap(pb.grad(square))(batch), np.stack([pb.grad(square)(row) for row in batch]))


def test_a_budget_is_spent_on_products() -> None:
    weights, x = list(RNG.normal(size=(9, 16, 16)) / 4), RNG.normal(size=(64, 16))

    def flops(**options: Any) -> int:
        return pb.grad(lambda ws: in_blocks(pb.checkpoint(chain, **options), ws, x)).cost(weights).total.flops

    assert flops(budget=1 << 30) == flops(policy="contractions") < flops(budget=20_000) < flops()
    with pytest.warns(pb.CheckpointWarning, match="needs 16,384 bytes more: it keeps 8,192 bytes, and computes 8,192 again"):
        assert flops(budget=0) == flops(budget=20_000)


LAYER = 256 * 32 * 8
"""Bytes of one layer of the networks below."""

NETWORKS: dict[str, Callable[[list[Array], Array], Any]] = {
    "a chain": lambda ws, x: np.sum(chain(x, ws) ** 2),
    "skips": lambda ws, x: np.sum(functools.reduce(lambda h, w: h + np.tanh(h @ w), ws, x) ** 2),
    "a skip from the first": lambda ws, x: np.sum(functools.reduce(lambda h, w: np.tanh(h @ w) + x @ ws[0], ws[1:], x) ** 2),
    "norms": lambda ws, x: np.sum(functools.reduce(lambda h, w: (h @ w) / (1 + np.sum(h**2, axis=1, keepdims=True)), ws, x) ** 2),
    "a loop amid": lambda ws, x: np.sum(chain(pb.fori_loop(0, 3, lambda k, h: np.sin(h @ ws[0]), chain(x, ws[:6])), ws[6:]) ** 2),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS.keys())
@pytest.mark.parametrize("layers", [6, 8])
def test_a_budget_of_a_whole_function_bounds_the_peak(network: Callable[..., Any], layers: int) -> None:
    weights, x = list(RNG.normal(size=(12, 32, 32)) / 8), RNG.normal(size=(256, 32))
    plain = pb.value_and_grad(lambda ws: network(ws, x))
    short = pb.value_and_grad(pb.checkpoint(lambda ws: network(ws, x), budget=layers * LAYER))
    for a, b in zip(tree_leaves(short(weights)), tree_leaves(plain(weights)), strict=True):
        close(a, b)
    others = 5 * LAYER + 2 * 12 * 32 * 32 * 8 + 64
    """The data, two cotangents, what a kernel reads and writes at a time; weights and their gradients; a few scalars."""
    assert short.memory(weights).peak_bytes <= layers * LAYER + others < plain.memory(weights).peak_bytes


def dense(ws: list[Array], x: Array) -> Any:
    """Each layer reads the sum of all before it."""
    total = x
    for w in ws:
        total = total + np.sin(total @ w) * 0.5
    return np.sum(np.cos(total))


def two_branches(ws: list[Array], x: Array) -> Any:
    return np.sum(chain(x, ws[:6]) * chain(x, ws[6:]))


def exchanging(ws: list[Array], x: Array) -> Any:
    y = x
    for w in ws:
        x, y = x + np.tanh(y @ w), y
        x, y = y, x
    return np.sum(x * y)


def recurrent(ws: list[Array], x: Array, places: tuple[int, ...], times: int) -> Any:
    """Loops in front of the layers at ``places``."""
    for k, w in enumerate(ws):
        if k in places:
            x = pb.fori_loop(0, times, lambda j, h, w=w: np.sin(h @ w) + j / times, x)
        x = np.tanh(x @ w)
    return np.sum(x**2)


def sorted_layers(ws: list[Array], x: Array) -> Any:
    for w in ws:
        x = np.sort(np.tanh(x @ w), axis=0)
    return np.sum(x**3)


def scanned(ws: list[Array], x: Array) -> Any:
    """A loop over rows that returns rows, backwards."""
    h, rows = pb.scan(lambda h, row: (np.tanh(h @ ws[0] + row), h * row), x[0], chain(x, ws[:4]), reverse=True)
    return np.sum(chain(rows, ws[4:]) ** 2) + np.sum(h)


def gated(ws: list[Array], x: Array) -> Any:
    for v, w in zip(ws[::2], ws[1::2], strict=True):
        x = np.tanh(x @ v) / (1 + np.exp(-(x @ w)))
    return np.sum(x**2)


def tied(ws: list[Array], x: Array) -> Any:
    """24 layers of three weights."""
    for k in range(24):
        x = np.tanh(x @ ws[k % 3])
    return np.sum(x**2)


def of_all(ws: list[Array], x: Array) -> Any:
    """Each layer reads the results of all before it."""
    hs = [x]
    for w in ws:
        hs.append(np.tanh(functools.reduce(np.add, hs) @ w))
    return np.sum(hs[-1] ** 2)


MORE_NETWORKS: dict[str, Callable[[list[Array], Array], Any]] = {
    **NETWORKS,
    "dense": dense,
    "of all": of_all,
    "gated": gated,
    "tied weights": tied,
    "two branches": two_branches,
    "exchanging": exchanging,
    "sorts": sorted_layers,
    "rows": scanned,
    "a loop first": lambda ws, x: recurrent(ws, x, (0,), 5),
    "a loop last": lambda ws, x: np.sum(pb.fori_loop(0, 7, lambda k, h: np.tanh(h @ ws[0]), chain(x, ws[:8])) ** 2),
    "two loops": lambda ws, x: recurrent(ws, x, (3, 9), 4),
    "a long loop": lambda ws, x: recurrent(ws[:2], x, (1,), 30),
}


@pytest.mark.parametrize("network", MORE_NETWORKS.values(), ids=MORE_NETWORKS.keys())
@pytest.mark.parametrize("layers", [3, 5, 8, 12])
def test_a_budget_bounds_the_peak_or_a_warning_names_one_that_does(network: Callable[..., Any], layers: int) -> None:
    weights, x = list(np.random.default_rng(3).normal(size=(12, 32, 32)) / 8), np.random.default_rng(4).normal(size=(256, 32))
    plain = pb.value_and_grad(lambda ws: network(ws, x))
    others = 5 * LAYER + 2 * 12 * 32 * 32 * 8 + 64

    def with_budget(budget: int) -> tuple[int, list[str]]:
        short = pb.value_and_grad(pb.checkpoint(lambda ws: network(ws, x), budget=budget))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", pb.CheckpointWarning)
            results = short(weights)
        for a, b in zip(tree_leaves(results), tree_leaves(plain(weights)), strict=True):
            close(a, b)
        return short.memory(weights).peak_bytes, [str(w.message) for w in said if w.category is pb.CheckpointWarning]

    budget = layers * LAYER
    peak, warned = with_budget(budget)
    if warned:
        needed = int(warned[0].partition("give budget=")[2].partition(",")[0])
        assert needed > budget
        budget = needed
        peak, warned = with_budget(budget)
    assert not warned and peak <= budget + others


def test_a_budget_that_no_division_keeps_says_by_how_much() -> None:
    weights, x = list(RNG.normal(size=(12, 32, 32)) / 8), RNG.normal(size=(256, 32))
    f = pb.grad(pb.checkpoint(lambda ws: np.sum(chain(x, ws) ** 2), budget=2 * LAYER))
    with pytest.warns(pb.CheckpointWarning, match=r"budget=131_072, .* needs .* bytes more: .*; give budget=") as said:
        f(weights)
    assert said[0].filename == __file__
    with warnings.catch_warnings(action="error"):
        f(weights)


def test_segments_end_where_few_bytes_cross() -> None:
    """Wide layers alternate with narrow ones: the narrow results are kept."""
    narrow, wide = RNG.normal(size=(32, 4)), RNG.normal(size=(4, 32))
    x = RNG.normal(size=(256, 4))

    def f(narrow: Array, wide: Array) -> Any:
        h = x
        for _ in range(6):
            h = np.tanh(np.tanh(h @ wide) @ narrow)
        return np.sum(h**2)

    budget = 256 * 8 * (32 + 6 * 4) + 8
    """The narrow results, one wide one, the sum."""
    with warnings.catch_warnings(action="error"):
        short = pb.grad(pb.checkpoint(f, budget=budget), argnums=(0, 1))
        for a, b in zip(short(narrow, wide), pb.grad(f, argnums=(0, 1))(narrow, wide), strict=True):
            close(a, b)


@pytest.mark.parametrize("options", [{"policy": "all"}, {"budget": -1}, {"budget": 1.5}, {"budget": True}])
def test_policies_that_there_are_not(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="takes"):
        pb.checkpoint(chain, **options)


def test_checkpoint_among_transforms() -> None:
    weight = W[0]

    def plain(x: Array) -> Array:
        return np.sum((np.sin(x) * x * weight) ** 2)

    @pb.checkpoint
    def f(x: Array) -> Array:
        return plain(x)

    close(f(X), plain(X))
    for transform in (pb.grad, pb.hessian, pb.jacfwd, lambda g: pb.grad(pb.checkpoint(g))):
        close(transform(f)(X), transform(plain)(X))
    close(pb.vmap(pb.grad(f))(W), pb.vmap(pb.grad(plain))(W))
    close(pb.jvp(f, (X,), (W[1],))[1], pb.grad(plain)(X) @ W[1])
    close(pb.grad(lambda w: np.sum(pb.checkpoint(lambda x: np.sin(x) * w)(X)))(X), np.sin(X))
    close(pb.grad(pb.checkpoint(lambda x, n: np.sum(x[:n] ** 3)))(X, 2), [3 * X[0] ** 2, 3 * X[1] ** 2, 0])
