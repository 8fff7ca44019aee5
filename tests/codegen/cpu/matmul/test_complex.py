"""Matrix products of complex numbers by blocks (``product_blocks``): the tile's text, any shape, order and machine, what is not
finite or subnormal, batches, gradients, and who does them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback.codegen.cpu.matmul.blocking import Blocking, blocking_for
from pullback.codegen.cpu.matmul.complex_numbers import ComplexMicrokernel
from pullback.codegen.cpu.matmul.library_or_generated import owned
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.cuda.schedule.naive_matmul import expand_products
from pullback.codegen.targets import Target
from pullback.ir import OPS, Function, Module
from pullback.ir.core.structure import Block, walk
from pullback.ir.core.types import F32, F64
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_function, parse_module, print_module
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.choices.choices import VARIABLE, choices
from pullback.runtime.threads import threads
from tests.support.matmul.kernels import MACHINES, compiled_product, fenced
from tests.support.paths import GOLDEN

Array = Any
EXTENTS = st.one_of(st.integers(0, 40), st.integers(0, 200))
DTYPES = {"f32": np.complex64, "f64": np.complex128}
TURNS = [(False, False), (False, True), (True, False), (True, True)]
TINY = Blocking(rows=2, vectors=1, accumulators=4, lanes=4, k_block=8, max_column_panels=2, max_row_panels=2, planes=2)


def text_of(dtype: str, turned: tuple[bool, bool] = (False, False)) -> str:
    """out = x @ w; ``turned``: which operands are stored transposed."""
    x, w = ("s1,s0" if turned[0] else "s0,s1"), ("s2,s1" if turned[1] else "s1,s2")
    at_x, at_w = ("%p, %i" if turned[0] else "%i, %p"), ("%j, %q" if turned[1] else "%q, %j")
    return f"""pullback-ir 2

