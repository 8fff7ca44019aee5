"""Programs as bytes: what an ``Executable`` is made of, but no trace, so that a known program starts without any pass.

An entry holds the program's IR as text, the argument slots of its kernels (or of its driver) as JSON, and their object code. Of
functions that nobody has needed yet it has no text, but the IR of the kernel, of which they are made when sizes reach them.
Values and instructions are named by their order in the text. Places in the user's files are left out: a failure is placed by
the trace at hand. Read back, an entry gives a program equal to what the passes would have made, or none.
"""

from __future__ import annotations

import functools
import itertools
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pullback.codegen.cpu.llvm.program_interface import Driver, has_control_flow
from pullback.codegen.cpu.llvm.text import Unwritten
from pullback.codegen.slots import Slot
from pullback.ir.core.environment import is_verified
from pullback.ir.core.structure import Block, Function, Instruction, walk
from pullback.ir.core.value import Value
from pullback.ir.ops.program import launch
from pullback.ir.text import VERSION, canonical, parse_function, print_function
from pullback.runtime.cache.cache import Origin
from pullback.runtime.compile.engine import Object, default_engine
from pullback.runtime.program.executable import Executable, Schedule, emit_kernel, is_unwritten
from pullback.runtime.program.loaded_kernel import LoadedKernel

SIZE = struct.Struct("<I")


class Unreadable(ValueError):
    """Bytes that are no program of this version."""


def key_of(template: bytes) -> str | None:
    """The cache key of the program of a template key; None where programs are not kept.

    That is without a folder, and with ``PULLBACK_VERIFY=1``, which asks for passes to be run and verified.
    """
    engine = default_engine()
    if engine.cache.path is None or is_verified():
        return None
    return engine.program_key(f"numpy {np.__version__}", template.hex())


def find(key: str, schedule: Schedule) -> Executable | None:
    """The program that was kept under a key. ``schedule``: of a kernel."""
    cache = default_engine().cache
    found = cache.find(key)
    if found is None:
        return None
    try:
        return decoded(*found, schedule)
    except Unreadable:
        cache.discard(key)
        return None


def keep(key: str, executable: Executable, seconds: float | None = None) -> None:
    """Keep a program, if it can be. ``seconds`` that its making took, if that is known."""
    payload = encoded(executable)
    if payload is not None:
        host = default_engine().host()
        made = {"program": executable.program.name, "kernels": len(executable.kernels)}
        taken = {} if seconds is None else {"seconds": round(seconds, 4)}
        meta = {**made, **taken, "cpu": host.cpu, "triple": host.triple}
        default_engine().cache.put(key, payload, kind="program", meta=meta)


def encoded(executable: Executable) -> bytes | None:
    """The bytes of a program; None where it holds what text cannot, or the object code of its kernels is nowhere."""
    program = replace(executable.program, body=without_places(executable.program.body))
    try:
        text = print_function(program)
        if canonical(parse_function(text)) != canonical(program):
            return None
        driver = None if executable.driver is None else _driver_data(executable.driver, executable.program)
    except (TypeError, KeyError, ValueError):
        return None
    kernels, payloads = [], []
    for name, kernel in executable.kernels.items():
        payload = default_engine().object_code(kernel.key)
        if payload is None:
            return None
        source = _source(kernel)
        slots = [_slot_data(slot, bool(source)) for slot in kernel.slots]
        kernels.append([name, kernel.symbol, kernel.key, slots, len(payload), kernel.text, source])
        payloads.append(payload)
    made = {"ir": VERSION, "program": text, "kernels": kernels, "driver": driver, "home": sorted(executable.home.items())}
    data = json.dumps(made, separators=(",", ":")).encode()
    return b"".join([SIZE.pack(len(data)), data, *payloads])


def _source(kernel: LoadedKernel) -> str:
    """The IR of a kernel that has unwritten texts; empty if there is none, or it does not say everything."""
    if kernel.source is None or isinstance(kernel.source, str):
        return kernel.source or ""
    try:
        text = print_function(kernel.source)
        return text if canonical(parse_function(text)) == canonical(kernel.source) else ""
    except (TypeError, KeyError, ValueError):
        return ""


