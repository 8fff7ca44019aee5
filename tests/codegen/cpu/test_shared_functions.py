"""Functions that kernels share: what they are in text, interpreted and compiled, and which kernels of products have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import early_emitter, emit
from pullback.codegen.cpu.llvm.text import is_brief
from pullback.codegen.cpu.loops.reachability import is_reached
from pullback.codegen.cpu.matmul.shape_classes import has_choice
from pullback.codegen.cpu.matmul.stored_epilogue import StoredEpilogueMatmul
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir import Module
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.ops.kernel.functions import Call
from pullback.ir.text import parse_module, print_module
from pullback.ir.verify import VerifyError, verify_module
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.program.executable import emit_kernel, shared_with
from tests.support.matmul.kernels import Compiled, compiled_product, product_text

WIDE = Target(64)
TWICE = """pullback-ir 2

kernel k(%x: &f64[s0,s1], %out: &f64[s0,s1]) -> () {
  function {function=sum_rows} (%to: &f64[4], %from: &f64[3,4], %n: i64[]) {
    %zero: f64[] = const {value=0.0}
    %i: i64[] = const {value=1}
    for %n {map=serial, ordered=true} (%j: i64[]) {
      %a: f64[] = load %to, %j
      %b: f64[] = load %from, %i, %j
      %c: f64[] = add %a, %b
      store %c, %to, %j
      yield
    }
    yield
  }
  %rows: i64[] = extent {size=s0}
  %n0: i64[] = extent {size=s1}
  for %rows {map=serial, ordered=true} (%r: i64[]) {
    for %n0 {map=serial, ordered=true} (%q: i64[]) {
      %d: f64[] = load %x, %r, %q
      store %d, %out, %r, %q
      yield
    }
    yield
  }
  %one: i64[] = const {value=1}
  %none: i64[] = const {value=0}
  %to0: &f64[1099511627776] = ref_at %out, %one, %none
  %from0: &f64[1099511627776,1099511627776] = ref_at %x, %none, %one, %n0
  %less: i64[] = sub %n0, %one
  call %to0, %from0, %less {function=sum_rows}
  return
}
"""


def expected(x: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> object:
    """The second row plus the second one from the second column on, the last number of which is left out."""
    out = x.copy()
    out[1, :-1] += x[1, 1:]
    return out


OTHER = """  function {function=clear} (%to1: &f64[4], %from1: &f64[3,4], %n1: i64[]) {
    yield
  }
"""
BY_ADDRESS = TWICE.replace("  %rows: i64[] =", OTHER + "  %rows: i64[] =").replace(
    "  call %to0, %from0, %less {function=sum_rows}\n",
    """  %this: i64[] = function_address {function=sum_rows}
  %that: i64[] = function_address {function=clear}
  %is_some: bool[] = gt %rows, %one
  %which: i64[] = select %is_some, %this, %that
  call_indirect %which, %to0, %from0, %less
""",
)
"""The same by a function that is chosen as the kernel runs."""
IF_WANTED = BY_ADDRESS.replace("function_address {function=clear}", "function_address %is_none {function=clear}").replace(
    "  %which: i64[] = select %is_some, %this, %that\n",
    """  %is_some: bool[] = eq %that, %none
  %which: i64[] = select %is_some, %this, %that
