"""Programs for CUDA as bytes: what the passes and the compiler made of them, so that a known one starts without either.

As for the CPU (``stored``), an entry holds the program's IR as text and, as JSON, how each kernel is launched; then the code of
all kernels, for one architecture. Kernels that the CPU runs are there as IR. Places in the user's files are left out.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pullback.codegen.cuda.source import launch as cuda_launch
from pullback.codegen.cuda.source.launch import Launches
from pullback.ir.core.environment import is_verified
from pullback.ir.core.structure import Function, Module
from pullback.ir.core.types import DTYPES, DType
from pullback.ir.text import VERSION, canonical, parse_function, parse_module, print_function, print_module
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.process import counters
from pullback.runtime.program.serialize import SIZE, Unreadable, check_version, without_places

_RECORDS = {name: each for name, each in vars(cuda_launch).items() if getattr(each, "__module__", "") == cuda_launch.__name__}


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """What a program is made of: its steps; how its kernels are launched, by name; which arguments each kernel writes; the
    kernels that the CPU runs, with the reason, always or, if they are launched too, with some sizes; and the code."""

    program: Function
    kernels: Mapping[str, Launches]
    written: Mapping[str, tuple[int, ...]]
    plain: Mapping[str, tuple[Function, str]]
    code: bytes


def key_of(template: bytes, arch: str) -> str | None:
    """The cache key of the program of a template key on an architecture; None where programs are not kept, as on the CPU."""
    engine = default_engine()
    if engine.cache.path is None or is_verified():
        return None
    made_by = cuda_compile.compiler().stamp
    return engine.program_key("cuda", arch, made_by, *cuda_compile.OPTIONS, f"numpy {np.__version__}", template.hex())


def find(key: str) -> Parts | None:
    """The program that was kept under a key."""
    found = default_engine().cache.find(key)
    if found is None:
        return None
    payload, origin = found
    try:
        parts = decoded(payload)
    except Unreadable:
        forget(key)
        return None
    names = {each.name for kernel in parts.kernels.values() for each in kernel.launches if each.name}
    counters.count("hits" if origin == "memory" else "disk_hits", len(names))
    return parts


def forget(key: str) -> None:
    """A program that a driver does not take is not kept."""
    default_engine().cache.discard(key)


def keep(key: str, parts: Parts, arch: str, seconds: float) -> None:
    """Keep a program, if it can be. ``seconds`` that its making took."""
    payload = encoded(parts)
    if payload is not None:
        names = len({*parts.kernels, *parts.plain})
        meta = {"program": parts.program.name, "kernels": names, "seconds": round(seconds, 4), "cpu": arch}
        default_engine().cache.put(key, payload, kind="program", meta=meta)


def encoded(parts: Parts) -> bytes | None:
    """The bytes of a program; None where it holds what text cannot."""
    program = replace(parts.program, body=without_places(parts.program.body))
    try:
        made = {
            "ir": VERSION,
            "program": print_function(program),
            "kernels": [_data(kernel) for kernel in parts.kernels.values()],
            "written": {name: list(those) for name, those in parts.written.items()},
            "plain": [[print_module(Module((kernel,))), why] for kernel, why in parts.plain.values()],
            "code": len(parts.code),
        }
        data = json.dumps(made, separators=(",", ":")).encode()
        payload = b"".join([SIZE.pack(len(data)), data, parts.code])
        back = decoded(payload)
    except (TypeError, KeyError, ValueError):
        return None
    is_same = canonical(back.program) == canonical(program) and back.kernels == parts.kernels
    return payload if is_same else None


def decoded(payload: bytes) -> Parts:
    """The program of such bytes. Raises Unreadable."""
    try:
        (size,) = SIZE.unpack_from(payload)
        data, code = json.loads(payload[SIZE.size : SIZE.size + size]), payload[SIZE.size + size :]
        check_version(data)
        if len(code) != data["code"]:
            raise Unreadable("the sizes do not add up")
        kernels = {kernel.name: kernel for kernel in map(_record, data["kernels"])}
        plain = [(parse_module(text).functions[0], str(why)) for text, why in data["plain"]]
        return Parts(
            program=parse_function(data["program"]),
            kernels=kernels,
            written={str(name): tuple(map(int, those)) for name, those in data["written"].items()},
            plain={kernel.name: (kernel, why) for kernel, why in plain},
            code=code,
        )
    except Unreadable:
        raise
    except Exception as error:
        raise Unreadable(f"{type(error).__name__}: {error}") from None


def _data(value: Any) -> Any:
    """A record of the emitter's as JSON. Raises TypeError for what it cannot hold."""
    if isinstance(value, DType):
        return {"dtype": value.name}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _RECORDS:
        fields = {f.name: _data(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return {"record": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return [_data(each) for each in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is not kept")


def _record(data: Any) -> Any:
    if isinstance(data, list):
        return tuple(map(_record, data))
    if isinstance(data, dict) and "dtype" in data:
        return DTYPES[data["dtype"]]
    if isinstance(data, dict):
        return _RECORDS[data["record"]](**{name: _record(each) for name, each in data["fields"].items()})
    return data
