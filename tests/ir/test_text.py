"""The text of the IR: printing and parsing are inverse."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pullback.ir import DTYPES, ArrayType, Builder, Function, Loc, Module, RefType, Value
from pullback.ir.core.structure import walk
from pullback.ir.text import (
    ParseError,
    canonical,
    parse_function,
    parse_module,
    print_function,
    print_literal,
    print_module,
)
from pullback.ir.verify import verify
from tests.support.paths import EXAMPLES, GOLDEN
from tests.support.programs import random_function

FILES = sorted(path for folder in (GOLDEN, EXAMPLES) for path in folder.rglob("*.ir"))


def texts_of(path: Path) -> list[str]:
    """The modules of a file; golden files hold two."""
    return [text for text in path.read_text().split("# =>\n") if "pullback-ir 2" in text]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_files_print_and_parse_back(path: Path) -> None:
    for text in texts_of(path):
        printed = print_module(parse_module(text), locations=True)
        assert print_module(parse_module(printed), locations=True) == printed


@given(seed=st.integers(0, 2**32), steps=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
def test_random_functions_print_and_parse_back(seed: int, steps: int) -> None:
    function = verify(random_function(seed, steps))
    for locations in (False, True):
        text = print_function(function, locations)
        again = verify(parse_function(text))
        assert print_function(again, locations) == text
        assert canonical(again) == canonical(function)
    assert [i.loc for i in walk(again.body)] == [i.loc for i in walk(function.body)]


def constant_text(value: str) -> str:
    return f"func f() -> (f64[]) {{\n  %0: f64[] = const {{value={value}}}\n  return %0\n}}"


@given(st.floats())
def test_floats_round_trip(value: float) -> None:
    b = Builder()
    text = print_function(b.function("f", [], [b.const(value, "f64")]))
    result = parse_function(text).instructions[0].params["value"]
    assert isinstance(result, float)
    assert (math.isnan(value) and math.isnan(result)) or (result, math.copysign(1, result)) == (value, math.copysign(1, value))


@pytest.mark.parametrize("word", ["-0.0", "0.0", "nan", "inf", "-inf", "5e-324", "-2.2250738585072014e-308", "1e+22", "0.1"])
def test_float_literals_are_kept(word: str) -> None:
    assert print_function(parse_function(constant_text(word))) == constant_text(word)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False)
        | st.complex_numbers(allow_nan=False) | st.text(max_size=8) | st.sampled_from(list(DTYPES.values())),
        lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6,
    )
)  # fmt: skip
def test_literals_round_trip(value: object) -> None:
    text = constant_text(print_literal(value))
    result = parse_function(text).instructions[0].params["value"]
    assert (result, repr(result)) == (value, repr(value))


@pytest.mark.parametrize(
    "loc",
    [Loc("demo.py", 15), Loc("demo.py", 15, "pullback(mul)"), Loc("<stdin>", 1), Loc("a b.py", 3), Loc("ünï.py", 2, "x @y")],
    ids=str,
)
def test_locations_round_trip(loc: Loc) -> None:
    b = Builder(loc)
    x = Value(ArrayType(DTYPES["f64"], ("n",)), "x")
    function = b.function("f", [x], [b.sin(x)])
    text = print_function(function, locations=True)
    again = parse_function(text)
    assert again.instructions[0].loc == loc
    assert print_function(again, locations=True) == text
    assert "@" not in print_function(function)


@pytest.mark.parametrize(
    "text",
    [
        "&f64[n,3]",
        "&f32[]",
        "&i64[n; strided]",
        "&bool[s0,s1; strided; shared]",
        "&f64[4; stack]",
        "f16[0,n]",
        "bf16[]",
        "c128[n]",
    ],
)
def test_types_round_trip(text: str) -> None:
    source = f"kernel k(%x: {text}) -> () {{\n  return\n}}"
    function = parse_function(source)
    assert isinstance(function.parameters[0].type, RefType if text.startswith("&") else ArrayType)
    assert print_function(function) == source


def named(names: list[str]) -> Function:
    b = Builder()
    x = Value(ArrayType(DTYPES["f64"]), names[0])
    value = x
    for name in names[1:]:
        value = b.at(b.loc, name).neg(value)
    return b.function("f", [x], [value])


@given(st.lists(st.sampled_from(["", "x", "x0", "x1", "d", "d0", "a.b"]), min_size=1, max_size=12))
def test_names_are_unique_and_stable(names: list[str]) -> None:
    function = named(names)
    text = print_function(function)
    assert len(set(re.findall(r"^  (%[\w.]+):", text, re.MULTILINE))) == len(names) - 1
    assert print_function(parse_function(text)) == text


def test_canonical_text_forgets_names_and_places() -> None:
    one = named(["x", "a", "b"])
    other = Function("g", named(["p", "q", "r"]).body)
    assert canonical(one) == canonical(other)
    assert canonical(one) != canonical(named(["x", "a"]))


def test_a_module_holds_functions_by_name() -> None:
    module = Module((named(["x"]), Function("g", named(["y", "z"]).body)))
    again = parse_module(print_module(module))
    assert [f.name for f in again.functions] == ["f", "g"]
    assert len(again["g"].instructions) == 1
    with pytest.raises(KeyError):
        again["h"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func f() -> () {\n  return\n}", "line 1: expected the header 'pullback-ir 2', found 'func'"),
        ("pullback-ir\n", "line 2: expected the header 'pullback-ir 2', found 'the end'"),
        ("pullback-ir func f() -> () {\n  return\n}", "line 1: expected the header 'pullback-ir 2', found 'func'"),
        ("pullback-ir 2\nfun f() -> () {", "line 2: expected func, kernel or program, found 'fun'"),
        ("pullback-ir 2\nfunc f(%x: f65[]) -> () {", "line 2: expected a dtype, found 'f65'"),
        ("pullback-ir 2\nfunc f() -> () {\n  %a: f64[] = sine %x", "line 3: there is no op sine"),
        ("pullback-ir 2\nfunc f() -> () {\n  %a: f64[] = sin %x", "line 3: expected a value defined above, found '%x'"),
        ("pullback-ir 2\nfunc f(%x: f64[], %x: f64[]) -> () {", "line 2: %x is defined twice"),
        ("pullback-ir 2\nfunc f(%x: f64[]) -> () {\n  return %x\n}", "line 2: f declares results () and returns others"),
        ("pullback-ir 2\nfunc f(%x: f64[]) -> () {\n  return", "line 4: expected '}', found 'the end'"),
        ("pullback-ir 2\nfunc f() -> () {\n  const {value=complex(1, 2)}", "line 3: expected two floats before, found '}'"),
        ("pullback-ir 2\nfunc f() -> () {\n  const {value=1}", "line 3: const needs a result"),
        ("pullback-ir 2\nfunc f(%x: f64[]) -> () {\n  ~", "line 3: cannot read '~'"),
        ("pullback-ir 2\nfunc f(%x: f64[]) -> () {\n  %y: f64[] = sin %x @nowhere\n", "line 3: expected a location"),
    ],
)  # fmt: skip
def test_errors_name_the_line(text: str, message: str) -> None:
    end = text + "\n" if message.startswith("line 4") else text
    with pytest.raises(ParseError, match=f"^{re.escape(message)}"):
        parse_module(end)


FIRST = """pullback-ir 1

