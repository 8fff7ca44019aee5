"""Batches of matrix products on the CPU: read and written in place, wherever the batch axis is; any extents, machine and
number of threads; and sums of contractions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.rewrites.contraction_layouts import layout
from pullback.codegen.fuse.rewrites.contractions import canonical_contractions
from pullback.ir.ops.array.contract import split
from pullback.ir.text import parse_function, parse_module
from pullback.runtime.threads import threads
from tests.support.matmul.kernels import MACHINES, batch_text, compiled_product, fenced

Array = Any
LYING = [("".join(p)) for p in itertools.permutations("zmk") if p[-1] != "z"]
SPECS = (
    "zmk,zkn->zmn",
    "mzk,zkn->mzn",
    "mzk,znk->zmn",
    "kzm,kzn->zmn",
    "mkz,zkn->zmn",
    "zmk,zkn->mnz",
    "nzk,zmk->mzn",
    "mk,zkn->zmn",
    "zmk,kn->mzn",
    "abmk,bkan->ambn",
    "ambk,abkn->bamn",
)
EXTENTS = (
    {"z": 3, "m": 5, "k": 4, "n": 6, "a": 2, "b": 3},
    {"z": 19, "m": 16, "k": 16, "n": 16, "a": 4, "b": 5},
    {"z": 2, "m": 13, "k": 200, "n": 17, "a": 2, "b": 1},
    {"z": 5, "m": 100, "k": 9, "n": 23, "a": 3, "b": 2},
    {"z": 3, "m": 37, "k": 130, "n": 70, "a": 1, "b": 2},
    {"z": 2, "m": 30, "k": 20, "n": 150, "a": 2, "b": 2},
    {"z": 70, "m": 1, "k": 33, "n": 40, "a": 5, "b": 3},
    {"z": 3, "m": 40, "k": 33, "n": 1, "a": 2, "b": 3},
)


def arrays(spec: str, extents: dict[str, int], dtype: str) -> tuple[Array, Array]:
    rng = np.random.default_rng(len(spec) + sum(extents.values()))
    x, y = (rng.normal(size=[extents[k] for k in word]) for word in split(spec)[0])
    if dtype.startswith("c"):
        return (x + 1j * x[::-1]).astype(dtype), (y - 2j * y[::-1]).astype(dtype)
    return x.astype(dtype), y.astype(dtype)


def assert_close(result: Array, spec: str, x: Array, y: Array) -> None:
    """Within (k + 2) u |x| |y|, k the number of terms, and a unit of the result more for halves."""
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    expected = np.einsum(spec, x.astype(wide), y.astype(wide))
    (left, _), out = split(spec)
    terms = int(np.prod([e for k, e in zip(left, x.shape, strict=True) if k not in out]))
    unit = np.finfo(np.float32 if x.dtype == np.float16 else x.dtype).eps
    bound = (2 * terms + 4) * unit * np.einsum(spec, np.abs(x).astype(np.longdouble), np.abs(y).astype(np.longdouble))
    if x.dtype == np.float16:
        bound += np.finfo(np.float16).eps * np.abs(expected)
    assert result.shape == expected.shape and result.dtype == x.dtype
    assert (np.abs(result - expected) <= bound).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("spec", SPECS)
def test_wherever_the_batch_is(spec: str, dtype: str) -> None:
    function = pb.jit(lambda x, y: np.einsum(spec, x, y))
    for extents in EXTENTS:
        x, y = arrays(spec, extents, dtype)
        assert_close(function(x, y), spec, x, y)


@pytest.mark.parametrize("dtype", ["float16", "complex64", "complex128"])
@pytest.mark.parametrize("spec", ["mzk,zkn->mzn", "kzm,kzn->zmn"])
def test_other_dtypes(spec: str, dtype: str) -> None:
    function = pb.jit(lambda x, y: np.einsum(spec, x, y))
    for extents in EXTENTS[:4]:
        x, y = arrays(spec, extents, dtype)
        assert_close(function(x, y), spec, x, y)


@pytest.mark.parametrize("spec", ["mzk,zkn->mzn", "zmk,zkn->zmn"])
def test_nothing_of_something(spec: str) -> None:
    function = pb.jit(lambda x, y: np.einsum(spec, x, y))
    for empty in "zmkn":
        x, y = arrays(spec, {"z": 3, "m": 20, "k": 30, "n": 40, empty: 0}, "float64")
        np.testing.assert_array_equal(function(x, y), np.einsum(spec, x, y))


def test_arguments_with_strides() -> None:
    spec = "mzk,zkn->mzn"
    x, y = arrays(spec, {"z": 6, "m": 40, "k": 30, "n": 44}, "float64")
    x, y = x[::2, ::-1, 1:], y[:, 1:, ::3]
    x = x[:, ::2]
    y = y[::2]
    assert_close(pb.jit(lambda x, y: np.einsum(spec, x, y))(x, y), spec, x, y)


def test_gradients_to_the_second_order() -> None:
    spec, back = "mzk,zkn->mzn", ("mzn,zkn->mzk", "mzn,mzk->zkn")
    x, y = arrays(spec, {"z": 3, "m": 20, "k": 18, "n": 17}, "float64")

    def loss(x: Array, y: Array) -> Array:
        return np.sum(np.sin(np.einsum(spec, x, y)))

    s = np.einsum(spec, x, y)
    dx, dy = pb.jit(pb.grad(loss, argnums=(0, 1)))(x, y)
    np.testing.assert_allclose(dx, np.einsum(back[0], np.cos(s), y), rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(dy, np.einsum(back[1], np.cos(s), x), rtol=1e-11, atol=1e-11)
    direction = np.random.default_rng(1).normal(size=x.shape)
    twice = pb.jit(pb.grad(lambda x: np.sum(direction * pb.grad(loss)(x, y))))(x)
    second = np.einsum(back[0], -np.sin(s) * np.einsum(spec, direction, y), y)
    np.testing.assert_allclose(twice, second, rtol=1e-11, atol=1e-11)


# kernels


def run(words: tuple[str, str, str], machine: str, x: Array, w: Array, sizes: list[int]) -> Array:
    extents = dict(zip("zmkn", sizes, strict=True))
    out = fenced(np.full([extents[k] for k in words[2]], np.nan, x.dtype))
    text = batch_text({"f": "f32", "d": "f64"}[x.dtype.char], words)
    assert compiled_product(text, machine)([fenced(x), fenced(w), out], sizes) == 0
    return np.array(out)


@pytest.mark.parametrize("machine", sorted(MACHINES))
@pytest.mark.parametrize("words", [("mzk", "zkn", "mzn"), ("kzm", "kzn", "zmn"), ("zmk", "znk", "mzn"), ("mk", "zkn", "zmn")])
def test_on_every_machine_within_its_memory(words: tuple[str, str, str], machine: str) -> None:
    spec = f"{words[0]},{words[1]}->{words[2]}"
    for extents in EXTENTS:
        for dtype in ("float64", "float32"):
            x, w = arrays(spec, extents, dtype)
            assert_close(run(words, machine, x, w, [extents[k] for k in "zmkn"]), spec, x, w)


def test_small_products_share_a_function_wherever_the_batch_is() -> None:
    machine = MACHINES["AVX-512"]

    def lanes(*words: str) -> list[str]:
        (kernel,) = parse_module(batch_text("f64", words)).functions  # type: ignore[arg-type]
        scheduled = schedule(kernel, "", machine)
        result = [i.params["function"] for i in scheduled.instructions if i.op.name == "function"]
        return [name for name in result if name.startswith("lanes")]

    assert lanes("mzk", "zkn", "mzn") == lanes("kzm", "znk", "zmn") == ["lanes_f64"]
    assert lanes("mk", "zkn", "zmn") == ["lanes_f64_left"]


@pytest.mark.parametrize("words", [("mzk", "zkn", "mzn"), ("kzm", "kzn", "zmn"), ("zmk", "znk", "mzn")])
def test_same_bits_for_any_number_of_threads(words: tuple[str, str, str]) -> None:
    spec = f"{words[0]},{words[1]}->{words[2]}"
    before = threads.get_num_threads()
    try:
        for sizes in ([9, 150, 300, 20], [3, 150, 300, 150], [40, 30, 100, 100]):
            extents = dict(zip("zmkn", sizes, strict=True))
            x, w = arrays(spec, extents, "float64")
            result = []
            for count in (1, 2, 5):
                threads.set_num_threads(count)
                result.append(run(words, "AVX-512", x, w, sizes))
            assert all(np.array_equal(result[0], other) for other in result[1:])
    finally:
        threads.set_num_threads(before)


# what is rearranged


def moved(spec: str) -> int:
    (left, right), out = split(spec)
    result = layout(left, right, out, dict.fromkeys(spec, "n"))
    return sum(new != old for new, old in zip(result.words, (left, right, out), strict=True))


def test_what_lies_well_is_not_rearranged() -> None:
    for left, right, out in itertools.product(LYING, LYING, LYING):
        spec = f"{left},{right.replace('m', 'n')}->{out.replace('k', 'n')}"
        assert moved(spec) == 0, spec


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("mkz,zkn->zmn", 1),
        ("zmk,zkn->mnz", 1),
        ("mkz,knz->mnz", 3),
        ("mk,zkn->zmn", 0),
        ("zmk,kn->mzn", 0),
        ("ambk,abkn->abmn", 1),
        ("mk,kn->mn", 0),
    ],
)
def test_how_many_are_rearranged(spec: str, count: int) -> None:
    assert moved(spec) == count


def test_few_rows_do_not_share_an_operand() -> None:
    extents = {"z": 4, "m": 4, "k": 50, "n": 60}
    assert layout("zmk", "kn", "mzn", extents).batch == ""
    assert layout("zmk", "kn", "mzn", {**extents, "m": 40}).batch == "z"


def test_a_gpu_has_the_batch_first() -> None:
    text = """pullback-ir 2

