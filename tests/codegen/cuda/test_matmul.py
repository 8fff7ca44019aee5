"""Matrix products in CUDA C, against the interpreter: ragged tiles, either operand transposed, batches, and nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cuda.emit import emit
from pullback.codegen.cuda.schedule.schedule import schedule
from pullback.codegen.cuda.source import launch as cuda_launch
from pullback.codegen.fuse import matmul_fusion
from pullback.ir import Module
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_function, parse_module
from tests.support.cuda.gpu import driver
from tests.support.cuda.host_kernels import Host
from tests.support.cuda.host_programs import CudaProgram, Make, emitted, expected, run_program, scheduled, traced
from tests.support.cuda.targets import needs_host, on_each
from tests.support.golden_files import assert_same
from tests.support.matmul import forms as product_forms
from tests.support.paths import GOLDEN
from tests.support.targets import assert_close, checked

PATHS = sorted((GOLDEN / "matmul").glob("*.ir"))
ROLES = ("large", "small", "part", "few")


def some(dtype: Any, *shape: int) -> Any:
    """Small whole numbers, whose sums are exact."""
    return np.random.default_rng(shape[0]).integers(-3, 4, shape).astype(dtype)


def choose(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    """Select the launches of a role for all extents."""
    monkeypatch.setattr(cuda_launch, "ENOUGH_TILES", {"large": 1, "part": 10}.get(role, 1 << 40))
    monkeypatch.setattr(cuda_launch, "LEAST_DEPTH", 5 if role == "part" else 1 << 40)
    monkeypatch.setattr(cuda_launch, "FEW_SUMS", 1 << 40 if role == "few" else -1)


def run_module(machine: Make, module: Module, arguments: list[Any], sizes: Mapping[str, int]) -> tuple[Any, ...]:
    """Return the results of a program whose kernels are run as CUDA C."""
    program, *kernels = module.functions
    scheduled = checked(Module((program, *(schedule(kernel) for kernel in kernels))))
    running = CudaProgram(dict(sizes), scheduled, machine)
    env = dict(zip(program.parameters, arguments, strict=True))
    running.block(program.body, env)
    return tuple(np.asarray(env[v]) for v in program.results)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_text_is_the_expected_one(path: Path, bless: bool) -> None:
    golden = path.with_suffix(".cu")
    result = "\n".join(emit(schedule(kernel), kernel.name).body for kernel in parse_module(path.read_text()).functions[1:])
    if bless:
        golden.write_text(result)
    assert result == golden.read_text()


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_products(machine: Make, dtype: Any) -> None:
    shapes = [(70, 37), (37, 65), (37, 70), (65, 37), (4, 20, 9), (4, 9, 35), (0, 5), (5, 0), (2, 3, 17, 8)]
    args = [some(dtype, *s) for s in shapes]

    def call(a: Any, b: Any, c: Any, d: Any, e: Any, f: Any, g: Any, h: Any, m: Any) -> Any:
        return a @ b, c.T @ b, a @ d.T, c.T @ d.T, e @ f, g @ h, h @ g, m @ np.swapaxes(m, 2, 3)

    function, values = traced(call, *args)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_tiles(machine: Make, dtype: Any) -> None:
    """Large tiles are used if there are at least 128 of them."""
    a, b = some(dtype, 130, 70 if dtype is np.float64 else 130, 17), some(dtype, 130, 17, 5)
    function, values = traced(lambda a, b: (a @ b, np.swapaxes(b, 1, 2) @ np.swapaxes(a, 1, 2)), a, b)
    assert_same(run_program(machine, function, values), expected(function, values))


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_products_with_neighbours(machine: Make, path: Path, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, role)
    module = checked(parse_module(path.read_text()))
    program = module.functions[0]
    for sizes in ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (5, 35, 36), (150, 41, 133), (64, 72, 128)):
        known = dict(zip("mkn", sizes, strict=True))
        rng = np.random.default_rng(sum(sizes))
        arguments: list[Any] = [
            rng.normal(size=[known[e] for e in v.type.shape]).astype(v.type.dtype.numpy) for v in program.parameters
        ]
        wanted = interpret(program, *arguments, sizes=known, module=module)
        result = run_module(machine, module, arguments, known)
        for a, b in zip(result, wanted, strict=True):
            terms = sizes[1] + (sizes[0] if path.stem == "column_sums" else 0)
            assert_close(a, b, 4 + terms, floor=1.0, note=(sizes, role))


FORMS = {
    "f32": [("plain", "plain"), ("plain", "turned"), ("turned", "plain"), ("turned", "turned"), ("strided", "both"),
            ("scaled", "plain"), ("masked", "turned"), ("gathered", "both")],
    "f64": [("plain", "turned"), ("turned", "plain"), ("scaled", "both"), ("gathered", "plain")],
    "f16": [("plain", "plain"), ("turned", "turned"), ("scaled", "both"), ("gathered", "plain")],
    "bf16": [("plain", "turned"), ("turned", "plain"), ("strided", "turned"), ("masked", "plain")],
}  # fmt: skip
SIZES = ((0, 3, 2), (3, 0, 2), (3, 2, 0), (1, 1, 1), (5, 39, 36), (150, 41, 133), (64, 72, 128))


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("dtype", "left", "right"), [(dtype, *form) for dtype, forms in FORMS.items() for form in forms])
def test_forms(machine: Make, dtype: str, left: str, right: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are in place, transposed, computed, masked or gathered; sums meet a value of their row and one of their column."""
    choose(monkeypatch, role)
    module = checked(parse_module(product_forms.text(dtype, left, right)))
    for m, k, n in SIZES:
        arguments = product_forms.arguments(dtype, left, right, m, k, n)
        run_module(machine, module, list(arguments.values()), {"m": m, "k": k, "n": n})
        product_forms.check(dtype, left, right, arguments, 53 if dtype == "f64" else 24)


