"""Programs with control flow: every stage gives what the array interpreter gives, natively too."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import OPS, Function, Instruction, Module, Op
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.host import HostFunction
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.extents import abstract
from pullback.ir.text import parse_function, parse_module, print_module
from pullback.ir.verify import verify, verify_module
from pullback.runtime.compile.engine import Engine
from pullback.runtime.compile.object_files import object_symbols
from pullback.runtime.compile.platforms import HOSTS
from pullback.runtime.compile.validation import runtime_symbols
from pullback.runtime.process import counters
from pullback.runtime.program import interrupts
from pullback.runtime.program.executable import Executable, emit_driver
from tests.support.golden_files import assert_same
from tests.support.paths import GOLDEN

# Each program with the arguments it is run on. Types of regions are those of the operands.
PROGRAMS: dict[str, tuple[str, list[list[Any]]]] = {}


def program(name: str, text: str, *arguments: Sequence[Any]) -> None:
    PROGRAMS[name] = text, [list(a) for a in arguments]


def f64(*values: float) -> Any:
    return np.array(values, np.float64)


ONE = np.float64(1.5)
ROWS = np.arange(12.0).reshape(4, 3) / 8

program(
    "a scalar recurrence",
    """func f(%x: f64[], %r: f64[], %n: i64[]) -> (f64[]) {
  %y: f64[] = scan %n, %x, %r {carried=1, length=[], reverse=false, sliced=0} (%i: i64[], %a: f64[], %r0: f64[]) {
    %1: f64[] = const {value=1.0}
    %b: f64[] = sub %1, %a
    %c: f64[] = mul %r0, %a
    %d: f64[] = mul %c, %b
    yield %d
  }
  return %y
}""",
    [np.float64(0.3), np.float64(3.7), np.int64(1000)],
    [np.float64(0.3), np.float64(3.7), np.int64(0)],
    [np.float64(0.3), np.float64(3.7), np.int64(-3)],
)
program(
    "an array carried, sequences in and out",
    """func f(%h: f64[3], %xs: f64[4,3], %w: f64[3,3]) -> (f64[3], f64[4,3]) {
  %last: f64[3], %hs: f64[4,3] = scan %h, %xs, %w {carried=1, length=[4], reverse=false, sliced=1} \
(%i: i64[], %a: f64[3], %x: f64[3], %w0: f64[3,3]) {
    %p: f64[3] = contract %w0, %a {spec="ij,j->i"}
    %s: f64[3] = add %p, %x
    %t: f64[3] = tanh %s
    %u: f64[3] = mul %t, %x
    yield %t, %u
  }
  return %last, %hs
}""",
    [f64(1, 2, 3), ROWS, np.arange(9.0).reshape(3, 3) / 9],
)
program(
    "backwards, the index read",
    """func f(%h: f64[3], %xs: f64[4,3]) -> (f64[3], f64[4], f64[4,3]) {
  %last: f64[3], %k: f64[4], %same: f64[4,3] = scan %h, %xs {carried=1, length=[4], reverse=true, sliced=1} \
(%i: i64[], %a: f64[3], %x: f64[3]) {
    %d: f64[] = cast %i {dtype=f64}
    %s: f64[3] = broadcast %d {axes=[0]}
    %p: f64[3] = mul %s, %x
    %n: f64[3] = sub %p, %a
    yield %n, %d, %x
  }
  return %last, %k, %same
}""",
    [f64(1, 2, 3), ROWS],
)
program(
    "nothing to do",
    """func f(%h: f64[3], %xs: f64[0,3]) -> (f64[3], f64[0,3]) {
  %last: f64[3], %ys: f64[0,3] = scan %h, %xs {carried=1, length=[0], reverse=false, sliced=1} \
(%i: i64[], %a: f64[3], %x: f64[3]) {
    %n: f64[3] = sub %a, %x
    yield %n, %n
  }
  return %last, %ys
}""",
    [f64(1, 2, 3), np.zeros((0, 3))],
)
program(
    "empty rows",
    """func f(%h: f64[0], %xs: f64[4,0]) -> (f64[0], f64[4,0], f64[]) {
  %z: f64[] = const {value=0.0}
  %last: f64[0], %t: f64[], %ys: f64[4,0] = scan %h, %z, %xs {carried=2, length=[4], reverse=false, sliced=1} \
(%i: i64[], %a: f64[0], %s: f64[], %x: f64[0]) {
    %n: f64[0] = sub %a, %x
    %q: f64[] = sum %n {axes=[0]}
    %o: f64[] = const {value=1.0}
    %u: f64[] = add %s, %o
    %v: f64[] = add %u, %q
    yield %n, %v, %n
  }
  return %last, %ys, %t
}""",
    [np.zeros(0), np.zeros((4, 0))],
)
program(
    "written in place",
    """func f(%x: f64[5]) -> (f64[5], f64[5]) {
  %y: f64[5] = scan %x {carried=1, length=[5], reverse=false, sliced=0} (%i: i64[], %a: f64[5]) {
    %o: i64[] = const {value=1}
    %j: i64[] = sub %i, %o
    %p: f64[] = gather %a, %j {axes=[0]}
    %q: f64[] = gather %a, %i {axes=[0]}
    %s: f64[] = add %p, %q
    %b: f64[5] = scatter_set %a, %i, %s {axes=[0]}
    yield %b
  }
  return %y, %x
}""",
    [f64(1, 2, 3, 4, 5)],
)
program(
    "written in place, and read after",
    """func f(%x: f64[5]) -> (f64[5], f64[5]) {
  %y: f64[5], %s: f64[5] = scan %x {carried=1, length=[5], reverse=false, sliced=0} (%i: i64[], %a: f64[5]) {
    %q: f64[] = gather %a, %i {axes=[0]}
    %r: f64[] = exp %q
    %b: f64[5] = scatter_set %a, %i, %r {axes=[0]}
    %t: f64[] = sum %a {axes=[0]}
    yield %b, %t
  }
  return %y, %s
}""",
    [f64(1, 2, 3, 4, 5) / 8],
)
program(
    "a part of the carry replaced twice",
    """func f(%x: f64[6]) -> (f64[6]) {
  %y: f64[6] = neg %x
  %z: f64[6] = scan %y {carried=1, length=[3], reverse=false, sliced=0} (%i: i64[], %a: f64[6]) {
    %q: f64[2] = slice %a {start=[1], step=[1]}
    %r: f64[2] = exp %q
    %b: f64[6] = slice_set %a, %r {start=[3], step=[1]}
    %c: f64[6] = slice_add %b, %q {start=[0], step=[2]}
    yield %c
  }
  return %z
}""",
    [f64(1, 2, 3, 4, 5, 6) / 8],
)
program(
    "carries that change places",
    """func f(%x: f64[3], %y: f64[3], %s: f64[], %t: f64[]) -> (f64[3], f64[3], f64[], f64[]) {
  %a: f64[3], %b: f64[3], %c: f64[], %d: f64[] = scan %x, %y, %s, %t {carried=4, length=[5], reverse=false, sliced=0} \
(%i: i64[], %a0: f64[3], %b0: f64[3], %c0: f64[], %d0: f64[]) {
    yield %b0, %a0, %d0, %c0
  }
  return %a, %b, %c, %d
}""",
    [f64(1, 2, 3), f64(4, 5, 6), ONE, np.float64(-2)],
)
program(
    "carries that move along, one of them new",
    """func f(%x: f64[3], %s: f64[]) -> (f64[3], f64[3], f64[3], f64[], f64[]) {
  %a: f64[3], %b: f64[3], %c: f64[3], %d: f64[], %e: f64[] = scan %x, %x, %x, %s, %s \
{carried=5, length=[4], reverse=false, sliced=0} (%i: i64[], %a0: f64[3], %b0: f64[3], %c0: f64[3], %d0: f64[], %e0: f64[]) {
    %n: f64[3] = exp %c0
    %m: f64[3] = neg %n
    %w: f64[] = cos %e0
    yield %b0, %c0, %m, %e0, %w
  }
  return %a, %b, %c, %d, %e
}""",
    [f64(0.1, 0.2, 0.3), ONE],
)
program(
    "arrays exchanged, one of them written in place, and a new one",
    """func f(%x: f64[4], %y: f64[4], %u: f64[4], %v: f64[4]) -> (f64[4], f64[4], f64[4], f64[4]) {
  %a: f64[4], %b: f64[4], %c: f64[4], %d: f64[4] = scan %x, %y, %u, %v {carried=4, length=[3], reverse=false, sliced=0} \
(%i: i64[], %a0: f64[4], %b0: f64[4], %c0: f64[4], %d0: f64[4]) {
    %e: f64[] = gather %b0, %i {axes=[0]}
    %f: f64[4] = scatter_add %a0, %i, %e {axes=[0]}
    %n: f64[4] = sub %d0, %c0
    yield %b0, %f, %d0, %n
  }
  return %a, %b, %c, %d
}""",
    [f64(1, 2, 3, 4), f64(5, 6, 7, 8), f64(1, 3, 5, 7), f64(2, 4, 6, 9)],
)
program(
    "a value yielded everywhere, a capture yielded, a carry kept",
    """func f(%x: f64[3], %w: f64[3], %s: f64[]) -> (f64[3], f64[3], f64[3], f64[], f64[4,3], f64[4,3], f64[4,3], f64[4]) {
  %a: f64[3], %b: f64[3], %c: f64[3], %d: f64[], %p: f64[4,3], %q: f64[4,3], %r: f64[4,3], %t: f64[4] \
= scan %x, %x, %x, %s, %w, %s \
{carried=4, length=[4], reverse=false, sliced=0} \
(%i: i64[], %a0: f64[3], %b0: f64[3], %c0: f64[3], %d0: f64[], %w0: f64[3], %s0: f64[]) {
    %n: f64[3] = add %a0, %w0
    yield %n, %n, %c0, %s0, %n, %w0, %b0, %d0
  }
  return %a, %b, %c, %d, %p, %q, %r, %t
}""",
    [f64(0.1, 0.2, 0.3), f64(1, 2, 3), ONE],
)
program(
    "a matrix turned and reshaped",
    """func f(%x: f64[2,3]) -> (f64[2,3], f64[4,6]) {
  %a: f64[2,3], %p: f64[4,6] = scan %x {carried=1, length=[4], reverse=false, sliced=0} (%i: i64[], %a0: f64[2,3]) {
    %t: f64[3,2] = transpose %a0 {perm=[1,0]}
    %n: f64[3,2] = neg %t
    %r: f64[2,3] = reshape %n
    %v: f64[6] = reshape %a0
    yield %r, %v
  }
  return %a, %p
}""",
    [np.arange(6.0).reshape(2, 3)],
)
program(
    "a loop in a loop, written in place",
    """func f(%x: f64[3,4]) -> (f64[3,4], f64[3]) {
  %y: f64[3,4] = neg %x
  %z: f64[3,4], %t: f64[3] = scan %y {carried=1, length=[3], reverse=false, sliced=0} (%i: i64[], %a: f64[3,4]) {
    %o: f64[] = const {value=0.0}
    %b: f64[3,4], %s: f64[] = scan %a, %o, %i {carried=2, length=[4], reverse=true, sliced=0} \
(%j: i64[], %c: f64[3,4], %s0: f64[], %i0: i64[]) {
      %e: f64[] = gather %c, %i0, %j {axes=[0,1]}
      %s1: f64[] = add %s0, %e
      %d: f64[3,4] = scatter_set %c, %i0, %j, %s1 {axes=[0,1]}
      yield %d, %s1
    }
    yield %b, %s
  }
  return %z, %t
}""",
    [np.arange(12.0).reshape(3, 4)],
)
program(
    "parts of arrays, computed where they are written",
    """func f(%x: f64[4,3], %s: f64[3]) -> (f64[4,3], f64[5]) {
  %z: f64[] = const {value=0.0}
  %o: f64[5] = broadcast %z {axes=[0]}
  %y: f64[4,3], %w: f64[5] = scan %x, %o, %s {carried=2, length=[4], reverse=false, sliced=0} \
(%i: i64[], %a: f64[4,3], %b: f64[5], %s0: f64[3]) {
    %r: f64[3] = mul %s0, %s0
    %c: f64[4,3] = scatter_set %a, %i, %r {axes=[0]}
    %k: f64[] = cast %i {dtype=f64}
    %v: f64[2] = broadcast %k {axes=[0]}
    %d: f64[5] = slice_set %b, %v {start=[1], step=[2]}
    %p: f64[2] = slice %d {start=[0], step=[1]}
    %q: f64[2] = neg %p
    %e: f64[5] = slice_set %d, %q {start=[1], step=[1]}
    yield %c, %e
  }
  return %y, %w
}""",
    [np.arange(12.0).reshape(4, 3), f64(1.5, -2.0, 0.25)],
)
program(
    "parts of arrays, read and written at once, and what must be read before",
    """func f(%y: f64[7], %s: f64[3]) -> (f64[7], f64[4]) {
  %b0: f64[7], %t0: f64[4] = scan %y, %s {carried=1, length=[4], reverse=false, sliced=0} (%i: i64[], %b: f64[7], %s0: f64[3]) {
    %k: f64[] = cast %i {dtype=f64}
    %v: f64[3] = broadcast %k {axes=[0]}
    %m: i64[] = define_extent %i {extent=[v0]}
    %p: f64[3] = slice %b {start=[v0], step=[1]}
    %w: f64[3] = mul %p, %v
    %t: f64[] = sum %w {axes=[0]}
    %d: f64[7] = slice_set %b, %w {start=[v0], step=[1]}
    %q: f64[2] = slice %d {start=[1], step=[1]}
    %u: f64[2] = mul %q, %q
    %e: f64[7] = slice_set %d, %u {start=[0], step=[1]}
    %z: f64[2] = slice %s0 {start=[1], step=[1]}
    %r: f64[2] = neg %z
    %h: f64[7] = slice_add %e, %r {start=[2], step=[2]}
    yield %h, %t
  }
  return %b0, %t0
}""",
    [np.linspace(-1, 2, 7), f64(1.5, -2.0, 0.25)],
)
program(
    "loops in loops, sequences of sequences",
    """func f(%x: f64[3], %w: f64[2,4,3]) -> (f64[3], f64[2,4,3], f64[2]) {
  %a: f64[3], %p: f64[2,4,3], %q: f64[2] = scan %x, %w {carried=1, length=[2], reverse=false, sliced=1} \
(%i: i64[], %a0: f64[3], %m: f64[4,3]) {
    %b: f64[3], %r: f64[4,3] = scan %a0, %m, %a0 {carried=1, length=[4], reverse=true, sliced=1} \
(%j: i64[], %b0: f64[3], %v: f64[3], %c: f64[3]) {
      %n: f64[3] = mul %b0, %v
      %n0: f64[3] = add %n, %c
      yield %n0, %n
    }
    %s: f64[] = sum %r {axes=[0,1]}
    yield %b, %r, %s
  }
  return %a, %p, %q
}""",
    [f64(0.5, 1, 2), np.arange(24.0).reshape(2, 4, 3) / 24],
)
program(
    "as long as the data say, what it went through read backwards",
    """func f(%x: f64[], %w: f64[3]) -> (f64[], i64[], f64[], f64[3], i64[]) {
  %r: f64[], %v: f64[3], %n: i64[], %s: f64[*], %vs: f64[*,3] = while %x, %w {carried=2} (%i: i64[], %a: f64[], %b: f64[3]) {
    %c: f64[] = const {value=1000.0}
    %m: f64[] = sum %b {axes=[0]}
    %d: f64[] = add %a, %m
    %lt: bool[] = lt %d, %c
    yield %lt
  } (%i0: i64[], %a0: f64[], %b0: f64[3]) {
    %k: f64[] = const {value=1.25}
    %b1: f64[] = mul %a0, %k
    %e: f64[3] = broadcast %b1 {axes=[0]}
    %g: f64[3] = add %b0, %e
    yield %b1, %g, %a0, %g
  }
  %z: f64[] = const {value=0.0}
  %o: f64[3] = broadcast %z {axes=[0]}
  %q: f64[], %u: f64[3] = scan %n, %z, %o, %s, %vs {carried=2, length=[], reverse=true, sliced=2} \
(%i1: i64[], %a1: f64[], %c1: f64[3], %v1: f64[], %v2: f64[3]) {
    %h: f64[] = sub %v1, %a1
    %j: f64[3] = sub %v2, %c1
    yield %h, %j
  }
  %t: i64[] = stack_length %vs
  return %r, %n, %q, %u, %t
}""",
    [np.float64(1.0), f64(1, 2, 3)],
    [np.float64(1e-9), f64(0, 0, 0)],
    [np.float64(2000.0), f64(1, 2, 3)],
)
program(
    "a stack in each run of a loop",
    """func f(%xs: f64[4]) -> (f64[4], i64[4]) {
  %ys: f64[4], %ts: i64[4] = scan %xs {carried=0, length=[4], reverse=false, sliced=1} (%i: i64[], %x: f64[]) {
    %r: f64[], %n: i64[], %s: f64[*] = while %x {carried=1} (%i0: i64[], %a: f64[]) {
      %c: f64[] = const {value=100.0}
      %lt: bool[] = lt %a, %c
      yield %lt
    } (%i1: i64[], %a0: f64[]) {
      %b: f64[] = add %a0, %a0
      yield %b, %a0
    }
    %k: i64[] = stack_length %s
    %q: f64[], %w: f64[*] = scan %k, %r, %s {carried=1, length=[], reverse=true, sliced=1} (%i2: i64[], %a1: f64[], %v: f64[]) {
      %h: f64[] = sub %a1, %v
      yield %h, %h
    }
    %l: f64[] = scan %k, %q, %w {carried=1, length=[], reverse=false, sliced=1} (%i3: i64[], %a2: f64[], %v0: f64[]) {
      %h0: f64[] = add %a2, %v0
      yield %h0
    }
    yield %l, %k
  }
  return %ys, %ts
}""",
    [f64(1, 0.001, 200, 3)],
)
program(
    "a branch in a loop",
    """func f(%xs: f64[6], %w: f64[3]) -> (f64[3], f64[6]) {
  %h: f64[3], %ys: f64[6] = scan %w, %xs {carried=1, length=[6], reverse=false, sliced=1} (%i: i64[], %a: f64[3], %x: f64[]) {
    %m: i64[] = const {value=3}
    %k: i64[] = mod %i, %m
    %b: f64[3], %s: f64[] = switch %k, %a, %x (%a0: f64[3], %x0: f64[]) {
      %e: f64[3] = broadcast %x0 {axes=[0]}
      %n: f64[3] = add %a0, %e
      yield %n, %x0
    } (%a1: f64[3], %x1: f64[]) {
      %z: i64[] = const {value=1}
      %n0: f64[3] = scatter_set %a1, %z, %x1 {axes=[0]}
      %o: f64[] = neg %x1
      yield %n0, %o
    } (%a2: f64[3], %x2: f64[]) {
      %t: f64[] = sum %a2 {axes=[0]}
      yield %a2, %t
    }
    yield %b, %s
  }
  return %h, %ys
}""",
    [f64(1, 2, 3, 4, 5, 6), f64(0.5, 0.25, 2)],
)
program(
    "branches of parameters",
    """func f(%i: i64[], %x: f64[3], %y: f64[3], %s: f64[]) -> (f64[3], f64[3], f64[]) {
  %a: f64[3], %b: f64[3], %c: f64[] = switch %i, %x, %y, %s (%x0: f64[3], %y0: f64[3], %s0: f64[]) {
    yield %x0, %x0, %s0
  } (%x1: f64[3], %y1: f64[3], %s1: f64[]) {
    %n: f64[3] = mul %x1, %y1
    %z: f64[] = const {value=0.0}
    yield %n, %n, %z
  }
  return %a, %b, %c
}""",
    [np.int64(0), f64(1, 2, 3), f64(4, 5, 6), ONE],
    [np.int64(1), f64(1, 2, 3), f64(4, 5, 6), ONE],
)
program(
    "a branch that updates in place, and one that does not",
    """func f(%i: i64[], %x: f64[3]) -> (f64[3], f64[3]) {
  %m: f64[3] = neg %x
  %n: f64[3] = exp %x
  %a: f64[3] = switch %i, %m (%m0: f64[3]) {
    yield %m0
  } (%m1: f64[3]) {
    %z: i64[] = const {value=-1}
    %v: f64[] = const {value=7.0}
    %r: f64[3] = scatter_set %m1, %z, %v {axes=[0]}
    yield %r
  }
  %b: f64[3] = switch %i, %n (%n0: f64[3]) {
    %z0: i64[] = const {value=1}
    %v0: f64[] = const {value=7.0}
    %r0: f64[3] = scatter_add %n0, %z0, %v0 {axes=[0]}
    yield %r0
  } (%n1: f64[3]) {
    %r1: f64[3] = sin %n1
    yield %r1
  }
  return %a, %b
}""",
    [np.int64(0), f64(1, 2, 3)],
    [np.int64(1), f64(1, 2, 3)],
)
program(
    "complex carries, rows and captures",
    """func f(%z: c128[], %h: c128[3], %xs: c128[4,3], %n: i64[]) -> (c128[], c128[3], c128[4,3], c128[4], f64[]) {
  %a: c128[], %b: c128[3], %p: c128[4,3], %q: c128[4] = scan %z, %h, %xs, %z {carried=2, length=[4], reverse=false, sliced=1} \
(%i: i64[], %a0: c128[], %b0: c128[3], %x: c128[3], %z0: c128[]) {
    %m: c128[] = mul %a0, %z0
    %s: c128[3] = broadcast %m {axes=[0]}
    %t: c128[3] = mul %b0, %s
    %u: c128[3] = add %t, %x
    %v: c128[] = sum %u {axes=[0]}
    yield %m, %u, %u, %v
  }
  %c: c128[], %k: i64[], %st: c128[*] = while %z {carried=1} (%i1: i64[], %c0: c128[]) {
    %r: f64[] = real %c0
    %f: f64[] = const {value=9.0}
    %lt: bool[] = lt %r, %f
    yield %lt
  } (%i2: i64[], %c1: c128[]) {
    %o: c128[] = const {value=complex(1.0, -0.5)}
    %c2: c128[] = add %c1, %o
    yield %c2, %c1
  }
  %w: c128[] = scan %k, %c, %st {carried=1, length=[], reverse=false, sliced=1} (%i3: i64[], %d: c128[], %e: c128[]) {
    %g: c128[] = sub %e, %d
    yield %g
  }
  %y: f64[] = real %w
  return %a, %b, %p, %q, %y
}""",
    [np.complex128(0.5 + 0.25j), np.array([1j, 2, 3 - 1j]), ROWS * (1 - 2j), np.int64(3)],
)
program(
    "bools, integers and floats of 32 bits",
    """func f(%b: bool[], %k: i32[3], %x: f32[3], %m: bool[3]) -> (bool[], i32[3], f32[3], bool[3], bool[5], i32[5,3]) {
  %b1: bool[], %k1: i32[3], %x1: f32[3], %m1: bool[3], %bs: bool[5], %ks: i32[5,3] = scan %b, %k, %x, %m \
{carried=4, length=[5], reverse=false, sliced=0} (%i: i64[], %c: bool[], %l: i32[3], %y: f32[3], %n: bool[3]) {
    %d: bool[] = bitnot %c
    %l1: i32[3] = add %l, %l
    %z: f32[3] = cast %l1 {dtype=f32}
    %w: f32[3] = add %y, %z
    %h: f32[3] = tanh %w
    %e: bool[3] = broadcast %d {axes=[0]}
    %g: bool[3] = bitxor %n, %e
    yield %d, %l1, %h, %g, %c, %l
  }
  return %b1, %k1, %x1, %m1, %bs, %ks
}""",
    [np.bool_(True), np.array([1, 2, 3], np.int32), np.array([0.5, 1, 2], np.float32), np.array([True, False, True])],
)
program(
    "products of matrices, and a sort, in a loop",
    """func f(%w: f64[3,3], %x: f64[3,3]) -> (f64[3,3], f64[2,3]) {
  %y: f64[3,3], %s: f64[2,3] = scan %x, %w {carried=1, length=[2], reverse=false, sliced=0} \
(%i: i64[], %a: f64[3,3], %w0: f64[3,3]) {
    %p: f64[3,3] = contract %w0, %a {spec="ij,jk->ik"}
    %t: f64[3,3] = tanh %p
    %r: f64[3,3] = sort %t
    %v: f64[3] = sum %r {axes=[0]}
    yield %r, %v
  }
  return %y, %s
}""",
    [np.arange(9.0).reshape(3, 3) / 9, np.eye(3)],
)


def prepared(text: str, arguments: Sequence[Any], is_abstract: bool) -> tuple[Function, list[Any], dict[str, int]]:
    function = verify(parse_function(text))
    if not is_abstract:
        return function, list(arguments), {}
    result = abstract(function)
    types = [p.type.dtype.numpy.type for p in result.function.parameters[len(arguments) :]]
    constants = [t(c) for t, c in zip(types, result.constants, strict=True)]
    return result.function, [*arguments, *constants], dict(result.sizes)


def lowered(function: Function) -> dict[str, Module]:
    """The stages from ``fuse`` on, each verified and printed and parsed again."""
    fused = fuse(function)
    module = lower(fused)
    scheduled = Module(tuple(schedule(f) if f.kind == "kernel" else f for f in module.functions))
    stages = {"fuse": Module((fused,)), "lower": module, "schedule": scheduled}
    for stage in stages.values():
        verify_module(stage)
        text = print_module(stage)
        assert print_module(parse_module(text)) == text
    return stages


program(
    "extents by value: elements before a count, and a sum of them",
    """func f(%x: f64[6], %m: bool[6]) -> (f64[v0], f64[], f64[v1]) {
  %k: i64[6] = cast %m
  %c: i64[] = sum %k {axes=[0]}
  %n: i64[] = define_extent %c {extent=[v0]}
  %1: i64[] = const {value=1}
  %c1: i64[] = add %n, %1
  %n1: i64[] = define_extent %c1 {extent=[v1]}
  %a: f64[v0] = slice %x {start=[0], step=[1]}
  %b: f64[v0] = sin %a
  %s: f64[] = sum %b {axes=[0]}
  %z: f64[1] = broadcast %s {axes=[0]}
  %j: f64[v1] = concat %b, %z {axis=0, starts=[0, v0]}
  return %b, %s, %j
}""",
    [np.arange(6.0), np.array([True, False, True, True, False, False])],
    [np.arange(6.0), np.zeros(6, bool)],
    [np.arange(6.0), np.ones(6, bool)],
)
program(
    "extents by value in a loop, one in each iteration, and buffers on the heap",
    """func f(%x: f64[9], %n: i64[]) -> (f64[], f64[4]) {
  %0: f64[] = const {value=0.0}
  %t: f64[], %ts: f64[4] = scan %0, %x, %n {carried=1, length=[4], reverse=false, sliced=0} \
(%i: i64[], %a: f64[], %x0: f64[9], %n0: i64[]) {
    %c: i64[] = add %i, %n0
    %e: i64[] = define_extent %c {extent=[v0]}
    %p: f64[v0] = slice %x0 {start=[1], step=[1]}
    %q: f64[v0] = cumsum %p {axis=0, reverse=false}
    %r: f64[v0] = sort %q
    %s: f64[] = sum %r {axes=[0]}
    %b: f64[] = add %a, %s
    yield %b, %s
  }
  return %t, %ts
}""",
    [np.arange(9.0) - 3.5, np.int64(0)],
    [np.arange(9.0) - 3.5, np.int64(5)],
)


@pytest.mark.parametrize("is_abstract", [True, False], ids=["template", "sizes"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_stages_agree(name: str, is_abstract: bool) -> None:
    text, cases = PROGRAMS[name]
    for case in cases:
        expected = interpret(parse_function(text), *case)
        function, arguments, sizes = prepared(text, case, is_abstract)
        stages = lowered(function)
        for stage in stages.values():
            result = interpret(stage.functions[0], *arguments, module=stage, sizes=sizes)
            assert_same(result, expected, bitwise=False)
        before = [np.array(a) for a in arguments]
        executable = Executable(stages["schedule"])
        for _ in range(2):
            assert_same(executable.run(list(arguments), sizes), expected, bitwise=False)
        assert_same(arguments, before)


CHECKED = """func f(%x: f64[], %n: i64[]) -> (f64[], i64[]) {
  %y: f64[], %k: i64[], %s: f64[*] = while %x, %n {carried=1} (%i: i64[], %a: f64[], %n0: i64[]) {
    %lt: bool[] = lt %i, %n0
    yield %lt
  } (%i0: i64[], %a0: f64[], %n1: i64[]) {
    %z: f64[] = const {value=3.0}
    %ok: bool[] = lt %a0, %z
    check %ok {error="ValueError", message="three is too much"}
    %o: f64[] = const {value=1.0}
    %b: f64[] = add %a0, %o
    yield %b, %a0
  }
  %t: i64[] = stack_length %s
  %m: f64[] = neg %y
  %q: f64[] = const {value=-2.5}
  %c: bool[] = gt %m, %q
  check %c {error="IndexError", message="after the loop"}
  return %y, %t
}"""


@pytest.mark.parametrize(
    ("count", "message"), [(2, None), (3, "after the loop"), (4, "three is too much"), (100, "three is too much")]
)
def test_the_first_failure_in_a_loop_ends_the_program(count: int, message: str | None) -> None:
    stages = lowered(parse_function(CHECKED))
    executable = Executable(stages["schedule"])
    arguments = [np.float64(0.25), np.int64(count)]
    runs = [lambda: executable.run(arguments, {})]
    runs += [lambda stage=stage: interpret(stage.functions[0], *arguments, module=stage) for stage in stages.values()]
    for run in runs:
        if message is None:
            assert_same(run(), [np.float64(2.25), np.int64(2)])
            continue
        with pytest.raises(CheckFailed, match=message):
            run()


def test_what_a_step_in_python_raises_ends_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[tuple[int, float]] = []

    def step(count: Any, value: Any) -> list[Any]:
        seen.append((int(count), float(value)))
        if count == 3:
            raise KeyError("at three")
        return [np.float64(value * 2)]

    called = HostFunction(step)
    text = """func f(%g: i64[], %x: f64[]) -> (f64[], f64[5]) {
  %y: f64[], %ys: f64[5] = scan %x, %g {carried=1, length=[5], reverse=true, sliced=0} (%i: i64[], %a: f64[], %g0: i64[]) {
    %b: f64[] = callback %g0, %i, %a {axes=0, constant=true, dtypes=["f64"], ranks=[0], shape=[]}
    print %i, %b {scalars=["int", "float"], text="{}: {} "}
    yield %b, %a
  }
  return %y, %ys
}"""
    executable = Executable(lowered(parse_function(text))["schedule"])
    with pytest.raises(KeyError, match="at three"):
        executable.run([np.int64(called.function_id), np.float64(1)], {})
    assert seen == [(4, 1.0), (3, 2.0)]
    assert capsys.readouterr().out == "4: 2.0 "


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.codegen.cpu.schedule import schedule
from pullback.ir import Module
from pullback.ir.text import parse_function
from pullback.runtime.program.executable import Executable

module = lower(fuse(parse_function('''func f(%x: f64[]) -> (f64[]) {
  %y: f64[], %n: i64[] = while %x {carried=1} (%i: i64[], %a: f64[]) {
    %t: bool[] = const {value=true}
    yield %t
  } (%i0: i64[], %a0: f64[]) {
    %b: f64[] = cos %a0
    yield %b
  }
  return %y
}''')))
executable = Executable(Module(tuple(schedule(f) if f.kind == "kernel" else f for f in module.functions)))
signal.signal(signal.SIGINT, signal.default_int_handler)  # what shells start in the background ignores it
for _ in range(2):
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        executable.run([np.float64(1)], {})
    except KeyboardInterrupt as error:
        print("stopped", type(error).__name__, flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows cannot send itself Ctrl-C alone")
def test_ctrl_c_stops_an_endless_loop() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "stopped KeyboardInterrupt\n" * 2, "")


def test_a_signal_that_waits_is_raised_where_it_is_kept() -> None:
    """Before the first question the generator would end, and every loop after it would run on."""
    interrupts.table()
    (answers,) = (kept for kept in interrupts._kept if inspect.isgenerator(kept))
    assert inspect.getgeneratorstate(answers) == inspect.GEN_SUSPENDED


def test_a_new_length_compiles_nothing() -> None:
    text = PROGRAMS["backwards, the index read"][0]
    function, _, _ = prepared(text, [f64(1, 2, 3), ROWS], True)
    executable = Executable(lowered(function)["schedule"])
    longer = np.arange(35.0).reshape(7, 5)
    before = counters.snapshot().compiles
    expected = interpret(function, np.ones(5), longer)
    assert_same(executable.run([np.ones(5), longer], abstract_sizes(function, 5, 7)), expected)
    assert counters.snapshot().compiles == before


def abstract_sizes(function: Function, *values: int) -> dict[str, int]:
    names = dict.fromkeys(e for v in function.parameters for e in v.type.shape)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("rows", range(10))
@pytest.mark.parametrize("width", [0, 1, 8, 13])
def test_rows_reduced_together_are_those_reduced_alone(rows: int, width: int) -> None:
    """A row's sum does not depend on how many rows there are."""
    function = parse_function(
        """func f(%a: f64[m,n], %x: f64[n], %b: f64[m]) -> (f64[m]) {
  %p: f64[m] = contract %a, %x {spec="ij,j->i"}
  %q: f64[m] = mul %p, %b
  return %q
}"""
    )
    executable = Executable(lowered(function)["schedule"])
    rng = np.random.default_rng(rows)
    a, x, b = rng.normal(size=(rows, width)), rng.normal(size=width), rng.normal(size=rows)
    (result,) = executable.run([a, x, b], {"m": rows, "n": width})
    for k in range(rows):
        (alone,) = executable.run([a[k : k + 1], x, b[k : k + 1]], {"m": 1, "n": width})
        assert_same([result[k : k + 1]], [alone])


