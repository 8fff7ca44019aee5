"""Simplification by local rules: ``rules_scalar`` (single elements), ``rules_array`` (rearrangements and reductions),
``rules_join`` (joined arrays, and arrays written index by index), ``rules_update`` (updates of arrays in place) and
``rules_contract``."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Function
from pullback.ir.passes.simplify import rules_array as _array
from pullback.ir.passes.simplify import rules_contract as _contract
from pullback.ir.passes.simplify import rules_join as _join
from pullback.ir.passes.simplify import rules_scalar as _scalar
from pullback.ir.passes.simplify import rules_update as _update
from pullback.ir.passes.simplify.rewrite import simplified

__all__ = ["simplify"]
del _array, _contract, _join, _scalar, _update


def simplify(function: Function) -> Function:
    """Apply the rules to every instruction, once, in order; dead instructions are left to ``dce``.

    Requires: a func; other kinds are returned unchanged. Keeps: values bit by bit, except for rules whose docstring says
    otherwise, and every instruction that can fail (a ``check`` of a constant that is true, or of a value that is checked
    before it, cannot). Merges equal instructions as ``cse`` does.
    """
    return replace(function, body=simplified(function.body)) if function.kind == "func" else function
