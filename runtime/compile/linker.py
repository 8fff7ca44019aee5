"""Shared libraries of object files, by a linker of the system's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

LINKERS = ("cc", "gcc", "clang", "ld")
"""The programs that are looked for, in this order."""


class LinkError(Exception):
    """A linker did not do it."""


def find_linker() -> str | None:
    """The path of the first linker that is found."""
    return next((path for name in LINKERS if (path := shutil.which(name))), None)


def link_shared(linker: str, source: Path, target: Path) -> None:
    """Makes a shared library of one object file, beside it first, so that nobody loads half of it. Raises LinkError."""
    made = target.with_name(f".{target.name}.new")
    try:
        done = subprocess.run([linker, "-shared", "-o", str(made), str(source)], capture_output=True, text=True, timeout=120)
        if done.returncode:
            raise LinkError(f"{linker} failed on {source}: {done.stderr.strip() or done.returncode}")
        made.replace(target)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LinkError(f"{linker} failed on {source}: {error}") from None
    finally:
        made.unlink(missing_ok=True)
