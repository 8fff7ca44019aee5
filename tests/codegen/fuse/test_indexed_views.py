"""Reads at indices through views of an array."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pullback.codegen.fuse.rewrites.indexed_views import indexed_views
from pullback.ir.interpret import interpret
from pullback.ir.passes.editing.dce import dce
from pullback.ir.text import canonical, parse_function, print_function
from tests.support.golden_files import assert_same, run_targets

RNG = np.random.default_rng(0)

# Each rewrite: the body before and after.
REWRITES = {
    "an element of a slice is an element of the array": (
        """
  %s: f64[3,5] = slice %x {start=[1, none], step=[1, 1]}
  %r: f64[3] = gather %s, %k {axes=[1]}
  return %r""",
        """
  %r: f64[4] = gather %x, %k {axes=[1]}
  %0: f64[3] = slice %r {start=[1], step=[1]}
  return %0""",
    ),
    "an index into a slice is moved": (
        """
  %s: f64[2,5] = slice %x {start=[0, none], step=[2, 1]}
  %q: f64[2,1] = slice %s {start=[none, 3], step=[1, 1]}
  %v: f64[2] = squeeze %q {axes=[1]}
  %r: f64[] = gather %v, %k {axes=[0]}
  return %r""",
        """
  %r: i64[] = count {shape=[2]}
  %r0: i64[] = const {value=0}
  %r1: bool[] = lt %k, %r0
  %r2: i64[] = add %k, %r
  %r3: i64[] = select %r1, %r2, %k
  %r4: i64[] = const {value=2}
  %r5: i64[] = mul %r3, %r4
  %r6: f64[5] = gather %x, %r5 {axes=[0]}
  %r7: f64[1] = slice %r6 {start=[3], step=[1]}
  %r8: f64[] = squeeze %r7 {axes=[0]}
  return %r8""",
    ),
    "a column of a flipped and transposed array": (
        """
  %t: f64[5,4] = transpose %x {perm=[1, 0]}
  %f: f64[5,4] = flip %t {axes=[0]}
  %s: f64[5,3] = slice %f {start=[none, 1], step=[1, 1]}
  %r: f64[3] = gather %s, %k {axes=[0]}
  return %r""",
        """
  %r: i64[] = count {shape=[5]}
  %r0: i64[] = const {value=0}
  %r1: bool[] = lt %k, %r0
  %r2: i64[] = add %k, %r
  %r3: i64[] = select %r1, %r2, %k
  %r4: i64[] = const {value=1}
  %r5: i64[] = sub %r, %r4
  %r6: i64[] = sub %r5, %r3
  %r7: f64[4] = gather %x, %r6 {axes=[1]}
  %r8: f64[4] = transpose %r7 {perm=[0]}
  %r9: f64[3] = slice %r8 {start=[1], step=[1]}
  return %r9""",
    ),
    "a slice of computed elements": (
        """
  %y: f64[4,5] = exp %x
  %s: f64[3,5] = slice %y {start=[1, none], step=[1, 1]}
  %r: f64[3] = gather %s, %k {axes=[1]}
  return %r""",
        None,
    ),
}


def function_of(body: str) -> Any:
    returned = body.rsplit(" ", 1)[1]
    line = next(text for text in body.splitlines() if text.strip().startswith(f"{returned}:"))
    result = line.split(": ")[1].split(" =")[0]
    return parse_function(f"func f(%x: f64[4,5], %k: i64[], %m: i64[], %u: f64[3]) -> ({result}) {{{body}\n}}")


@pytest.mark.parametrize("name", REWRITES)
def test_rewritten(name: str) -> None:
    before, after = REWRITES[name]
    function = function_of(before)
    result = dce(indexed_views(function))
    assert canonical(result) == canonical(function if after is None else function_of(after)), print_function(result)
    for k in (0, 1, -1, -2):
        arguments = [RNG.normal(size=(4, 5)), np.int64(k), np.int64(-1 - k), RNG.normal(size=3)]
        expected = interpret(function, *arguments)
        assert_same(interpret(result, *arguments), expected)
        for computed in run_targets(function, arguments).values():
            assert_same(computed, expected)
