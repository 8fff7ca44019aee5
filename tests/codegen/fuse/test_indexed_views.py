"""Reads and writes at indices through views of an array."""

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
    "updates of a slice that is written back": (
        """
  %s: f64[3,5] = slice %x {start=[1, none], step=[1, 1]}
  %b: f64[3,5] = scatter_set %s, %k, %u {axes=[1]}
  %g: f64[3] = gather %b, %m {axes=[1]}
  %c: f64[3,5] = scatter_add %b, %m, %g {axes=[1]}
  %r: f64[4,5] = slice_set %x, %c {start=[1, none], step=[1, 1]}
  return %r""",
        """
  %b: f64[4,5] = scatter_set_part %x, %k, %u {axes=[1], start=[1, none], step=[1, 1]}
  %g: f64[4] = gather %b, %m {axes=[1]}
  %g0: f64[3] = slice %g {start=[1], step=[1]}
  %c: f64[4,5] = scatter_add_part %b, %m, %g0 {axes=[1], start=[1, none], step=[1, 1]}
  return %c""",
    ),
    "an update of a row": (
        """
  %s: f64[1,5] = slice %x {start=[2, none], step=[1, 1]}
  %q: f64[5] = squeeze %s {axes=[0]}
  %e: f64[] = gather %x, %m, %k {axes=[0, 1]}
  %b: f64[5] = scatter_set %q, %k, %e {axes=[0]}
  %p: f64[1,5] = broadcast %b {axes=[0]}
  %r: f64[4,5] = slice_set %x, %p {start=[2, none], step=[1, 1]}
  return %r""",
        """
  %e: f64[] = gather %x, %m, %k {axes=[0, 1]}
  %b: f64[1] = broadcast %e {axes=[0]}
  %b0: f64[4,5] = scatter_set_part %x, %k, %b {axes=[1], start=[2, none], step=[1, 1]}
  return %b0""",
    ),
    "sums onto zeros that are added to a part": (
        """
  %z: f64[] = const {value=0.0}
  %o: f64[3,5] = broadcast %z {axes=[0, 1]}
  %b: f64[3,5] = scatter_add %o, %k, %u {axes=[1]}
  %r: f64[4,5] = slice_add %x, %b {start=[1, none], step=[1, 1]}
  %t: f64[4,5] = slice_add %r, %b {start=[0, none], step=[1, 1]}
  return %t""",
        """
  %b: f64[4,5] = scatter_add_part %x, %k, %u {axes=[1], start=[1, none], step=[1, 1]}
  %b0: f64[4,5] = scatter_add_part %b, %k, %u {axes=[1], start=[0, none], step=[1, 1]}
  return %b0""",
    ),
    "a slice that is written elsewhere": (
        """
  %s: f64[3,5] = slice %x {start=[1, none], step=[1, 1]}
  %b: f64[3,5] = scatter_set %s, %k, %u {axes=[1]}
  %r: f64[4,5] = slice_set %x, %b {start=[0, none], step=[1, 1]}
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
