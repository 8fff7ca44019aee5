"""Functions that kernels share: code of a module of its own, which is compiled once for all kernels that call it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.ir.core.op import Op, Region, Same
from pullback.ir.core.structure import Block, Function
from pullback.ir.core.types import BOOL, I64, RefType, Type, scalar
from pullback.ir.ops.kernel.kernel import KERNEL

FAR = 1 << 40
"""The extent of a row of which only who reads it knows where it ends."""


class Shared(Op):
    """Defines ``function``, which ``call`` instructions after it name: the region, which reads nothing from outside and yields
    nothing. It says how its loops run, and stands at the top of a kernel, so that passes leave it alone."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if types or len(regions) != 1:
            raise TypeError("takes no operands and has one region")
        if regions[0].results:
            raise TypeError("the region yields something")
        return ()


class Call(Op):
    """Runs ``function``. Operands: what its parameters are, references among them."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if any(not isinstance(t, RefType) and t.shape for t in types):
            raise TypeError("takes references and scalars")
        return ()


class Address(Op):
    """Where the code of ``function`` is: a number that ``call_at`` takes. Such a function calls no other one. With an operand,
    0 if that is false: the function need not be there then."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if list(types) not in ([], [scalar(BOOL)]):
            raise TypeError("takes a condition at most")
        return (scalar(I64),)


class CallAt(Call):
    """Runs the function at an address, the first operand. Further operands: what its parameters are."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        if not types or types[0] != scalar(I64):
            raise TypeError("takes an address")
        return super().infer(types[1:], params, regions, same)


class RowRef(Op):
    """The memory of a dense reference from an element on, as a row; one index an axis, which may lie outside. With one operand
    more, as rows that begin so many elements apart."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Region], same: Same) -> tuple[Type, ...]:
        ref = types[0]
        if not isinstance(ref, RefType) or ref.layout != "c" or any(t != scalar(I64) for t in types[1:]):
            raise TypeError("takes a dense reference and numbers")
        rank = len(types) - ref.rank
        if rank not in (1, 2):
            raise TypeError("takes an index for each axis, and how far apart rows are")
        return (RefType(ref.dtype, (FAR,) * rank, space=ref.space),)


shared = Shared(name="shared", effect="effect", vocabularies=KERNEL)
call = Call(name="call", effect="effect", vocabularies=KERNEL)
address = Address(name="address", vocabularies=KERNEL)
call_at = CallAt(name="call_at", effect="effect", vocabularies=KERNEL)
row_ref = RowRef(name="row_ref", vocabularies=KERNEL)


def parted(kernel: Function) -> tuple[Function, dict[str, Block]]:
    """A kernel without the functions that it shares, and these by name."""
    found = {i.params["function"]: i.regions[0] for i in kernel.instructions if i.op is shared}
    if not found:
        return kernel, found
    rest = tuple(i for i in kernel.instructions if i.op is not shared)
    return replace(kernel, body=replace(kernel.body, instructions=rest)), found
