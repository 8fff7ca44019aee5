"""Implement ``pb.load``: load a file that ``pb.export`` wrote as a function of NumPy arrays."""

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
    """Load a function from a file that `export` wrote: a shared library, or a file for a CUDA device.

    Loading runs the machine code of the file with all rights of this process, and its effects cannot be checked in advance: load
    only files that you made, or got from a source you trust. Nothing is unpickled or evaluated, and no source of the function is
    needed. BLAS, LAPACK and special functions come from SciPy.

    Parameters
    ----------
    path : str or pathlib.Path
        The file.
    trust : bool
        True confirms that you trust the file.
    device : str, optional
        The device on which a file for devices runs, by default the first; no compiler is needed there.

    Returns
    -------
    Loaded
        The function.

    Raises
    ------
    ValueError
        Without ``trust``, for a file that is not such a library, and for one of a newer format.
    OSError
        For a file that cannot be opened.
    RuntimeError
        For one made for another processor.
    DeviceError
        If there is no device for it.
    TypeError
        For one whose arguments or results are of the user's own classes.

    See Also
    --------
    export : Writes the file.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> files = pb.export(np.cumsum, "f64[n]", path=folder.name + "/running")
    >>> running = pb.load(files.library, trust=True)
    >>> running(np.ones(4))
    array([1., 2., 3., 4.])
    >>> folder.cleanup()
    """
    file = Path(path)
    if trust is not True:
        raise ValueError(f"{file} is machine code, which will run with all your rights: pass trust=True if you know who made it")
    content = file.read_bytes() if file.is_file() else b""
    if content.startswith(MAGIC):
        return device_export.loaded(file, content, device)
    if device not in (None, "cpu"):
        raise ValueError(f"{file} was not exported for a device: pb.export(..., device='cuda') makes what runs on {device}")
    try:
        library = Library(file)
    except NotExported as error:
        raise ValueError(f"{file} was not made by pb.export: {error}") from None
    manifest = _manifest(file, library)
    loaded = Loaded(library, manifest)
    problem = library.initialise([tuple(slot) for slot in manifest["needs"]])
    if problem:
        raise RuntimeError(f"{file} was made for {loaded.cpu}: {library.message(problem)}; export it with cpu='baseline'")
    return loaded


def _manifest(file: Path, library: Library) -> Mapping[str, Any]:
    try:
        manifest: Mapping[str, Any] = json.loads(library.manifest)
        version = int(manifest["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} was not made by pb.export: {error}") from None
    if version != FORMAT:
        raise ValueError(f"{file} has format {version}, made by pullback {manifest.get('pullback')}; this one reads {FORMAT}")
    if isinstance(manifest["trees"], str):
        raise TypeError(f"{file} takes or returns {manifest['trees']}, which only its class can make: call it by ctypes")
    return manifest