@on_each
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_neighbours(machine: Make, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements before and after, sums down the columns, batches; the gradient of a layer."""
    monkeypatch.setattr(matmul_fusion, "FUSING_TARGETS", frozenset({"cuda"}))
    x, w, b, xs, ws = (some(dtype, *s) for s in ((70, 37), (37, 65), (65,), (3, 9, 8), (3, 8, 7)))

    def layer(x: Any, w: Any, b: Any) -> Any:
        return np.sum(np.maximum(x @ w + b, 0) * b)

    def call(x: Any, w: Any, b: Any, xs: Any, ws: Any) -> Any:
        z = (x * 2) @ np.maximum(w, 0) + b
        batch = xs @ ws - 1
        gradients = pb.value_and_grad(layer, argnums=(0, 1, 2))(x, w, b)
        return z, np.abs(z), np.sum(z, axis=0), np.max(z), batch, np.sum(batch, axis=1), np.sum(batch), x[::-1] @ w, *gradients

    function, values = traced(call, x, w, b, xs, ws)
    assert_same(run_program(machine, function, values), expected(function, values))


BATCH = """pullback-ir 2

program f(%x: &T[b,c,m,k], %w: &T[c,n,k], %scale: &T[b,c], %out: &T[b,c,m,n]) -> () {
  launch %x, %w, %scale, %out {kernel=k0, sizes=[b,c,m,k,n]}
  return
}

kernel k0(%x: &T[s0,s1,s2,s3], %w: &T[s1,s4,s3], %scale: &T[s0,s1], %out: &T[s0,s1,s2,s4]) -> () {
  %b: i64[] = extent {size=s0}
  for %b (%i: i64[]) {
    %c: i64[] = extent {size=s1}
    for %c (%j: i64[]) {
      %m: i64[] = extent {size=s2}
      %n: i64[] = extent {size=s4}
      %k: i64[] = extent {size=s3}
      %s: T[] = load %scale, %i, %j
      product %m, %n, %k (%r: i64[], %p: i64[]) {
        %0: T[] = load %x, %i, %j, %r, %p
        yield %0
      } (%p0: i64[], %q: i64[]) {
        %1: T[] = load %w, %j, %q, %p0
        yield %1
      } (%r0: i64[], %q0: i64[], %sum: T[]) {
        %2: T[] = mul %sum, %s
        store %2, %out, %i, %j, %r0, %q0
        yield
      }
      yield
    }
    yield
  }
  return
}
"""


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_batches(machine: Make, dtype: str, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(monkeypatch, role)
    module = checked(parse_module(BATCH.replace("T[", f"{dtype}[")))
    for sizes in ((2, 3, 70, 20, 33), (3, 1, 5, 0, 4), (0, 2, 3, 4, 5), (1, 4, 130, 37, 2)):
        known = dict(zip("bcmkn", sizes, strict=True))
        b, c, m, k, n = sizes
        numpy = product_forms.NUMPY[dtype]
        x, w, scale = some(numpy, b, c, m, k), some(numpy, c, n, k), some(numpy, b, c)
        out = np.full((b, c, m, n), np.nan, numpy)
        run_module(machine, module, [x, w, scale, out], known)
        assert_same([out], [x @ np.swapaxes(w, 1, 2) * scale[:, :, None, None]])


@on_each
def test_long_sums_are_shared_out(machine: Make) -> None:
    """Long sums are divided among as many thread blocks as there is work for, in an order that depends on the extents alone."""
    a, b = some(np.float32, 3, 2500), some(np.float32, 2500, 70)
    function, values = traced(lambda a, b: a @ b, a, b)
    assert_same(run_program(machine, function, values), expected(function, values))
    (kernel,) = emitted(scheduled(function)[0])
    sizes = {"s0": 3, "s1": 2500, "s2": 70}
    assert [launch.blocks(sizes) for launch in kernel.launches] == [0, 0, 0, 2 * 9, 1]
    assert [launch.name for launch in kernel.launches] == ["k0_0", "k0_1", "k0_2", "k0_2", "k0_4"]


UNKNOWN = """kernel k(%x: &f64[s0,s1], %count: &i64[], %out: &f64[s0,s0]) -> () {
  %m: i64[] = load %count
  %k: i64[] = extent {size=s1}
  product %m, %m, %k (%i: i64[], %p: i64[]) {
    %0: f64[] = load %x, %i, %p
    yield %0
  } (%p0: i64[], %j: i64[]) {
    %1: f64[] = load %x, %j, %p0
    yield %1
  } (%i0: i64[], %j0: i64[], %sum: f64[]) {
    store %sum, %out, %i0, %j0
    yield
  }
  return
}
"""


def test_a_product_of_unknown_size_is_a_loop() -> None:
    """The host could not say how many tiles there are."""
    text = emit(schedule(parse_function("pullback-ir 2\n\n" + UNKNOWN)), "k").text
    assert "pb_product" not in text
    assert "for (" in text


class Without(Host):
    """Kernels from whose text a statement is gone."""

    gone = ""

    def edited(self, text: str) -> str:
        assert self.gone in text
        return text.replace(self.gone, "")


@needs_host
@pytest.mark.parametrize("gone", ["pb_cp_async_wait<0>();", "        __syncthreads();\n", "        __syncwarp();\n"])
def test_a_missing_wait_is_seen(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel without one of its waits fails, so that the other tests show that none is missing."""
    choose(monkeypatch, "small")
    monkeypatch.setattr(Without, "gone", gone)
    module = checked(parse_module(product_forms.text("f32", "turned", "plain")))
    arguments = product_forms.arguments("f32", "turned", "plain", 20, 80, 24)
    try:
        run_module(Without, module, list(arguments.values()), {"m": 20, "k": 80, "n": 24})
    except driver().Error:
        return
    with pytest.raises(AssertionError):
        product_forms.check("f32", "turned", "plain", arguments, 24)


@on_each
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("form", [("plain", "plain"), ("turned", "turned"), ("scaled", "both")], ids=str)
def test_tf32(machine: Make, form: tuple[str, str], role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements have 11 bits, sums 24."""
    choose(monkeypatch, role)
    text = product_forms.text("f32", *form, params=" {tf32=true}")
    module = checked(parse_module(text))
    for m, k, n in SIZES:
        arguments = product_forms.arguments("f32", *form, m, k, n)
        run_module(machine, module, list(arguments.values()), {"m": m, "k": k, "n": n})
        product_forms.check("f32", *form, arguments, 11)


def test_an_option_allows_tf32() -> None:
    """For the products of a function and of its gradient; float64's stay as they are."""

    def loss(w: Any, x: Any) -> Any:
        return np.sum(np.tanh(x @ w))

    w, x = some(np.float32, 20, 30), some(np.float32, 40, 20)
    exact = pb.jit(pb.value_and_grad(loss), device="cuda")
    rounded = pb.value_and_grad(pb.jit(loss, device="cuda", tf32=True))
    assert "tf32" not in exact.stages(w, x)["cuda"]
    text = rounded.stages(w, x)["cuda"]
    assert text.count("unit = pb_unit_tf32<") == 6 and "pb_unit_f32<" not in text
    assert "tf32" not in rounded.stages(w.astype(np.float64), x.astype(np.float64))["cuda"]
    np.testing.assert_allclose(pb.jit(loss, tf32=True)(w, x), loss(w, x), rtol=1e-5)


class Older(Host):
    """Kernels as a GPU before sm_80 has them."""

    def edited(self, text: str) -> str:
        assert "#if __CUDA_ARCH__ < 800" in text
        return text.replace("#if __CUDA_ARCH__ < 800", "#if true")


@needs_host
@pytest.mark.parametrize("role", ["large", "small"])
@pytest.mark.parametrize("form", [("f64", "plain", "plain"), ("f16", "turned", "plain"), ("bf16", "scaled", "turned")], ids=str)
def test_without_tensor_cores(form: tuple[str, str, str], role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dtype, left, right = form
    choose(monkeypatch, role)
    module = checked(parse_module(product_forms.text(dtype, left, right)))
    for m, k, n in SIZES:
        arguments = product_forms.arguments(dtype, left, right, m, k, n)
        run_module(Older, module, list(arguments.values()), {"m": m, "k": k, "n": n})
        product_forms.check(dtype, left, right, arguments, 53 if dtype == "f64" else 24)