func f(%x: f64[m,z,k], %y: f64[z,k,n]) -> (f64[m,z,n]) {
  %0: f64[m,z,n] = contract %x, %y {spec="mzk,zkn->mzn"}
  return %0
}
"""
    function = parse_function(text)

    def specs(target: str) -> list[str]:
        return [i.params["spec"] for i in canonical_contractions(function, target).instructions if i.op.name == "contract"]

    assert (specs("cpu"), specs("cuda")) == (["mzk,zkn->mzn"], ["zmk,zkn->zmn"])


# sums of contractions


@pytest.mark.parametrize("axis", [0, 1, 2, (0, 2), (1, 2), None])
def test_sums_of_contractions(axis: Any) -> None:
    x, y = arrays("zmk,zkn->zmn", {"z": 4, "m": 20, "k": 30, "n": 25}, "float64")

    def function(x: Array, y: Array) -> Array:
        return np.sum(-np.matmul(x, y), axis=axis)

    np.testing.assert_allclose(pb.jit(function)(x, y), function(x, y), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(
        pb.jit(pb.grad(lambda x: np.sum(function(x, y) ** 2)))(x),
        np.matmul(-2 * np.broadcast_to(np.sum(-np.matmul(x, y), axis=axis, keepdims=True), (4, 20, 25)), y.swapaxes(1, 2)),
        rtol=1e-9, atol=1e-9,
    )  # fmt: skip
