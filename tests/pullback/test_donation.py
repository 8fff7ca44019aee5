"""Donated arguments: results in their memory, the same numbers as without, and never a wrong one."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.memory import result_arrays

N = 40


def normal(seed: int, *shape: int, dtype: str = "f8") -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def adam(state: Any, g: Any, lr: float) -> Any:
    p, m, v = state["p"], state["m"], state["v"]
    m = 0.9 * m + 0.1 * g
    v = 0.99 * v + 0.01 * g * g
    return {"p": p - lr * m / (np.sqrt(v) + 1e-8), "m": m, "v": v}


def state(seed: int = 0) -> dict[str, Any]:
    return {"p": normal(seed, N, N), "m": normal(seed + 1, N, N), "v": normal(seed + 2, N, N) ** 2}


def copied(tree: Any) -> Any:
    return pb.tree.map(lambda x: np.array(x) if isinstance(x, np.ndarray) else x, tree)


def check_equal(result: Any, expected: Any) -> None:
    for a, b in zip(pb.tree.leaves(result), pb.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)


def taken(function: Any, *args: Any) -> list[str]:
    """The names of the parameters whose memory a result of the program takes."""
    text = function.stages(*args)["program"].partition("\n\nkernel")[0]
    returned = text.rpartition("return ")[2].split()
    names = [name.strip(",") for name in returned]
    return [name for name in names if f"{name}: &" in text.partition(" -> ")[0]]


# what is in place


def test_a_state_is_updated_in_place() -> None:
    step = pb.jit(adam, donate="state")
    arguments = state()
    expected = adam(copied(arguments), normal(9, N, N), 0.1)
    result = step(arguments, normal(9, N, N), 0.1)
    check_equal(result, expected)
    assert all(result[k] is arguments[k] for k in arguments)
    assert step.memory(arguments, normal(9, N, N), 0.1).allocated_bytes == 0


def test_nothing_is_allocated() -> None:
    """Steps on donated arrays allocate no large array, by the counts of the allocator."""
    step = pb.jit(adam, donate=0)
    n = 1 << 18
    now = {k: np.ones(n) for k in "pmv"}
    g = np.ones(n)
    now = step(now, g, 0.1)
    before = result_arrays.info()
    for _ in range(5):
        now = step(now, g, 0.1)
    after = result_arrays.info()
    assert (after["hits"], after["misses"]) == (before["hits"], before["misses"])


def test_a_training_step_with_its_gradient() -> None:
    def loss(params: Any, x: Any, y: Any) -> Any:
        h = np.tanh(x @ params["w1"] + params["b1"])
        return np.mean((h @ params["w2"] - y) ** 2)

    def step(params: Any, x: Any, y: Any) -> Any:
        value, grads = pb.value_and_grad(loss)(params, x, y)
        return value, {k: params[k] - 0.1 * grads[k] for k in params}

    params = {"w1": normal(0, 30, N), "b1": normal(1, N), "w2": normal(2, N, 5)}
    x, y = normal(3, 16, 30), normal(4, 16, 5)
    compiled, plain = pb.jit(step, donate="params"), pb.jit(step)
    mine, theirs = copied(params), copied(params)
    for _ in range(4):
        value, mine_next = compiled(mine, x, y)
        assert all(mine_next[k] is mine[k] for k in mine)
        expected, theirs = plain(theirs, x, y)
        mine = mine_next
        np.testing.assert_array_equal(value, expected)
        for k in mine:
            np.testing.assert_array_equal(mine[k], theirs[k])


def test_a_gradient_in_the_memory_of_its_argument() -> None:
    g = pb.jit(pb.value_and_grad(lambda x, y: np.sum(np.sin(x) * y)), donate=0)
    x, y = normal(0, 9), normal(1, 9)
    expected = y * np.cos(x)
    _, result = g(x, y)
    assert result is x
    np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_value_read_after_the_update_waits_for_it() -> None:
    """The sum reads what the update writes over: the update is done after it."""
    f = pb.jit(lambda p, g: (p - g, np.sum(np.sort(p) ** 2)), donate=0)
    p, g = normal(0, 50), normal(1, 50)
    expected = p - g, np.sum(p**2)
    result = f(p, g)
    assert result[0] is p
    check_equal(result, expected)


def test_memory_that_nothing_reads_any_more() -> None:
    f = pb.jit(lambda x, a: np.cumsum(np.sort(x @ a, axis=1), axis=1), donate=0)
    x, a = normal(0, N, N), normal(1, N, N)
    expected = np.cumsum(np.sort(x @ a, axis=1), axis=1)
    result = f(x, a)
    assert result is x
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


READS_ELSEWHERE: dict[str, Callable[..., Any]] = {
    "transposed": lambda x: x.T * 2,
    "turned round": lambda x: x[::-1] + 1,
    "neighbours": lambda x: np.concatenate([x[1:], x[:1]]) - x,
    "product": lambda x: x @ x,
    "sorted": lambda x: np.sort(x, axis=0),
    "cumulated": lambda x: np.cumsum(x, axis=0),
    "gathered": lambda x: x[np.arange(N)[::-1]] * x,
    "normalised": lambda x: x / x.sum(axis=0),
    "softmax": lambda x: np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True),
    "solved": lambda x: np.linalg.solve(x @ x.T + N * np.eye(N), x),
    "outer": lambda x: x * x[0],
    "column": lambda x: x + x[:, :1],
    "distances": lambda x: ((x[:, None, :] - x[None, :, :]) ** 2).sum(-1),
    "stencil": lambda x: np.pad(x[1:-1] + x[2:] + x[:-2], ((1, 1), (0, 0))),
    "scatter": lambda x: pb.grad(lambda x: np.sum(x[np.arange(N) // 2] ** 2))(x),
}  # fmt: skip


@pytest.mark.parametrize("name", READS_ELSEWHERE)
def test_what_reads_other_elements(name: str) -> None:
    f = READS_ELSEWHERE[name]
    expected = f(normal(3, N, N))
    x = normal(3, N, N)
    result = pb.jit(f, donate=0)(x)
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-9)
    assert result is x or np.array_equal(x, normal(3, N, N))


def test_complex_numbers_and_other_dtypes() -> None:
    z = normal(0, 9) + 1j * normal(1, 9)
    before = z.copy()
    f = pb.jit(lambda z, y: z * y - 1j, donate="z")
    result = f(z, normal(2, 9))
    assert result is not z and np.array_equal(z, before), "kernels of complex numbers do not update in place yet"
    np.testing.assert_allclose(result, before * normal(2, 9) - 1j)
    for dtype in ("f4", "i4", "u1", "?"):
        x = (np.arange(9) % 2).astype(dtype)
        result = pb.jit(lambda x: x ^ True if x.dtype == bool else x + x.dtype.type(1), donate=0)(x)
        assert result is x and result.dtype == dtype
        np.testing.assert_array_equal(result, 1 - np.arange(9) % 2 if dtype == "?" else np.arange(9) % 2 + 1)


def test_results_of_other_shapes_and_dtypes_have_memory_of_their_own() -> None:
    x = normal(0, 12)
    before = x.copy()
    a, b, c = pb.jit(lambda x: (x.reshape(3, 4) * 2, x.astype("f4"), x[:6] + 1), donate=0)(x)
    np.testing.assert_array_equal(x, before)
    check_equal((a, c), (before.reshape(3, 4) * 2, before[:6] + 1))
    assert b.dtype == np.float32 and not any(np.shares_memory(x, r) for r in (a, b, c))


def test_a_result_and_a_view_of_it() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return y, y.reshape(3, 4), y

    x = normal(0, 12)
    expected = x * 2
    a, b, c = pb.jit(f, donate=0)(x)
    assert a is x
    for result in (a, b, c):
        np.testing.assert_array_equal(result.ravel(), expected)
    assert not np.shares_memory(a, b) and not np.shares_memory(a, c) and not np.shares_memory(b, c)


def test_arguments_that_are_returned_keep_their_contents() -> None:
    x, y = normal(0, 9), normal(1, 9)
    before = x.copy()
    result, new, copy = pb.jit(lambda x, y: (x, x + y, x.copy()), donate=0)(x, y)
    assert result is x
    np.testing.assert_array_equal(x, before)
    np.testing.assert_array_equal(copy, before)
    np.testing.assert_array_equal(new, before + y)


class Pair(NamedTuple):
    left: Any
    right: Any


def test_results_are_paired_by_structure() -> None:
    """The part of the result that is like the argument is in it, not the first array of the type."""
    f = pb.jit(lambda s, x: (x * s.left, {"a": x}, Pair(s.left + x, s.right - x)), donate=0)
    s, x = Pair(normal(0, 9), normal(1, 9)), normal(2, 9)
    expected = x * s.left, {"a": x}, Pair(s.left + x, s.right - x)
    result = f(s, x)
    check_equal(result, copied(expected))
    assert result[2].left is s.left and result[2].right is s.right and result[0] is not s.left


def test_elements_are_set_in_place() -> None:
    def f(x: Any, v: Any) -> Any:
        x = x.copy()
        x[3] = v
        x[5:7] += 1
        return x

    x = normal(0, 9)
    expected = f(x, 2.5)
    result = pb.jit(f, donate=0)(x, 2.5)
    assert result is x
    np.testing.assert_array_equal(result, expected)


def test_swapped_and_mixed() -> None:
    def f(a: Any, b: Any) -> Any:
        return b * 2, a * 3

    a, b = normal(0, 9), normal(1, 9)
    expected = b * 2, a * 3
    check_equal(pb.jit(f, donate=(0, 1))(a, b), expected)


def test_loops_and_branches() -> None:
    def f(h: Any, xs: Any, flag: Any) -> Any:
        h2, _ = pb.scan(lambda h, x: (np.tanh(h + x), h), h, xs)
        return pb.cond(flag, lambda h: h * 2, lambda h: h - 1, h2) + h

    h, xs = normal(0, 9), normal(1, 20, 9)
    expected = pb.jit(f)(h.copy(), xs, True)
    np.testing.assert_array_equal(pb.jit(f, donate=0)(h, xs, True), expected)


# memory that cannot be taken


@pytest.mark.parametrize("kind", ["read-only", "strided", "swapped", "order f", "subclass", "unaligned", "rank 0"])
def test_arrays_that_cannot_be_written_over_are_left(kind: str) -> None:
    plain = normal(0, 6, 4)
    x = plain.copy()
    if kind == "read-only":
        x.flags.writeable = False
    elif kind == "strided":
        x = np.repeat(plain, 2, axis=1)[:, ::2]
    elif kind == "swapped":
        x = plain.astype(">f8")
    elif kind == "order f":
        x = np.asfortranarray(plain)
    elif kind == "subclass":
        x = plain.view(type("Mine", (np.ndarray,), {}))
    elif kind == "unaligned":
        x = np.frombuffer(bytearray(plain.nbytes + 1), np.uint8)[1:].view("f8").reshape(6, 4)
        x[...] = plain
    else:
        x = plain = np.array(2.5)
    result = pb.jit(lambda x: np.sin(x) + 1, donate=0)(x)
    np.testing.assert_allclose(result, np.sin(plain) + 1, rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(x), plain)
    assert type(result) in (np.ndarray, np.float64)


def views(base: Any) -> dict[str, tuple[Any, Any]]:
    """Pairs of vectors of 16 numbers that share memory in some way, and some that do not."""
    return {
        "same": (base[:16], base[:16]), "half": (base[:16], base[8:24]), "one": (base[:16], base[15:31]),
        "apart": (base[:16], base[16:32]), "turned": (base[:16], base[15::-1]), "spread": (base[:16], base[0:32:2]),
        "behind": (base[8:24], base[:16]), "repeated": (base[:16], np.broadcast_to(base[3:4], 16)),
    }  # fmt: skip


@pytest.mark.parametrize("name", views(np.arange(40.0)))
@pytest.mark.parametrize("donate", [0, 1, (0, 1)])
def test_arguments_that_share_memory(name: str, donate: Any) -> None:
    def f(a: Any, b: Any) -> Any:
        return a * 2 + b, b - a, np.sum(a * b)

    a, b = views(np.arange(40.0))[name]
    expected = f(a.copy(), b.copy())
    check_equal(pb.jit(f, donate=donate)(a, b), expected)


def test_captured_arrays_and_constants_that_share_memory() -> None:
    held = np.arange(10.0)
    x = held[:5]
    f = pb.jit(lambda x: (x + 1, held[:5] * 2, held[1:6] - 1), donate=0)
    expected = x + 1, held[:5] * 2, held[1:6] - 1
    check_equal(f(x), copied(expected))
    np.testing.assert_array_equal(held, np.arange(10.0))


def test_random_sharing() -> None:
    """Many arguments, views of few arrays, some donated: as without donation, on copies."""

    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + b * c, np.sort(b) - d, c * d + a, d[::-1] + np.cumsum(a)

    compiled = {donate: pb.jit(f, donate=donate) for donate in ((0,), (1, 2), (0, 1, 2, 3), (3,))}
    for seed, donate in product(range(30), compiled):
        rng = np.random.default_rng(seed)
        bases = [rng.normal(size=24) for _ in range(2)]
        args = [bases[rng.integers(2)][k : k + 8] for k in rng.integers(0, 17, 4)]
        expected = f(*copied(args))
        check_equal(compiled[donate](*args), expected)


# failures


def test_a_call_that_fails_changes_nothing() -> None:
    def f(p: Any, m: Any, i: Any) -> Any:
        p = p * 2 - m
        return p, m + 1, p[i]

    for order in (0, 1, (0, 1)):
        p, m = normal(0, 9), normal(1, 9)
        with pytest.raises(IndexError):
            pb.jit(f, donate=order)(p, m, np.array([3, 9]))
        np.testing.assert_array_equal(p, normal(0, 9))
        np.testing.assert_array_equal(m, normal(1, 9))
        check_equal(pb.jit(f, donate=order)(p, m, np.array([3, 8])), f(normal(0, 9), normal(1, 9), np.array([3, 8])))


def test_a_callback_that_raises_changes_nothing() -> None:
    def shout(x: Any) -> Any:
        raise RuntimeError("no")

    def f(p: Any) -> Any:
        q = p * 2
        return q, pb.callback(shout, q, q)

    p = normal(0, 9)
    with pytest.raises(RuntimeError, match="no"):
        pb.jit(f, donate=0)(p)
    np.testing.assert_array_equal(p, normal(0, 9))


def test_guards() -> None:
    def f(p: Any, x: float) -> Any:
        if x > 0:
            return p + x
        return p * 2

    g = pb.jit(f, guards=True, donate=0)
    p = normal(0, 9)
    for x in (1.0, -1.0, 2.0, -2.0, -3.0):
        expected = f(p.copy(), x)
        p = g(p, x)
        np.testing.assert_array_equal(p, expected)


# written arguments


def test_writes_into_arguments_need_no_other_memory() -> None:
    def f(p: Any, g: Any) -> Any:
        p -= 0.1 * g
        g[...] = 0
        return np.sum(p)

    p, g = normal(0, 2000), normal(1, 2000)
    expected = p - 0.1 * g
    compiled = pb.jit(f)
    assert compiled.memory(p, g).allocated_bytes < 1000
    result = compiled(p, g)
    np.testing.assert_array_equal(p, expected)
    np.testing.assert_array_equal(g, 0)
    np.testing.assert_allclose(result, expected.sum(), rtol=1e-12)


def test_writes_that_cross() -> None:
    def f(a: Any, b: Any) -> Any:
        a[...], b[...] = b + 1, a * 2

    def g(a: Any, b: Any) -> Any:
        a[...], b[...] = b.copy(), a.copy()

    for function in (f, g):
        a, b = normal(0, 9), normal(1, 9)
        expected = (a.copy(), b.copy())
        function(*expected)
        pb.jit(function)(a, b)
        check_equal((a, b), expected)


# the option


def test_methods_keywords_and_rest() -> None:
    class Model:
        @pb.jit(donate=0)
        def step(self, p: Any, x: Any) -> Any:
            return p - x

    p = normal(0, 9)
    assert Model().step(p, np.ones(9)) is p
    f = pb.jit(lambda x, *rest, **more: (rest[0] + x, more["k"] * 2, x - 1), donate=(1, "k"))
    x, y, k = normal(0, 9), normal(1, 8 + 1), normal(2, 9)
    expected = y + x, k * 2, x - 1
    result = f(x, y, k=k)
    check_equal(result, expected)
    assert {id(a) for a in result[:2]} == {id(y), id(k)}
    g = pb.jit(lambda x, y: y * x, donate=1)
    y = normal(1, 9)
    assert g(x, y=y) is y


def test_bad_options() -> None:
    def f(x: Any, y: Any) -> Any:
        return x

    for donate, error, text in (
        (2, ValueError, "no position of f, which has"), ("z", ValueError, "no parameter of f, which has"),
        (1.5, TypeError, "positions and names"), ([None], TypeError, "positions and names"), (True, TypeError, "positions"),
    ):  # fmt: skip
        with pytest.raises(error, match=text):
            pb.jit(f, donate=donate)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="y is static"):
        pb.jit(f, donate="y", static_argnames="y")


def doubled(x: Any) -> Any:
    return x * 2


def test_pickled() -> None:
    f = pickle.loads(pickle.dumps(pb.jit(doubled, donate=0)))
    x = normal(0, 9)
    assert f(x) is x


def test_within_a_trace_nothing_is_donated() -> None:
    inner = pb.jit(doubled, donate=0)
    x = normal(0, 9)
    result = pb.jit(lambda x: inner(x) + x)(x)
    np.testing.assert_allclose(result, 3 * normal(0, 9), rtol=1e-12)
    np.testing.assert_array_equal(x, normal(0, 9))


def test_reports_know() -> None:
    f = pb.jit(doubled, donate="x")
    x = normal(0, 9)
    assert taken(f, x) == ["%x"] and "updates %x" in f.stages(x)["program"]
    assert taken(pb.jit(lambda x: x * 2 + np.sort(x)[::-1], donate=0), x) in ([], ["%x"])
    assert not f.memory(x).results
    f(x)
    assert f.explain(x).is_compiled
