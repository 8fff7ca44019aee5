"""What a gradient recomputes is noted and not merged with other code; scans are split into parts with equal results."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pullback.ir.core.structure import Function
from pullback.ir.interpret import interpret
from pullback.ir.passes.editing.cse import cse
from pullback.ir.passes.simplify.simplify import simplify
from pullback.ir.passes.strip_markers import unbarrier
from pullback.ir.passes.transforms.checkpoint_chunks import has_long_scans, with_split_scans
from pullback.ir.text import parse_module
from pullback.ir.verify import verify

PARTS = """pullback-ir 2

func recomputed(%x: f64[3], %ct: f64[3], %ct0: f64[3]) -> (f64[3], f64[3], f64[3]) {
  %y: f64[3] = tanh %x
  %x0: f64[3] = barrier %x, %ct
  %y0: f64[3] = tanh %x0
  %z0: f64[3] = tanh %x0
  %s: f64[3] = mul %y0, %z0
  %d: f64[3] = mul %ct, %s
  %x1: f64[3] = barrier %x, %ct0
  %y1: f64[3] = tanh %x1
  return %y, %d, %y1
}
"""


def test_what_is_behind_a_barrier_is_merged_with_nothing_before_it() -> None:
    function = parse_module(PARTS).functions[0]
    noted = unbarrier(function)
    parts = [(i.op.name, i.loc.part) for i in noted.instructions]
    assert parts == [("tanh", 0), ("tanh", 1), ("tanh", 1), ("mul", 1), ("mul", 0), ("tanh", 2)]
    for step in (cse, simplify):
        merged = [(i.op.name, i.loc.part) for i in step(noted).instructions]
        assert [p for p in merged if p[0] == "tanh"] == [("tanh", 0), ("tanh", 1), ("tanh", 2)]


SCAN = """pullback-ir 2

func loop(%h: f64[2], %xs: f64[N,2], %w: f64[2]) -> (f64[2], f64[N,2]) {
  %h0: f64[2], %ys: f64[N,2] = scan %h, %xs, %w {carried=1, length=[N], reverse=REVERSE, sliced=1} PARAMETERS {
    %p: f64[2] = mul %c, %v
    %k: f64[] = cast %i {dtype=f64}
    %t: f64[2] = broadcast %k {axes=[0]}
    %q: f64[2] = add %p, %x
    %n: f64[2] = sub %q, %t
    %y: f64[2] = mul %n, %x
    yield %n, %y
  }
  return %h0, %ys
}
""".replace("PARAMETERS", "(%i: i64[], %c: f64[2], %x: f64[2], %v: f64[2])")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 10])
def test_a_split_scan_gives_the_same(length: int, reverse: bool) -> None:
    function = parse_module(SCAN.replace("N", str(length)).replace("REVERSE", str(reverse).lower())).functions[0]
    assert has_long_scans(function.body) == (length > 1)
    parts = replace(function, body=with_split_scans(function.body))
    verify(parts)
    scans = [i for i in parts.instructions if i.op.name == "scan"]
    assert len(scans) == {1: 1, 2: 0, 3: 0, 4: 2, 10: 4}[length]
    r = np.random.default_rng(0)
    args = r.normal(size=2), r.normal(size=(length, 2)), r.normal(size=2)
    for a, b in zip(interpret(parts, *args), interpret(function, *args), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_scan_in_chunks_is_not_split() -> None:
    function: Function = parse_module(
        SCAN.replace("N", "9").replace("reverse=REVERSE", "checkpoint=sqrt, reverse=false")
    ).functions[0]
    assert not has_long_scans(function.body)
