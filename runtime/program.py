"""Programs: what one signature compiles to, run as one native call.

An ``Executable`` holds the machine code of a program's kernels. For each set of sizes it keeps an ``Instance``: the argument slots of
all steps in one block, with sizes and native addresses filled in, and the places of temporary buffers in one arena, planned from
their lifetimes. A call copies the block, fills in the addresses of arguments, results and arena, and runs all steps natively.
Executables may be called from several threads at once.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.codegen.llvm import Emitted, emit
from pullback.ir.extents import value_of
from pullback.ir.ops.control import CheckFailed
from pullback.ir.ops.program import Alloc, Free, Launch, View
from pullback.ir.structure import Function, Module, Value
from pullback.ir.text import canonical
from pullback.ir.types import DTYPES, RefType
from pullback.runtime import cache, symbols
from pullback.runtime.engine import default_engine

ALIGNMENT = 64
KEPT_ARENAS = 4

RUNNER = """
define i64 @pullback_run(ptr %functions, ptr %offsets, i64 %count, ptr %block) {
entry:
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %on ]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %fp = getelementptr ptr, ptr %functions, i64 %k
  %function = load ptr, ptr %fp
  %op = getelementptr i64, ptr %offsets, i64 %k
  %offset = load i64, ptr %op
  %slots = getelementptr i64, ptr %block, i64 %offset
  %status = call i64 %function(ptr %slots)
  %next = add i64 %k, 1
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %out, label %on
on:
  br label %head
out:
  %high = shl i64 %next, 32
  %both = or i64 %high, %status
  ret i64 %both
done:
  ret i64 0
}
"""


def kernel_name(kernel: Function) -> str:
    """The symbol of a scheduled kernel: its own hash."""
    return f"k{cache.key(canonical(kernel))[:24]}"


def emit_kernel(kernel: Function) -> Emitted:
    """The LLVM text of a scheduled kernel for this machine."""
    host = default_engine().host()
    return emit(kernel, kernel_name(kernel), host.vector_bytes, "+fma" in host.features)


@dataclass(frozen=True, eq=False)
class Instance:
    """A program with its sizes: ready to run but for addresses."""

    block: np.ndarray[Any, Any]
    functions: np.ndarray[Any, Any]
    offsets: np.ndarray[Any, Any]
    pointers: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
    strides: tuple[tuple[int, int, int], ...]
    scalars: tuple[tuple[int, int, Any], ...]
    arena_bytes: int
    arena_offsets: np.ndarray[Any, Any]
    results: tuple[tuple[tuple[int, ...], Any], ...]
    launches: tuple[Mapping[str, Any], ...]
    arenas: list[np.ndarray[Any, Any]]


class Executable:
    """A program and its compiled kernels.

    ``module``: the program, then its kernels as ``schedule`` left them for the CPU. Raises CompileError.
    """

    def __init__(self, module: Module) -> None:
        self.program, *kernels = module.functions
        self.parameters = self.program.parameters
        self.emitted = {kernel.name: emit_kernel(kernel) for kernel in kernels}
        engine = default_engine()
        self.addresses: dict[str, int] = {}
        for emitted in self.emitted.values():
            self.addresses.update(engine.load(emitted.text, symbols=[emitted.name]))
        self.runner = _runner()
        self.plan = _Plan(self.program)
        self.instances: dict[tuple[int, ...], Instance] = {}
        self.lock = threading.Lock()

    def run(self, arguments: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        """Run on arguments (arrays for references, scalars for rank-0 parameters) and the sizes of all extents.

        Returns fresh arrays, except that a parameter that is a result is returned as it was given. Raises CheckFailed.
        """
        key = tuple(sizes.values())
        instance = self.instances.get(key)
        if instance is None:
            instance = self.instances.setdefault(key, self.instantiate(sizes))
        block = instance.block.copy()
        results = [np.empty(shape, dtype) for shape, dtype in instance.results]
        arena = self.arena(instance)
        addresses = [a.__array_interface__["data"][0] if p else 0 for a, p in zip(arguments, self.plan.is_ref, strict=True)]
        addresses += [r.__array_interface__["data"][0] for r in results]
        base = arena.__array_interface__["data"][0]
        base += -base % ALIGNMENT
        table = np.array(addresses + [base], np.int64)
        targets, sources = instance.pointers
        block[targets] = table[sources]
        block[targets] += instance.arena_offsets
        for position, argument, axis in instance.strides:
            block[position] = arguments[argument].strides[axis]
        for position, argument, dtype in instance.scalars:
            block[position] = _bits(arguments[argument], dtype)
        status = self.runner(instance.functions.ctypes.data, instance.offsets.ctypes.data, len(instance.functions), block.ctypes.data)
        if len(instance.arenas) < KEPT_ARENAS:
            instance.arenas.append(arena)
        if status:
            failures = instance.launches[(status >> 32) - 1]["failures"]
            error, message, place = failures[(status & 0xFFFFFFFF) - 1]
            failure = CheckFailed(error, message)
            failure.add_note(place)
            raise failure
        return self.plan.give(arguments, results, sizes)

    def arena(self, instance: Instance) -> np.ndarray[Any, Any]:
        try:
            return instance.arenas.pop()
        except IndexError:
            return np.empty(instance.arena_bytes + ALIGNMENT, np.uint8)

    def instantiate(self, sizes: Mapping[str, int]) -> Instance:
        """Fill in sizes and native addresses, and place the temporaries."""
        offsets, places, arena_bytes = self.plan.place(sizes)
        block: list[int] = []
        starts, functions, targets, sources, shifts = [], [], [], [], []
        strides: list[tuple[int, int, int]] = []
        scalars: list[tuple[int, int, Any]] = []
        for step in self.plan.launches:
            emitted = self.emitted[step.params["kernel"]]
            starts.append(len(block))
            functions.append(self.addresses[emitted.name])
            for slot in emitted.slots:
                at = len(block)
                block.append(0)
                kind, *rest = slot
                if kind == "size":
                    block[at] = value_of(step.params["sizes"][rest[0]], sizes)
                    continue
                if kind in ("blas", "ufunc"):
                    block[at] = _native(slot)
                    continue
                owner = self.plan.owner[step.operands[rest[0]]]
                if kind == "pointer":
                    targets.append(at)
                    sources.append(places[owner])
                    shifts.append(offsets.get(owner, 0))
                elif kind == "stride":
                    strides.append((at, self.plan.parameter[owner], rest[1]))
                elif owner in self.plan.parameter:
                    scalars.append((at, self.plan.parameter[owner], _numpy_scalar(rest[1])))
        pointers = (np.array(targets, np.int64), np.array(sources, np.int64))
        results = tuple((tuple(value_of(e, sizes) for e in v.type.shape), v.type.dtype.numpy) for v in self.plan.fresh)
        return Instance(
            np.array(block, np.int64), np.array(functions, np.int64), np.array(starts, np.int64), pointers,
            tuple(strides), tuple(scalars), arena_bytes, np.array(shifts, np.int64), results,
            tuple(step.params for step in self.plan.launches), [],
        )  # fmt: skip


class _Plan:
    """What is the same for all sizes: steps, which buffer each value is in, which buffers are results."""

    def __init__(self, program: Function) -> None:
        self.program = program
        self.parameter = {v: k for k, v in enumerate(program.parameters)}
        self.is_ref = [isinstance(v.type, RefType) for v in program.parameters]
        self.owner: dict[Value, Value] = {v: v for v in program.parameters}
        self.launches = [i for i in program.instructions if isinstance(i.op, Launch)]
        for i in program.instructions:
            if isinstance(i.op, Alloc):
                self.owner[i.result] = i.result
            elif isinstance(i.op, View):
                self.owner[i.result] = self.owner[i.operands[0]]
        owners = [self.owner[v] for v in program.results]
        self.fresh = list(dict.fromkeys(o for o in owners if o not in self.parameter))

    def place(self, sizes: Mapping[str, int]) -> tuple[dict[Value, int], dict[Value, int], int]:
        """Arena offsets of temporaries, the row of the address table of each buffer, and the arena's size."""
        count = len(self.program.parameters)
        rows = {**self.parameter, **{v: count + k for k, v in enumerate(self.fresh)}}
        arena = _Arena()
        offsets: dict[Value, int] = {}
        for i in self.program.instructions:
            if isinstance(i.op, Alloc) and i.result not in rows:
                t = i.result.type
                elements = 1
                for e in t.shape:
                    elements *= value_of(e, sizes)
                offsets[i.result] = arena.take(elements * t.dtype.bytes)
                rows[i.result] = count + len(self.fresh)
            elif isinstance(i.op, Free) and self.owner[i.operands[0]] in offsets:
                arena.release(offsets[self.owner[i.operands[0]]])
        return offsets, rows, arena.most

    def give(self, arguments: Sequence[Any], results: list[Any], sizes: Mapping[str, int]) -> list[Any]:
        """The results in order, each with memory of its own."""
        made = dict(zip(self.fresh, results, strict=True))
        given: set[Value] = set()
        found = []
        for value in self.program.results:
            owner = self.owner[value]
            if owner in self.parameter:
                argument = arguments[self.parameter[owner]]
                found.append(argument if value is owner else np.array(argument).reshape(_shape(value, sizes)))
                continue
            array = made[owner] if value is owner else made[owner].reshape(_shape(value, sizes))
            found.append(array.copy() if owner in given else array)
            given.add(owner)
        return found


