"""Programs as object files that need no Python: what their entry must know, and the object.

``described`` makes an ``Interface`` of a scheduled program; ``object_file`` compiles its kernels and its entry into one object.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pullback.codegen.cpu.llvm.program_interface import has_control_flow, on_stack
from pullback.codegen.cpu.llvm.text import Emitted
from pullback.codegen.export import cpuid
from pullback.codegen.export.entry import OUTSIDE, emit_entry, needs_gemm, public_symbols
from pullback.codegen.export.fallback_gemm import ROUTINES, own_name
from pullback.codegen.export.interface import FIRST_CHECK, Copied, Interface, Need, Place, Step, c_names
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
from pullback.runtime.threads import parallel_gemm as products

_LOOP = "void (char **, const ptrdiff_t *, const ptrdiff_t *, void *)"
_PLACED_BY_OBJECT = frozenset({"size", "pointer", "scalar", "stride", "threads", "poll", "c", "shared", "room"})


class HostStepMet(Exception):
    """A program calls Python, at ``loc``."""

    def __init__(self, name: str, loc: Loc) -> None:
        super().__init__(name)
        self.name = name
        self.loc = loc


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a result of an export comes from: the program's result ``index``, or a copy of the buffer at ``place``."""

    index: int = -1
    place: Place | None = None
    bytes: tuple[Extent, ...] = ()


def host_of(cpu: str) -> Host:
    """The machine to export for: "native", this one, or a level of x86-64 by the word that PULLBACK_CPU takes ("baseline",
    "avx2", "avx512") or by LLVM's ("x86-64-v3"). Raises ValueError for another word."""
    own = default_engine().host()
    if cpu == "native":
        return own
    words = {**{level: level for level in LEVELS}, **{name: level for level, (name, _) in LEVELS.items()}}
    if cpu not in words or platform.machine().lower() not in ("x86_64", "amd64"):
        known = ["native", *LEVELS] if platform.machine().lower() in ("x86_64", "amd64") else ["native"]
        raise ValueError(f"cpu={cpu!r}: {', '.join(known)} are known here")
    name, features = LEVELS[words[cpu]]
    wide = {"baseline": 16, "avx2": 32, "avx512": 64}[words[cpu]]
    return Host(triple=own.triple, cpu=name, features="", vector_bytes=wide, has_fma="fma" in features)


def features_of(host: Host) -> tuple[str, ...]:
    """What a processor must have to run code for a machine, as far as code can ask it."""
    if not host.triple.startswith("x86_64"):
        return ()
    if not host.features:
        return tuple(cpuid.OF_LEVEL.get(host.cpu, ()))
    have = {word[1:] for word in host.features.split(",") if word.startswith("+")}
    return tuple(name for name in cpuid.BITS if name in have)


def described(
    module: Module, host: Host, parameters: Sequence[Place], sources: Sequence[Source], partial: Interface
) -> tuple[Interface, list[str]]:
    """The whole interface of a scheduled program, and the texts of its kernels. ``parameters``: where each parameter of the
    program is; ``sources``: where each result comes from. Raises HostStepMet, and NotImplementedError for what cannot be
    exported."""
    program, *kernels = module.functions
    hosts = [i for i in walk(program.body) if isinstance(i.op, HostOp)]
    if hosts:
        raise HostStepMet(hosts[0].op.name, hosts[0].loc)
    if has_control_flow(program):
        driver = emit_driver(module, host)
        plan = Plan(program, driver)
        emitted: Mapping[str, Emitted] = {driver.name: Emitted(driver.name, driver.text, driver.slots)}
    else:
        plan = Plan(program)
        emitted = {kernel.name: emit_kernel(kernel, host) for kernel in kernels}
    copies, places = _results(program, plan, parameters, sources)
    fills = tuple(replace(fill, place=("temporary", k)) for k, fill in enumerate(partial.fills))
    places.update((v, fills[place[1]].place) for v, place in places.items() if place[0] == "fill")
    copies = tuple(replace(c, source=fills[c.source[1]].place) if c.source[0] == "fill" else c for c in copies)
    first: list[list[tuple[Extent, ...]]] = [[(product((*fill.shape, fill.dtype.bytes)),)] for fill in fills]
    temporaries = _placed(program, plan, places, first)
    failures: list[tuple[str, str, str] | None] = list(partial.failures)
    steps = [_step(i, plan, emitted[i.params["kernel"]], places, failures) for i in plan.steps]
    whole = replace(
        partial,
        fills=fills,
        steps=tuple(steps),
        temporaries=tuple(map(tuple, temporaries)),
        copies=copies,
        failures=tuple(failures),
        needs=_needs([slot for step in steps for slot in step.slots]),
    )
    return whole, list(dict.fromkeys(text for e in emitted.values() for text in (*shared_with(e), e.text)))


