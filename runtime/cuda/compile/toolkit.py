"""Where NVIDIA's tools and libraries are: a toolkit that the environment names, NVIDIA's wheels, the usual places.

Nothing is loaded or run here, and nothing asks for a driver.
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


def chosen(environ: Mapping[str, str] | None = None) -> list[Path]:
    """The toolkits that the environment names."""
    environ = os.environ if environ is None else environ
    return [Path(environ[name]) for name in VARIABLES if environ.get(name)]


def wheels() -> list[Path]:
    """The folders that wheels of NVIDIA's have installed: "nvidia/cu13", or one a package, "nvidia/cuda_nvrtc"."""
    try:
        found = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    places = found.submodule_search_locations if found is not None else None
    return [folder for place in places or () if os.path.isdir(place) for folder in sorted(Path(place).iterdir(), reverse=True)]


def program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The path of a program of the toolkit, or None."""
    folders = [folder / "bin" for folder in (*chosen(environ), *wheels())]
    named = shutil.which(name, path=os.pathsep.join(map(str, folders))) if folders else None
    usual = os.pathsep.join(f"{folder}/bin" for folder in USUAL)
    return named or shutil.which(name) or shutil.which(name, path=usual)


def libraries(name: str, environ: Mapping[str, str] | None = None) -> Iterator[str]:
    """What to try to load for a library, as "nvrtc": files of the same folder newest first, then the linker's own search."""
    file = f"lib{name}.so"
    folders = [*chosen(environ), *wheels(), *map(Path, USUAL)]
    for folder in (folder / part for folder in folders for part in ("lib64", "lib")):
        yield from map(str, sorted(folder.glob(f"{file}.*"), key=_version, reverse=True))
    yield from (f"{file}.13", f"{file}.12", f"{file}.11", file)


def _version(path: Path) -> list[int]:
    return list(map(int, _NUMBER.findall(path.name.partition(".so")[2])))
