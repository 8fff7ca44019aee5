"""simplify, cse, dce and norms on programs at large; tests/golden/passes holds an example of each rule."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.ir import OPS, ArrayType, Builder, Function, Value, scalar
from pullback.ir.core.types import DTYPES, F64
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes import pipeline
from pullback.ir.passes.editing.cse import cse
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.simplify import rewrite
from pullback.ir.passes.simplify.rewrite import RULES, Rule
from pullback.ir.passes.simplify.simplify import simplify
from pullback.ir.text import canonical, parse_function, parse_module
from pullback.ir.verify import VerifyError, verify
from tests.support.golden_files import argument_sets, assert_same
from tests.support.paths import GOLDEN, ROOT
from tests.support.programs import random_function
from tests.support.work_counter import calls_in

RULE_NAMES = sorted({rule.name for rules in RULES.values() for rule in rules})


def examples() -> dict[str, Function]:
    files = (GOLDEN / "passes").glob("simplify*.ir")
    return {f.name: f for path in files for f in parse_module(path.read_text().split("# =>")[0]).functions}


@pytest.mark.parametrize("name", RULE_NAMES)
def test_each_rule_fires_on_its_example(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fired: set[str] = set()

    def watched(rule: Rule) -> Rule:
        def apply(*operands: object, **params: object) -> Value | None:
            result = rule.apply(*operands, **params)
            fired.update([rule.name] if result is not None else [])
            return result

        return Rule(name=rule.name, apply=apply)

    for kind, rules in RULES.items():
        monkeypatch.setitem(RULES, kind, [watched(rule) for rule in rules])
    monkeypatch.setattr(rewrite, "rules_of", rewrite.rules_of.__wrapped__)
    verify(simplify(examples()[name]))
    assert name in fired


def same_outcome(before: Function, after: Function, bitwise: bool) -> None:
    for arguments in argument_sets(before):
        with np.errstate(all="ignore"):
            assert_same(interpret(after, *arguments), interpret(before, *arguments), bitwise, rtol=2e-3)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
@settings(max_examples=80, deadline=None)
def test_exact_programs_keep_every_bit(seed: int, steps: int) -> None:
    function = random_function(seed, steps, exact=True)
    same_outcome(function, pipeline.run(function, pipeline.OPTIMIZE), bitwise=True)


def work(function: Function) -> int:
    """How many instructions compute or move data; powers and contractions count as two."""
    free, double = ("const", "broadcast", "squeeze"), ("pow", "contract")
    return sum((i.op.name not in free) + (i.op.name in double) for i in function.instructions)


@given(seed=st.integers(0, 2**32), steps=st.integers(1, 25))
@settings(max_examples=80, deadline=None)
def test_passes_settle_and_never_enlarge(seed: int, steps: int) -> None:
    function = random_function(seed, steps)
    once = pipeline.run(function, pipeline.OPTIMIZE)
    assert canonical(pipeline.run(once, pipeline.OPTIMIZE)) == canonical(once)
    assert canonical(cse(cse(function))) == canonical(cse(function))
    assert canonical(dce(dce(function))) == canonical(dce(function))
    assert work(once) <= work(dce(function))


def chain(length: int) -> Function:
    b = Builder()
    x = Value(ArrayType(F64, ("n",)), "x")
    value = x
    for k in range(length):
        value = b.mul(b.add(value, b.full(0.5 + k % 7, x.type)), b.neg(value)) if k % 2 else b.transpose(b.neg(value), perm=(0,))
    return b.function("f", [x], [value])


@pytest.mark.long
def test_ten_thousand_instructions_take_near_linear_time() -> None:
    short, long = (calls_in(pipeline.run, chain(length), pipeline.OPTIMIZE)[0] for length in (1000, 8000))
    assert long < 10 * short


def test_deep_chains_of_one_rule_are_walked_iteratively() -> None:
    b = Builder()
    x = Value(ArrayType(F64, ("n", "m")), "x")
    value = x
    for _ in range(10_001):
        value = b.transpose(value, perm=(1, 0))
    result = pipeline.run(b.function("f", [x], [value]), pipeline.OPTIMIZE)
    assert [i.op.name for i in result.instructions] == ["transpose"]


def test_special_constants_are_told_apart() -> None:
    b = Builder()
    x = Value(scalar("f64"), "x")
    results = [b.add(x, b.const(c, "f64")) for c in (0.0, -0.0, float("nan"), float("nan"))]
    result = pipeline.run(b.function("f", [x], results), pipeline.OPTIMIZE)
    assert result.results[1] is x
    assert result.results[2] is result.results[3]
    assert len({*result.results}) == 3


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64"])
def test_folded_constants_are_values_of_their_dtype(dtype: str) -> None:
    b = Builder()
    third = b.div(b.const(1.0, dtype), b.const(3.0, dtype))
    function = b.function("f", [], [third])
    (constant,) = pipeline.run(function, pipeline.OPTIMIZE).instructions
    assert constant.op is OPS["const"]
    numpy_dtype = DTYPES[dtype].numpy
    assert constant.params["value"] == float(np.asarray(constant.params["value"], numpy_dtype))
    assert_same(interpret(pipeline.run(function, pipeline.OPTIMIZE)), interpret(function))


@pytest.mark.parametrize(
    ("op", "x", "y", "value"),
    [
        ("floordiv", -128, -1, None), ("add", 127, 1, -128), ("mul", 64, 4, 0), ("sub", -128, 1, 127), ("shl", 1, 7, -128),
        ("shl", 1, 8, 0), ("shr", -1, 9, -1),
    ],
)  # fmt: skip
def test_folded_integers_wrap_as_the_semantics_say(op: str, x: int, y: int, value: int | None) -> None:
    b = Builder()
    function = b.function("f", [], b.emit(OPS[op], [b.const(x, "i8"), b.const(y, "i8")]))
    last = pipeline.run(function, pipeline.OPTIMIZE).instructions[-1]
    assert (last.op.name, last.params.get("value")) == (("const", value) if value is not None else (op, None))


def test_library_functions_of_constants_are_not_folded() -> None:
    b = Builder()
    result = pipeline.run(b.function("f", [], [b.exp(b.const(1.0, "f64"))]), pipeline.OPTIMIZE)
    assert [i.op.name for i in result.instructions] == ["const", "exp"]


def test_locations_and_names_stay_with_what_replaces() -> None:
    text = """func f(%x: f64[n], %y: f64[n]) -> (f64[n]) {
      %minus: f64[n] = neg %y  @demo.py:3
      %total: f64[n] = add %x, %minus  @demo.py:4 pullback(sub)
      return %total
    }"""
    (sub,) = pipeline.run(parse_function(text), pipeline.OPTIMIZE).instructions
    assert (sub.op.name, sub.result.name) == ("sub", "total")
    assert (sub.loc.line, sub.loc.note) == (4, "pullback(sub)")


REGIONS = """func f(%x: f64[n]) -> (f64[], f64[n]) {
  %y: f64[], %d: f64[n] = gradient %x {wrt=[0]} (%p: f64[n]) {
    %a: f64[n] = neg %p
    %b: f64[n] = neg %a
    %unread: f64[n] = exp %p
    %e: f64[n] = exp %b
    %f: f64[n] = exp %p
    %g: f64[n] = mul %e, %f
    %s: f64[] = sum %g {axes=[0]}
    yield %s
  }
  return %y, %d
}"""


def test_passes_reach_into_closed_regions() -> None:
    (gradient,) = pipeline.run(parse_function(REGIONS), pipeline.BEFORE_GRAD).instructions
    assert [i.op.name for i in gradient.regions[0].instructions] == ["exp", "mul", "sum"]


def test_kernels_and_programs_are_left_alone() -> None:
    source = "kernel k(%x: &f64[n]) -> () {\n  %a: i64[] = const {value=1}\n  return\n}"
    kernel = parse_function(source)
    assert all(step(kernel) is kernel for step in (simplify, cse, dce))


def test_run_verifies_and_shows_each_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    function = parse_function(REGIONS)
    stages: list[str] = []
    pipeline.run(function, pipeline.BEFORE_GRAD, lambda name, result: stages.append(name))
    assert stages == [step.__name__ for step in pipeline.BEFORE_GRAD]

    def breaks(function: Function) -> Function:
        return replace(function, body=replace(function.body, parameters=()))

    with pytest.raises(VerifyError):
        pipeline.run(function, [breaks])
    monkeypatch.setenv("PULLBACK_VERIFY", "0")
    assert pipeline.run(function, [breaks]).parameters == ()


def test_a_failing_check_outlives_every_pass() -> None:
    text = """func f(%x: f64[]) -> (f64[]) {
      %never: bool[] = const {value=false}
      check %never {error="ValueError", message="first"}
      %y: f64[] = sub %x, %x
      check %never {error="IndexError", message="second"}
      return %x
    }"""
    result = pipeline.run(parse_function(text), pipeline.OPTIMIZE)
    assert [i.op.name for i in result.instructions] == ["const", "check", "check"]
    with pytest.raises(CheckFailed, match="first"):
        interpret(result, np.float64(1.0))


def test_every_rule_states_its_equation() -> None:
    folder = ROOT / "ir" / "passes" / "simplify"
    source = "".join((folder / f"rules_{part}.py").read_text() for part in ("scalar", "array", "join", "update", "contract"))
    for name in RULE_NAMES:
        body = re.search(rf"def {name}\(.*?\n\n\n|def {name}\(.*\Z", source, re.DOTALL)
        assert body is not None
        assert "    # " in body[0], name


def test_sums_of_differences_are_as_exact_as_the_differences() -> None:
    """Also where the sums of both sides are there: their difference is what rounding has left of large numbers."""
    t = ArrayType(F64, (1000,))
    b, x, y = Builder(), Value(t, "x"), Value(t, "y")
    together = [b.sum(x, axes=(0,)), b.sum(y, axes=(0,)), b.sum(b.sub(x, y), axes=(0,))]
    function = pipeline.run(b.function("f", [x, y], together), pipeline.OPTIMIZE)
    rng = np.random.default_rng(0)
    large = 1e8 + rng.normal(size=1000)
    near = large + 1e-7 * rng.normal(size=1000)
    result = float(interpret(function, large, near)[2])
    assert abs(result - math.fsum((large - near).tolist())) <= 1e-12 * np.sum(np.abs(large - near))
