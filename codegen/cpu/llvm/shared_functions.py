"""Functions that kernels share (``ir.ops.kernel.functions``) in emitted LLVM code: a module for each, and calls by address."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, Place
from pullback.codegen.cpu.llvm.lanes import Lanes, element
from pullback.codegen.cpu.llvm.memory import ROOM, is_on_stack
from pullback.codegen.cpu.llvm.text import TIERED, Unwritten
from pullback.codegen.cpu.loops.reachability import Path
from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import Call, CallIndirect, FunctionAddress, RefAt
from pullback.ir.ops.kernel.kernel import Extent, For, If, Load, Local, Prefetch, Store, Subview


@dataclass(frozen=True)
class _Text:
    """The module of a shared function, and the native functions that it is given the addresses of, behind its own arguments."""

    text: str | Unwritten
    natives: tuple[Slot, ...]


def call(e: FunctionWriter, i: Instruction) -> None:
    """A call of a shared function; outside vector loops."""
    operands: Sequence[Value] = i.operands
    of_it: Sequence[Slot] = ()
    if isinstance(i.op, CallIndirect):
        callee, operands = e.let(f"inttoptr i64 {e.env[operands[0]].text} to ptr"), operands[1:]
    else:
        made = _made(e, i.params["function"])
        callee, of_it = e.callee("shared", i.params["function"], made.text), made.natives
    given = [f"{_type(v)} {e.places[v].pointer if isinstance(v.type, RefType) else e.env[v].text}" for v in operands]
    given += [f"i64 {stride.text}" for v in operands if v in e.places for stride in e.places[v].strides]
    given += [f"i64 {e.native(*what)}" for what in of_it]
    e.line(f"call void {callee}({', '.join(given)}) nounwind")


def function_address(e: FunctionWriter, i: Instruction) -> Lanes:
    """Where a shared function is, which is given nothing but its own arguments; with an operand, 0 if that is false."""
    name = i.params["function"]
    made = _made(e, name)
    assert not made.natives, f"{name} calls other functions"
    path = e.path
    e.path = (*path, *i.operands)
    found = e.native("shared", name, made.text)
    e.path = path
    for condition in i.operands:
        found = e.let(f"select i1 {e.env[condition].text}, i64 {found}, i64 0")
    return Lanes(found)


def calls(body: Block, elsewhere: Set[Instruction] = frozenset()) -> bool:
    """Whether all that a kernel's loops do is to call shared functions, or other loops that do; some are ``elsewhere``."""
    others = (i for i in body.instructions if i not in elsewhere)
    return all(_is_call(i) if isinstance(i.op, For) else all(map(calls, i.regions)) for i in others)


def _is_call(i: Instruction) -> bool:
    (region,) = i.regions
    return any(isinstance(k.op, Call) for k in walk(region)) and calls(region)


def define(e: FunctionWriter, function: Instruction) -> None:
    """A shared function, for what calls it."""
    (e.shared[function.params["function"]],) = function.regions


def written(e: FunctionWriter, function: Instruction) -> str:
    """The module of a shared function, which may call those that are defined."""
    return str(_made(e, function.params["function"]).text)


def _made(e: FunctionWriter, name: str) -> _Text:
    region = e.shared[name]
    key = region, name, e.target
    if key not in _TEXTS:
        inner = e.apart(name)
        inner.shared = e.shared
        if (needed := natives(inner, region)) is None:
            _TEXTS[key] = _text(inner, region)
        else:
            given = tuple(dict.fromkeys(what for what, _ in needed))
            _TEXTS[key] = _Text(Unwritten(lambda: _later(inner, region, given)), given)
    return _TEXTS[key]


def natives(e: FunctionWriter, region: Block, path: Path = ()) -> list[tuple[Slot, Path]] | None:
    """The native functions that a region calls, as far as that shows before it is written, and the conditions for it; None if it
    does not. ``path``: what has to be other than 0 for the region to run."""
    found: list[tuple[Slot, Path]] = []
    for i in region.instructions:
        if isinstance(i.op, Call | FunctionAddress) and not isinstance(i.op, CallIndirect):
            name = i.params["function"]
            made = _made(e, name)
            found.append((("shared", name, made.text), (*path, *i.operands) if isinstance(i.op, FunctionAddress) else path))
            found += [(what, path) for what in made.natives if isinstance(i.op, Call)]
        elif isinstance(i.op, Local) and not is_on_stack(i):
            found += [(("room", what), path) for what in ROOM]
        elif not isinstance(i.op, _KNOWN) or i.params.get("map") == "core" or is_of_library(i):
            return None
        for inside in i.regions:
            further = natives(e, inside, (*path, i.operands[0]) if isinstance(i.op, If) else path)
            if further is None:
                return None
            found += further
    return found


def is_of_library(i: Instruction) -> bool:
    """Whether an op is a call of a function of NumPy's."""
    if not isinstance(i.op, Elementwise):
        return False
    dtype = i.operands[1 if i.op.gives == "select" else 0].type.dtype
    return i.op.spelling("llvm", dtype.kind).startswith("ufunc:")


def _later(e: FunctionWriter, region: Block, given: Sequence[Slot]) -> str:
    made = _text(e, region)
    assert made.natives == given, f"{e.name} needs {made.natives}"
    return str(made.text)


def _text(e: FunctionWriter, region: Block) -> _Text:
    e.kernel_asks = True
    given_natives: dict[Slot, str] = {}
    e.natives_of = lambda *what: given_natives.setdefault(what, f"%n{len(given_natives)}")
    strides: list[str] = []
    for k, v in enumerate(region.parameters):
        t = v.type
        if isinstance(t, RefType):
            own = [f"%p{k}s{axis}" for axis in range(t.rank if t.layout == "strided" else 0)]
            e.places[v] = Place(f"%p{k}", t, tuple(map(e.extent, t.shape)), tuple(map(Lanes, own)))
            strides += own
        else:
            e.env[v] = Lanes(f"%p{k}")
    e.block(region)
    e.line("ret void")
    given = [f"{_type(v)} %p{k}" for k, v in enumerate(region.parameters)]
    given += [f"i64 {v}" for v in (*strides, *given_natives.values())]
    heading = f"define void @{e.name}({', '.join(given)}) nounwind {{"
    text = "\n".join([*e.declared, "", heading, "entry:", *e.entry, *e.lines, "}", ""])
    return _Text(TIERED + text if _only_calls(region) else text, tuple(given_natives))


def _only_calls(region: Block) -> bool:
    """Whether what takes time is in functions that it calls: floats are moved at most."""
    inside = list(walk(region))
    floats = (i for i in inside if not isinstance(i.op, Load) and any(_is_float(v) for v in i.results))
    return any(isinstance(i.op, Call) for i in inside) and not any(floats)


def _is_float(v: Value) -> bool:
    return not isinstance(v.type, RefType) and v.type.dtype.is_inexact


def _type(v: Value) -> str:
    return "ptr" if isinstance(v.type, RefType) else element(v.type.dtype)


_KNOWN = (Elementwise, Constant, Extent, Load, Store, Prefetch, Local, Subview, RefAt, For, If, CallIndirect)
"""What needs nothing from outside that does not show."""
_TEXTS: dict[tuple[Any, ...], _Text] = {}
