"""The ops of control flow: their type rules, text, abstraction and meaning in the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from pullback.ir.interpret import interpret
from pullback.ir.shapes.extents import abstract, rename
from pullback.ir.text import parse_function, print_function
from pullback.ir.verify import VerifyError, verify

PROGRAM = """\
func f(%x: f64[], %xs: f64[4,3], %w: f64[3]) -> (f64[], i64[], f64[3], f64[4,3], f64[], i64[]) {
  %r: f64[], %n: i64[], %s: f64[*] = while %x {carried=1} (%i: i64[], %a: f64[]) {
    %c: f64[] = const {value=10.0}
    %lt: bool[] = lt %a, %c
    yield %lt
  } (%i0: i64[], %a0: f64[]) {
    %b: f64[] = mul %a0, %a0
    yield %b, %a0
  }
  %z: f64[] = const {value=0.0}
  %q: f64[] = scan %n, %z, %s {carried=1, length=[], reverse=true, sliced=1} (%i1: i64[], %a1: f64[], %v: f64[]) {
    %b0: f64[] = sub %v, %a1
    yield %b0
  }
  %h: f64[3], %hs: f64[4,3] = scan %w, %xs, %w {carried=1, length=[4], reverse=false, sliced=1} \
(%i2: i64[], %a2: f64[3], %v0: f64[3], %w0: f64[3]) {
    %b1: f64[3] = mul %v0, %a2
    %d: f64[3] = add %b1, %w0
    yield %d, %b1
  }
  %m: i64[] = const {value=1}
  %k: f64[] = switch %m, %q (%a3: f64[]) {
    yield %a3
  } (%a4: f64[]) {
    %b2: f64[] = neg %a4
    yield %b2
  }
  %t: i64[] = stack_length %s
  return %r, %n, %h, %hs, %k, %t
}"""


def test_print_and_parse_are_inverse() -> None:
    assert print_function(verify(parse_function(PROGRAM))) == PROGRAM


def expected(x: float, xs: np.ndarray, w: np.ndarray) -> tuple:
    seen = []
    while x < 10.0:
        seen.append(x)
        x = x * x
    q = 0.0
    for v in reversed(seen):
        q = v - q
    h, hs = w, []
    for row in xs:
        hs.append(row * h)
        h = hs[-1] + w
    return x, len(seen), h, np.array(hs), -q, len(seen)


@pytest.mark.parametrize("x", [1.5, 9.0, 20.0])
@pytest.mark.parametrize("is_abstract", [False, True])
def test_meaning(x: float, is_abstract: bool) -> None:
    function = parse_function(PROGRAM)
    xs, w = np.arange(12.0).reshape(4, 3), np.array([1.0, -2.0, 0.5])
    constants: tuple[float, ...] = ()
    if is_abstract:
        result = abstract(function)
        assert sorted(result.sizes.values()) == [3, 4]
        verify(rename(result.function, result.sizes))
        function, constants = verify(result.function), result.constants
    for value, other in zip(
        interpret(function, np.float64(x), xs, w, *map(np.float64, constants)), expected(x, xs, w), strict=True
    ):
        np.testing.assert_array_equal(value, other)


REFUSED = {
    "a carry of another type": ("%h: f64[3], %hs: f64[4,3]", "%h: f64[3], %hs: f64[4,3]", "yield %d, %b1", "yield %z0, %b1"),
    "a condition that is no bool": ("", "", "yield %lt", "yield %a"),
    "sequences of another length": ("length=[4]", "length=[5]", "", ""),
    "a count that is no i64": ("scan %n,", "scan %x,", "", ""),
    "branches of different types": ("", "", "%b2: f64[] = neg %a4", "%b2: bool[] = ne %a4, %a4"),
    "an array where a stack is due": ("stack_length %s", "stack_length %h", "", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ill_typed_loops_are_refused(name: str) -> None:
    a, b, c, d = REFUSED[name]
    text = PROGRAM.replace(a, b, 1).replace(c, d, 1)
    text = text.replace("    %d: f64[3] = add", "    %z0: f64[] = const {value=0.0}\n    %d: f64[3] = add")
    with pytest.raises(VerifyError):
        verify(parse_function(text))


def test_functions_do_not_return_stacks() -> None:
    text = PROGRAM.replace("f64[], i64[]) {", "f64[], f64[*]) {", 1).replace(
        "return %r, %n, %h, %hs, %k, %t", "return %r, %n, %h, %hs, %k, %s"
    )
    with pytest.raises(VerifyError, match="stack"):
        verify(parse_function(text))
