"""Implement ``pb.export``: compile a function to an object file, a C header and a shared library, for programs without Python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pullback.codegen.export.c_header import header
from pullback.exporting.exporter import Export
from pullback.ir.core.lazy_imports import later
from pullback.runtime.compile.linker import LINKERS, LinkError, find_linker, link_shared
from pullback.runtime.program.export import host_of, object_file
from pullback.tracer.user_code.tracebacks import with_users_frames
from pullback.version import __version__

if TYPE_CHECKING:
    from pullback.exporting import cuda as device_export
    from pullback.exporting.cuda import DeviceExport
else:
    device_export = later("pullback.exporting.cuda")

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class ExportWarning(UserWarning):
    """Warns that an export lacks some of its files."""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """The result of ``pb.export``: the object file, the C header, and the shared library, None if there is no linker.

    ``name``: the C function; ``extents``: for each named extent the smallest and the largest value that is served, None if
    unlimited; ``needs``: the functions that a caller in C passes to its ``init``; ``cpu``: the processor that it is compiled
    for.
    """

    name: str
    object: Path
    header: Path
    library: Path | None
    extents: Mapping[str, tuple[int, int | None]]
    needs: tuple[str, ...]
    cpu: str

    def __str__(self) -> str:
        files = [str(f) for f in (self.object, self.header, self.library) if f is not None]
        ranges = [f"{n} from {low}" + (f" to {high}" if high is not None else " on") for n, (low, high) in self.extents.items()]
        lines = [*files, f"serves {', '.join(ranges)}"] if ranges else files
        return "\n".join([*lines, f"needs {', '.join(self.needs)}"] if self.needs else lines)


@overload
def export(
    function: Callable[..., Any], /, *specs: Any, path: str | Path, name: str | None = None, cpu: str = "native",
    kwargs: Mapping[str, Any] | None = None, device: None = None, architectures: Sequence[str] = (),
) -> Exported: ...  # fmt: skip
@overload
def export(
    function: Callable[..., Any], /, *specs: Any, path: str | Path, name: str | None = None, cpu: str = "native",
    kwargs: Mapping[str, Any] | None = None, device: str, architectures: Sequence[str] = (),
) -> DeviceExport: ...  # fmt: skip
@with_users_frames
def export(
    function: Callable[..., Any], /, *specs: Any, path: str | Path, name: str | None = None, cpu: str = "native",
    kwargs: Mapping[str, Any] | None = None, device: str | None = None, architectures: Sequence[str] = (),
) -> Exported | DeviceExport:  # fmt: skip
    """Compile a function ahead of time: ``path.o``, ``path.h`` and, if a linker is available, ``path.so``, for C without
    Python.

        pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path="model")

    ``specs`` are the types of the arguments: strings such as "f64[n,3]", in which a named extent stays free and a number is
    fixed, examples (arrays, numbers), a ``pb.ShapeDtypeStruct``, and containers of these; other values are static, as in a
    call. ``kwargs`` are those passed by keyword. Results have the dtypes and shapes of a call.

    ``name``: the name of the C function, by default the last part of ``path``. ``cpu``: the processors that it runs on:
    "native", this processor and later ones with the same instructions, or "baseline", "avx2" and "avx512". Arrays and numbers
    that the function reads from outside are stored in the object with their present values.

    With ``device="cuda"`` one file is written, ``path.cuda``, which ``pb.load`` runs on a device: the program, and the machine
    code of its kernels for each of ``architectures``, such as ["sm_80", "sm_90"], or by default for the architecture of the
    device. With ``architectures`` no device is needed, only NVRTC or nvcc. ``cpu`` has no effect then.

    With named extents the function is traced several dozen times, at many sizes, which must give one program; the sizes that
    it serves are in the header, and calls with others return a status. If there is no linker (cc, gcc, clang, ld), an
    ``ExportWarning`` is issued and ``library`` is None.

    Raises ExportError for what only Python can do (pb.print, callbacks), writes into arguments, and a function whose program
    depends on a named extent; TraceError as a call does; ValueError for bad options.
    """
    target = Path(path)
    name = name or re.sub(r"\W", "_", target.name, flags=re.ASCII)
    if not _NAME.fullmatch(name):
        raise ValueError(f"name={name!r}: a name as C has them is expected")
    if device not in (None, "cpu"):
        return device_export.exported(function, specs, dict(kwargs or {}), target, name, str(device), architectures)
    if architectures:
        raise ValueError("architectures=... goes with device='cuda'")
    host = host_of(cpu)
    interface, texts, about = Export(function, specs, dict(kwargs or {}), name, host).run()
    payload = object_file(interface, texts, host)
    text = header(interface, about["title"], about["doc"], f"pullback {__version__}", f"{host.triple}, {host.cpu}")
    files = [target.with_name(target.name + suffix) for suffix in (".o", ".h", ".so")]
    files[0].write_bytes(payload)
    files[1].write_text(text, encoding="utf-8")
    linked = _linked(files[0], files[2])
    return Exported(
        name=name,
        object=files[0],
        header=files[1],
        library=files[2] if linked else None,
        extents={b.name: (b.low, b.high) for b in interface.extents},
        needs=tuple(need.name for need in interface.needs),
        cpu=host.cpu,
    )


def _linked(source: Path, target: Path) -> bool:
    """Link the shared library; return whether it was written, and warn with the reason if not."""
    linker = find_linker()
    problem = f"no linker is on PATH ({', '.join(LINKERS)})"
    if linker is not None:
        try:
            link_shared(linker, source, target)
        except LinkError as error:
            problem = str(error)
        else:
            return True
    target.unlink(missing_ok=True)
    hint = f"cc -shared -o {target.name} {source.name}"
    warnings.warn(f"{problem}: {source.name} is written, {target.name} is not; link it with: {hint}", ExportWarning, stacklevel=4)
    return False
