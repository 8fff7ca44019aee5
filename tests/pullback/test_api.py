"""The face: transforms, their composition, containers, methods, options, and what stays true over many calls."""

import dataclasses
import functools
import inspect
import os
import subprocess
import sys
import threading
import tomllib
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from tests.support.api import Array, X, same, traces
from tests.support.paths import ROOT

SCALE = 3.0
OFFSET = np.arange(3.0)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Model:
    weights: Any
    bias: Any
    name: str = "model"


# transforms and how they compose


def test_jit_is_the_function() -> None:
    def f(x: Array, y: Array) -> Array:
        return np.sin(x) * y + 1

    same(pb.jit(f)(X, X), f(X, X))
    same(pb.jit(f)(X, y=2), f(X, y=2))


def test_decorators_with_and_without_arguments() -> None:
    @pb.jit
    def plain(x: Array) -> Array:
        return x * 2

    @pb.jit(static_argnames="n")
    def power(x: Array, n: int) -> Array:
        return x**n

    @pb.grad
    def slope(x: Array) -> Array:
        return x**3

    @pb.value_and_grad(argnums=1)
    def both(x: Array, y: Array) -> Array:
        return x * y**2

    same(plain(X), X * 2)
    same(power(X, 3), X**3)
    same(slope(2.0), np.float64(12.0))
    value, gradient = both(2.0, 3.0)
    same(value, 18.0)
    same(gradient, np.float64(12.0))


def cube(x: Array) -> Array:
    return np.sin(x) * x**3


def cube_second(x: Array) -> Array:
    return -np.sin(x) * x**3 + 6 * x**2 * np.cos(x) + 6 * x * np.sin(x)


@pytest.mark.parametrize(
    "second",
    [
        pb.jit(pb.grad(pb.grad(cube))),
        pb.grad(pb.jit(pb.grad(cube))),
        pb.grad(pb.grad(pb.jit(cube))),
        pb.jit(pb.jit(pb.grad(pb.grad(cube)))),
        pb.grad(lambda x: pb.grad(cube)(x)),
        pb.jit(lambda x: pb.value_and_grad(pb.grad(cube))(x)[1]),
        pb.grad(functools.partial(pb.grad(cube))),
    ],
)
def test_transforms_compose_in_any_order(second: Callable[..., Any]) -> None:
    same(second(1.3), np.float64(cube_second(1.3)))


def test_transforms_are_used_inside_functions() -> None:
    def step(w: Array, x: Array, rate: float) -> Array:
        value, gradient = pb.value_and_grad(lambda v: np.sum((x @ v) ** 2))(w)
        return w - rate * gradient, value

    x = np.arange(6.0).reshape(3, 2)
    w = np.array([0.5, -1.0])
    new, value = pb.jit(step)(w, x, 0.1)
    same(new, w - 0.1 * 2 * x.T @ (x @ w))
    same(value, np.sum((x @ w) ** 2))


def test_a_gradient_of_a_function_of_an_outer_variable() -> None:
    def f(x: Array, y: Array) -> Array:
        return pb.grad(lambda v: v**2 * y)(x) * x

    gradients = pb.grad(f, argnums=(0, 1))(1.5, 2.0)
    same(gradients[0], np.float64(12.0))
    same(gradients[1], np.float64(4.5))


@pytest.mark.parametrize(
    "function", [np.tanh, np.sin, functools.partial(np.multiply, 2.0), lambda x: x + 1, abs, np.sum, OFFSET.__add__]
)
def test_any_callable(function: Callable[..., Any]) -> None:
    x = np.array([0.5, -1.5, 2.0])
    same(pb.jit(function)(x), function(x))


def test_gradients_of_any_callable() -> None:
    class Energy:
        def __init__(self) -> None:
            self.stiffness = 3.0

        def __call__(self, x: Array) -> Array:
            return self.stiffness * x**2

        def negative(self, x: Array) -> Array:
            return -self(x)

    energy = Energy()
    same(pb.grad(np.tanh)(0.5), np.float64(1 - np.tanh(0.5) ** 2))
    same(pb.grad(functools.partial(lambda a, x: a * x**2, 3.0))(2.0), np.float64(12.0))
    same(pb.grad(energy)(2.0), np.float64(12.0))
    same(pb.grad(energy.negative)(2.0), np.float64(-12.0))
    same(pb.grad(sum)([1.0, 2.0])[0], np.float64(1.0))


