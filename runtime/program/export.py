"""Compile programs to object files that need no Python.

``described`` returns the ``Interface`` of a scheduled program; ``object_file`` compiles its kernels and its entry function
into one object.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pullback.codegen.cpu.llvm.program_interface import allocates, has_control_flow
from pullback.codegen.cpu.llvm.text import Emitted
from pullback.codegen.export import cpuid
from pullback.codegen.export.entry import EXTERNAL_SYMBOLS, emit_entry, needs_gemm, public_symbols
from pullback.codegen.export.fallback_gemm import ROUTINES, own_name
from pullback.codegen.export.interface import FIRST_CHECK, CopiedResult, Interface, Location, Need, Step, c_names
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Loc, Module, walk
from pullback.ir.core.types import Extent
from pullback.ir.core.value import Value
from pullback.ir.ops.control.host import Host as HostOp
from pullback.ir.ops.program import Alloc, Free
from pullback.ir.shapes.extents import product
from pullback.runtime.cache.cache import KernelCache
from pullback.runtime.compile.engine import Engine, default_engine
from pullback.runtime.compile.machine import LEVELS, Host
from pullback.runtime.compile.object_files import object_symbols
from pullback.runtime.compile.validation import CompileError, runtime_symbols
from pullback.runtime.libraries import symbols
from pullback.runtime.program.executable import emit_driver, emit_kernel, shared_with
from pullback.runtime.program.plan import Plan
from pullback.runtime.threads import parallel_gemm

_LOOP = "void (char **, const ptrdiff_t *, const ptrdiff_t *, void *)"
_PLACED_BY_OBJECT = frozenset({"size", "pointer", "scalar", "stride", "threads", "poll", "c", "shared", "room"})


class HostStepMet(Exception):
    """Raised for a program with a host call, at ``loc``."""

    def __init__(self, name: str, loc: Loc) -> None:
        super().__init__(name)
        self.name = name
        self.loc = loc


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source of an exported result: the program's result ``index``, or a copy of the buffer at ``location``."""

    index: int = -1
    location: Location | None = None
    bytes: tuple[Extent, ...] = ()


def host_of(cpu: str) -> Host:
    """Return the machine to export for: "native", this one, or a level of x86-64 as PULLBACK_CPU names it ("baseline", "avx2",
    "avx512") or as LLVM does ("x86-64-v3"). Raises ValueError for another word."""
    own = default_engine().host()
    if cpu == "native":
        return own
    words = {**{level: level for level in LEVELS}, **{name: level for level, (name, _) in LEVELS.items()}}
    if cpu not in words or platform.machine().lower() not in ("x86_64", "amd64"):
        accepted = ["native", *LEVELS] if platform.machine().lower() in ("x86_64", "amd64") else ["native"]
        raise ValueError(f"cpu={cpu!r}: {', '.join(accepted)} are known here")
    name, features = LEVELS[words[cpu]]
    vector_bytes = {"baseline": 16, "avx2": 32, "avx512": 64}[words[cpu]]
    return Host(triple=own.triple, cpu=name, features="", vector_bytes=vector_bytes, has_fma="fma" in features)


def features_of(host: Host) -> tuple[str, ...]:
    """Return the features that a processor must have to run a machine's code, as far as generated code can test for them."""
    if not host.triple.startswith("x86_64"):
        return ()
    if not host.features:
        return tuple(cpuid.FEATURES_OF_LEVEL.get(host.cpu, ()))
    available = {word[1:] for word in host.features.split(",") if word.startswith("+")}
    return tuple(name for name in cpuid.BITS if name in available)


def described(
    module: Module, host: Host, parameters: Sequence[Location], sources: Sequence[Source], partial: Interface
) -> tuple[Interface, list[str]]:
    """Return the complete interface of a scheduled program, and the texts of its kernels. ``parameters``: the location of each
    parameter of the program; ``sources``: the source of each result. Raises HostStepMet, and NotImplementedError for what
    cannot be exported."""
    program, *kernels = module.functions
    hosts = [i for i in walk(program.body) if isinstance(i.op, HostOp)]
    if hosts:
        raise HostStepMet(hosts[0].op.name, hosts[0].loc)
    if has_control_flow(program):
        driver = emit_driver(module, host)
        plan = Plan(program, driver)
        if plan.created:
            raise NotImplementedError(
                "a result whose length depends on values; return it in an array of fixed length, with the number of its elements"
            )
        emitted: Mapping[str, Emitted] = {driver.name: Emitted(driver.name, driver.text, driver.slots)}
    else:
        plan = Plan(program)
        emitted = {kernel.name: emit_kernel(kernel, host) for kernel in kernels}
    copies, locations = _results(program, plan, parameters, sources)
    fills = tuple(replace(fill, location=("temporary", k)) for k, fill in enumerate(partial.fills))
    locations.update((v, fills[location[1]].location) for v, location in locations.items() if location[0] == "fill")
    copies = tuple(replace(c, source=fills[c.source[1]].location) if c.source[0] == "fill" else c for c in copies)
    first: list[list[tuple[Extent, ...]]] = [[(product((*fill.shape, fill.dtype.bytes)),)] for fill in fills]
    temporaries = _assign_temporaries(program, plan, locations, first)
    failures: list[tuple[str, str, str] | None] = list(partial.failures)
    steps = [_step(i, plan, emitted[i.params["kernel"]], locations, failures) for i in plan.steps]
    interface = replace(
        partial,
        fills=fills,
        steps=tuple(steps),
        temporaries=tuple(map(tuple, temporaries)),
        copies=copies,
        failures=tuple(failures),
        needs=_needs([slot for step in steps for slot in step.slots]),
    )
    return interface, list(dict.fromkeys(text for e in emitted.values() for text in (*shared_with(e), e.text)))


