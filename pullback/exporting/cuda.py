"""Implement ``pb.export(..., device="cuda")`` and the loading of its files.

A file holds a function's program and the machine code of its kernels for the named architectures.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pullback.codegen.export.interface import Interface, Location
from pullback.devices.device_put import device_put
from pullback.exporting.exporter import Export, ExportError
from pullback.exporting.file_format import FORMAT, MAGIC
from pullback.exporting.loaded import Leaf, Loaded
from pullback.exporting.shape_sampling import Sampled, filled
from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import walk
from pullback.ir.core.types import DTYPES
from pullback.ir.ops.control.host import Host as HostOp
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.shapes.extents import value_of
from pullback.ir.shapes.formulas import Formula, Scaled, from_data
from pullback.ir.shapes.formulas import as_data as formula_data
from pullback.programs.pipeline import layouts_of, lowered, scheduled_kernel
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device.device import device as opened
from pullback.runtime.cuda.driver.driver import checked
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.program import build as cuda_build
from pullback.runtime.cuda.program import serialize as cuda_serialize
from pullback.runtime.cuda.program.executable import CudaExecutable
from pullback.runtime.program.export import host_of
from pullback.runtime.program.program_bytes import Unreadable, header_of, locations_of, pack, unpack, with_locations
from pullback.tracer.arrays.tree import adopted, as_array, is_array_like
from pullback.tracer.failures import located
from pullback.tracer.user_code.array_libraries import library_of

_ARCH = re.compile(r"sm_(\d+)(\d)([a-z]?)")
DIGEST = hashlib.sha256().digest_size
"""Size of the checksum in bytes."""


@dataclass(frozen=True, kw_only=True)
class DeviceExport:
    """Hold the result of `export` for a device.

    Attributes
    ----------
    name : str
        The name of the function.
    file : pathlib.Path
        The file.
    extents : mapping of str to (int, int or None)
        For each named extent the smallest and the largest value that is served, None if unlimited.
    architectures : tuple of str
        The architectures for which the file has machine code.

    See Also
    --------
    export : Returns it, with ``device="cuda"``.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = pb.export(np.sum, "f64[n]", path=folder.name + "/total", device="cuda")  # needs a device
    >>> files.file.name  # needs a device
    'total.cuda'

    >>> folder.cleanup()
    """

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
    """Export a function for a device, as ``pb.export``. Nothing is run, and no device is needed if architectures are named."""
    archs = tuple(dict.fromkeys(architectures)) or (opened(checked(device)).arch,)
    bad = [arch for arch in archs if not _ARCH.fullmatch(arch)]
    if bad:
        raise ValueError(f"architectures={list(archs)}: {bad[0]!r} is none; they are called as 'sm_80', 'sm_90'")
    work = _DeviceExport(function, specs, kwargs, name, host_of("native"))
    interface, _, description = work.run()
    manifest = json.loads(interface.manifest)
    text, parts = work.text, work.parts
    names = list(dict.fromkeys(each.name for kernel in parts.kernels.values() for each in kernel.launches))
    program = cuda_serialize.encoded(parts)
    if program is None:
        raise ExportError(f"{description['title']} cannot be exported: its program holds what a file cannot")
    sections = [program, *(d.payload for d in interface.data)]
    sections += [cuda_compile.cubin(text, arch, names) if names else b"" for arch in archs]
    body = pack(manifest | {"target": ["cuda", ", ".join(archs), list(archs)]}, sections)
    file = path.with_name(path.name + ".cuda")
    file.write_bytes(MAGIC + hashlib.sha256(body).digest() + body)
    return DeviceExport(name=name, file=file, extents={b.name: (b.low, b.high) for b in interface.extents}, architectures=archs)


class _DeviceExport(Export):
    """An export for a device; it differs from one for the CPU in the program and the manifest."""

    text = ""
    parts: cuda_serialize.Parts

    def program(self, sampling: Sampled, parameters: list[Location], interface: Interface) -> tuple[Interface, list[str]]:
        base = sampling.base
        layouts = ("c",) * len(layouts_of(base.trace, base.leaves, len(sampling.constants)))
        module = lowered(base.abstract, layouts, "cuda", lambda *seen: None)
        if any(isinstance(i.op, HostOp) for i in walk(module.functions[0].body)):
            raise ExportError(self.needs_python("a step in Python"))
        self.parts, self.text = cuda_build.parts_of(module, scheduled_kernel)
        if self.parts.plain:
            why = ", ".join(dict.fromkeys(reason for _, reason in self.parts.plain.values()))
            raise ExportError(f"{self.title} cannot be exported for a device: {why}, and the CPU would do it")
        self.parameter_slots = list(parameters)
        return interface, []

    def manifest(self, sampling: Sampled, interface: Interface, about: Mapping[str, str], arguments: list[int]) -> dict[str, Any]:
        base_manifest = super().manifest(sampling, interface, about, arguments)
        slots = self.parameter_slots
        sources = [
            ["result", o.index] if o.source in ("result", "repeat") else ["parameter", o.index] for o in sampling.base.outcomes
        ]
        return base_manifest | {
            "parameters": [list(slot) for slot in slots],
            "sizes": [[name, formula_data(f)] for name, f in interface.sizes],
            "numbers": [[dtype.name, _constant_data(n)] for dtype, n in interface.numbers],
            "fills": [[f.kind, f.start, f.step] for f in interface.fills],
            "data": len(interface.data),
            "sources": sources,
            "places": list(locations_of(self.parts.program.body)),
        }


def _constant_data(constant: Any) -> Any:
    if isinstance(constant, Scaled):
        return ["scaled", constant.kind, constant.factor, formula_data(constant.formula)]
    return ["formula", formula_data(constant)] if isinstance(constant, Formula) else ["value", np.asarray(constant).item()]


def _constant_of(data: Any) -> Any:
    match data:
        case ["scaled", kind, factor, formula]:
            return Scaled(kind, factor, from_data(formula))
        case ["formula", formula]:
            return from_data(formula)
        case ["value", value]:
            return value
    raise ValueError(f"no number: {data!r}")


# loading


class LoadedOnDevice(Loaded):
    """A function that was exported for a CUDA device, on which it runs. ``device``: such as "cuda:0".

    Arguments are NumPy arrays, or arrays on that device, also of other libraries; if one of them is on the device, the results
    are ``DeviceArray``s, otherwise NumPy arrays.
    """

    def __init__(self, path: Path, about: Mapping[str, Any], sections: Sequence[bytes], name: str) -> None:
        device = opened(name)
        code = sections[1 + int(about["data"]) + _fitting(about["target"][2], device, path)]
        parts = cuda_serialize.decoded(sections[0])
        body = with_locations(parts.program.body, iter(map(str, about["places"])))
        parts = replace(parts, code=code, program=replace(parts.program, body=body))
        super().__init__(None, about)
        self.path = path
        self.device = device.name
        self._leaves = [_DeviceLeaf(data) for data in about["leaves"]]
        self._executable = CudaExecutable(parts, name, str(about["title"]), scheduled_kernel)
        self._parameters = [(str(kind), int(k)) for kind, k in about["parameters"]]
        self._sizes = [(str(n), from_data(f)) for n, f in about["sizes"]]
        self._numbers = [(DTYPES[dtype].numpy.type, _constant_of(n)) for dtype, n in about["numbers"]]
        self._fills = [tuple(fill) for fill in about["fills"]]
        self._data = sections[1 : 1 + int(about["data"])]
        self._uploaded: dict[int, Any] = {}
        self._sources = [(str(kind), int(k)) for kind, k in about["sources"]]

    def __repr__(self) -> str:
        return f"<pullback.load of {self.__name__} from {self.path}, on {self.device}>"

    def _run(self, values: Sequence[Any], sizes: Mapping[str, int]) -> list[Any]:
        template_sizes = {name: formula.at(sizes) for name, formula in self._sizes}
        parameters = self._executable.program.parameters
        pairs = zip(parameters, self._parameters, strict=True)
        arguments = [self._argument(p, kind, k, values, template_sizes, sizes) for p, (kind, k) in pairs]
        stays = any(isinstance(v, Remote) for v in values)
        try:
            outputs = self._executable.call(self._executable.instance(template_sizes), arguments)
        except CheckFailed as failed:
            location = next(iter(getattr(failed, "__notes__", ())), "")
            raise located(failed, str(failed), location) from None
        results = []
        for kind, k in self._sources:
            value = outputs[k] if kind == "result" else arguments[k]
            is_there = isinstance(value, Remote)
            results.append(value if is_there and stays else value.copy_to_host() if is_there else np.array(value))
        return results

    def _argument(
        self, parameter: Any, kind: str, k: int, values: Sequence[Any], own: Mapping[str, int], sizes: Mapping[str, int]
    ) -> Any:
        if kind == "argument":
            value = values[self._passed[k]]
            return value if parameter.type.shape else np.asarray(value)[()]
        if kind == "number":
            dtype, constant = self._numbers[k]
            return dtype(constant.at(sizes) if isinstance(constant, Formula | Scaled) else constant)
        shape = tuple(value_of(e, own) for e in parameter.type.shape)
        if kind == "fill":
            return filled(self._fills[k], np.empty(shape, parameter.type.dtype.numpy))
        if k not in self._uploaded:
            array = np.frombuffer(self._data[k], parameter.type.dtype.numpy).reshape(shape)
            self._uploaded[k] = device_put(array, self.device) if shape else array[()]
        return self._uploaded[k]


class _DeviceLeaf(Leaf):
    def value(self, path: str, value: Any, sizes: dict[str, int]) -> Any:
        if is_array_like(type(value)) and (library_of(type(value)) is None or adopted(value) is not None):
            value = as_array(value)
        if not isinstance(value, Remote) or self.is_pinned or not self.shape:
            return super().value(path, value.copy_to_host() if isinstance(value, Remote) else value, sizes)
        if value.dtype != self.dtype or value.ndim != len(self.shape):
            raise TypeError(f"{path} is {value.dtype}{list(value.shape)} on {value.device}: {self} is expected")
        self.learn(value.shape, sizes)
        return value if value.layout == "c" else value.copy()


def _fitting(archs: Sequence[str], device: Any, path: Path) -> int:
    """Return the index of the code that a device runs: for its architecture, or else for the newest earlier one of its major
    version.

    Raises DeviceError if there is none.
    """
    wanted = _ARCH.fullmatch(device.arch)
    assert wanted is not None
    best = [(-1, -1)]
    for k, arch in enumerate(archs):
        match = _ARCH.fullmatch(arch)
        if match and match[1] == wanted[1] and (arch == device.arch or (not match[3] and int(match[2]) <= int(wanted[2]))):
            best.append((int(match[2]), k))
    if max(best)[1] < 0:
        raise DeviceError(
            f"{path} was exported for {', '.join(archs)}, and {device.name}, {device.title}, is {device.arch}: export it with "
            f"architectures=[..., {device.arch!r}]"
        )
    return max(best)[1]


def loaded(path: Path, content: bytes, device: str | None) -> LoadedOnDevice:
    """Return the function of a device file. Raises ValueError for a damaged file or another format, TypeError for the user's
    classes, DeviceError."""
    digest, body = content[len(MAGIC) : len(MAGIC) + DIGEST], content[len(MAGIC) + DIGEST :]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is damaged: its checksum is another")
    about = header_of(body)
    if about["format"] != FORMAT:
        made_by = f"made by pullback {about.get('pullback')}"
        raise ValueError(f"{path} has format {about['format']}, {made_by}; this one reads {FORMAT}")
    if isinstance(about["trees"], str):
        raise TypeError(f"{path} takes or returns {about['trees']}, which only its class can make")
    try:
        return LoadedOnDevice(path, *unpack(body), checked(device or "cuda"))
    except Unreadable as error:
        made_by = f"it was made by {about.get('pullback')}, export it again"
        raise ValueError(f"{path} cannot be read by this pullback: {error}; {made_by}") from None


__all__ = ["DeviceExport", "LoadedOnDevice", "exported", "loaded"]