def test_attributes_of_the_function() -> None:
    def f(x: Array, n: int = 2) -> Array:
        """Says what it does."""
        return x * n

    compiled = pb.jit(pb.grad(f))
    assert compiled.__name__ == "f" and compiled.__doc__ == "Says what it does." and compiled.__module__ == __name__
    assert inspect.signature(compiled).parameters == inspect.signature(f).parameters
    assert inspect.unwrap(compiled) is f
    assert "jit" in repr(compiled) and "grad" in repr(compiled)


def test_options_are_checked() -> None:
    with pytest.raises(TypeError, match="takes a function, got int"):
        pb.jit(3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="argnums"):
        pb.grad(cube, argnums="x")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="argnums"):
        pb.grad(cube, argnums=(0, True))
    with pytest.raises(TypeError, match="argnames"):
        pb.grad(cube, argnames=0)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="device 'tpu'"):
        pb.jit(cube, device="tpu")
    with pytest.raises(ValueError, match="no parameters"):
        pb.jit(cube, static_argnames="n")


# arguments


def test_keywords_and_defaults() -> None:
    @pb.jit
    def f(x: Array, /, y: Array = 2.0, *rest: Array, z: Array = 1, **more: Array) -> Array:
        return x * y + z + sum(rest) + sum(more.values())

    same(f(X), X * 2.0 + 1)
    same(f(X, y=3), X * 3 + 1)
    same(f(X, 3, 4.0, 5.0), X * 3 + 1 + 9.0)
    same(f(X, z=X, a=1.0), X * 2.0 + X + 1.0)


def test_argnums_and_argnames() -> None:
    def f(x: Array, y: Array, *, z: Array = 1.0) -> Array:
        return np.sum(x * y**2 * z)

    x, y = X[:3], X[3:6]
    same(pb.grad(f)(x, y), y**2)
    same(pb.grad(f, argnums=-1)(x, y), 2 * x * y)
    dy, dx = pb.grad(f, argnums=(1, 0))(x, y)
    same(dx, y**2)
    same(dy, 2 * x * y)
    same(pb.grad(f, argnums=(0,))(x, y)[0], y**2)
    same(pb.grad(f, argnames="z")(x, y, z=1.0), np.float64(np.sum(x * y**2)))
    same(pb.grad(f, argnames="y")(x, y), 2 * x * y)
    dx, dz = pb.grad(f, argnums=0, argnames=("z",))(x, y, z=2.0)
    same(dx, y**2 * 2.0)
    same(dz, np.float64(np.sum(x * y**2)))


def test_aux() -> None:
    def f(x: Array) -> Any:
        y = x**2
        return np.sum(y), {"y": y, "label": "squares", "n": 3, "plain": OFFSET}

    gradient, aux = pb.grad(f, has_aux=True)(X)
    same(gradient, 2 * X)
    same(aux["y"], X**2)
    same(aux["plain"], OFFSET)
    assert aux["label"] == "squares" and aux["n"] == 3
    (value, aux), gradient = pb.value_and_grad(f, has_aux=True)(X)
    same(value, np.sum(X**2))
    same(aux["y"], X**2)


def test_containers_as_arguments_results_and_gradients() -> None:
    def f(tree: Any) -> Any:
        a, (b, c) = tree["pair"]
        return {"sum": a + b * c, "model": Model(tree["model"].weights * 2, None), "list": [a, (b,)], "pair": Pair(c, a)}

    tree = {"pair": Pair(X, (2.0, X * 2)), "model": Model(X, 1.0)}
    got, wanted = pb.jit(f)(tree), f(tree)
    assert list(got) == list(wanted) and type(got["pair"]) is Pair and type(got["list"]) is list
    same(got["sum"], wanted["sum"])
    assert got["model"].bias is None and got["model"].name == "model"
    same(got["model"].weights, X * 2)
    same(got["list"][1][0], 2.0)

    def g(model: Model, scales: dict[str, Any]) -> Any:
        return np.sum(model.weights * scales["a"]) + model.bias * scales["b"]

    gradient, d = pb.grad(g, argnums=(0, 1))(Model(X, 1.0), {"a": 2.0, "b": 3.0})
    assert type(gradient) is Model and gradient.name == "model"
    same(gradient.weights, np.full(7, 2.0))
    same(gradient.bias, np.float64(3.0))
    same(d["a"], np.float64(np.sum(X)))


