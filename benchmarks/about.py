"""What the figures were measured on and with."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("numpy", "scipy", "llvmlite", "numba", "numexpr", "jax", "jaxlib", "torch", "drjit", "autograd")


def processor() -> str:
    """The model's name, or what Python knows."""
    place = Path("/proc/cpuinfo")
    lines = place.read_text().splitlines() if place.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def about() -> dict[str, object]:
    return {"processor": processor(), "versions": versions()}
