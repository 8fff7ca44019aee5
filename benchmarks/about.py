"""What the figures were measured on and with."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pullback.runtime.compile.engine import default_engine

LIBRARIES = ("numpy", "scipy", "llvmlite", "numba", "numexpr", "jax", "jaxlib", "torch", "drjit", "autograd")


def processor() -> str:
    """The model's name, or what Python knows, and what LLVM calls it."""
    position = Path("/proc/cpuinfo")
    lines = position.read_text().splitlines() if position.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    known = f"{len(names)} x {names[0]}" if names else platform.processor() or platform.machine()
    host = default_engine().host()
    return f"{known} ({host.core}, vectors of {host.vector_bytes} bytes)"


def versions() -> dict[str, str]:
    result = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            result[name] = version(name)
        except PackageNotFoundError:
            continue
    return result


def about() -> dict[str, object]:
    return {"processor": processor(), "versions": versions()}