@pytest.mark.parametrize(
    "tree",
    [
        (), [], {}, None, "word", (1.5,), [2, [3.0, ()]], {"b": 1.0, "a": {"c": (X, None)}}, {1: X, (2, "x"): 3},
        Pair(X, Pair(1, "a")), Model([X, X], {"b": 2.0}), OrderedDict(z=1.0, a=X), defaultdict(list, k=[1.0]), np.float32(2),
        np.array(3.0), (X, slice(1, 2)),
    ],
)  # fmt: skip
def test_structures_come_back(tree: Any) -> None:
    def compare(a: Any, b: Any) -> None:
        if isinstance(b, np.ndarray | np.generic | bool | int | float):
            np.testing.assert_array_equal(a, b)
            return
        assert type(a) is type(b)
        if isinstance(b, Model):
            a, b = vars(a), vars(b)
        if isinstance(b, dict):
            assert list(a) == list(b)
            a, b = list(a.values()), list(b.values())
        if isinstance(b, tuple | list):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        else:
            assert a == b

    compare(pb.jit(lambda t: t)(tree), tree)
    compare(pb.jit(lambda t: {"t": [t, 1]})(tree), {"t": [tree, 1]})


def test_trees_of_the_same_leaves_are_told_apart() -> None:
    f = pb.jit(lambda t: t)
    trees: list[Any] = [
        (X, X), [X, X], ((X,), X), (X, (X,)), ((X, X),), Pair(X, X), {"a": X, "b": X}, {"b": X, "a": X}, (X, X, None),
        Model(X, X), Model(X, X, "other"), [[X], X], [[X, X]],
        (X, X, 0), (X, X, False), (X, X, "0"), ({"a": X}, X), ({"a": X, "b": X},),
    ]  # fmt: skip
    before = traces()
    for _ in range(2):
        for tree in trees:
            got = f(tree)
            assert type(got) is type(tree)
            assert str(got).replace("np.False_", "False").replace("np.int64(0)", "0") == str(tree)
    assert traces() == before + len(trees)


def test_static_arguments_compare_by_type_and_value() -> None:
    @pb.jit(static_argnames=("n", "mode"))
    def f(x: Array, n: Any, mode: str = "a") -> Any:
        return (x * n if mode == "a" else x + n), type(n).__name__

    before = traces()
    for n, count in ((1, 1), (1.0, 2), (True, 3), (1, 3), (2, 4), (-0.0, 5), (0.0, 6), (1.0, 6)):
        result, name = f(X, n)
        same(result, X * n)
        assert name == type(n).__name__
        assert traces() - before == count
    same(f(X, 1, mode="b")[0], X + 1)
    same(f(X, n=2)[0], X * 2)
    outer = pb.grad(pb.jit(lambda x, n: np.sum(x**n), static_argnames="n"))
    same(outer(X, n=3), 3 * X**2)


def test_strings_functions_and_none_are_static_without_being_named() -> None:
    @pb.jit
    def f(x: Array, kind: str, act: Any, axis: Any = None) -> Array:
        return act(np.sum(x, axis=axis)) if kind == "sum" else act(x)

    x = X[:6].reshape(2, 3)
    same(f(x, "sum", np.tanh), np.tanh(np.sum(x)))
    same(f(x, "no", np.tanh), np.tanh(x))
    same(f(x, "no", lambda v: v * 2), x * 2)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, np.uint8, np.bool_, np.float16])
def test_dtypes_are_numpys(dtype: Any) -> None:
    def f(x: Array, s: Any) -> Any:
        return x + x, x * 2, x * 0.5, x * s, np.sum(x), np.mean(x), x > s

    x = np.array([0, 1, 1, 0]).astype(dtype)
    for s in (2, 0.5, True, np.float32(0.5), np.int16(3)):
        for got, wanted in zip(pb.jit(f)(x, s), f(x, s), strict=True):
            assert type(got) is type(wanted) and got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-3 if dtype is np.float16 else 1e-6)


def test_scalars_come_back_as_numpy_scalars() -> None:
    for argument in (np.float64(2.0), np.array(2.0)):
        got = pb.jit(lambda x: x * 2)(argument)
        assert type(got) is np.float64 and got == 4.0
    assert type(pb.jit(lambda x: np.sin(x))(2.0)) is type(pb.grad(lambda x: x * x)(3.0)) is np.float64
    assert type(pb.grad(lambda x: x * x)(np.float32(3.0))) is np.float32