kernel k(%x: &f64[s0,s1; strided], %i: i64[], %n: i64[]) -> () {
  %r: &f64[s0,s1] = near %x, %i, %n
  for %n {few=true} (%k: i64[]) {
    yield
  }
  return
}
"""
"""A kernel of format version 1."""


@pytest.mark.parametrize("text", [FIRST, f"# a comment\n{FIRST}", FIRST.partition("\n")[0]])
def test_a_text_of_format_version_1_is_refused(text: str) -> None:
    line = text.split("\n").index("pullback-ir 1") + 1
    says = f"line {line}: format version 1, this version reads 2: names of ops changed, dump it again from its program"
    for parse in (parse_module, parse_function):
        with pytest.raises(ParseError, match=f"^{re.escape(says)}$"):
            parse(text)


@pytest.mark.parametrize("version", ["0", "3", "2.0", "-1"])
def test_a_text_of_another_format_version_is_refused(version: str) -> None:
    with pytest.raises(ParseError) as info:
        parse_module(f"pullback-ir {version}\n")
    assert str(info.value) == f"line 1: format version {version}, this version reads 2"


def test_names_of_format_version_1_are_no_ops() -> None:
    """Without a header a function is read by the rules of the present version."""
    _, _, text = FIRST.partition("\n\n")
    with pytest.raises(ParseError, match=r"^line 3: there is no op near$"):
        parse_function(text)


def test_the_second_version_is_printed() -> None:
    assert print_module(Module(())).startswith("pullback-ir 2\n")


@given(st.text(alphabet='pullback-ir 2\nfunc%x:()[]{}=@"\\,;&<0.e', max_size=80))
def test_no_text_is_worse_than_a_parse_error(text: str) -> None:
    try:
        parse_module(f"pullback-ir 2\n{text}")
    except ParseError as error:
        assert str(error).startswith("line ")
