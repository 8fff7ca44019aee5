"""``pb.export(..., device="cuda")``: a function as one file with the machine code of its kernels for named architectures, and its
program; and back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pullback.codegen.export.interface import Interface, Place
from pullback.devices.device_put import device_put
from pullback.exporting.exporter import Export, ExportError
from pullback.exporting.file_format import FORMAT, MAGIC
from pullback.exporting.loaded import Leaf, Loaded
from pullback.exporting.shape_sampling import Sampled, filled
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.structure import walk
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.control.host import Host as HostOp
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.extents import value_of
from pullback.ir.shapes.formulas import Formula, Scaled, of_data
from pullback.ir.shapes.formulas import as_data as formula_data
from pullback.programs.pipeline import layouts_of, lowered, scheduled_kernel
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device.device import device as opened
from pullback.runtime.cuda.driver.driver import checked
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program import build as cuda_make
from pullback.runtime.cuda.program import serialize as cuda_stored
from pullback.runtime.cuda.program.executable import CudaExecutable
from pullback.runtime.program.export import host_of
from pullback.runtime.program.serialize import SIZE, Unreadable, places_of, with_places
from pullback.tracer.arrays.tree import adopted, as_array, is_array_like
from pullback.tracer.failures import placed
from pullback.tracer.user_code.array_libraries import library_of

_ARCH = re.compile(r"sm_(\d+)(\d)([a-z]?)")
DIGEST = hashlib.sha256().digest_size


@dataclass(frozen=True, kw_only=True)
class DeviceExport:
    """What ``pb.export`` wrote for a device. ``extents``: for each named extent the least and the largest value that is served,
    None for any; ``architectures``: those that the file has machine code for."""

    name: str
    file: Path
    extents: Mapping[str, tuple[int, int | None]]
    architectures: tuple[str, ...]

    def __str__(self) -> str:
        ranges = [f"{n} from {low}" + (f" to {high}" if high is not None else " on") for n, (low, high) in self.extents.items()]
        lines = [str(self.file), f"runs on {', '.join(self.architectures)}"]
        return "\n".join([*lines, f"serves {', '.join(ranges)}"] if ranges else lines)


def exported(
    function: Callable[..., Any], specs: Sequence[Any], kwargs: Mapping[str, Any], path: Path, name: str, device: str,
    architectures: Sequence[str],
) -> DeviceExport:  # fmt: skip
    """As ``pb.export``, for a device. Nothing is run, and no device is needed where architectures are named."""
    archs = tuple(dict.fromkeys(architectures)) or (opened(checked(device)).arch,)
    bad = [arch for arch in archs if not _ARCH.fullmatch(arch)]
    if bad:
        raise ValueError(f"architectures={list(archs)}: {bad[0]!r} is none; they are called as 'sm_80', 'sm_90'")
    work = _DeviceExport(function, specs, kwargs, name, host_of("native"))
    interface, _, about = work.run()
    manifest = json.loads(interface.manifest)
    text, parts = work.text, work.parts
    names = list(dict.fromkeys(each.name for kernel in parts.kernels.values() for each in kernel.launches))
    program = cuda_stored.encoded(parts)
    if program is None:
        raise ExportError(f"{about['title']} cannot be exported: its program holds what a file cannot")
    sections = [program, *(d.payload for d in interface.data)]
    sections += [cuda_compile.cubin(text, arch, names) if names else b"" for arch in archs]
    manifest |= {"target": ["cuda", ", ".join(archs), list(archs)], "sections": [len(s) for s in sections]}
    head = json.dumps(manifest).encode()
    body = b"".join([SIZE.pack(len(head)), head, *sections])
    file = path.with_name(path.name + ".cuda")
    file.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    return DeviceExport(
        name=name, file=file, extents={b.name: (b.low, b.high) for b in interface.extents}, architectures=archs
    )


class _DeviceExport(Export):
    """What differs from an export for the CPU: the program, and what the file says of it."""

    text = ""
    parts: cuda_stored.Parts

    def program(self, found: Sampled, parameters: list[Place], interface: Interface) -> tuple[Interface, list[str]]:
        base = found.base
        layouts = ("c",) * len(layouts_of(base.trace, base.leaves, len(found.constants)))
        module = lowered(base.found, layouts, "cuda", lambda *seen: None)
        if any(isinstance(i.op, HostOp) for i in walk(module.functions[0].body)):
            raise ExportError(self.needs_python("a step in Python"))
        self.parts, self.text = cuda_make.parts_of(module, scheduled_kernel)
        if self.parts.plain:
            why = ", ".join(dict.fromkeys(reason for _, reason in self.parts.plain.values()))
            raise ExportError(f"{self.title} cannot be exported for a device: {why}, and the CPU would do it")
        self.parameters_there = list(parameters)
        return interface, []

    def manifest(self, found: Sampled, interface: Interface, about: Mapping[str, str], arguments: list[int]) -> dict[str, Any]:
        made = super().manifest(found, interface, about, arguments)
        places = self.parameters_there
        sources = [
            ["result", o.index] if o.source in ("result", "repeat") else ["parameter", o.index] for o in found.base.outcomes
        ]
        return made | {
            "parameters": [list(place) for place in places],
            "sizes": [[name, formula_data(f)] for name, f in interface.sizes],
            "numbers": [[dtype.name, _number_data(n)] for dtype, n in interface.numbers],
            "fills": [[f.kind, f.start, f.step] for f in interface.fills],
            "data": len(interface.data),
            "sources": sources,
            "places": list(places_of(self.parts.program.body)),
        }


def _number_data(number: Any) -> Any:
    if isinstance(number, Scaled):
        return ["scaled", number.kind, number.factor, formula_data(number.formula)]
    return ["formula", formula_data(number)] if isinstance(number, Formula) else ["value", np.asarray(number).item()]


def _number_of(data: Any) -> Any:
    match data:
        case ["scaled", kind, factor, formula]:
            return Scaled(kind, factor, of_data(formula))
        case ["formula", formula]:
            return of_data(formula)
        case ["value", value]:
            return value
    raise ValueError(f"no number: {data!r}")


# and back


class LoadedOnDevice(Loaded):
    """A function that was exported for a CUDA device, where it runs. Arguments are NumPy's arrays, or arrays on that device, of
    other libraries too; with one of the latter results are ``DeviceArray``s, else NumPy's. ``device``: as "cuda:0"."""

    def __init__(self, path: Path, about: Mapping[str, Any], sections: Sequence[bytes], name: str) -> None:
        place = opened(name)
        code = sections[1 + int(about["data"]) + _fitting(about["target"][2], place, path)]
        parts = cuda_stored.decoded(sections[0])
        body = with_places(parts.program.body, iter(map(str, about["places"])))
        parts = replace(parts, code=code, program=replace(parts.program, body=body))
        super().__init__(None, about)
        self.path = path
        self.device = place.name
        self._leaves = [_DeviceLeaf(data) for data in about["leaves"]]
        self._executable = CudaExecutable(parts, name, str(about["title"]), scheduled_kernel)
        self._parameters = [(str(kind), int(k)) for kind, k in about["parameters"]]
        self._sizes = [(str(n), of_data(f)) for n, f in about["sizes"]]
        self._numbers = [(DTYPES[dtype].numpy.type, _number_of(n)) for dtype, n in about["numbers"]]
        self._fills = [tuple(fill) for fill in about["fills"]]
        self._data = sections[1 : 1 + int(about["data"])]
        self._there: dict[int, Any] = {}
        self._sources = [(str(kind), int(k)) for kind, k in about["sources"]]

    def __repr__(self) -> str:
        return f"<pullback.load of {self.__name__} from {self.path}, on {self.device}>"

    def _run(self, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        own = {name: formula.at(sizes) for name, formula in self._sizes}
        parameters = self._executable.program.parameters
        pairs = zip(parameters, self._parameters, strict=True)
        arguments = [self._argument(p, kind, k, values, own, sizes) for p, (kind, k) in pairs]
        stays = any(isinstance(v, Remote) for v in values)
        try:
            made = self._executable.call(self._executable.instance(own), arguments)
        except CheckFailed as failed:
            place = next(iter(getattr(failed, "__notes__", ())), "")
            raise placed(failed, str(failed), place) from None
        found = []
        for kind, k in self._sources:
            value = made[k] if kind == "result" else arguments[k]
            is_there = isinstance(value, Remote)
            found.append(value if is_there and stays else value.copy_to_host() if is_there else np.array(value))
        return found

    def _argument(
        self, parameter: Any, kind: str, k: int, values: Sequence[Any], own: Mapping[str, int], sizes: Mapping[str, int]
    ) -> Any:
        if kind == "argument":
            value = values[self._passed[k]]
            return value if parameter.type.shape else np.asarray(value)[()]
        if kind == "number":
            dtype, number = self._numbers[k]
            return dtype(number.at(sizes) if isinstance(number, Formula | Scaled) else number)
        shape = tuple(value_of(e, own) for e in parameter.type.shape)
        if kind == "fill":
            return filled(self._fills[k], np.empty(shape, parameter.type.dtype.numpy))
        if k not in self._there:
            array = np.frombuffer(self._data[k], parameter.type.dtype.numpy).reshape(shape)
            self._there[k] = device_put(array, self.device) if shape else array[()]
        return self._there[k]


class _DeviceLeaf(Leaf):
    def value(self, place: str, value: Any, sizes: dict[str, int]) -> Any:
        if is_array_like(type(value)) and (library_of(type(value)) is None or adopted(value) is not None):
            value = as_array(value)
        if not isinstance(value, Remote) or self.is_pinned or not self.shape:
            return super().value(place, value.copy_to_host() if isinstance(value, Remote) else value, sizes)
        if value.dtype != self.dtype or value.ndim != len(self.shape):
            raise TypeError(f"{place} is {value.dtype}{list(value.shape)} on {value.device}: {self} is expected")
        self.learn(value.shape, sizes)
        return value if value.layout == "c" else value.copy()


def _fitting(archs: Sequence[str], place: Any, path: Path) -> int:
    """Which code a device takes: that of its architecture, or of the newest before it of the same major version. Raises
    DeviceError."""
    wanted = _ARCH.fullmatch(place.arch)
    assert wanted is not None
    best = [(-1, -1)]
    for k, arch in enumerate(archs):
        found = _ARCH.fullmatch(arch)
        if found and found[1] == wanted[1] and (arch == place.arch or (not found[3] and int(found[2]) <= int(wanted[2]))):
            best.append((int(found[2]), k))
    if max(best)[1] < 0:
        raise DeviceError(
            f"{path} was exported for {', '.join(archs)}, and {place.name}, {place.title}, is {place.arch}: export it with "
            f"architectures=[..., {place.arch!r}]"
        )
    return max(best)[1]


def loaded(path: Path, content: bytes, device: str | None) -> LoadedOnDevice:
    """The function of such a file. Raises ValueError for one that is damaged or of another format, DeviceError."""
    digest, body = content[len(MAGIC) : len(MAGIC) + DIGEST], content[len(MAGIC) + DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is damaged: its checksum is another")
    (size,) = SIZE.unpack_from(body)
    about = json.loads(body[SIZE.size : SIZE.size + size])
    if about["format"] != FORMAT:
        made_by = f"made by pullback {about.get('pullback')}"
        raise ValueError(f"{path} has format {about['format']}, {made_by}; this one reads {FORMAT}")
    if isinstance(about["trees"], str):
        raise TypeError(f"{path} takes or returns {about['trees']}, which only its class can make")
    sections, at = [], SIZE.size + size
    for length in about["sections"]:
        sections.append(body[at : at + length])
        at += length
    try:
        return LoadedOnDevice(path, about, sections, checked(device or "cuda"))
    except Unreadable as error:
        made_by = f"it was made by {about.get('pullback')}, export it again"
        raise ValueError(f"{path} cannot be read by this pullback: {error}; {made_by}") from None


__all__ = ["DeviceExport", "LoadedOnDevice", "exported", "loaded"]
