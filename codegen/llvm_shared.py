"""Functions that kernels share (``ir.ops.shared``) in emitted LLVM code: a module for each, and calls by address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pullback.codegen.lanes import Lanes, element
from pullback.codegen.llvm_accesses import Place
from pullback.ir.structure import Block, Instruction, Value
from pullback.ir.types import RefType

if TYPE_CHECKING:
    from pullback.codegen.llvm import Emitter

_TEXTS: dict[tuple[Any, ...], str] = {}


def call(e: Emitter, i: Instruction) -> None:
    """A call of a shared function; outside vector loops."""
    name = i.params["function"]
    given = [f"{_type(v)} {e.places[v].pointer if isinstance(v.type, RefType) else e.env[v].text}" for v in i.operands]
    e.line(f"call void {e.callee('shared', name, shared_text(e, name))}({', '.join(given)}) nounwind")


def shared_text(e: Emitter, name: str) -> str:
    """The module of a shared function."""
    region = e.shared[name]
    key = region, name, e.target
    if key not in _TEXTS:
        _TEXTS[key] = _text(e.apart(name), region)
    return _TEXTS[key]


def _text(e: Emitter, region: Block) -> str:
    e.kernel_asks = True
    for k, v in enumerate(region.parameters):
        t = v.type
        if isinstance(t, RefType):
            e.places[v] = Place(f"%p{k}", t, tuple(map(e.extent, t.shape)), ())
        else:
            e.env[v] = Lanes(f"%p{k}")
    e.block(region)
    e.line("ret void")
    given = ", ".join(f"{_type(v)} %p{k}" for k, v in enumerate(region.parameters))
    return "\n".join([*e.declared, "", f"define void @{e.name}({given}) nounwind {{", "entry:", *e.entry, *e.lines, "}", ""])


def _type(v: Value) -> str:
    return "ptr" if isinstance(v.type, RefType) else element(v.type.dtype)