""",
).replace("  %is_some: bool[] = gt %rows, %one\n", "").replace(
    "  %this: i64[] =", "  %is_none: bool[] = lt %rows, %one\n  %this: i64[] ="
)  # fmt: skip
"""The same by a function that is nowhere, which another one stands in for."""


@pytest.mark.parametrize("text, count", [(TWICE, 1), (BY_ADDRESS, 2), (IF_WANTED, 2)])
def test_interpreted_and_compiled(text: str, count: int) -> None:
    module = verify_module(parse_module(text))
    assert print_module(parse_module(print_module(module))) == print_module(module)
    (kernel,) = module.functions
    x = np.arange(12.0).reshape(3, 4)
    out = np.zeros_like(x)
    assert interpret(kernel, x, out, sizes={"s0": 3, "s1": 4}) == 0
    np.testing.assert_array_equal(out, expected(x))
    emitted = emit(schedule(kernel, "", WIDE), "k", WIDE)
    built = Compiled(default_engine().load(emitted.text, symbols=["k"])["k"], emitted.slots, kernel)
    assert len(shared_with(emitted)) == count and "sum_rows" not in emitted.text
    out[...] = 0
    assert built([x, out], [3, 4]) == 0
    np.testing.assert_array_equal(out, expected(x))


@pytest.mark.parametrize(
    "old, new",
    [
        ("ref_at %out, %one, %none\n", "ref_at %out\n"),
        ("ref_at %x, %none, %one, %n0", "ref_at %x, %none, %one, %n0, %n0"),
        ("call %to0, %from0, %less {function=sum_rows}", "%v: f64[] = call %to0 {function=sum_rows}"),
        ("function_address {function=clear}", "function_address %one {function=clear}"),
        ("call_indirect %which, %to0", "call_indirect %to0"),
        ("call_indirect %which, %to0, %from0, %less", "call_indirect"),
    ],
)
def test_what_is_refused(old: str, new: str) -> None:
    text = TWICE if old in TWICE else BY_ADDRESS
    assert old in text
    with pytest.raises((TypeError, VerifyError, SyntaxError, ValueError)):
        verify_module(parse_module(text.replace(old, new)))


OF_ANY_ORDER = ("add_parts", "few_rows")


def functions_of(text: str, target: Target = WIDE) -> set[str]:
    """The functions that the kernel of a product shares, by name."""
    (kernel,) = parse_module(text).functions
    emitted = emit(schedule(kernel, "", target), "k", target)
    result = [str(slot[1]).partition("_f32") for slot in emitted.slots if slot[0] == "shared"]
    return {name if name in ("tile", "narrow", *OF_ANY_ORDER) else f"{name} {order[1:]}".strip() for name, _, order in result}


FOR_TALL = {"add_parts", "narrow"}


def test_plain_products_share_their_blocks() -> None:
    """One function serves all orders, given the functions that pack. Few rows have one more, where registers are few."""
    plain = {"tile", "pack_left n", "pack_right n", "blocks", *FOR_TALL}
    assert functions_of(product_text("f32")) == plain
    assert functions_of(product_text("f32"), Target(32)) == {*plain, "few_rows"}
    assert functions_of(product_text("f32", (False, True)), Target(32)) == {*plain, "few_rows", "pack_right t"} - {"pack_right n"}
    assert functions_of(product_text("f32", (True, True))) == {"tile", "pack_left t", "pack_right t", "blocks", *FOR_TALL}
    assert functions_of(product_text("f32", (True, False), "strided")) == {"tile"}


def test_products_of_strided_matrices_share_both_ways_to_pack_them() -> None:
    both = {"pack_left n", "pack_left t", "pack_right n", "pack_right t"}
    text = product_text("f32", layout="strided")
    for lies, functions in (("[0, 1]", {"tile", *both, "blocks", *FOR_TALL}), ("[0]", {"tile", "pack_left n", "pack_left t"})):
        assert functions_of(text.replace("product %m, %n, %k ", f"product %m, %n, %k {{in_place={lies}}} ")) == functions


def test_what_is_around_does_not_keep_operands_from_being_shared() -> None:
    text = product_text("f32").replace("    store %sum, %out", "    %s: f32[] = add %sum, %sum\n    store %s, %out")
    assert functions_of(text) == {"tile", "pack_left n", "pack_right n"}
    text = product_text("f32").replace("    yield %0\n", "    %d: f32[] = add %0, %0\n    yield %d\n")
    assert functions_of(text) == {"tile", "pack_right n"}


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_kernels_of_plain_products_are_small(dtype: str) -> None:
    (kernel,) = parse_module(product_text(dtype)).functions
    emitted = emit(schedule(kernel, "", WIDE), "k", WIDE)
    assert "fma" not in emitted.text and emitted.text.count("\n") < 600
    assert all(text.count("\n") < 1000 for text in shared_with(emitted))


BIAS = ("    store %sum, %out", "    %s: f32[] = add %sum, %sum\n    store %s, %out")
SUMS = """pullback-ir 2