def _slot_data(slot: Slot, may_wait: bool) -> Slot:
    if slot[0] != "shared":
        return slot
    return (*slot[:2], None if may_wait and is_unwritten(slot) else str(slot[2]), *slot[3:])


def _slots_of(data: Any, source: str, schedule: Schedule) -> tuple[Slot, ...]:
    @functools.cache
    def texts() -> Mapping[str, object]:
        emitted = emit_kernel(schedule(parse_function(source)))
        return {slot[1]: slot[2] for slot in emitted.slots if slot[0] == "shared"}

    def slot_of(slot: Slot) -> Slot:
        if slot[0] != "shared" or slot[2] is not None:
            return slot
        return (*slot[:2], Unwritten(lambda: str(texts()[slot[1]])), *slot[3:])

    return tuple(map(slot_of, _tuples(data)))


def decoded(payload: bytes, origin: Origin, schedule: Schedule) -> Executable:
    """The program of such bytes, which were found in memory or on "disk". ``schedule``: of a kernel. Raises Unreadable."""
    try:
        (size,) = SIZE.unpack_from(payload)
        data = json.loads(payload[SIZE.size : SIZE.size + size])
        check_version(data)
        program = parse_function(data["program"])
        at, kernels = SIZE.size + size, []
        for name, symbol, key, slots, length, text, source in data["kernels"]:
            code = Object(key=str(key), symbol=str(symbol), payload=payload[at : at + length])
            kernels.append((str(name), _slots_of(slots, str(source), schedule), code, str(text), str(source)))
            at += length
        if at != len(payload):
            raise Unreadable("the sizes do not add up")
        driver = None if data["driver"] is None else _driver_of(data["driver"], program)
        home = {int(result): int(parameter) for result, parameter in data["home"]}
        _check_whole(program, {name for name, *_ in kernels}, driver)
        codes = default_engine().load_objects([code for _, _, code, *_ in kernels], origin)
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None
    loaded = {
        name: LoadedKernel(code, each.symbol, each.key, slots, text, source)
        for (name, slots, each, text, source), code in zip(kernels, codes, strict=True)
    }
    return Executable.of(program, loaded, driver, home)


def check_version(data: Mapping[str, Any]) -> None:
    """Check the format version of the IR in an entry; entries of version 1 do not say it. Raises Unreadable."""
    version = data.get("ir", 1)
    if version != VERSION:
        raise Unreadable(f"its IR has format version {version}, this version reads {VERSION}")


def _check_whole(program: Function, kernels: set[str], driver: Driver | None) -> None:
    """Raises Unreadable for steps whose code is not there."""
    launched = {i.params["kernel"] for i in walk(program.body) if i.op is launch} if driver is None else {driver.name}
    if not launched <= kernels or program.kind != "program" or has_control_flow(program) != (driver is not None):
        raise Unreadable("it is not whole")


def text_of(payload: bytes) -> str:
    """The IR of a program in such bytes. Raises Unreadable."""
    try:
        (size,) = SIZE.unpack_from(payload)
        return str(json.loads(payload[SIZE.size : SIZE.size + size])["program"])
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def without_places(block: Block) -> Block:
    """The block with the failures of its launches in no place."""
    return with_places(block, itertools.repeat(""))


def with_places(block: Block, places: Iterator[str]) -> Block:
    """The block with the failures of its launches in these places, in order."""
    made = []
    for i in block.instructions:
        if "failures" in i.params:
            failures = tuple((*failure[:2], next(places)) for failure in i.params["failures"])
            i = replace(i, params={**i.params, "failures": failures})
        if i.regions:
            i = replace(i, regions=tuple(with_places(region, places) for region in i.regions))
        made.append(i)
    return replace(block, instructions=tuple(made))


def places_of(block: Block) -> Iterator[str]:
    """The places of the failures of a block's launches, in order."""
    for i in block.instructions:
        yield from (failure[2] for failure in i.params.get("failures", ()))
        for region in i.regions:
            yield from places_of(region)


def _values(function: Function) -> Iterator[Value]:
    """The values of a program in the order of its text."""
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
    )


def _tuples(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
