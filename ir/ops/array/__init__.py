"""Ops that arrange, index, reduce, scan and contract arrays."""

from pullback.ir.ops.array import complex, contract, create, index, reduce, reindex, scan

__all__ = ["complex", "contract", "create", "index", "reduce", "reindex", "scan"]
