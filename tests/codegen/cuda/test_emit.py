"""CUDA C: its text, and what it computes, on a GPU and with g++ in place of one, against the interpreter."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cuda.emit import emit, emit_all
from pullback.codegen.cuda.schedule.schedule import schedule
from pullback.codegen.cuda.source.launch import MOST_BLOCKS
from pullback.codegen.cuda.source.names import HALF, Names
from pullback.codegen.cuda.source.scalar_ops import BITWISE_FUNCTIONS
from pullback.ir import DTYPES, OPS, ArrayType, Builder, Function, Value
from pullback.ir.core.structure import walk
from pullback.ir.ops.array.contract import Contract
from pullback.ir.ops.array.create import Constant, Count, Iota
from pullback.ir.ops.array.index import Gather, Place, Scatter
from pullback.ir.ops.array.reduce import Reduce
from pullback.ir.ops.array.reindex import Reindex
from pullback.ir.ops.array.scan import Accumulate, LinearRecurrence
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.text import parse_function
from tests.ir.test_semantics import VALUES
from tests.support.cuda.host_programs import Make, expected, run_program, scheduled
from tests.support.cuda.targets import on_each
from tests.support.op_cases import Case, cases, covered_ops, elementwise_params, sample, special_arguments
from tests.support.paths import GOLDEN

FAMILIES = (Gather, Scatter, Place, LinearRecurrence, Reduce, Reindex, Contract, Accumulate, Constant, Count, Iota)
FILES = sorted((GOLDEN / "cuda").glob("*.ir"))
ROUGH = {"gammaln", "digamma", "polygamma", "zeta", "digamma_step", "trigamma_step"}
"""Functions whose methods differ from SciPy's, or that subtract two values where arguments are not above 0: compared on their
domains, to 12 digits."""
UNTRIED = ROUGH | {"expn"} | {op.name for op in OPS.values() if isinstance(op, Elementwise) and str(op.llvm).startswith("ufunc:")}
"""The ops of ROUGH, and functions that the host's library or both libraries lack."""


def assert_close(result: Any, wanted: Any, rtol: float = 1e-11) -> None:
    """Check for equal dtype, shape, NaNs and infinities, and numbers within ``rtol``, or within float32's precision."""
    for a, b in zip(result, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if b.dtype.itemsize == 2 and b.dtype.kind in "fV":
            size = 2e-3 if b.dtype == np.float16 else 2e-2
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=size, atol=1e-7 if b.dtype == np.float16 else 0)
            continue
        if b.dtype.kind != "f":
            np.testing.assert_array_equal(a, b)
            continue
        np.testing.assert_allclose(a, b, rtol=2e-6 if b.dtype == np.float32 else rtol, atol=1e-300)


def check(machine: Make, text: str, layouts: Any = ()) -> None:
    """Random arguments through the interpreter and through CUDA C."""
    function = parse_function("pullback-ir 2\n" + text.replace("pullback-ir 2\n", ""))
    arguments = [sample(np.random.default_rng(0), v.type) for v in function.parameters]
    if layouts:
        arguments = [_strided(a) if layout == "strided" else a for a, layout in zip(arguments, layouts, strict=True)]
    assert_close(run_program(machine, function, arguments, layouts), expected(function, arguments))


def _strided(a: Any) -> Any:
    """Return an array of equal values, stored backwards with a stride of two elements."""
    wide = np.zeros((*a.shape[:-1], 2 * a.shape[-1]), a.dtype)
    view = wide[..., ::-2]
    view[...] = a
    return view


def text_of(path: Path) -> str:
    """Return the CUDA C of all kernels of a program."""
    module, _ = scheduled(parse_function(path.read_text()))
    return emit_all(module.functions[1:])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_text_is_the_expected_one(path: Path, bless: bool) -> None:
    golden = path.with_suffix(".cu")
    if bless:
        golden.write_text(text_of(path))
    assert text_of(path) == golden.read_text()