kernel k(%x: &f64[s0,s1], %out: &f64[s0,s1]) -> () {
  %n: i64[] = extent {size=s0}
  %m: i64[] = extent {size=s1}
LOOPS
  return
}
"""
LOOP = """  for %n {independent=true} (%i: i64[]) {
    for %m (%j: i64[]) {
      %a: f64[] = load %x, %i, %j
      %b: f64[] = exp %a
      %c: f64[] = sin %b
      %d: f64[] = tanh %c
      %e: f64[] = cosh %d
      %f: f64[] = sinh %e
      store %f, %out, %i, %j
      yield
    }
    yield
  }"""


def test_kernels_that_call_others_are_brief() -> None:
    (plain,) = parse_module(product_text("f32")).functions
    (other,) = parse_module(product_text("f32").replace(*BIAS)).functions
    assert is_brief(emit(schedule(plain, "", WIDE), "k", WIDE).text)
    assert not is_brief(emit(schedule(other, "", WIDE), "k", WIDE).text)


def test_long_loops_of_several_are_modules_of_their_own() -> None:
    x = np.linspace(-3, 3, 700).reshape(70, 10)
    for count in (1, 2):
        text = SUMS.replace("LOOPS", "\n".join([LOOP] * count))
        (kernel,) = verify_module(parse_module(text)).functions
        told: list[Any] = []
        emitted = emit(schedule(kernel, "", WIDE), "k", WIDE, told.append)
        assert list(dict.fromkeys(str(slot[2]) for slot in told)) == shared_with(emitted)
        own = [slot[1] for slot in emitted.slots if slot[0] == "shared" and str(slot[1]).startswith("k_")]
        assert own == ([] if count == 1 else ["k_0", "k_1"]) and is_brief(emitted.text) == (count > 1)
        built, out = compiled_product(text, "AVX2"), np.zeros_like(x)
        assert built([x, out], [70, 10]) == 0
        np.testing.assert_allclose(out, np.sinh(np.cosh(np.tanh(np.sin(np.exp(x))))), rtol=1e-13)


def test_long_conditions_in_loops_are_modules_of_their_own() -> None:
    """Each of several long branches is a module, such as the two ways to read the rows of a matrix whose order is unknown."""
    x = np.linspace(-3, 3, 7000).reshape(70, 100)
    for count, own in ((5, []), (205, ["k_0_0", "k_0_1"])):
        sums = "".join(f"      %v{k}: f64[] = add %v{k - 1}, %v0\n" for k in range(1, count))
        body = f"      %v0: f64[] = load %x, %i, %j\n{sums}      store %v{count - 1}, %out, %i, %j\n"
        way = f"    if CONDITION () {{\n    for %m (%j: i64[]) {{\n{body}      yield\n    }}\n    yield\n    }}\n"
        ways = "".join(way.replace("CONDITION", condition) for condition in ("%w1", "%w2"))
        conditions = "    %w1: bool[] = lt %i, %half\n    %w2: bool[] = ge %i, %half\n"
        body = f"{conditions}{ways}    yield\n"
        loop = f"  %half: i64[] = const {{value=35}}\n  for %n {{independent=true}} (%i: i64[]) {{\n{body}  }}"
        text = SUMS.replace("LOOPS", loop)
        (kernel,) = verify_module(parse_module(text)).functions
        emitted = emit(schedule(kernel, "", WIDE), "k", WIDE)
        assert [slot[1] for slot in emitted.slots if slot[0] == "shared"] == own
        built, out = compiled_product(text, "AVX-512"), np.zeros_like(x)
        assert built([x, out], [70, 100]) == 0
        np.testing.assert_allclose(out, count * x, rtol=1e-12)


def test_tiles_of_high_panels_have_a_lower_one() -> None:
    """A last panel of few rows uses the lower tile, which is compiled in addition to the full one."""
    (kernel,) = parse_module(product_text("f64")).functions
    for vector_bytes, tiles in ((64, ["12x16", "12x16_low8"]), (32, ["12x8", "12x8_low4", "12x8_low8"])):
        machine = Target(vector_bytes, True)
        slots = emit(schedule(kernel, "", machine), "k", machine).slots
        result = sorted(slot[1] for slot in slots if slot[0] == "shared" and slot[1].startswith("tile"))
        assert result == [f"tile_f64_{tile}" for tile in tiles]


@pytest.mark.parametrize("vector_bytes", [64, 32])
def test_a_lower_tile_is_compiled_where_it_saves_much(vector_bytes: int) -> None:
    (kernel,) = parse_module(product_text("f64")).functions
    machine = Target(vector_bytes, True)
    slots = emit(schedule(kernel, "", machine), "k", machine).slots
    reached = {}
    for rows in (400, 401, 800, 801):
        sizes = {"s0": rows, "s1": 500, "s2": 500}
        result = (slot for slot in slots if slot[0] == "shared" and "_low" in slot[1])
        reached[rows] = sorted(slot[1].partition("_low")[2] for slot in result if is_reached(slot[3], sizes))
    lower = ["4"] if vector_bytes == 32 else []
    assert reached == {400: [*lower, "8"], 401: lower, 800: lower, 801: []}


@pytest.mark.parametrize("machine", ["AVX-512", "AVX2", "SSE"])
def test_high_panels_of_few_rows(machine: str) -> None:
    """Full-height tiles replace lower ones, even where sums are stored from registers."""
    rng = np.random.default_rng(3)
    y = rng.standard_normal((150, 70))
    built = compiled_product(product_text("f64"), machine)
    for rows in (401, 404, 408, 409, 804, 808):
        x, out = rng.standard_normal((rows, 150)), np.zeros((rows, 70))
        assert built([x, y, out], [rows, 150, 70]) == 0
        np.testing.assert_allclose(out, x @ y, rtol=1e-12, atol=1e-12)


def test_a_kernel_is_named_after_its_text() -> None:
    texts = [SUMS.replace("LOOPS", LOOP), SUMS.replace("LOOPS", LOOP), SUMS.replace("LOOPS", LOOP.replace("tanh", "cos"))]
    first, again, other = (emit_kernel(schedule(parse_module(text).functions[0])) for text in texts)
    assert first == again and first.name != other.name
    assert f"@{first.name}(" in first.text and other.name not in first.text
    assert all("kernel" not in emitted.text for emitted in (first, other))


def test_kernels_of_one_text_differ_by_their_slots() -> None:
    """One module, two functions that it calls; and two dtypes that are the same to the machine."""

    def twins(z: Any, y: Any, w: Any, v: Any, i: Any, u: Any) -> tuple[Any, ...]:
        return np.fmod(z, y), scipy.special.iv(w, v), i.astype(np.uint8), u.astype(np.int8)

    z, w = np.linspace(-3, 3, 11, dtype="f4"), np.linspace(0, 1, 13, dtype="f4")
    arguments = z, z + np.float32(0.3), w, w + np.float32(0.5), np.arange(-5, 5, dtype="i1"), np.arange(250, 256, dtype="u1")
    function = pb.jit(twins)
    for _ in range(3):
        for result, right in zip(function(*arguments), twins(*arguments), strict=True):
            assert result.dtype == right.dtype
            np.testing.assert_allclose(result, right, rtol=1e-6)


def test_a_second_kernel_compiles_no_tile() -> None:
    """Later products of a dtype reuse the functions that the first has compiled, also in a batch or with fused neighbours."""
    x = np.linspace(-1, 1, 160 * 160).reshape(160, 160)
    np.testing.assert_allclose(pb.jit(np.matmul)(x, x), x @ x, atol=1e-12)
    engine = default_engine()
    (kernel,) = parse_module(product_text("f64", (True, False))).functions
    scheduled = schedule(kernel, engine.host().target.cpu, engine.host().target)
    texts = shared_with(emit_kernel(scheduled))
    assert any(engine.where(text) for text in texts) == has_choice(engine.host().target)


def test_what_is_stored_may_be_something_else() -> None:
    text = product_text("f64").replace("  product ", "  %c: f64[] = const {value=3.5}\n  product ", 1)
    text = text.replace("store %sum,", "store %c,")
    machine = "AVX-512" if default_engine().host().target.vector_bytes == 64 else "SSE"
    built = compiled_product(text, machine)
    x, out = np.ones((30, 30)), np.zeros((30, 30))
    assert built([x, x, out], [30, 30, 30]) == 0
    assert (out == 3.5).all()


def test_loops_around_show_what_is_written() -> None:
    """A product in a loop whose iterations may depend on each other stores its results itself."""
    text = product_text("f64").replace("  product ", "  for %m {map=serial, ordered=true} (%z: i64[]) {\n  product ", 1)
    text = text.replace("  return\n", "  yield\n  }\n  return\n")
    (kernel,) = verify_module(parse_module(text)).functions
    result = schedule(kernel, "", WIDE)
    calls = [i for i in walk(result.body) if i.op.name in ("call", "function_address")]
    assert [i.params["function"].partition("_f64")[0] for i in calls] == ["pack_left", "tile", "tile", "pack_right"]
    calls = [i for i in walk(result.body) if isinstance(i.op, Call)]
    out = result.parameters[2]
    parts = {i.results[0] for i in walk(result.body) if i.op.name in ("ref_at", "subview") and i.operands[0] is out}
    assert not any({out, *parts}.intersection(i.operands) for i in calls)
    assert any(i.op.name == "store" and i.operands[1] is out for i in walk(result.body))
    verify_module(Module((result,)))


def test_wide_products_of_a_batch_store_their_sums_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epilogue reads the sums that the function of plain blocks has stored, except where results replace an operand."""
    x, w = np.linspace(-1, 1, 3 * 70 * 40).reshape(3, 70, 40), np.linspace(1, -1, 3 * 40 * 150).reshape(3, 40, 150)
    r, b, keep = np.linspace(0, 9, 3 * 70 * 150).reshape(3, 70, 150), np.linspace(-1, 1, 150), np.arange(150) % 3 == 0
    forms: list[tuple[Any, tuple[Any, ...]]] = [
        (lambda x, w, b: np.maximum(x @ w + b, 0.375), (x, w, b)),  # no other test has this kernel
        (lambda x, w, r: x @ w + r, (x, w, r)),
        (lambda x, w, keep: np.where(keep, x @ w, -1.5), (x, w, keep)),
    ]
    spelled: list[Any] = []
    spell = StoredEpilogueMatmul.expand
    monkeypatch.setattr(StoredEpilogueMatmul, "expand", lambda self: (spelled.append(self), spell(self))[1])
    for form, arguments in forms:
        np.testing.assert_allclose(pb.jit(form)(*arguments), form(*arguments), atol=1e-11)
    assert len(spelled) == len(forms)
    over = pb.jit(forms[1][0], donate=2)
    np.testing.assert_allclose(over(x, w, r.copy()), x @ w + r, atol=1e-11)
    assert len(spelled) == len(forms)


def test_functions_are_told_of_while_products_are_spelled() -> None:
    (kernel,) = parse_module(product_text("f32")).functions
    texts: list[str] = []
    scheduled = schedule(kernel, "", WIDE, early_emitter(WIDE, texts.append, lambda steps: True))
    assert set(texts) == set(shared_with(emit(scheduled, "k", WIDE)))
    assert print_module(Module((scheduled,))) == print_module(Module((schedule(kernel, "", WIDE),)))
