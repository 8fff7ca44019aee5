"""Split values along short axes: arrays whose components a program extracts or assembles become these components.

y = concat [a, b, c]; z = y + x; z[0] * z[2]   ->   (a + x[0]) * (c + x[2])
"""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Function
from pullback.ir.passes.editing.dce import live
from pullback.ir.passes.structure.short_axes import short_axes
from pullback.ir.passes.structure.split_values import split_values


def parts(function: Function) -> Function:
    """Split values along the short axes that ``short_axes`` chooses; a loop carries the parts of a value that it carries.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, up to the order in which a reduction over
    such an axis combines; every instruction that can fail or has an effect.
    """
    chosen = short_axes(function.body) if function.kind == "func" else {}
    return replace(function, body=live(split_values(function.body, chosen))) if chosen else function