@on_each
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_golden_programs_compute_what_the_interpreter_does(machine: Make, path: Path) -> None:
    check(machine, path.read_text())


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc (NVIDIA's CUDA toolkit)")
def test_nvcc_takes_the_golden_texts(tmp_path: Path) -> None:
    for path in FILES:
        source = path.with_suffix(".cu")
        command = ["nvcc", "-std=c++17", "-arch=sm_90", "-fmad=false", "-ptx", "-o", str(tmp_path / "k.ptx"), str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


PROGRAMS = {
    "sums of columns": """
func f(%x: f64[300,7]) -> (f64[7], f64[], f64[300]) {
  %0: f64[7] = sum %x {axes=[0]}
  %1: f64[300,7] = mul %x, %x
  %2: f64[] = sum %1 {axes=[0,1]}
  %3: f64[300] = sum %x {axes=[1]}
  return %0, %2, %3
}""",
    "extremes of columns": """
func f(%x: f32[70,3,5]) -> (f32[3], f32[70,5], i64[70,3]) {
  %0: f32[3] = max %x {axes=[0,2]}
  %1: f32[70,5] = min %x {axes=[1]}
  %2: i64[70,3] = argmin %x {axes=[2]}
  return %0, %1, %2
}""",
    "position of the largest": """
func f(%x: f64[1000]) -> (i64[], i64[], f64[]) {
  %0: i64[] = argmax %x {axes=[0]}
  %1: i64[] = argmin %x {axes=[0]}
  %2: f64[] = max %x {axes=[0]}
  return %0, %1, %2
}""",
    "transposed and broadcast": """
func f(%x: f64[40,33], %v: f64[40]) -> (f64[33,40]) {
  %0: f64[33,40] = transpose %x {perm=[1,0]}
  %1: f64[33,40] = broadcast %v {axes=[0]}
  %2: f64[33,40] = sub %0, %1
  return %2
}""",
    "pairs": """
func f(%x: f64[60], %y: f64[50]) -> (f64[60], f64[50], f64[]) {
  %0: f64[60,50] = broadcast %x {axes=[1], shape=[60,50]}
  %1: f64[60,50] = broadcast %y {axes=[0], shape=[60,50]}
  %2: f64[60,50] = sub %0, %1
  %3: f64[60,50] = mul %2, %2
  %4: f64[60,50] = neg %3
  %5: f64[60,50] = exp %4
  %6: f64[60] = sum %5 {axes=[1]}
  %7: f64[50] = sum %5 {axes=[0]}
  %8: f64[] = sum %5 {axes=[0,1]}
  return %6, %7, %8
}""",
    "any and all": """
func f(%x: bool[400], %y: bool[20,30]) -> (bool[], bool[20], bool[]) {
  %0: bool[] = any %x {axes=[0]}
  %1: bool[20] = all %y {axes=[1]}
  %2: bool[] = all %x {axes=[0]}
  return %0, %1, %2
}""",
    "integers": """
func f(%x: i8[500], %y: i64[500], %z: u16[500]) -> (i8[], i64[], u16[]) {
  %0: i8[] = sum %x {axes=[0]}
  %1: i64[500] = mul %y, %y
  %2: i64[] = sum %1 {axes=[0]}
  %3: u16[] = max %z {axes=[0]}
  return %0, %2, %3
}""",
    "batches of products": """
func f(%x: f64[3,20,37], %y: f64[3,37,18]) -> (f64[3,20,18]) {
  %0: f64[3,20,18] = contract %x, %y {spec="bij,bjk->bik"}
  return %0
}""",
    "a total read by every element": """
func f(%x: f64[600]) -> (f64[600], f64[]) {
  %0: f64[] = sum %x {axes=[0]}
  %1: f64[600] = broadcast %0 {axes=[0]}
  %2: f64[600] = div %x, %1
  %3: f64[600] = exp %2
  %4: f64[] = sum %3 {axes=[0]}
  return %3, %4
}""",
    "a layer norm": """
func f(%x: f64[9,300], %g: f64[300], %y: f64[9,300]) -> (f64[], f64[9,300], f64[300]) {
  %l: f64[], %dx: f64[9,300], %dg: f64[300] = gradient %x, %g, %y {wrt=[0, 1]} (%a: f64[9,300], %b: f64[300], %c: f64[9,300]) {
    %s: f64[9] = sum %a {axes=[1]}
    %n: f64[] = const {value=0.0033333333333333335}
    %n1: f64[9] = broadcast %n {axes=[0]}
    %m: f64[9] = mul %s, %n1
    %mb: f64[9,300] = broadcast %m {axes=[1]}
    %d: f64[9,300] = sub %a, %mb
    %q: f64[9,300] = mul %d, %d
    %t: f64[9] = sum %q {axes=[1]}
    %u: f64[9] = mul %t, %n1
    %r: f64[9] = sqrt %u
    %rb: f64[9,300] = broadcast %r {axes=[1]}
    %h: f64[9,300] = div %d, %rb
    %bb: f64[9,300] = broadcast %b {axes=[0]}
    %o: f64[9,300] = mul %h, %bb
    %p: f64[9,300] = mul %o, %c
    %z: f64[] = sum %p {axes=[0,1]}
    yield %z
  }
  return %l, %dx, %dg
}""",
    "nothing": """
func f(%x: f64[0], %y: f64[0,4], %z: f64[3,0]) -> (f64[], f64[4], f64[3], f64[3]) {
  %0: f64[] = sum %x {axes=[0]}
  %1: f64[4] = max %y {axes=[0]}
  %2: f64[3] = sum %z {axes=[1]}
  %3: f64[3] = prod %z {axes=[1]}
  return %0, %1, %2, %3
}""",
}  # fmt: skip


@on_each
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_the_interpreter_does(machine: Make, name: str) -> None:
    check(machine, PROGRAMS[name])


@on_each
def test_strided_references_are_read_where_they_lie(machine: Make) -> None:
    check(
        machine,
        """
func f(%x: f64[30,40], %y: f32[40]) -> (f64[30], f32[40], f64[]) {
  %0: f64[30] = sum %x {axes=[1]}
  %1: f32[40] = exp %y
  %2: f64[] = max %x {axes=[0,1]}
  return %0, %1, %2
}""",
        layouts=("strided", "strided"),
    )


@on_each
def test_a_failed_check_gives_its_status(machine: Make) -> None:
    function = parse_function(
        """pullback-ir 2
func f(%x: f64[90]) -> (f64[90]) {
  %0: f64[] = const {value=0.0}
  %1: f64[90] = broadcast %0 {axes=[0]}
  %2: bool[90] = ge %x, %1
  check %2 {error="ValueError", message="x must not be negative"}
  %3: f64[90] = sqrt %x
  return %3
}"""
    )
    good = np.linspace(0.0, 1.0, 90)
    assert_close(run_program(machine, function, [good]), [np.sqrt(good)])
    with pytest.raises(CheckFailed, match="must not be negative"):
        run_program(machine, function, [good - 0.5])


@on_each
def test_of_several_failed_checks_the_first_is_told(machine: Make) -> None:
    """Whichever thread comes first: the last element fails the first check, all others the second."""
    b = Builder()
    x = Value(ArrayType(DTYPES["f64"], (700,)), "x")
    b.check(b.ge(x, b.full(0.0, x.type)), error="ValueError", message="x must not be negative")
    b.check(b.le(x, b.full(1.0, x.type)), error="ValueError", message="x must not be above 1")
    function = b.function("f", [x], [b.sqrt(x)])
    arguments = [np.array([2.0] * 699 + [-1.0])]
    with pytest.raises(CheckFailed, match="must not be negative"):
        run_program(machine, function, arguments)


@on_each
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_every_op_of_a_family(machine: Make, family: type[Any]) -> None:
    """All cases of a family's ops in one program."""
    rng, b = np.random.default_rng(7), Builder()
    parameters: list[Value] = []
    results: list[Value] = []
    arguments: list[Any] = []
    for case in (case for op in covered_ops() if isinstance(op, family) for case in cases(op)):
        if any(t.dtype.kind == "c" for t in case.types):
            continue
        operands = [Value(t, f"x{len(parameters) + k}") for k, t in enumerate(case.types)]
        parameters += operands
        arguments += case.arguments(rng)
        results += b.emit(case.op, operands, case.params)
    function = b.function("f", parameters, results)
    assert_close(run_program(machine, function, arguments), expected(function, arguments))


@on_each
@pytest.mark.parametrize("dtype", ["f64", "f32", "f16", "bf16", "i64", "i32", "i8", "u8", "u64", "bool"])
def test_elementwise_ops_on_special_values(machine: Make, dtype: str) -> None:
    untried = UNTRIED | (BITWISE_FUNCTIONS | {"bitcast", "complex"} if dtype in HALF else set())
    by_types: dict[tuple[ArrayType, ...], list[tuple[Elementwise, dict[str, Any]]]] = {}
    for op in covered_ops():
        is_tried = "func" in op.vocabularies and op.name not in untried
        if isinstance(op, Elementwise) and DTYPES[dtype].kind in op.kinds and is_tried:
            t = ArrayType(DTYPES[dtype], ())
            types = (ArrayType(DTYPES["bool"], ()), t, t) if op.gives == "select" else (t,) * op.arity
            for params in elementwise_params(op, DTYPES[dtype]):
                if not params or "dtype" not in params or params["dtype"].name != "c128":
                    by_types.setdefault(types, []).append((op, params))
    for types, uses in by_types.items():
        columns = special_arguments(Case(op=uses[0][0], types=types))
        b = Builder()
        parameters = [Value(t.with_shape((len(columns[0]),)), f"x{k}") for k, t in enumerate(types)]
        function = b.function("f", parameters, [b.emit(op, parameters, params)[0] for op, params in uses])
        results = run_program(machine, function, columns), expected(function, columns)
        for (op, _), result, wanted in zip(uses, *results, strict=True):
            try:
                assert_close([result], [wanted], 1e-14)
            except AssertionError as error:
                raise AssertionError(f"{op.name} {dtype}: {error}") from error


@on_each
def test_special_functions_on_their_domains(machine: Make) -> None:
    b = Builder()
    x = Value(ArrayType(DTYPES["f64"], (200,)), "x")
    uses = [b.gammaln(x), b.digamma(x), *(b.polygamma(x, n=n) for n in (1, 2, 5))]
    function = b.function("f", [x], uses)
    for low, high in ((1.6, 40.0), (0.01, 1.4), (-0.9, -0.1)):
        arguments = [np.linspace(low, high, 200)]
        assert_close(run_program(machine, function, arguments), expected(function, arguments))


@on_each
def test_steps_of_digamma_on_their_domain(machine: Make) -> None:
    b = Builder()
    x, d = (Value(ArrayType(DTYPES["f64"], (400,)), name) for name in "xd")
    function = b.function("f", [x, d], [b.digamma_step(x, d), b.trigamma_step(x, d)])
    pairs = [(p, q) for p in np.geomspace(1e-3, 1e4, 20) for q in (*np.geomspace(1e-9, 1e6, 19), -0.5 * p)]
    arguments = [np.array(column) for column in zip(*pairs)]
    assert_close(run_program(machine, function, arguments), expected(function, arguments), 1e-13)


@on_each
def test_zeta_of_large_orders(machine: Make) -> None:
    """Where corrections to a sum of few terms would grow without end."""
    pairs = [(1.001, 0.3), (3.5, 1.0), (40.0, 0.7), (193.7, 11.04), (80.0, 60.0), (60.0, 80.0), (25.5, 1e4), (4.0, -2.5)]
    b = Builder()
    s, q = (Value(ArrayType(DTYPES["f64"], (len(pairs),)), name) for name in "sq")
    function = b.function("f", [s, q], [b.zeta(s, q)])
    arguments = [np.array(column) for column in zip(*pairs)]
    assert_close(run_program(machine, function, arguments), expected(function, arguments), 1e-12)


@on_each
def test_the_promised_semantics(machine: Make) -> None:
    b = Builder()
    rows = [row for row in VALUES if row[1] not in ("f16", "bf16") and isinstance(OPS[row[0]], Elementwise)]
    parameters, results = [], []
    for name, dtype, operands, _ in rows:
        values = [Value(ArrayType(DTYPES[dtype], (1,)), "x") for _ in operands]
        parameters += values
        results.append(b.emit(OPS[name], values)[0])
    arguments = [np.array([v], DTYPES[dtype].numpy) for _, dtype, operands, _ in rows for v in operands]
    outputs = run_program(machine, b.function("f", parameters, results), arguments)
    for (name, dtype, operands, wanted), result in zip(rows, outputs, strict=True):
        np.testing.assert_allclose(result[0], wanted, rtol=1e-6, err_msg=f"{name} {dtype} {operands}")
        if isinstance(wanted, float) and wanted == 0:
            assert np.signbit(result[0]) == np.signbit(wanted), (name, dtype, operands)


def kernel(text: str) -> Function:
    return schedule(parse_function(f"pullback-ir 2\nkernel {text}"))


def maps(function: Function) -> list[str]:
    return [i.params["map"] for i in walk(function.body) if "map" in i.params]


def test_loops_that_write_to_one_place_are_not_shared_out() -> None:
    scatter = kernel("""k(%at: &i64[s0], %v: &f64[s0], %out: &f64[s1]) -> () {
  %n: i64[] = extent {size=s0}
  for %n (%i: i64[]) {
    %a: i64[] = load %at, %i
    %x: f64[] = load %v, %i
    store %x, %out, %a
    yield
  }
  return
}""")
    assert maps(scatter) == ["serial"]
    assert emit(scatter, "k").launches[0].threads == 1


def test_iterations_that_add_to_one_place_have_copies_by_block() -> None:
    columns = kernel(
        """k(%x: &f64[s0,s1], %out: &f64[s1]) -> () {
  %n: i64[] = extent {size=s0}
  %m: i64[] = extent {size=s1}
  for %n (%i: i64[]) {
    for %m (%j: i64[]) {
      %x: f64[] = load %x, %i, %j
      %a: f64[] = load %out, %j
      %b: f64[] = add %a, %x
      store %b, %out, %j
      yield
    }
    yield
  }
  return
}""".replace("%x: f64", "%e: f64").replace("%a, %x", "%a, %e")
    )
    assert maps(columns) == ["block", "lane"]
    result = emit(columns, "k")
    assert [launch.name for launch in result.launches] == ["k_0", "k_1"]
    assert result.launches[0].blocks({"s0": 10**6, "s1": 7}) == MOST_BLOCKS
    assert result.launches[0].blocks({"s0": 10**6, "s1": 10**9}) == 1
    assert [(s.shape, s.launch) for s in result.scratch] == [(("s1",), 0)]


def test_names_are_identifiers_and_no_keywords() -> None:
    result = emit(
        kernel("""k(%double: &f64[s0], %exp: &f64[s0]) -> () {
  %n: i64[] = extent {size=s0}
  for %n (%int: i64[]) {
    %for: f64[] = load %double, %int
    %s1: f64[] = exp %for
    store %s1, %exp, %int
    yield
  }
  return
}"""),
        "k",
    )
    assert "double s1 " not in result.text
    assert "double s1_2 = exp(for2);" in result.text
    assert "double* __restrict__ exp3" in result.text


@on_each
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_floats_of_16_bits_are_rounded_as_the_interpreter_does(machine: Make, dtype: str) -> None:
    """Every one of them, through float32 and back, and as the nearest of a float64."""
    b, half = Builder(), DTYPES[dtype]
    x = Value(ArrayType(half, (1 << 16,)), "x")
    y = Value(ArrayType(DTYPES["f64"], (1 << 16,)), "y")
    uses = [b.cast(x, dtype=DTYPES["f32"]), b.neg(x), b.mul(x, x), b.cast(y, dtype=half), b.bitcast(x, dtype=DTYPES["u16"])]
    function = b.function("f", [x, y], [*uses, b.max(x, axes=[0])])
    bits = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        wide = np.random.default_rng(3).permutation(np.nextafter(bits.view(half.numpy).astype(float), np.inf) * 1.0009765625)
    arguments = [bits.view(half.numpy), wide]
    result, wanted = run_program(machine, function, arguments), expected(function, arguments)
    is_number = ~np.isnan(arguments[0])
    for a, c in zip(result, wanted, strict=True):
        a, c = (a[is_number], c[is_number]) if a.dtype == np.uint16 else (a, c)
        np.testing.assert_array_equal(a.astype(float), c.astype(float))


def test_a_function_of_the_bits_of_half_floats_is_refused_by_name() -> None:
    halves = kernel("""k(%x: &f16[s0]) -> () {
  %n: i64[] = extent {size=s0}
  for %n (%i: i64[]) {
    %a: f16[] = load %x, %i
    %b: f16[] = nextafter %a, %a
    store %b, %x, %i
    yield
  }
  return
}""")
    with pytest.raises(NotImplementedError, match="f16"):
        emit(halves, "k")


def test_two_values_called_s_have_names_of_their_own() -> None:
    """s2 would be an extent's name."""
    names = Names()
    assert [names.fresh("s") for _ in range(3)] == ["s", "s_2", "s_3"]
