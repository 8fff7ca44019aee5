"""Serialise programs, without a trace, so that a known program starts without running any pass.

An entry holds the program's IR as text, the argument slots of its kernels (or of its driver) as JSON, and their object code.
For functions that no call has needed yet it holds no text, but the IR of the kernel, from which they are generated once sizes
reach them. Values and instructions are named by their order in the text. Source locations are left out: failures are located
by the current trace. A decoded entry gives a program equal to the result of the passes, or none.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.program_interface import Driver, has_control_flow
from pullback.codegen.cpu.llvm.text import LazyText
from pullback.codegen.slots import Slot
from pullback.ir.core.environment import is_verified
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.program import launch
from pullback.ir.text import parse_function
from pullback.runtime.cache.cache import Origin
from pullback.runtime.compile.engine import Object, default_engine
from pullback.runtime.program.executable import Executable, Schedule, emit_kernel, is_unwritten
from pullback.runtime.program.loaded_kernel import LoadedKernel
from pullback.runtime.program.program_bytes import Unreadable, pack, read, text_of


def key_of(template: bytes) -> str | None:
    """Return the cache key of a program from its template key; None if programs are not stored.

    They are not stored without a cache folder, or with ``PULLBACK_VERIFY=1``, which requires passes to be run and verified.
    """
    engine = default_engine()
    if engine.cache.path is None or is_verified():
        return None
    return engine.program_key(f"numpy {np.__version__}", template.hex())


def find(key: str, schedule: Schedule) -> Executable | None:
    """Return the program stored under a key, or None. ``schedule`` schedules a kernel."""
    cache = default_engine().cache
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        return decoded(*entry, schedule)
    except Unreadable:
        cache.discard(key)
        return None


def keep(key: str, executable: Executable, seconds: float | None = None) -> None:
    """Store a program, if it can be serialised. ``seconds``: how long it took to build, if known."""
    payload = encoded(executable)
    if payload is not None:
        host = default_engine().host()
        counts = {"program": executable.program.name, "kernels": len(executable.kernels)}
        timing = {} if seconds is None else {"seconds": round(seconds, 4)}
        meta = {**counts, **timing, "cpu": host.cpu, "triple": host.triple}
        default_engine().cache.put(key, payload, kind="program", meta=meta)


def encoded(executable: Executable) -> bytes | None:
    """Return the bytes of a program; None if text cannot represent it, or the object code of a kernel is not available."""
    try:
        text = text_of(executable.program)
        driver = None if executable.driver is None else _driver_data(executable.driver, executable.program)
    except (TypeError, KeyError, ValueError):
        return None
    kernels, objects = [], []
    for name, kernel in executable.kernels.items():
        code = default_engine().object_code(kernel.key)
        if code is None:
            return None
        source = _source(kernel)
        slots = [_slot_data(slot, bool(source)) for slot in kernel.slots]
        kernels.append([name, kernel.symbol, kernel.key, slots, kernel.text, source])
        objects.append(code)
    return pack({"program": text, "kernels": kernels, "driver": driver, "home": sorted(executable.home.items())}, objects)


def _source(kernel: LoadedKernel) -> str:
    """Return the IR of a kernel with unwritten texts; "" if there is none, or the text does not represent it."""
    if kernel.source is None or isinstance(kernel.source, str):
        return kernel.source or ""
    try:
        return text_of(kernel.source)
    except (TypeError, KeyError, ValueError):
        return ""


def _slot_data(slot: Slot, may_defer: bool) -> Slot:
    if slot[0] != "shared":
        return slot
    return (*slot[:2], None if may_defer and is_unwritten(slot) else str(slot[2]), *slot[3:])


def _slots_of(data: Any, source: str, schedule: Schedule) -> tuple[Slot, ...]:
    @functools.cache
    def texts() -> Mapping[str, object]:
        emitted = emit_kernel(schedule(parse_function(source)))
        return {slot[1]: slot[2] for slot in emitted.slots if slot[0] == "shared"}

    def slot_of(slot: Slot) -> Slot:
        if slot[0] != "shared" or slot[2] is not None:
            return slot
        return (*slot[:2], LazyText(lambda: str(texts()[slot[1]])), *slot[3:])

    return tuple(map(slot_of, _tuples(data)))


def decoded(payload: bytes, origin: Origin, schedule: Schedule) -> Executable:
    """Return the program of such bytes, read from memory or "disk". ``schedule`` schedules a kernel. Raises Unreadable."""
    return read(payload, lambda header, objects: _executable(header, objects, origin, schedule))


def _executable(header: Mapping[str, Any], objects: Sequence[bytes], origin: Origin, schedule: Schedule) -> Executable:
    program = parse_function(header["program"])
    kernels = []
    for (name, symbol, key, slots, text, source), code in zip(header["kernels"], objects, strict=True):
        unit = Object(key=str(key), symbol=str(symbol), payload=code)
        kernels.append((str(name), _slots_of(slots, str(source), schedule), unit, str(text), str(source)))
    driver = None if header["driver"] is None else _driver_of(header["driver"], program)
    home = {int(result): int(parameter) for result, parameter in header["home"]}
    _check_complete(program, {name for name, *_ in kernels}, driver)
    codes = default_engine().load_objects([unit for _, _, unit, *_ in kernels], origin)
    loaded = {
        name: LoadedKernel(code, unit.symbol, unit.key, slots, text, source)
        for (name, slots, unit, text, source), code in zip(kernels, codes, strict=True)
    }
    return Executable.of(program, loaded, driver, home)


def _check_complete(program: Function, kernels: set[str], driver: Driver | None) -> None:
    """Raise Unreadable for steps without code."""
    launched = {i.params["kernel"] for i in walk(program.body) if i.op is launch} if driver is None else {driver.name}
    if not launched <= kernels or program.kind != "program" or has_control_flow(program) != (driver is not None):
        raise Unreadable("it is not whole")


def _values(function: Function) -> Iterator[Value]:
    """Yield the values of a program in the order of its text."""
    yield from function.parameters
    yield from _defined(function.body)


def _defined(block: Block) -> Iterator[Value]:
    for i in block.instructions:
        yield from i.results
        for region in i.regions:
            yield from region.parameters
            yield from _defined(region)


def _driver_data(driver: Driver, program: Function) -> Mapping[str, Any]:
    values = {v: k for k, v in enumerate(_values(program))}
    steps = {id(i): k for k, i in enumerate(walk(program.body))}
    return {
        "name": driver.name,
        "slots": [_slot_data(slot, False) for slot in driver.slots],
        "buffers": [values[v] for v in driver.buffers],
        "sizes": driver.sizes,
        "hosts": [steps[id(i)] for i in driver.hosts],
        "failures": [None if failure is None else [*failure[:2], ""] for failure in driver.failures],
        "limited": driver.limited,
        "created": [values[v] for v in driver.created],
    }


def _driver_of(data: Mapping[str, Any], program: Function) -> Driver:
    values: list[Value] = list(_values(program))
    steps: list[Instruction] = list(walk(program.body))
    return Driver(
        name=data["name"],
        text="",
        slots=_tuples(data["slots"]),
        buffers=tuple(values[k] for k in data["buffers"]),
        sizes=_tuples(data["sizes"]),
        hosts=tuple(steps[k] for k in data["hosts"]),
        failures=_tuples(data["failures"]),
        limited=_tuples(data["limited"]),
        created=tuple(values[k] for k in data["created"]),
    )


def _tuples(value: Any) -> Any:
    """Return JSON lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
