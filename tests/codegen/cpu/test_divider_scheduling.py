"""Loop bodies in an order in which the divider has work all the time."""

from __future__ import annotations

import numpy as np

from pullback.codegen.cpu.loops.schedule_divisions import Work, paced
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import PROCESSORS
from pullback.ir.core.structure import Block, Function, Instruction
from pullback.ir.interpret import interpret
from pullback.ir.text import parse_module

CPU = "sapphirerapids"


def kernel(lines: list[str], loads: str = "", stores: str = "    store %z, %y, %i\n") -> Function:
    text = f"""pullback-ir 2

kernel k(%x: &f64[s0], %y: &f64[s0]) -> () {{
  %n: i64[] = extent {{size=s0}}
  for %n (%i: i64[]) {{
    %a: f64[] = load %x, %i
    %b: f64[] = load %y, %i
{loads}{"".join(f"    {line}{chr(10)}" for line in lines)}{stores}    yield
  }}
  return
}}
"""
    return parse_module(text).functions[0]


def chain() -> list[str]:
    """Functions that need no quotient, then four quotients that need each other."""
    lines = ["%e0: f64[] = exp %a", "%e1: f64[] = exp %b", "%f0: f64[] = erf %e0", "%f1: f64[] = erf %e1"]
    lines += ["%g0: f64[] = add %f0, %e0", "%g1: f64[] = add %f1, %e1"]
    lines += ["%q0: f64[] = div %a, %b"] + [f"%q{k}: f64[] = div %q{k - 1}, %{'a' if k % 2 else 'b'}" for k in range(1, 4)]
    return [*lines, "%s: f64[] = mul %g0, %g1", "%z: f64[] = add %s, %q3"]


def body(function: Function) -> Block:
    return next(i for i in function.body.instructions if i.regions).regions[0]


def weigh(i: Instruction) -> Work:
    return {"div": Work(16, 0), "exp": Work(0, 40), "erf": Work(0, 40)}.get(i.op.name, Work(0, 1))


def test_quotients_are_spread() -> None:
    """Each of four comes after as much other work as the divider takes for the one before."""
    block = body(kernel(chain()))
    names = [i.op.name for i in paced(block, weigh, 2).instructions if i.op.name in ("div", "exp", "erf")]
    assert names != [i.op.name for i in block.instructions if i.op.name in ("div", "exp", "erf")]
    assert names == ["div", "exp", "div", "exp", "div", "erf", "div", "erf"]


def test_what_is_short_or_reads_what_it_wrote_stays() -> None:
    block = body(kernel(chain()))
    assert paced(block, lambda i: Work(weigh(i).divider, 1), 2) is block, "short"
    assert paced(block, lambda i: Work(0, weigh(i).others), 2) is block, "no quotients"
    written = body(kernel(chain(), "    store %a, %y, %i\n    %w: f64[] = load %y, %i\n"))
    assert paced(written, weigh, 2) is written


def test_loads_stay_before_stores() -> None:
    """A loop swaps two arrays and has a long computation too: the loads of the swap stay before its stores."""
    lines = [line for line in chain() if not line.startswith("%z")]
    swapped = kernel([*lines, "%z: f64[] = add %s, %q3"], stores="    store %b, %x, %i\n    store %a, %y, %i\n")
    built = paced(body(swapped), weigh, 2)
    kinds = [i.op.name for i in built.instructions if i.op.name in ("load", "store")]
    assert kinds == sorted(kinds)


def test_meaning_stays() -> None:
    function = kernel(chain())
    cut = schedule(function, CPU)
    assert CPU in PROCESSORS
    ways = []
    for k in (schedule(function), cut):
        x, y = np.linspace(0.5, 2.0, 301), np.linspace(3.0, 0.25, 301)
        interpret(k, x, y)
        ways.append(y)
    assert np.array_equal(*ways)
