"""Checks lose the operands that only their messages show, and what computed these."""

import numpy as np
import pytest

from pullback.ir.core.structure import Module
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.strip_values import strip_values
from pullback.ir.text import parse_module, print_module

BEFORE = """pullback-ir 2

func f(%x: f64[]) -> (f64[]) {
  %0: f64[] = const {value=0.0}
  %1: bool[] = gt %x, %0
  %2: f64[] = sin %x
  check %1, %x, %2 {error=ValueError, message="x = {x}, {np.sin(x)}", raises=0}
  %3: f64[] = mul %x, %x
  return %3
}
"""
AFTER = """pullback-ir 2

func f(%x: f64[]) -> (f64[]) {
  %0: f64[] = const {value=0.0}
  %1: bool[] = gt %x, %0
  check %1 {error=ValueError, message="x = {x}, {np.sin(x)}"}
  %3: f64[] = mul %x, %x
  return %3
}
"""


def test_operands_of_messages_are_removed() -> None:
    before = parse_module(BEFORE).functions[0]
    after = strip_values(before)
    assert print_module(Module((after,))) == AFTER.replace("%3", "%2")
    assert strip_values(after) is after
    for function in (before, after):
        assert interpret(function, np.float64(3.0))[0] == 9.0
        with pytest.raises(CheckFailed) as failed:
            interpret(function, np.float64(-2.0))
        assert failed.value.raises == (0 if function is before else None)
    with pytest.raises(CheckFailed) as failed:
        interpret(before, np.float64(-2.0))
    assert failed.value.values == (-2.0, np.sin(-2.0))