def _results(
    program: Function, plan: Plan, parameters: Sequence[Place], sources: Sequence[Source]
) -> tuple[tuple[Copied, ...], dict[Value, Place]]:
    """The results that are copies, and the places of buffers known so far. A buffer that is several results is the first."""
    places: dict[Value, Place] = dict(zip(program.parameters, parameters, strict=True))
    copies = []
    for k, source in enumerate(sources):
        if source.place is not None:
            copies.append(Copied(result=k, source=source.place, bytes=source.bytes))
            continue
        value = program.results[source.index]
        owner = plan.owner[value]
        if owner in places:
            t: Any = value.type
            copies.append(Copied(result=k, source=places[owner], bytes=(*t.shape, t.dtype.bytes)))
        else:
            places[owner] = ("result", k)
    return tuple(copies), places


def _placed(
    program: Function, plan: Plan, places: dict[Value, Place], found: list[list[tuple[Extent, ...]]]
) -> list[list[tuple[Extent, ...]]]:
    """What is put in each place of the arena, as sizes; ``found`` are the first ones, which stay. A buffer takes a place that is
    free, one of its own size if there is one; ``places`` gets them."""
    free: list[int] = []
    for i in walk(program.body):
        if isinstance(i.op, Alloc) and i.result not in places and not (plan.has_driver and on_stack(i.result.type)):
            size = (product((*i.result.type.shape, i.result.type.dtype.bytes)),)
            k = next((k for k in free if size in found[k]), next(iter(free), len(found)))
            if k == len(found):
                found.append([])
            else:
                free.remove(k)
            if size not in found[k]:
                found[k].append(size)
            places[i.result] = ("temporary", k)
        elif isinstance(i.op, Free) and places.get(plan.owner.get(i.operands[0], i.operands[0]), ("", 0))[0] == "temporary":
            free.append(places[plan.owner[i.operands[0]]][1])
    return found


def _step(
    i: Any, plan: Plan, emitted: Emitted, places: Mapping[Value, Place], failures: list[tuple[str, str, str] | None]
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
        operands=tuple(places.get(plan.owner[v], ("none", 0)) for v in i.operands),
        itemsizes=tuple(plan.owner[v].type.dtype.part.bytes for v in i.operands),
        sizes=tuple(sizes),
        limited=tuple(limited) if is_limited else (),
        first=first,
    )


def _needs(slots: Sequence[tuple[Any, ...]]) -> tuple[Need, ...]:
    """The addresses that a caller must give, of what kernels call outside."""
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
            name=name, prototype=prototype, describe=describe, slots=tuple(found),
            own=own_name(describe) if describe in ROUTINES else "",
        )
        for name, ((_, prototype, describe), found) in zip(names, wanted.items(), strict=True)
    )


def object_file(interface: Interface, texts: Sequence[str], host: Host) -> bytes:
    """The object of an interface and the texts of its kernels. Raises CompileError."""
    engine = Engine(KernelCache(None), host=host)
    products_text = [products.source(0) + _CREW_OUTSIDE] if needs_gemm(interface) else []
    public = public_symbols(interface.name)
    payload = engine.compile_together([*texts, *products_text], emit_entry(interface), public)
    found = object_symbols(payload)
    if found is not None:
        outside = sorted(found[1] - runtime_symbols(host.triple) - {*OUTSIDE})
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