OVERWRITTEN = {
    "read and written at the same place": ("%r: f64[4,3] = exp %m", 1),
    "written twice": ("%r0: f64[4,3] = exp %m\n  %r: f64[4,3] = add %r0, %m", 1),
    "read at another place": (
        "%t: f64[3,4] = transpose %m {perm=[1,0]}\n  %u: f64[4,3] = reshape %t\n  %r: f64[4,3] = add %u, %m", 2
    ),
    "read again after a reduction": (
        "%s: f64[4] = sum %m {axes=[1]}\n  %e: f64[4,3] = broadcast %s {axes=[1]}\n  %r: f64[4,3] = div %m, %e", 2
    ),
    "an element of it read by all": (
        "%k: i64[] = const {value=1}\n  %v: f64[] = gather %m, %k, %k {axes=[0,1]}\n  %e: f64[4,3] = broadcast %v {axes=[0,1]}"
        "\n  %r: f64[4,3] = sub %m, %e", 2
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_an_array_that_ends_is_written_over(name: str) -> None:
    """``%m`` ends with what follows; the number is that of the buffers of its size."""
    body, buffers = OVERWRITTEN[name]
    text = f"""func f(%x: f64[4,3], %y: f64[3,4], %z: f64[4,4]) -> (f64[4,3]) {{
  %m: f64[4,3] = contract %z, %x {{spec="ij,jk->ik"}}
  {body}
  return %r
}}"""
    rng = np.random.default_rng(0)
    arguments = [rng.normal(size=s) for s in ((4, 3), (3, 4), (4, 4))]
    expected = interpret(parse_function(text), *arguments)
    stages = lowered(parse_function(text))
    built = [i for i in stages["lower"].functions[0].instructions if i.op.name == "alloc" and i.result.type.rank == 2]
    assert len(built) == buffers
    for stage in stages.values():
        assert_same(interpret(stage.functions[0], *arguments, module=stage), expected, bitwise=False)
    assert_same(Executable(stages["schedule"]).run(list(arguments), {}), expected, bitwise=False)


SHOWN = {
    "scan": "an array carried, sequences in and out",
    "while": "as long as the data say, what it went through read backwards",
    "switch": "a branch in a loop",
    "in_place": "a loop in a loop, written in place",
    "parts": "parts of arrays, computed where they are written",
    "parts_read": "parts of arrays, read and written at once, and what must be read before",
    "exchanged": "arrays exchanged, one of them written in place, and a new one",
}


@pytest.mark.parametrize("name", SHOWN)
def test_lowered_text_is_the_expected_one(name: str, bless: bool) -> None:
    path = GOLDEN / "lowered" / f"{name}.ir"
    function, _, _ = prepared(PROGRAMS[SHOWN[name]][0], PROGRAMS[SHOWN[name]][1][0], True)
    text = print_module(Module(lowered(function)["lower"].functions[:1]))
    if bless:
        path.write_text(text)
    assert path.read_text() == text


def test_a_driver_becomes_an_object_on_every_platform() -> None:
    function, _, _ = prepared(PROGRAMS[SHOWN["while"]][0], PROGRAMS[SHOWN["while"]][1][0], True)
    for name, host in HOSTS.items():
        driver = emit_driver(lowered(function)["schedule"], host)
        symbols = object_symbols(Engine(host=host).compile(driver.text))
        assert symbols is not None and driver.name in symbols[0] and symbols[1] <= runtime_symbols(host.triple), name


def body_ops(i: Instruction) -> list[Op]:
    """The ops at the top of an instruction's region."""
    return [k.op for k in i.regions[0].instructions]


@pytest.mark.parametrize(("tail", "is_dear"), [("tanh", True), ("neg", False)])
def test_a_function_of_rows_is_computed_many_at_a_time(tail: str, is_dear: bool) -> None:
    """A function stays with the reduction that it reads; one that is dear has a vector loop over rows of its own."""
    text = f"""func f(%x: f64[4,3]) -> (f64[4]) {{
  %s: f64[4] = sum %x {{axes=[1]}}
  %r: f64[4] = {tail} %s
  return %r
}}"""
    stages = lowered(parse_function(text))
    assert len(stages["fuse"].functions[0].instructions) == 1
    lone = [i for i in walk(stages["lower"].functions[1].body) if i.op is OPS["for"] and OPS[tail] in body_ops(i)]
    assert len(lone) == 1 and (OPS["for"] not in body_ops(lone[0])) == is_dear
    (result,) = Executable(stages["schedule"]).run([ROWS], {})
    assert_same([result], interpret(parse_function(text), ROWS), bitwise=False)


def test_an_extent_by_value_of_any_size_compiles_nothing() -> None:
    text, _ = PROGRAMS["extents by value: elements before a count, and a sum of them"]
    function = parse_function(text.replace("[6]", "[n]"))
    executable = Executable(lowered(function)["schedule"])
    compiles = []
    for count in (3, 0, 1, 7, 1000):
        x, m = np.linspace(0, 1, 1000), np.arange(1000) < count
        assert_same(executable.run([x, m], {"n": 1000}), interpret(function, x, m), bitwise=False)
        compiles.append(counters.snapshot().compiles)
    assert len(set(compiles)) == 1  # the first run compiles the kernels, for all lengths


def test_memory_for_an_extent_by_value_may_be_missing() -> None:
    text = """func f(%n: i64[]) -> (f64[v0]) {
  %e: i64[] = define_extent %n {extent=[v0]}
  %q: i64[v0] = iota {axis=0}
  %r: f64[v0] = cast %q
  %s: f64[v0] = cumsum %r {axis=0, reverse=false}
  %t: f64[v0] = sort %s
  return %t
}"""
    executable = Executable(lowered(parse_function(text))["schedule"])
    assert_same(executable.run([np.int64(3)], {}), [f64(0, 1, 3)])
    for count in (2**45, 2**62):
        with pytest.raises(CheckFailed, match="there is no memory"):
            executable.run([np.int64(count)], {})