def test_layouts_do_not_change_results() -> None:
    base = np.arange(24.0).reshape(4, 6)
    f = pb.jit(lambda x: np.exp(x / 10) @ np.ones(x.shape[1]) + x.sum(axis=1))
    for x in (base, np.asfortranarray(base), base[::2, ::-1], base.T, base[:, 1:4], base.astype(">f8"), base[:0]):
        same(f(x), np.exp(x / 10) @ np.ones(x.shape[1]) + x.sum(axis=1))


# results and memory


def test_results_are_fresh() -> None:
    x = X.copy()
    f = pb.jit(lambda x: (x, x.copy(), x + 0, x * 1, x * 2, x * 2, x.reshape(-1, 1), np.array(x)))
    results = f(x)
    assert results[0] is x
    for k, a in enumerate(results[1:]):
        assert not np.shares_memory(a, x)
        for b in results[k + 2 :]:
            assert not np.shares_memory(a, b)
        assert a.flags.writeable
    assert not any(np.shares_memory(a, b) for a, b in zip(f(x)[1:], results[1:]))


def test_the_same_value_twice() -> None:
    def f(x: Array) -> Any:
        y = x * 2
        return y, y, np.sum(y), 7, "text"

    a, b, total, seven, text = pb.jit(f)(X)
    same(a, X * 2)
    same(b, X * 2)
    assert not np.shares_memory(a, b)
    assert seven == 7 and text == "text"
    same(total, np.sum(X * 2))


def test_nothing_to_compute() -> None:
    assert pb.jit(lambda x: None)(X) is None
    assert pb.jit(lambda x: 3)(X) == 3
    assert pb.jit(lambda x: x)(X) is X
    assert type(pb.jit(lambda x: x)(2)) is int
    same(pb.jit(lambda x: OFFSET)(X), OFFSET)


# outside values


def test_outside_values_are_read_at_each_call() -> None:
    module = sys.modules[__name__]
    f = pb.jit(lambda x: x * SCALE + OFFSET.sum())
    try:
        for scale in (3.0, 4.0, 2, np.float32(0.5)):
            module.SCALE = scale  # type: ignore[attr-defined]
            same(f(X), X * scale + OFFSET.sum())
        OFFSET[0] = 10.0
        same(f(X), X * SCALE + 13.0)
    finally:
        module.SCALE = 3.0  # type: ignore[attr-defined]
        OFFSET[0] = 0.0


# caching


def test_a_signature_is_traced_once() -> None:
    f = pb.grad(lambda x: np.sum(x**2))
    before = traces()
    for x, count in ((X, 1), (X + 1, 1), (X[:3], 2), (X.astype(np.float32), 3), (X[::2], 4), (X[::2] + 1, 5), (X, 5)):
        same(f(x), 2 * x)
        assert traces() - before == count


def test_new_shapes_build_no_template() -> None:
    @pb.jit
    @pb.value_and_grad
    def f(w: Array, x: Array) -> Array:
        return np.mean(np.tanh(x @ w) ** 2)

    f(np.ones(5), np.ones((6, 5)))
    before = pb.cache_info()
    for n, k in ((9, 8), (17, 6), (100, 30)):
        f(np.ones(k), np.ones((n, k)))
    after = pb.cache_info()
    assert after.templates_built == before.templates_built
    assert after.templates_instantiated == before.templates_instantiated + 3
    assert after.compiles == before.compiles


def test_scalars_pass_through_an_array() -> None:
    """A state packed into an array and unpacked again costs nothing; the index into an argument is no part of the template."""

    def step(x: Array) -> Array:
        s, c = np.array([np.sin(x), np.cos(x)])
        *_, last = np.stack([s, c, s * c])
        return last

    text = pb.grad(step).stages(0.5)["simplify"]
    assert not any(word in text for word in ("concat", "slice", "pad"))
    same(pb.jit(step)(0.5), step(0.5))
    for k in range(3):
        f = pb.jit(lambda x, k=k: np.array([x[k], x[k] * 2, x[-1]]))
        same(f(X), np.array([X[k], X[k] * 2, X[-1]]))
    before = pb.cache_info().templates_built
    same(pb.jit(lambda x: np.array([x[5], x[5] * 2, x[-1]]))(X), np.array([X[5], X[5] * 2, X[-1]]))
    assert pb.cache_info().templates_built == before


