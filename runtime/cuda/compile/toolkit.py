"""Locate NVIDIA's tools and libraries: in a toolkit that the environment names, in NVIDIA's wheels, in the usual folders.

Nothing is loaded or run here, and no driver is needed.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

VARIABLES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT")
USUAL = ("/usr/local/cuda", "/opt/cuda")
_NUMBER = re.compile(r"\d+")


def environment_toolkits(environ: Mapping[str, str] | None = None) -> list[Path]:
    """Return the toolkit folders that the environment names."""
    environ = os.environ if environ is None else environ
    return [Path(environ[name]) for name in VARIABLES if environ.get(name)]


def wheels() -> list[Path]:
    """Return the folders that NVIDIA's wheels have installed: "nvidia/cu13", or one per package such as "nvidia/cuda_nvrtc"."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    paths = spec.submodule_search_locations if spec is not None else None
    return [folder for path in paths or () if os.path.isdir(path) for folder in sorted(Path(path).iterdir(), reverse=True)]


def program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """Return the path of a program of the toolkit, or None."""
    folders = [folder / "bin" for folder in (*environment_toolkits(environ), *wheels())]
    preferred = shutil.which(name, path=os.pathsep.join(map(str, folders))) if folders else None
    usual = os.pathsep.join(f"{folder}/bin" for folder in USUAL)
    return preferred or shutil.which(name) or shutil.which(name, path=usual)


def libraries(name: str, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """Yield the paths to try for a library such as "nvrtc": files of one folder newest first, then bare names for the dynamic
    linker."""
    file = f"lib{name}.so"
    folders = [*environment_toolkits(environ), *wheels(), *map(Path, USUAL)]
    for folder in (folder / part for folder in folders for part in ("lib64", "lib")):
        yield from map(str, sorted(folder.glob(f"{file}.*"), key=_version, reverse=True))
    yield from (f"{file}.13", f"{file}.12", f"{file}.11", file)


def _version(path: Path) -> list[int]:
    return list(map(int, _NUMBER.findall(path.name.partition(".so")[2])))