kernel k(%x: &{dtype}[{x},2], %w: &{dtype}[{w},2], %out: &{dtype}[s0,s2,2]) -> () {{
  %m: i64[] = extent {{size=s0}}
  %n: i64[] = extent {{size=s2}}
  %k: i64[] = extent {{size=s1}}
  product %m, %n, %k (%i: i64[], %p: i64[]) {{
    %re: i64[] = const {{value=0}}
    %im: i64[] = const {{value=1}}
    %0: {dtype}[] = load %x, {at_x}, %re
    %1: {dtype}[] = load %x, {at_x}, %im
    yield %0, %1
  }} (%q: i64[], %j: i64[]) {{
    %re0: i64[] = const {{value=0}}
    %im0: i64[] = const {{value=1}}
    %2: {dtype}[] = load %w, {at_w}, %re0
    %3: {dtype}[] = load %w, {at_w}, %im0
    yield %2, %3
  }} (%i0: i64[], %j0: i64[], %sum: {dtype}[], %sum0: {dtype}[]) {{
    %re1: i64[] = const {{value=0}}
    %im1: i64[] = const {{value=1}}
    store %sum, %out, %i0, %j0, %re1
    store %sum0, %out, %i0, %j0, %im1
    yield
  }}
  return
}}
"""


def numbers(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("turned", TURNS)
def test_functions_that_kernels_share_pack_operands(turned: tuple[bool, bool]) -> None:
    """Shared functions pack operands that are read in place; the kernel itself packs a conjugate."""
    left, right = (f"pack_{side}_c128_{'nt'[is_turned]}" for side, is_turned in zip(("left", "right"), turned, strict=True))
    plain = text_of("f64", turned)
    conjugate = plain.replace("    yield %2, %3\n", "    %4: f64[] = neg %3\n    yield %2, %4\n")
    for text, packs in ((plain, {left, right}), (conjugate, {left})):
        result = schedule(parse_function(text), "", Target(64))
        names = {i.params["function"] for i in result.instructions if i.op is OPS["function"]}
        assert names == {"tile_c128_6x16", *packs}


def run(text: str, machine: str, x: Array, w: Array, turned: tuple[bool, bool] = (False, False)) -> Array:
    out = fenced(np.full((len(x), w.shape[1]), np.nan, x.dtype))
    stored = [fenced(np.ascontiguousarray(a.T if t else a)) for a, t in zip((x, w), turned, strict=True)]
    assert compiled_product(text, machine)([*stored, out], [len(x), x.shape[1], w.shape[1]]) == 0
    return np.array(out)


def assert_within_bound(result: Array, x: Array, w: Array) -> None:
    """A part is a sum of 2 k products."""
    unit, terms = np.finfo(x.dtype).eps / 2, 2 * x.shape[-1]
    wide, factor = np.clongdouble, terms * unit / (1 - terms * unit)
    (a, b), (c, d) = ((np.abs(z.real).astype(np.longdouble), np.abs(z.imag).astype(np.longdouble)) for z in (x, w))
    exact = x.astype(wide) @ w.astype(wide)
    least = np.finfo(x.dtype).smallest_subnormal
    assert (np.abs(result.real - exact.real) <= factor * (a @ c + b @ d) + least).all()
    assert (np.abs(result.imag - exact.imag) <= factor * (a @ d + b @ c) + least).all()


# kernels


def test_text_of_the_tile(bless: bool, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / "matmul" / "scheduled" / "complex_tile.ir"
    result = print_module(Module((Function("k", Block((), (ComplexMicrokernel(F32, TINY, True).define(),), ()), "kernel"),)))
    if bless:
        path.write_text(result)
    assert path.read_text() == result


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.tuples(EXTENTS, EXTENTS, EXTENTS), st.sampled_from(sorted(DTYPES)), st.sampled_from(TURNS),
    st.sampled_from(sorted(MACHINES)),
)  # fmt: skip
def test_any_shape(extents: tuple[int, int, int], dtype: str, turned: tuple[bool, bool], machine: str) -> None:
    m, k, n = extents
    x, w = numbers((m, k), DTYPES[dtype]), numbers((k, n), DTYPES[dtype], 1)
    assert_within_bound(run(text_of(dtype, turned), machine, x, w, turned), x, w)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_several_runs_of_terms_and_blocks(machine: str, dtype: str) -> None:
    for m, k, n in ((30, 700, 70), (250, 300, 40), (9, 70, 900), (500, 20, 500)):
        x, w = numbers((m, k), DTYPES[dtype]), numbers((k, n), DTYPES[dtype], 1)
        assert_within_bound(run(text_of(dtype), machine, x, w), x, w)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bits_do_not_depend_on_the_number_of_threads(dtype: str) -> None:
    before = threads.get_num_threads()
    result = []
    x, w = numbers((211, 600), DTYPES[dtype]), numbers((600, 190), DTYPES[dtype], 1)
    try:
        for count in (1, 2, 3, 7):
            threads.set_num_threads(count)
            result.append(run(text_of(dtype), "AVX-512", x, w))
    finally:
        threads.set_num_threads(before)
    assert all((each == result[0]).all() for each in result)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_not_finite(machine: str) -> None:
    """Results are those of the four products of the parts: 0 times infinity is NaN."""
    x, w = numbers((30, 50), np.complex64), numbers((50, 40), np.complex64, 1)
    x[3, 7], x[29, 0], x[11, 2], w[9, 5] = np.nan, -np.inf, complex(0, np.inf), complex(1, np.inf)
    with np.errstate(invalid="ignore"):
        a, b, c, d = (z.astype(np.float64) for z in (x.real, x.imag, w.real, w.imag))
        expected = [a @ c - b @ d, a @ d + b @ c]
    result = run(text_of("f32"), machine, x, w)
    for kind in (np.isnan, np.isposinf, np.isneginf):
        for one, two in zip((result.real, result.imag), expected, strict=True):
            np.testing.assert_array_equal(kind(one), kind(two))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_subnormal_parts(machine: str, dtype: str) -> None:
    x, w = numbers((29, 150), DTYPES[dtype]), numbers((150, 45), DTYPES[dtype], 1)
    limits = np.finfo(x.dtype)
    x.imag[:, 3:40] *= limits.tiny / 8
    w.real[20:90] *= limits.tiny / 8
    w *= 2.0 ** (limits.nmant - 3)
    assert_within_bound(run(text_of(dtype), machine, x, w), x, w)


@pytest.mark.parametrize("dtype", [F32, F64], ids=str)
@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_fit_registers(machine: str, dtype: Any) -> None:
    shape = blocking_for(MACHINES[machine], dtype, 2)
    registers = 32 if MACHINES[machine].vector_bytes == 64 else 16
    rows = max(map(len, shape.passes(shape.rows)))
    assert 2 * rows * shape.vectors + 2 * shape.vectors + 1 <= registers
    assert 2 * shape.rows * shape.k_block * dtype.bytes <= 32 << 10


def test_the_interpreter_and_plain_loops_have_the_same_products() -> None:
    (kernel,) = parse_module(text_of("f64")).functions
    x, w = numbers((3, 4), np.complex128), numbers((4, 5), np.complex128, 1)
    for each in (kernel, Function("k", expand_products(kernel.body), "kernel")):
        out = np.zeros((3, 5), np.complex128)
        parts = [z.view(np.float64).reshape(*z.shape, 2) for z in (x, w, out)]
        interpret(each, *parts, sizes={"s0": 3, "s1": 4, "s2": 5})
        np.testing.assert_allclose(out, x @ w, rtol=1e-13)


# who does them


GEMM = """kernel k(%x: &f64[s0,s1,2], %y: &f64[s1,s2,2], %o: &f64[s0,s2,2]) -> () {
  gemm %x, %y, %o {transpose_a=false, transpose_b=false}
  return
}"""


def ops(kernel: Function) -> list[str]:
    return [i.op.name for i in walk(kernel.body)]


def test_a_kernel_has_both_ways_where_there_is_a_choice() -> None:
    both = owned(parse_function(GEMM), Target(64))
    assert {"gemm", "product", "tuned"} <= set(ops(both))
    (asked,) = (i for i in walk(both.body) if i.op is OPS["tuned"])
    assert str(asked.params["dtype"]) == "c128" and asked.params["extents"] == ("s0", "s1", "s2")
    assert ops(owned(parse_function(GEMM), Target(16))) == ["gemm"]


def test_exports_need_no_library_in_loops_too(tmp_path: Path) -> None:
    def steps(x: Array, w: Array) -> Array:
        return pb.scan(lambda h, _: (h @ w * 0.1, np.sum(h)), x, np.arange(5.0))

    x, w = numbers((6, 8), np.complex128), numbers((8, 8), np.complex128, 1)
    exported = pb.export(steps, "c128[m,k]", "c128[k,k]", path=tmp_path / "steps")
    assert "gemm" not in exported.header.read_text()
    if exported.library is not None:
        result = pb.load(exported.library, trust=True)(x, w)
        for one, other in zip(result, pb.jit(steps)(x, w), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)


# the public door


@pytest.mark.parametrize("dtype", DTYPES.values())
@pytest.mark.parametrize(
    "shapes",
    [((37, 3, 4), (37, 4, 5)), ((70, 16, 16), (70, 16, 16)), ((7, 20, 30), (7, 30, 17)), ((9, 20, 16), (16, 3))],
    ids=str,
)
def test_batches(shapes: tuple[Any, Any], dtype: Any) -> None:
    x, y = numbers(shapes[0], dtype), numbers(shapes[1], dtype, 1)
    result = pb.jit(lambda x, y: x @ y)(x, y)
    assert result.dtype == dtype
    for k, each in enumerate(result):
        assert_within_bound(each, x[k], y if y.ndim == 2 else y[k])


FORMS = {
    "plain": lambda x, y: x @ y,
    "adjoint": lambda x, y: x.conj().T @ y,
    "conjugate": lambda x, y: x @ y.conj(),
    "both": lambda x, y: x.T.conj() @ y.conj().T,
    "mixed": lambda x, y: x.real @ y,
}


CONJUGATES = {
    **FORMS,
    "turned results": lambda x, y: np.einsum("km,kn->nm", x.conj(), y),
    "the other one": lambda x, y: np.einsum("km,nk->nm", x, y.conj()),
    "scaled before": lambda x, y: (x * 2j).conj().T @ y,
    "used again": lambda x, y: x.conj().T @ y + x.conj(),
    "batch": lambda x, y: np.conj(x.reshape(10, 7, 70)) @ y.reshape(10, 70, 7),
    "batch of both": lambda x, y: np.einsum("mzk,kzn->nzm", x.reshape(10, 7, 70).conj(), y.reshape(70, 7, 10).conj()),
    "batch of small ones": lambda x, y: x.reshape(100, 7, 7) @ y.reshape(100, 7, 7).conj(),
    "one row": lambda x, y: x[:1].conj() @ y,
}


@pytest.mark.parametrize("who", ["ours", "library"])
@pytest.mark.parametrize("form", CONJUGATES)
def test_forms(form: str, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"gemm={who}")
    choices_matmul.forget()
    choices.forget()
    x, y = numbers((70, 70), np.complex128), numbers((70, 70), np.complex128, 1)
    result = pb.jit(CONJUGATES[form])(x, y)
    choices_matmul.forget()
    choices.forget()
    np.testing.assert_allclose(result, CONJUGATES[form](x, y), rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize("name", FORMS)
def test_gradients_to_the_second_order(name: str) -> None:
    form = FORMS[name]
    n = 9
    x, y, v, u = (numbers((n, n), np.complex128, seed) for seed in range(4))

    def loss(x: Array, y: Array) -> Array:
        return np.sum(np.abs(form(x, y)) ** 2 * np.arange(n))

    def slope(x: Array, y: Array) -> Array:
        return sum(np.sum((g * d).real) for g, d in zip(pb.grad(loss, argnums=(0, 1))(x, y), (v, u), strict=True))

    step = 1e-3
    along = [loss(x + t * v, y + t * u) for t in (-step, step)]
    np.testing.assert_allclose(pb.jit(slope)(x, y), (along[1] - along[0]) / (2 * step), rtol=1e-5)
    slopes = [slope(x + t * v, y + t * u) for t in (-step, step)]
    second = pb.jit(pb.grad(slope, argnums=(0, 1)))(x, y)
    result = sum(np.sum((g * d).real) for g, d in zip(second, (v, u), strict=True))
    np.testing.assert_allclose(result, (slopes[1] - slopes[0]) / (2 * step), rtol=1e-5)
