"""Implement ``pb.export``: compile a function to an object file, a C header and a shared library, for programs without Python."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from pullback.codegen.export.c_header import header
from pullback.exporting.exporter import Export
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
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
    """Warn that an export lacks some of its files, for want of a linker.

    See Also
    --------
    export : Issues it.

    Examples
    --------
    >>> issubclass(pb.ExportWarning, UserWarning)
    True
    """


@dataclass(frozen=True, kw_only=True)
class Exported:
    """Hold the result of `export`: the paths of the files that were written, and what they serve.

    Attributes
    ----------
    name : str
        The name of the C function.
    object : pathlib.Path
        The object file.
    header : pathlib.Path
        The C header.
    library : pathlib.Path or None
        The shared library, None if there is no linker.
    extents : mapping of str to (int, int or None)
        For each named extent the smallest and the largest value that is served, None if unlimited.
    needs : tuple of str
        The functions that a caller in C passes to its ``init``.
    cpu : str
        The processor that it is compiled for.

    See Also
    --------
    export : Returns it.
    DeviceExport : The same for a device.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = pb.export(lambda x: np.sum(x**2), "f64[n]", path=folder.name + "/square", name="square")
    >>> files.name, files.object.name, files.header.name
    ('square', 'square.o', 'square.h')
    >>> folder.cleanup()
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
    """Compile a function ahead of time into an object file, a C header and a shared library, for C without Python.

    With named extents the function is traced several dozen times, at many sizes, which must give one program; the sizes that it
    serves are in the header, and calls with others return a status. Arrays and numbers that the function reads from outside are
    stored in the object with their present values.

    Parameters
    ----------
    function : callable
        A NumPy function, or a transform of one.
    *specs : str, array, number, ShapeDtypeStruct or container of them
        The types of the arguments: strings such as "f64[n,3]", in which a named extent stays free and a number is fixed, and
        examples; other values are static, as in a call.
    path : str or pathlib.Path
        The path of the files without suffix: ``path.o``, ``path.h`` and, if a linker is available, ``path.so``. With a device one
        file, ``path.cuda``.
    name : str, optional
        The name of the C function, by default the last part of ``path``.
    cpu : {"native", "baseline", "avx2", "avx512"}, optional
        The processors that it runs on: "native" is this processor and later ones with the same instructions. Without effect with
        a device.
    kwargs : mapping, optional
        The types of arguments that are passed by keyword.
    device : str, optional
        With "cuda" the file holds the program, and the machine code of its kernels, which `load` runs on a device.
    architectures : sequence of str, optional
        The architectures of a file for devices, such as ``["sm_80", "sm_90"]``; by default that of the device. With them no
        device is needed, only NVRTC or nvcc.

    Returns
    -------
    Exported or DeviceExport
        The paths of the files. Results of the function have the dtypes and shapes of a call.

    Raises
    ------
    ExportError
        For what only Python can do (prints, callbacks), writes into arguments, and a function whose program depends on a named
        extent.
    TraceError
        As a call does.
    ValueError
        For bad options.

    See Also
    --------
    load : Loads the library in Python.
    ExportWarning : Issued if there is no linker.

    Examples
    --------
    >>> import tempfile
    >>> def loss(w, x, y):
    ...     return np.mean((x @ w - y) ** 2)
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = pb.export(pb.value_and_grad(loss), "f64[3]", "f64[n,3]", "f64[n]", path=folder.name + "/model")
    >>> files.object.name, files.header.name
    ('model.o', 'model.h')
    >>> folder.cleanup()
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
