"""Serialise programs for CUDA, so that a known program starts without running the passes or the compiler.

As for the CPU (``runtime.program.serialize``), an entry holds the program's IR as text and, as JSON, how each kernel is
launched; then the code of all kernels, for one architecture. Kernels that the CPU runs are stored as IR. Source locations are
left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pullback.codegen.cuda.source import launch as cuda_launch
from pullback.codegen.cuda.source.launch import Launches
from pullback.ir.core.environment import is_verified
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Function, Module
from pullback.ir.text import parse_function, parse_module, print_module
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.process import counters
from pullback.runtime.program.program_bytes import Unreadable, pack, read, record_data, record_of, text_of

_RECORDS = {name: each for name, each in vars(cuda_launch).items() if getattr(each, "__module__", "") == cuda_launch.__name__}


@dataclass(frozen=True, kw_only=True, eq=False)
class Parts:
    """The parts of a program: its steps; the launches of its kernels, by name; the arguments that each kernel writes; the
    kernels that the CPU runs, with the reason, always or, if they have launches too, with some sizes; and the code."""

    program: Function
    kernels: Mapping[str, Launches]
    written: Mapping[str, tuple[int, ...]]
    plain: Mapping[str, tuple[Function, str]]
    code: bytes


def key_of(template: bytes, arch: str) -> str | None:
    """Return the cache key of a program from its template key and an architecture; None if programs are not stored, as on the
    CPU."""
    engine = default_engine()
    if engine.cache.path is None or is_verified():
        return None
    compiler = cuda_compile.compiler().stamp
    return engine.program_key("cuda", arch, compiler, *cuda_compile.OPTIONS, f"numpy {np.__version__}", template.hex())


def find(key: str) -> Parts | None:
    """Return the program stored under a key, or None."""
    entry = default_engine().cache.find(key)
    if entry is None:
        return None
    payload, origin = entry
    try:
        parts = decoded(payload)
    except Unreadable:
        forget(key)
        return None
    names = {each.name for kernel in parts.kernels.values() for each in kernel.launches if each.name}
    counters.count("hits" if origin == "memory" else "disk_hits", len(names))
    return parts


def forget(key: str) -> None:
    """Remove a program whose code the driver does not accept."""
    default_engine().cache.discard(key)


def keep(key: str, parts: Parts, arch: str, seconds: float) -> None:
    """Store a program, if it can be serialised. ``seconds``: how long it took to build."""
    payload = encoded(parts)
    if payload is not None:
        names = len({*parts.kernels, *parts.plain})
        meta = {"program": parts.program.name, "kernels": names, "seconds": round(seconds, 4), "cpu": arch}
        default_engine().cache.put(key, payload, kind="program", meta=meta)


def encoded(parts: Parts) -> bytes | None:
    """Return the bytes of a program; None if text or JSON cannot represent it."""
    try:
        fields = {
            "program": text_of(parts.program),
            "kernels": [record_data(kernel, _RECORDS) for kernel in parts.kernels.values()],
            "written": {name: list(positions) for name, positions in parts.written.items()},
            "plain": [[print_module(Module((kernel,))), why] for kernel, why in parts.plain.values()],
        }
        payload = pack(fields, [parts.code])
        return payload if decoded(payload).kernels == parts.kernels else None
    except (TypeError, KeyError, ValueError):
        return None


def decoded(payload: bytes) -> Parts:
    """Return the program of such bytes. Raises Unreadable."""
    return read(payload, _parts)


def _parts(header: Mapping[str, Any], sections: Sequence[bytes]) -> Parts:
    (code,) = sections
    kernels = {kernel.name: kernel for kernel in (record_of(data, _RECORDS) for data in header["kernels"])}
    plain = [(parse_module(text).functions[0], str(why)) for text, why in header["plain"]]
    return Parts(
        program=parse_function(header["program"]),
        kernels=kernels,
        written={str(name): tuple(map(int, positions)) for name, positions in header["written"].items()},
        plain={kernel.name: (kernel, why) for kernel, why in plain},
        code=code,
    )
