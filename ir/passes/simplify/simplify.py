"""Simplification by local rules; the rules are in ``rules_scalar`` (one element), ``rules_array`` (shapes and order) and
``rules_contract``."""

from __future__ import annotations

from dataclasses import replace

from pullback.ir.core.structure import Function
from pullback.ir.passes.simplify import rules_array as _array
from pullback.ir.passes.simplify import rules_contract as _contract
from pullback.ir.passes.simplify import rules_scalar as _scalar
from pullback.ir.passes.simplify.rewrite import rewritten

__all__ = ["simplify"]
del _array, _contract, _scalar


def simplify(function: Function) -> Function:
    """Apply the rules to every instruction, once, in order; what nothing reads any more is left to ``dce``.

    Requires: a func; other kinds are returned as they are.
    Keeps: values bit by bit but for rules that say otherwise, and every instruction that can fail (a ``check`` of a
    constant that is true cannot). Merges equal instructions as ``cse`` does.
    """
    return replace(function, body=rewritten(function.body)) if function.kind == "func" else function