def _results(
    program: Function, plan: Plan, parameters: Sequence[Location], sources: Sequence[Source]
) -> tuple[tuple[CopiedResult, ...], dict[Value, Location]]:
    """Return the results that are copies, and the locations of buffers known so far. A buffer that is several results belongs
    to the first."""
    locations: dict[Value, Location] = dict(zip(program.parameters, parameters, strict=True))
    copies = []
    for k, source in enumerate(sources):
        if source.location is not None:
            copies.append(CopiedResult(result=k, source=source.location, bytes=source.bytes))
            continue
        value = program.results[source.index]
        owner = plan.owner[value]
        if owner in locations:
            t: Any = value.type
            copies.append(CopiedResult(result=k, source=locations[owner], bytes=(*t.shape, t.dtype.bytes)))
        else:
            locations[owner] = ("result", k)
    return tuple(copies), locations


def _assign_temporaries(
    program: Function, plan: Plan, locations: dict[Value, Location], slots: list[list[tuple[Extent, ...]]]
) -> list[list[tuple[Extent, ...]]]:
    """Assign temporaries to slots of the arena, record them in ``locations``, and return the sizes in each slot. ``slots`` are
    the first ones, which stay. A buffer takes a free slot, preferably one of its own size."""
    free: list[int] = []
    for i in walk(program.body):
        if isinstance(i.op, Alloc) and i.result not in locations and not (plan.has_driver and allocates(i.result.type)):
            size = (product((*i.result.type.shape, i.result.type.dtype.bytes)),)
            k = next((k for k in free if size in slots[k]), next(iter(free), len(slots)))
            if k == len(slots):
                slots.append([])
            else:
                free.remove(k)
            if size not in slots[k]:
                slots[k].append(size)
            locations[i.result] = ("temporary", k)
        elif isinstance(i.op, Free) and locations.get(plan.owner.get(i.operands[0], i.operands[0]), ("", 0))[0] == "temporary":
            free.append(locations[plan.owner[i.operands[0]]][1])
    return slots


def _step(
    i: Any, plan: Plan, emitted: Emitted, locations: Mapping[Value, Location], failures: list[tuple[str, str, str] | None]
) -> Step:
    own = i.params.get("failures", ())
    first = FIRST_CHECK + len(failures) if own else 0
    failures += [None if failure is None else (failure[0], failure[1], failure[2]) for failure in own]
    for kind, *rest in emitted.slots:
        if kind == "stride" and rest[1] != plan.owner[i.operands[rest[0]]].type.rank:
            raise NotImplementedError("an argument in another layout than C's")
    sizes = [product(e) if isinstance(e, tuple | list) else e for e in i.params["sizes"]]
    limited = [product(e) if isinstance(e, tuple | list) else e for e in i.params.get("limited", sizes)]
    is_limited = any(slot[0] == "library" for slot in emitted.slots)
    return Step(
        symbol=emitted.name,
        slots=emitted.slots,
        operands=tuple(locations.get(plan.owner[v], ("none", 0)) for v in i.operands),
        itemsizes=tuple(plan.owner[v].type.dtype.part.bytes for v in i.operands),
        sizes=tuple(sizes),
        limited=tuple(limited) if is_limited else (),
        first=first,
    )


def _needs(slots: Sequence[tuple[Any, ...]]) -> tuple[Need, ...]:
    """Return the outside addresses that a caller must provide for kernels."""
    wanted: dict[tuple[str, str, str], list[tuple[Any, ...]]] = {}
    for slot in dict.fromkeys(slots):
        kind, *rest = slot
        if kind in _PLACED_BY_OBJECT:
            continue
        match kind:
            case "library" | "gemm" | "sort":
                key = (rest[0], symbols.signature(rest[0]), rest[0])
            case "ufunc":
                name, types, part = rest
                loop, text = f"{name}.{types.replace('->', '.')}", f"the loop {types} of {name}"
                key = (loop, _LOOP, text) if part == "function" else (f"{loop}.data", "void *", f"its data, of {text}")
            case _:
                raise NotImplementedError(f"a call of {slot}")
        wanted.setdefault(key, []).append(slot)
    names = c_names([name for name, _, _ in wanted])
    return tuple(
        Need(
            name=name,
            prototype=prototype,
            describe=describe,
            slots=tuple(group),
            own=own_name(describe) if describe in ROUTINES else "",
        )
        for name, ((_, prototype, describe), group) in zip(names, wanted.items(), strict=True)
    )


def object_file(interface: Interface, texts: Sequence[str], host: Host) -> bytes:
    """Return the object file of an interface and the texts of its kernels. Raises CompileError."""
    engine = Engine(KernelCache(None), host=host)
    products_text = [parallel_gemm.source(0) + _CREW_OUTSIDE] if needs_gemm(interface) else []
    public = public_symbols(interface.name)
    payload = engine.compile_together([*texts, *products_text], emit_entry(interface), public)
    object_file_symbols = object_symbols(payload)
    if object_file_symbols is not None:
        outside = sorted(object_file_symbols[1] - runtime_symbols(host.triple) - {*EXTERNAL_SYMBOLS})
        if outside:
            raise CompileError("", f"undefined symbol {', '.join(outside)} in an exported object")
    return payload


_CREW_OUTSIDE = """
declare i64 @share_out(ptr, ptr, ptr, i64, i64)
declare void @pullback_crew_enter(ptr)
declare void @pullback_crew_leave(ptr)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
"""