class _Arena:
    """Offsets in one block of memory: the first gap that is large enough."""

    def __init__(self) -> None:
        self.used: list[tuple[int, int]] = []
        self.most = 0

    def take(self, size: int) -> int:
        size += -size % ALIGNMENT
        start = 0
        for position, (at, length) in enumerate(self.used):
            if at - start >= size:
                self.used.insert(position, (start, size))
                return start
            start = at + length
        self.used.append((start, size))
        self.most = max(self.most, start + size)
        return start

    def release(self, offset: int) -> None:
        self.used = [(at, length) for at, length in self.used if at != offset]


def _shape(value: Value, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(value_of(e, sizes) for e in value.type.shape)


def _bits(value: Any, dtype: np.dtype[Any]) -> int:
    """The bits of a scalar as an i64."""
    raw = np.asarray(value, dtype).tobytes()
    return int.from_bytes(raw + b"\0" * (8 - len(raw)), "little", signed=True)


def _numpy_scalar(name: str) -> np.dtype[Any]:
    return DTYPES[name].numpy


def _native(slot: tuple[Any, ...]) -> int:
    if slot[0] == "blas":
        return symbols.address(slot[1])
    loop = symbols.ufunc_loop(slot[1], slot[2])
    return int((loop.function if slot[3] == "function" else loop.data) or 0)


_RUNNER: list[Any] = []


def _runner() -> Any:
    """The native function that runs the steps of a program."""
    if not _RUNNER:
        address = default_engine().load(RUNNER, symbols=["pullback_run"])["pullback_run"]
        i64 = ctypes.c_int64
        _RUNNER.append(ctypes.CFUNCTYPE(i64, i64, i64, i64, i64)(address))
    return _RUNNER[0]

