"""Emit functions that kernels share (``ir.ops.kernel.functions``), a module for each, and calls of them by address."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from pullback.codegen.cpu.llvm.function_writer import FunctionWriter, MemRef
from pullback.codegen.cpu.llvm.lanes import Lanes, element
from pullback.codegen.cpu.llvm.memory import HEAP_SLOTS, is_on_stack
from pullback.codegen.cpu.llvm.text import TIERED, LazyText
from pullback.codegen.cpu.loops.reachability import Path
from pullback.codegen.slots import Slot
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Block, Instruction, walk
from pullback.ir.core.types import RefType
from pullback.ir.core.value import Value
from pullback.ir.ops.array.create import Constant
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.ops.kernel.functions import Call, CallIndirect, FunctionAddress, RefAt
from pullback.ir.ops.kernel.kernel import Extent, For, If, Load, Local, Prefetch, Store, Subview


@dataclass(frozen=True)
class _Text:
    """The module of a shared function, and the native functions whose addresses it takes after its own arguments."""

    text: str | LazyText
    natives: tuple[Slot, ...]


def call(e: FunctionWriter, i: Instruction) -> None:
    """Emit a call of a shared function, outside vector loops."""
    operands: Sequence[Value] = i.operands
    needed_natives: Sequence[Slot] = ()
    if isinstance(i.op, CallIndirect):
        callee, operands = e.let(f"inttoptr i64 {e.env[operands[0]].text} to ptr"), operands[1:]
    else:
        module = _module(e, i.params["function"])
        callee, needed_natives = e.callee("shared", i.params["function"], module.text), module.natives
    arguments = [f"{_type(v)} {e.memrefs[v].pointer if isinstance(v.type, RefType) else e.env[v].text}" for v in operands]
    arguments += [f"i64 {stride.text}" for v in operands if v in e.memrefs for stride in e.memrefs[v].strides]
    arguments += [f"i64 {e.native(*slot)}" for slot in needed_natives]
    e.line(f"call void {callee}({', '.join(arguments)}) nounwind")


def function_address(e: FunctionWriter, i: Instruction) -> Lanes:
    """Return the address of a shared function that takes only its own arguments; with a condition as operand, 0 if it is
    false."""
    name = i.params["function"]
    module = _module(e, name)
    assert not module.natives, f"{name} calls other functions"
    path = e.path
    e.path = (*path, *i.operands)
    address = e.native("shared", name, module.text)
    e.path = path
    for condition in i.operands:
        address = e.let(f"select i1 {e.env[condition].text}, i64 {address}, i64 0")
    return Lanes(address)


def only_calls(body: Block, in_own_module: Set[Instruction] = frozenset()) -> bool:
    """Return whether all loops of a kernel that are not ``elsewhere`` only call shared functions."""
    others = (i for i in body.instructions if i not in in_own_module)
    return all(_is_call(i) if isinstance(i.op, For) else all(map(only_calls, i.regions)) for i in others)


def _is_call(i: Instruction) -> bool:
    """Return whether a loop calls a shared function and does nothing else."""
    (region,) = i.regions
    return any(isinstance(k.op, Call) for k in walk(region)) and only_calls(region)


def define(e: FunctionWriter, function: Instruction) -> None:
    """Add a shared function that later calls refer to."""
    (e.shared[function.params["function"]],) = function.regions


def module_of(e: FunctionWriter, function: Instruction) -> str:
    """Return the module of a shared function, whose callees are defined."""
    return str(_module(e, function.params["function"]).text)


def _module(e: FunctionWriter, name: str) -> _Text:
    """Return the module of a shared function, emitted once per target and, if its native functions are known, on first use."""
    region = e.shared[name]
    key = region, name, e.target
    if key not in _TEXTS:
        inner = e.separate_module(name)
        inner.shared = e.shared
        if (needed := native_functions_of(inner, region)) is None:
            _TEXTS[key] = _emit(inner, region)
        else:
            native_slots = tuple(dict.fromkeys(slot for slot, _ in needed))
            _TEXTS[key] = _Text(LazyText(lambda: _text_on_first_use(inner, region, native_slots)), native_slots)
    return _TEXTS[key]


def native_functions_of(e: FunctionWriter, region: Block, path: Path = ()) -> list[tuple[Slot, Path]] | None:
    """Return the native functions that a region needs, with the conditions under which it does, without emitting it; None if
    that is not possible.

    ``path``: the conditions that are nonzero whenever the region runs.
    """
    needed: list[tuple[Slot, Path]] = []
    for i in region.instructions:
        if isinstance(i.op, Call | FunctionAddress) and not isinstance(i.op, CallIndirect):
            name = i.params["function"]
            module = _module(e, name)
            needed.append((("shared", name, module.text), (*path, *i.operands) if isinstance(i.op, FunctionAddress) else path))
            needed += [(slot, path) for slot in module.natives if isinstance(i.op, Call)]
        elif isinstance(i.op, Local) and not is_on_stack(i):
            needed += [(("room", slot), path) for slot in HEAP_SLOTS]
        elif not isinstance(i.op, _WITHOUT_NATIVES) or i.params.get("map") == "core" or is_ufunc_call(i):
            return None
        for inside in i.regions:
            further = native_functions_of(e, inside, (*path, i.operands[0]) if isinstance(i.op, If) else path)
            if further is None:
                return None
            needed += further
    return needed


def is_ufunc_call(i: Instruction) -> bool:
    """Return whether an op is emitted as a call of a NumPy ufunc."""
    if not isinstance(i.op, Elementwise):
        return False
    dtype = i.operands[1 if i.op.gives == "select" else 0].type.dtype
    return i.op.template("llvm", dtype.kind).startswith("ufunc:")


def _text_on_first_use(e: FunctionWriter, region: Block, natives: Sequence[Slot]) -> str:
    """Return the text of a function that is emitted on first use; its native functions have to be the predicted ones."""
    module = _emit(e, region)
    assert module.natives == natives, f"{e.name} needs {module.natives}"
    return str(module.text)


def _emit(e: FunctionWriter, region: Block) -> _Text:
    """Emit the module of a shared function."""
    e.has_own_prefetches = True
    given_natives: dict[Slot, str] = {}
    e.native_source = lambda *what: given_natives.setdefault(what, f"%n{len(given_natives)}")
    strides: list[str] = []
    for k, v in enumerate(region.parameters):
        t = v.type
        if isinstance(t, RefType):
            own = [f"%p{k}s{axis}" for axis in range(t.rank if t.layout == "strided" else 0)]
            e.memrefs[v] = MemRef(f"%p{k}", t, tuple(map(e.extent, t.shape)), tuple(map(Lanes, own)))
            strides += own
        else:
            e.env[v] = Lanes(f"%p{k}")
    e.block(region)
    e.line("ret void")
    parameters = [f"{_type(v)} %p{k}" for k, v in enumerate(region.parameters)]
    parameters += [f"i64 {v}" for v in (*strides, *given_natives.values())]
    heading = f"define void @{e.name}({', '.join(parameters)}) nounwind {{"
    text = "\n".join([*e.declared, "", heading, "entry:", *e.entry, *e.lines, "}", ""])
    return _Text(TIERED + text if _mostly_calls(region) else text, tuple(given_natives))


def _mostly_calls(region: Block) -> bool:
    """Return whether a region calls functions and itself does no more with floats than load and store them."""
    inside = list(walk(region))
    floats = (i for i in inside if not isinstance(i.op, Load) and any(_is_float(v) for v in i.results))
    return any(isinstance(i.op, Call) for i in inside) and not any(floats)


def _is_float(v: Value) -> bool:
    """Return whether a value is a float, not a reference."""
    return not isinstance(v.type, RefType) and v.type.dtype.is_inexact


def _type(v: Value) -> str:
    """Return the LLVM type of an argument."""
    return "ptr" if isinstance(v.type, RefType) else element(v.type.dtype)


_WITHOUT_NATIVES = (Elementwise, Constant, Extent, Load, Store, Prefetch, Local, Subview, RefAt, For, If, CallIndirect)
"""Ops that need no native function beyond those that ``native_functions_of`` returns."""
_TEXTS: dict[tuple[Any, ...], _Text] = {}
