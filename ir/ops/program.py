"""Program ops: what one signature compiles to. Buffers are references; launches run kernels on them in order.

``launch``: operands are the kernel's arguments; ``sizes`` gives the kernel's sizes s0, s1, ... as extents or lists of extents to
multiply; ``failures`` lists what each status code above 0 means, as (error, message, place).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pullback.ir.op import Op, Same
from pullback.ir.structure import Block
from pullback.ir.types import ArrayType, RefType, Type

PROGRAM = frozenset({"program"})


@dataclass(frozen=True, eq=False, kw_only=True)
class Alloc(Op):
    """A dense buffer, contents undefined."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        if types:
            raise TypeError("takes no operands")
        return (RefType(params["dtype"], tuple(params["shape"])),)


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Op):
    """The memory of a dense buffer under another shape of as many elements; or of complex numbers as their parts, along a last
    axis of two, and back, in any layout."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        (ref,) = types
        if not isinstance(ref, RefType) or (ref.layout != "c" and params["dtype"] is ref.dtype):
            raise TypeError(f"takes a dense buffer, found {ref}")
        if params["dtype"].part is not ref.dtype.part:
            raise TypeError(f"memory of {ref.dtype} is not that of {params['dtype']}")
        return (RefType(params["dtype"], tuple(params["shape"]), ref.layout, ref.space),)


@dataclass(frozen=True, eq=False, kw_only=True)
class Launch(Op):
    """Runs the kernel named by ``kernel``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        for t in types:
            if isinstance(t, ArrayType) and t.rank:
                raise TypeError(f"arguments are references or scalars, found {t}")
        return ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Free(Op):
    """Ends the life of a buffer made by ``alloc``."""

    def infer(self, types: Sequence[Type], params: Mapping[str, Any], regions: Sequence[Block], same: Same) -> tuple[Type, ...]:
        if len(types) != 1 or not isinstance(types[0], RefType):
            raise TypeError("takes one buffer")
        return ()


alloc = Alloc(name="alloc", typed=("dtype", "shape"), extents=("shape",), vocabularies=PROGRAM)
view = View(name="view", typed=("dtype", "shape"), extents=("shape",), vocabularies=PROGRAM)
launch = Launch(name="launch", effect="effect", extents=("sizes",), vocabularies=PROGRAM)
free = Free(name="free", effect="effect", vocabularies=PROGRAM)
