"""``pb.load``: a shared library that ``pb.export`` made, as a function of NumPy arrays."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pullback.exporting.file_format import FORMAT, MAGIC
from pullback.exporting.loaded import Loaded
from pullback.ir.core.lazy_imports import later
from pullback.runtime.program.load_exported import Library, NotExported

if TYPE_CHECKING:
    from pullback.exporting import cuda as device_export
else:
    device_export = later("pullback.exporting.cuda")


def load(path: str | Path, *, trust: bool = False, device: str | None = None) -> Loaded:
    """The function in a file that ``pb.export`` made: a shared library, or one for a CUDA device.

        f = pb.load("model.so", trust=True)
        g = pb.load("model.cuda", trust=True)

    Loading runs the machine code of the file, with all that this process may do, and nothing can check beforehand what it does:
    load what you made, or got from somebody you trust, and say so with ``trust=True``. Nothing is unpickled or evaluated, and no
    source of the function is needed. BLAS, LAPACK and special functions come from SciPy. ``device``: where one for a device runs,
    the first if none is named; no compiler is needed there.

    Raises ValueError without ``trust``, for a file that is no such library, and for one of a newer format; OSError for one that
    cannot be opened; RuntimeError for one made for another processor, DeviceError where there is no device for it; TypeError for
    one whose arguments or results are of the user's own classes.
    """
    place = Path(path)
    if trust is not True:
        raise ValueError(
            f"{place} is machine code, which will run with all your rights: pass trust=True if you know who made it"
        )
    content = place.read_bytes() if place.is_file() else b""
    if content.startswith(MAGIC):
        return device_export.loaded(place, content, device)
    if device not in (None, "cpu"):
        raise ValueError(f"{place} was not exported for a device: pb.export(..., device='cuda') makes what runs on {device}")
    try:
        library = Library(place)
    except NotExported as error:
        raise ValueError(f"{place} was not made by pb.export: {error}") from None
    about = _about(place, library)
    loaded = Loaded(library, about)
    problem = library.begin([tuple(slot) for slot in about["needs"]])
    if problem:
        raise RuntimeError(f"{place} was made for {loaded.cpu}: {library.message(problem)}; export it with cpu='baseline'")
    return loaded


def _about(place: Path, library: Library) -> Mapping[str, Any]:
    try:
        about: Mapping[str, Any] = json.loads(library.manifest)
        version = int(about["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{place} was not made by pb.export: {error}") from None
    if version != FORMAT:
        raise ValueError(f"{place} has format {version}, made by pullback {about.get('pullback')}; this one reads {FORMAT}")
    if isinstance(about["trees"], str):
        raise TypeError(f"{place} takes or returns {about['trees']}, which only its class can make: call it by ctypes")
    return about
