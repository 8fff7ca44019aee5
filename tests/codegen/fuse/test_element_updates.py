"""Elements at fixed positions that loops write are written as those at indices that are data."""

from __future__ import annotations

from typing import Any

import numpy as np

import pullback as pb
from pullback.codegen.fuse.rewrites.element_updates import element_updates
from pullback.ir.text import parse_function, print_function

BEFORE = """func region(%x: f64[n0,n1], %s: f64[], %r: f64[n1]) -> (f64[n0,n1]) {
  %v: f64[1,1] = broadcast %s {axes=[0, 1]}
  %y: f64[n0,n1] = slice_set %x, %v {start=[0, n2], step=[1, 1]}
  %z: f64[n0,n1] = slice_add %y, %v {start=[n2, 0], step=[1, 1]}
  %p: f64[1,n1] = broadcast %r {axes=[0]}
  %w: f64[n0,n1] = slice_set %z, %p {start=[0, None], step=[1, 1]}
  return %w
}"""
AFTER = """func region(%x: f64[n0,n1], %s: f64[], %r: f64[n1]) -> (f64[n0,n1]) {
  %v: f64[1,1] = broadcast %s {axes=[0, 1]}
  %y: i64[] = const {value=0}
  %y0: i64[] = count {shape=[n2]}
  %y1: f64[n0,n1] = scatter_set %x, %y, %y0, %s {axes=[0, 1], in_range=[0, 1]}
  %z: i64[] = count {shape=[n2]}
  %z0: i64[] = const {value=0}
  %z1: f64[n0,n1] = scatter_add %y1, %z, %z0, %s {axes=[0, 1], in_range=[0, 1]}
  %p: f64[1,n1] = broadcast %r {axes=[0]}
  %w: f64[n0,n1] = slice_set %z1, %p {start=[0, None], step=[1, 1]}
  return %w
}"""


def test_updates_of_an_array_that_a_loop_carries() -> None:
    function = parse_function(BEFORE)
    assert print_function(element_updates(function, function.parameters[:1])) == AFTER


def test_updates_of_other_arrays_stay() -> None:
    function = parse_function(BEFORE)
    assert element_updates(function, ()) is function


def test_a_loop_that_writes_single_elements_has_no_loop_over_them() -> None:
    def rotated(x: Any, steps: Any) -> Any:
        x = x.copy()
        for i in range(steps):
            x[0], x[i + 1] = x[i + 1], x[0]
            x[3] += 0.5
        return x

    x = np.arange(300.0)
    compiled = pb.jit(rotated, loops="roll")
    np.testing.assert_array_equal(compiled(x, 290), rotated(x, 290))
    stages = compiled.stages(x, 290)
    assert "scatter_set" in stages["fuse"] and "slice_set" not in stages["fuse"]