def test_threads() -> None:
    @pb.value_and_grad
    def f(x: Array, y: Array) -> Array:
        return np.sum(np.sin(x) * y)

    arguments = [(np.full(n, 0.1 * k), np.full(n, 1.0 + k)) for n in (3, 50) for k in range(8)]
    wrong: list[Any] = []
    start = threading.Barrier(8)
    before = traces()

    def work(k: int) -> None:
        start.wait()
        for _ in range(20):
            for x, y in arguments[k:] + arguments[:k]:
                try:
                    value, gradient = f(x, y)
                    np.testing.assert_allclose(value, np.sum(np.sin(x) * y), rtol=1e-12)
                    np.testing.assert_allclose(gradient, np.cos(x) * y, rtol=1e-12)
                except BaseException as error:
                    wrong.append(error)
                    return

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert traces() == before + 2


def test_a_trace_that_fails_leaves_nothing_behind() -> None:
    @pb.jit
    def f(x: Array, fail: bool) -> Array:
        if fail:
            raise KeyError("mine")
        return x * 2

    same(pb.jit(f.__wrapped__, static_argnames="fail")(X, False), X * 2)
    g = pb.jit(f.__wrapped__, static_argnames="fail")
    with pytest.raises(KeyError, match="mine"):
        g(X, True)
    same(g(X, False), X * 2)
    same(np.tanh(X), np.tanh(X))


# across processes

PROGRAM = """
import sys
import numpy as np, pullback as pb

def loss(w, b, x, y):
    z = np.tanh(x @ w + b)
    z = z - np.max(z, axis=1, keepdims=True)
    return -np.mean(np.sum(y * (z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))), axis=1))

rng = np.random.default_rng(0)
w, b, x = rng.normal(size=(8, 5)), rng.normal(size=5), rng.normal(size=(32, 8))
y = np.eye(5)[rng.integers(0, 5, 32)]
value, gradients = pb.jit(pb.value_and_grad(loss, argnums=(0, 1)))(w, b, x, y)
second = pb.grad(pb.grad(lambda v: np.sin(v) * v ** 3))(1.2)
info = pb.cache_info()
print(info.hits, info.disk_hits, info.compiles)
print(value.tobytes().hex(), *(g.tobytes().hex() for g in gradients), second.tobytes().hex())
"""


def test_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PULLBACK_CACHE_DIR": str(tmp_path / "cache")}
    outputs = []
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout.splitlines())
    (first, *values), (second, *again) = outputs
    hits, disk_hits, compiles = map(int, first.split())
    assert compiles > 0 and disk_hits == 0
    hits_again, disk_hits_again, compiles_again = map(int, second.split())
    assert compiles_again == 0 and disk_hits_again == compiles and hits_again == hits
    assert values == again


def test_the_version_is_the_packages() -> None:
    assert pb.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_an_empty_part_of_a_joined_array_leaves_the_other_any_length() -> None:
    def f(x: Any, s: Any) -> Any:
        whole = np.concatenate([x.reshape(-1), np.array([s])]) * 2.0
        return whole[: x.size], np.squeeze(whole[x.size :])

    for shape in ((2, 0), (0,), (3,), (2, 2)):
        x = np.arange(float(np.prod(shape))).reshape(shape)
        for result, expected in zip(pb.jit(f)(x, 1.5), f(x, 1.5), strict=True):
            np.testing.assert_array_equal(result, expected)


def test_a_long_chain_of_scalars_that_each_step_reads_twice() -> None:
    """The work of fusing it does not double with each step."""

    def filtered(z: Any, q: Any, r: Any) -> Any:
        x, p, total = 0.0, 1.0, 0.0
        for value in z:
            p = p + q
            gain = p / (p + r)
            total = total - 0.5 * np.log(2 * np.pi * (p + r)) - 0.5 * (value - x) ** 2 / (p + r)
            x, p = x + gain * (value - x), (1 - gain) * p
        return total

    z = np.cos(np.arange(40.0))
    assert pb.jit(filtered)(z, 0.3, 0.5) == pytest.approx(filtered(z, 0.3, 0.5), rel=1e-12)
    assert pb.check_grad(filtered, argnums=(0, 1, 2))(z, 0.3, 0.5).is_right
