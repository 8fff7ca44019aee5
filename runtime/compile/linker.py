"""Link object files to shared libraries with a linker of the system."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

LINKERS = ("cc", "gcc", "clang", "ld")
"""The linker programs that are searched for, in this order."""


class LinkError(Exception):
    """Raised if a linker failed."""


def find_linker() -> str | None:
    """Return the path of the first available linker, or None."""
    return next((path for name in LINKERS if (path := shutil.which(name))), None)


def link_shared(linker: str, source: Path, target: Path) -> None:
    """Link one object file to a shared library, under a temporary name that is then replaced, so that no process loads a
    partial file. Raises LinkError."""
    temporary = target.with_name(f".{target.name}.new")
    try:
        done = subprocess.run([linker, "-shared", "-o", str(temporary), str(source)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise LinkError(f"{linker} failed on {source}: {done.stderr.strip() or done.returncode}")
        temporary.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{linker} failed on {source}: {error}") from None
    finally:
        temporary.unlink(missing_ok=True)
