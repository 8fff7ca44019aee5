"""Functions shared by kernels: a separate module, compiled once for all kernels that call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.structure import Block, Function
from pullback.ir.core.types import BOOL, I64, RefType, Type, scalar
from pullback.ir.ops.kernel.kernel import KERNEL

UNBOUNDED = 1 << 40
"""The extent of a reference of ``ref_at``, whose end is unknown: larger than any array."""


class FunctionDefinition(Op):
    """Defines ``function``, which later ``call`` instructions name, as its region, which reads nothing from outside and yields
    nothing. Its loops are already scheduled; it stands at the top of a kernel, and passes leave it unchanged."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types or len(regions) != 1:
            raise TypeError("takes no operands and has one region")
        if regions[0].results:
            raise TypeError("the region yields something")
        return ()


class Call(Op):
    """Calls ``function``. Operands: its arguments, references and scalars."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if any(not isinstance(t, RefType) and t.shape for t in types):
            raise TypeError("takes references and scalars")
        return ()


class FunctionAddress(Op):
    """The address of ``function``, an integer that ``call_indirect`` takes. Such a function calls no other one. An optional
    bool operand makes the result 0 if it is false; the function need not be compiled then."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if list(types) not in ([], [scalar(BOOL)]):
            raise TypeError("takes a condition at most")
        return (scalar(I64),)


class CallIndirect(Call):
    """Calls the function at an address, the first operand. Further operands: its arguments."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if not types or types[0] != scalar(I64):
            raise TypeError("takes an address")
        return super().infer(types[1:], params, regions, same)


class RefAt(Op):
    """The memory of a dense reference from one element on, as a row. Operands: the reference, one index for each axis, which
    may be out of bounds. A further operand is a row stride in elements; the result is then a matrix with that stride."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = types[0]
        if not isinstance(ref, RefType) or ref.layout != "c" or any(t != scalar(I64) for t in types[1:]):
            raise TypeError("takes a dense reference and numbers")
        rank = len(types) - ref.rank
        if rank not in (1, 2):
            raise TypeError("takes an index for each axis, and how far apart rows are")
        return (RefType(ref.dtype, (UNBOUNDED,) * rank, space=ref.space),)


class TableEntry(Op):
    """One of several dense references, or of several scalars, of one dtype. Operands: its position among them, then they. A
    reference is to all elements as a row, whose end is unknown."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        position, *entries = types
        if position != scalar(I64) or not entries or any(t.dtype is not entries[0].dtype for t in entries):
            raise TypeError("takes a position and entries of one dtype")
        first = entries[0]
        if not isinstance(first, RefType):
            if any(t != first or t.shape for t in entries):
                raise TypeError("takes scalars")
            return (first,)
        if any(not isinstance(t, RefType) or t.layout != "c" or t.space != first.space for t in entries):
            raise TypeError("takes dense references")
        return (RefType(first.dtype, (UNBOUNDED,), space=first.space),)


function_ = FunctionDefinition(name="function", effect="effect", vocabularies=KERNEL)
call = Call(name="call", effect="effect", vocabularies=KERNEL)
function_address = FunctionAddress(name="function_address", vocabularies=KERNEL)
call_indirect = CallIndirect(name="call_indirect", effect="effect", vocabularies=KERNEL)
ref_at = RefAt(name="ref_at", vocabularies=KERNEL)
table_entry = TableEntry(name="table_entry", vocabularies=KERNEL)


def split_functions(kernel: Function) -> tuple[Function, dict[str, Block]]:
    """Return a kernel without the shared functions that it defines, and these functions' blocks by name."""
    functions = {i.params["function"]: i.regions[0] for i in kernel.instructions if i.op is function_}
    if not functions:
        return kernel, functions
    instructions = tuple(i for i in kernel.instructions if i.op is not function_)
    return replace(kernel, body=replace(kernel.body, instructions=instructions)), functions
