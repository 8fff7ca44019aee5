"""Contractions that share kernels with their neighbours: right whatever these are, and as few kernels as there can be."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

import pullback as pb
from pullback.codegen.fuse import matmul_fusion
from pullback.ir import Function
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.matmul import product
from pullback.ir.ops.library.routines import gemm
from pullback.ir.ops.program import alloc, launch
from pullback.tracer import flatten, trace
from tests.support.targets import assert_close, compiled, run_targets

Array = Any
Form = Callable[..., Any]
SIZES = ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (1, 7, 5), (6, 1, 9), (5, 8, 1), (4, 3, 5), (67, 4, 9))
ROOT_HALF = 0.7071067811865475


@pytest.fixture(autouse=True)
def carries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_fusion, "FUSING_TARGETS", frozenset({"cpu", "cuda"}))


def gelu(z: Array) -> Array:
    return 0.5 * z * (1.0 + erf(z * ROOT_HALF))


def softmax(z: Array) -> Array:
    e = np.exp(z - np.max(z, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def sums(x: Array, w: Array, b: Array) -> Any:
    z = np.tanh(x @ w + b)
    return z, np.sum(z, axis=0), np.sum(z * z), np.sum(z * 2.0, axis=0) * 0.5


def alone_and_with(x: Array, w: Array, b: Array) -> Any:
    return x @ w, np.cos(x @ w) * b


EPILOGUES: dict[str, Form] = {
    "bias": lambda x, w, b: x @ w + b,
    "gelu": lambda x, w, b: gelu(x @ w + b),
    "two results": lambda x, w, b: (x @ w + b, np.maximum(x @ w + b, 0.0)),
    "where": lambda x, w, b: np.where(x @ w > b, x @ w, -1.0),
    "cast": lambda x, w, b: (x @ w + b).astype(np.float32),
    "half": lambda x, w, b: np.tanh(x @ w + b).astype(np.float16),
    "rows": lambda x, w, b: x @ w + np.sum(x, axis=1)[:, None] * b,
    "sums": sums,
    "alone and with": alone_and_with,
    "added products": lambda x, w, b: x @ w + np.sin(x) @ (w * w) + b,
    "softmax": lambda x, w, b: softmax(x @ (w + 0.0)) if w.shape[1] else x @ w,
    "cumulated": lambda x, w, b: np.cumsum(x @ w + b, axis=1),
    "turned": lambda x, w, b: (x @ w + b).T * 2.0,
    "of a product": lambda x, w, b: np.tanh(x @ w + b) @ w.T + x,
}
PROLOGUES: dict[str, Form] = {
    "scaled": lambda x, w, b: (2.0 * x) @ (w * b),
    "relu": lambda x, w, b: np.maximum(x, 0.0) @ np.where(w > 0.0, w, 0.1 * w),
    "function": lambda x, w, b: np.exp(x) @ w,
    "normalised": lambda x, w, b: ((x - np.mean(x, axis=1, keepdims=True)) * 0.5) @ w if x.size else x @ w,
    "picked": lambda x, w, b: x[np.arange(x.shape[0])[::-1]] @ w,
    "reversed": lambda x, w, b: x[::-1] @ w[:, ::-1],
    "joined": lambda x, w, b: np.concatenate([x, 2.0 * x], axis=1) @ np.concatenate([w, w], axis=0),
    "padded": lambda x, w, b: np.pad(x, ((1, 2), (0, 0))) @ w,
    "converted": lambda x, w, b: x.astype(np.float32) @ w.astype(np.float32),
    "spread": lambda x, w, b: np.broadcast_to(x[:, :1], x.shape) @ w if x.shape[1] else x @ w,
    "transposed": lambda x, w, b: (x.T * 0.5).T @ (w.T - 1.0).T,
    "of itself": lambda x, w, b: (x * 2.0) @ x.T + x @ (x * 2.0).T,
}


def made(form: Form, *args: Any) -> tuple[Function, list[Any]]:
    """The func of a call, and its arguments."""
    result = trace(form, args, {})
    values = result.arguments(flatten((args, {}))[0])
    assert values is not None
    return result.function, [np.asarray(v) for v in values]


def check(form: Form, *args: Any, terms: int = 9) -> None:
    """All stages agree with the interpreter of the func."""
    function, values = made(form, *args)
    results = run_targets(function, values)
    expected = results.pop("interpreter")
    for target, result in results.items():
        for one, wanted in zip(result, expected, strict=True):
            finite = np.abs(wanted[np.isfinite(wanted)], dtype=np.float64) if wanted.dtype.kind == "f" and np.size(wanted) else []
            assert_close(one, wanted, 8 * (4 + terms), max(1.0, np.max(finite, initial=0.0)), target)


def arguments(m: int, k: int, n: int, dtype: Any = np.float64) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(m + 10 * k + 100 * n)
    return tuple(rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n), (n,)))  # type: ignore[return-value]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", [*EPILOGUES, *PROLOGUES])
def test_neighbours(name: str, sizes: tuple[int, int, int]) -> None:
    check((EPILOGUES | PROLOGUES)[name], *arguments(*sizes), terms=max(sizes))


@pytest.mark.parametrize("name", ["gelu", "sums", "relu", "rows"])
def test_single_precision(name: str) -> None:
    check((EPILOGUES | PROLOGUES)[name], *arguments(13, 6, 7, np.float32), terms=13)


def test_half_precision_adds_up_in_single() -> None:
    """Whole numbers whose sums f16 could not hold on the way."""
    x, w = np.full((3, 4000), 1.0, np.float16), np.full((4000, 2), 1.0, np.float16)
    w[1::2] = -1.0
    x[:, :2100:2] = 2.0
    wide = x.astype(np.float32) @ w.astype(np.float32)
    function, values = made(lambda x, w: x @ w + np.float16(1.0), x, w)
    (result,) = compiled(function).run(values)
    np.testing.assert_array_equal(result, (wide + 1.0).astype(np.float16))
    assert ops(lambda x, w: x @ w, x, w) == ["product"]


def every_second(x: Array) -> Array:
    result = np.zeros([2 * e for e in x.shape], x.dtype)[tuple(slice(None, None, 2) for _ in x.shape)]
    result[...] = x
    return result


@pytest.mark.parametrize("turn", [np.asfortranarray, every_second, lambda x: x[::-1]], ids=["columns", "apart", "backwards"])
@pytest.mark.parametrize("name", ["bias", "relu", "two results", "sums"])
def test_strides(name: str, turn: Callable[[Array], Array]) -> None:
    check((EPILOGUES | PROLOGUES)[name], *map(turn, arguments(6, 4, 5)))


BATCHES: dict[str, tuple[Form, tuple[tuple[int, ...], ...]]] = {
    "of both": (lambda x, w: np.tanh(x @ w + 1.0), ((3, 4, 2), (3, 2, 5))),
    "with sums": (lambda x, w: (np.sum(x @ w, axis=1), np.sum(x @ w, axis=(0, 1)), np.sum(x @ w)), ((3, 4, 2), (3, 2, 5))),
    "of one": (lambda x, w: np.tanh(x @ w) - x, ((3, 4, 5), (5, 5))),
    "heads": (lambda q, k: softmax(0.5 * np.einsum("bqhd,bkhd->bhqk", q, k)), ((2, 4, 3, 5), (2, 6, 3, 5))),
    "turned": (lambda x, w: 2.0 * np.einsum("bmk,bkn->nbm", x, w), ((3, 4, 2), (3, 2, 5))),
    "rows of two axes": (lambda x, w: (gelu(x @ w + w[0]) - 1.0, np.sum(x @ w, axis=(0, 1)), np.max(x @ w)), ((3, 4, 2), (2, 5))),
    "rows with others": (lambda x, w: softmax((x @ w) * 0.5 + x) + x[:, :1], ((3, 4, 5), (5, 5))),
    "heads scaled": (lambda q, k: np.tanh(q @ np.swapaxes(k, 2, 3) * 0.5 + q[0, 0, 0, 0]), ((2, 3, 4, 5), (2, 3, 6, 5))),
    "none": (lambda x, w: np.tanh(x @ w + 1.0), ((0, 4, 2), (0, 2, 5))),
    "mapped": (lambda x, w: pb.vmap(lambda a, b: np.tanh(a @ b) + np.sum(a))(x, w), ((3, 4, 2), (3, 2, 5))),
    "two axes": (lambda x, w: np.tensordot(np.sin(x), w, 2) + 1.0, ((3, 4, 2), (4, 2, 5))),
}


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str) -> None:
    form, shapes = BATCHES[name]
    rng = np.random.default_rng(3)
    check(form, *(rng.normal(size=shape) for shape in shapes))


def squares(x: Array, w: Array) -> Any:
    y = np.einsum("zij,mzj->mzi", w, x[:, None, :] - w[:, 0, :])
    return y, np.sum(y * y, axis=2)


def weighted(x: Array, w: Array) -> Any:
    s = np.max(w, axis=2)
    return np.einsum("nzi,nzj->zij", w * s[:, :, None], x[:, None, :] - 0.5 * s[:, :, None])


NARROW: dict[str, tuple[Form, str]] = {
    "squares": (squares, "mk,znk"),
    "weighted": (weighted, "mk,mzn"),
    "all reductions": (lambda x, w: [f((x @ w) * 0.1, axis=2) for f in (np.sum, np.max, np.min, np.prod)], "zmk,zkn"),
    "rows of others": (lambda x, w: np.sum((x @ w) * x[:, :, :1] + w[:, :1, :], axis=2), "zmk,zkn"),
    "operands": (lambda x, w: (2.0 * x - 1.0) @ np.where(w > 0.0, w, 0.5), "zmk,zkn"),
    "right alone": (lambda x, w: x @ (w * w[:, :1, :]), "zmk,zkn"),
    "rows side by side": (lambda x, w: np.einsum("zkm,zkn->zmn", x + 1.0, w), "zkm,zkn"),
    "terms by terms": (lambda x, w: np.einsum("kzm,kzn->zmn", x * x, w), "kzm,kzn"),
    "all turned": (lambda x, w: np.einsum("zkm,znk->mzn", x * 0.5, w) + 1.0, "zkm,znk"),
    "shared": (lambda x, w: np.sum(np.einsum("mk,zkn->mzn", x * 2.0, w), axis=2), "mk,zkn"),
    "picked": (lambda x, w: x[::-1][np.zeros(x.shape[0], int)] @ w[:, ::-1], "zmk,zkn"),
    "padded": (lambda x, w: np.pad(x, ((0, 0), (1, 0), (0, 0))) @ w, "zmk,zkn"),
    "many ops": (lambda x, w: np.sqrt(np.abs(((x @ w) * 2.0 - 1.0) / 3.0 + 0.25)) * (x @ w) - 1.0, "zmk,zkn"),
}
EXTENTS = {
    "small": {"z": 19, "m": 5, "k": 4, "n": 7},
    "narrow": {"z": 3, "m": 37, "k": 9, "n": 20},
    "one tile": {"z": 11, "m": 13, "k": 70, "n": 5},
    "long": {"z": 2, "m": 18, "k": 150, "n": 10},
    "longer": {"z": 2, "m": 5, "k": 1100, "n": 3},
    "panels": {"z": 3, "m": 30, "k": 12, "n": 50},
    "wide": {"z": 2, "m": 7, "k": 20, "n": 210},
    "just wide": {"z": 2, "m": 20, "k": 5, "n": 100},
    "thin": {"z": 40, "m": 2, "k": 3, "n": 33},
    "many rows": {"z": 2, "m": 130, "k": 6, "n": 17},
}


@pytest.mark.parametrize("extents", EXTENTS)
@pytest.mark.parametrize("name", NARROW)
def test_batches_of_all_widths(name: str, extents: str) -> None:
    form, words = NARROW[name]
    rng = np.random.default_rng(len(name))
    shapes = [tuple(EXTENTS[extents][k] for k in word) for word in words.split(",")]
    dtype = np.float32 if len(name + extents) % 2 else np.float64
    check(form, *(rng.normal(size=shape).astype(dtype) for shape in shapes), terms=4 * max(EXTENTS[extents].values()))


@pytest.mark.parametrize("name", ["operands", "right alone", "rows side by side", "terms by terms", "all turned", "shared"])
@pytest.mark.parametrize("empty", ["z", "k"])
def test_empty_batches(name: str, empty: str) -> None:
    form, words = NARROW[name]
    extents = {"z": 2, "m": 3, "k": 2, "n": 4, empty: 0}
    check(form, *(np.ones(tuple(extents[k] for k in word)) for word in words.split(",")))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [16, 24, 48, 64, 95, 96, 97, 128, 129, 200])
def test_all_columns_of_a_row_are_combined(columns: int, dtype: Any) -> None:
    """However many panels there are; each call has memory of its own, with whatever is in it."""
    rng = np.random.default_rng(columns)
    total = pb.jit(lambda x, w: np.sum((x @ w) * 2.0, axis=2))
    for k in range(3):
        x, w = rng.normal(size=(5 + k, 64, 40)).astype(dtype), rng.normal(size=(5 + k, 40, columns)).astype(dtype)
        expected = 2.0 * np.sum(x.astype(np.float64) @ w.astype(np.float64), axis=2)
        np.testing.assert_allclose(total(x, w), expected, atol=4000 * columns**0.5 * np.finfo(dtype).eps)


def test_batches_have_as_few_kernels() -> None:
    x, w = np.ones((6, 4)), np.ones((3, 5, 4))
    assert ops(squares, x, w) == ["product"]
    assert ops(lambda x, w: np.sum(x @ w, axis=2), np.ones((3, 6, 4)), np.ones((3, 4, 5))) == ["product"]
    assert ops(lambda x, w: np.exp(x @ w), np.ones((3, 6, 4)), np.ones((3, 4, 5))) == ["product", "loops"]
    assert ops(lambda x, w: np.sum(x @ w, axis=1), np.ones((3, 6, 4)), np.ones((3, 4, 5))) == ["product", "loops"]
    assert ops(weighted, np.ones((9, 4)), np.ones((9, 3, 5))) == ["loops", "product"]


def test_complex_products() -> None:
    rng = np.random.default_rng(5)
    x, w = (rng.normal(size=(*shape, 2)).view(np.complex128)[..., 0] for shape in ((4, 3), (3, 5)))
    check(lambda x, w: (np.conj(x @ w) + 1j, np.sum(x @ (2.0 * w), axis=0)), x, w)
    check(pb.grad(lambda x, w: np.sum(np.abs(x @ w) ** 2)), x, w)


def test_operands_that_others_store_are_stored_first() -> None:
    """Parts of complex factors, which a product reads, and which a kernel of another space copies."""
    rng = np.random.default_rng(6)
    a = rng.normal(size=(5, 3, 2)).view(np.complex128)[..., 0]

    def loss(a: Array) -> Array:
        weights = np.cos(np.arange(15.0)).reshape(5, 3)
        parts = zip(np.linalg.qr(a), (weights, weights[:3]))
        return sum(np.sum(w * np.real(x)) + np.sum(np.sin(w) * np.imag(x)) for x, w in parts)

    function, values = made(pb.grad(loss), a)
    (result,) = compiled(function).run(values)
    (expected,) = run_alone(function, values)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-12)


def run_alone(function: Function, values: list[Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul_fusion, "FUSING_TARGETS", frozenset())
        patch.setattr(matmul_fusion, "BATCH_TARGETS", frozenset())
        return compiled(function).run(values)


# gradients


def layers(w1: Array, b1: Array, w2: Array, b2: Array, x: Array, y: Array) -> Array:
    h = np.tanh(x @ w1 + b1)
    return np.mean((np.maximum(h @ w2 + b2, 0.0) - y) ** 2)


def attention(q: Array, k: Array, v: Array) -> Array:
    return np.sum(np.tanh(softmax(q @ k.T * 0.5) @ v))


def lstm(w: Array, h: Array, xs: Array) -> Array:
    def step(carry: Any, x: Array) -> Any:
        h, c = carry
        gates = np.concatenate([x, h], axis=1) @ w
        i, f, o, g = np.split(gates, 4, axis=1)
        c = np.tanh(f) * c + np.tanh(i) * np.tanh(g)
        h = np.tanh(o) * np.tanh(c)
        return (h, c), h

    (h, _), hs = pb.scan(step, (h, h), xs)
    return np.sum(h * h) + np.mean(hs)


def recurrent(w: Array, h: Array, xs: Array) -> Array:
    h, _ = pb.scan(lambda h, x: (np.tanh(h @ w + h + x), None), h, xs)
    return np.sum(h)


def mixture(x: Array, means: Array, q: Array) -> Array:
    y = np.einsum("kij,nkj->nki", q, x[:, None, :] - means)
    inner = np.sum(q, axis=(1, 2)) - 0.5 * np.sum(y * y, axis=2)
    top = np.max(inner, axis=1, keepdims=True)
    return np.sum(np.log(np.sum(np.exp(inner - top), axis=1)) + top[:, 0])


def network(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    rng = np.random.default_rng(len(shapes))
    return tuple(0.5 * rng.normal(size=shape) for shape in shapes)


PROGRAMS: dict[str, tuple[Form, tuple[Array, ...], tuple[int, ...]]] = {
    "gelu": (lambda x, w, b: np.mean(gelu(x @ w + b)), network((5, 3), (3, 4), (4,)), (0, 1, 2)),
    "layers": (layers, network((3, 6), (6,), (6, 2), (2,), (7, 3), (7, 2)), (0, 1, 2, 3)),
    "attention": (attention, network((5, 3), (4, 3), (4, 2)), (0, 1, 2)),
    "lstm": (lstm, network((5, 12), (2, 3), (4, 2, 2)), (0, 1)),
    "recurrent": (recurrent, network((3, 3), (2, 3), (5, 2, 3)), (0, 1)),
    "mixture": (mixture, network((40, 3), (5, 3), (5, 3, 3)), (0, 1, 2)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients(name: str) -> None:
    form, args, wanted = PROGRAMS[name]
    check(pb.value_and_grad(form, argnums=wanted), *args)


@pytest.mark.parametrize("name", ["gelu", "layers", "attention", "recurrent", "mixture"])
def test_second_order(name: str) -> None:
    form, args, _ = PROGRAMS[name]
    check(pb.grad(lambda *args: np.sum(pb.grad(form)(*args) ** 2)), *args, terms=90)


# kernels


def ops(form: Form, *args: Any) -> list[str]:
    """What each launch of a call does: a product, a call of a library, or neither."""
    program, *kernels = compiled(made(form, *args)[0]).lowered.functions
    names = {product: "product", gemm: "gemm"}
    does = {k.name: next((names[i.op] for i in walk(k.body) if i.op in names), "loops") for k in kernels}
    return [does[i.params["kernel"]] for i in walk(program.body) if i.op is launch]


X, W, B = arguments(6, 4, 5)


@pytest.mark.parametrize("name", ["bias", "gelu", "two results", "where"])
def test_neighbours_are_in_one_kernel(name: str) -> None:
    assert ops(EPILOGUES[name], X, W, B) == ["product"]


@pytest.mark.parametrize("name", ["scaled", "relu", "reversed", "picked"])
def test_what_is_cheap_is_computed_as_it_is_read(name: str) -> None:
    assert ops(PROLOGUES[name], X, W, B) == ["product"]


def test_rows_of_several_axes_are_rows() -> None:
    x, b = np.ones((3, 6, 4)), np.ones(5)
    assert ops(lambda x, w, b: np.tanh(x @ w + b), x, W, b) == ["product"]
    assert ops(lambda x, y: (x @ np.swapaxes(y, 2, 3)) * 0.5 + 1.0, np.ones((2, 3, 4, 5)), np.ones((2, 3, 6, 5))) == ["product"]
    gradient = pb.grad(lambda x, w, b: np.sum(np.tanh(x @ w + b)), argnums=(0, 1, 2))
    assert ops(gradient, x, W, b) == ["product", "gemm", "gemm"]


def test_sums_down_the_columns_are_in_it() -> None:
    assert ops(lambda x, w: (x @ w, np.sum(x @ w, axis=0), np.mean((x @ w) ** 2)), X, W) == ["product"]
    assert ops(lambda x, w: np.max(x @ w, axis=1), X, W) == ["gemm", "loops"]


def test_functions_go_through_memory() -> None:
    assert ops(PROLOGUES["function"], X, W, B) == ["loops", "gemm"]


def test_lone_products_are_the_librarys() -> None:
    assert ops(lambda x, w: x @ w, X, W) == ["gemm"]
    assert ops(lambda x, w: (x @ w).T, X, W)[0] == "gemm"


def test_what_is_stored_anyway_is_read() -> None:
    def form(x: Array, w: Array) -> Any:
        both = np.concatenate([x, x], axis=1)
        return both, both @ w

    assert ops(form, X, np.concatenate([W, W])) == ["loops", "gemm"]


def test_a_gradient_has_as_many_kernels_as_products() -> None:
    form, args, wanted = PROGRAMS["gelu"]
    assert ops(pb.value_and_grad(form, argnums=wanted), *args) == ["product", "gemm", "gemm"]
    form, args, wanted = PROGRAMS["layers"]
    assert sorted(ops(pb.value_and_grad(form, argnums=wanted), *args)) == ["gemm", "gemm", *["product"] * 3]


def test_without_it_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul_fusion, "FUSING_TARGETS", frozenset())
    assert ops(EPILOGUES["gelu"], X, W, B) == ["gemm", "loops"]
    assert ops(PROLOGUES["relu"], X, W, B) == ["loops", "loops", "gemm"]


# memory


def test_operands_are_not_written_over() -> None:
    """What a product reads at other places than its own is no place for its results; what it reads at its own is."""
    x, w = np.linspace(-1.0, 1.0, 25).reshape(5, 5), np.linspace(1.0, -1.0, 25).reshape(5, 5)

    def step(h: Array) -> Array:
        return np.tanh(h @ w + h)

    def steps(h: Array) -> Array:
        for _ in range(3):
            h = step(np.sin(h))
        return h

    expected = steps(x)
    np.testing.assert_allclose(pb.jit(steps)(x), expected, rtol=1e-12)
    donated = pb.jit(lambda h: step(h), donate=0)(x.copy())
    np.testing.assert_allclose(donated, step(x), rtol=1e-12)


def test_results_are_written_over_what_is_read_in_step() -> None:
    form: Form = lambda x, w, r: x @ w + np.cumsum(r, axis=1)  # noqa: E731
    program, *_ = compiled(made(form, X, W, X @ W)[0]).lowered.functions
    assert ops(form, X, W, X @ W) == ["loops", "product"]
    assert sum(i.op is alloc for i in program.instructions) == 1
    check(form, X, W, X @ W)


@pytest.mark.parametrize("spec", ["zmk,zkn->zmn", "zmk,kn->mzn", "mk,zkn->zmn", "zkm,zkn->zmn", "zmk,nk->mzn"])
def test_batches_without_elements(spec: str) -> None:
    """Some of the extents are 0, of kernels that serve other extents too."""
    words = spec.split("->")[0].split(",")

    def call(x: Array, y: Array) -> Any:
        z = np.einsum(spec, x + 1.0, np.sin(y))
        return np.tanh(z), z * 2.0

    compiled_call = pb.jit(call)
    for extents in itertools.product((65, 0, 5), repeat=4):
        named = dict(zip("zmkn", extents, strict=True))
        arguments = [np.full([named[k] for k in word], 0.5) for word in words]
        for result, expected in zip(compiled_call(*arguments), call(*arguments), strict=True):
            np.testing.assert_allclose(result, expected, rtol=1e-12, atol=0)
