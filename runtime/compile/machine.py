"""The machine that code is compiled for: this one, as described by LLVM and the system, or a common instruction-set level."""

from __future__ import annotations

import platform

from pullback.codegen.targets import DEFAULT_L2_BYTES, Target, core
from pullback.ir.core.environment import CPU
from pullback.ir.core.records import dataclass
from pullback.runtime.compile.llvmlite_binding import llvm_binding

LEAST_CACHE, MOST_CACHE = 1 << 18, 1 << 21
"""The bounds of the L2 size that code is generated for, in bytes."""

LEVELS = {
    "baseline": ("x86-64-v2", ("sse4.1", "sse4.2", "popcnt")),
    "avx2": ("x86-64-v3", ("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe")),
    "avx512": ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma")),
}
"""For each instruction-set level: LLVM's name of the CPU, and the features that this CPU must have."""


@dataclass(frozen=True, kw_only=True)
class Host:
    """A compilation target: LLVM's names, the vector width in bytes, whether there are fused multiply-adds, and the bytes of
    L2."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    has_fma: bool
    cache: int = DEFAULT_L2_BYTES

    @property
    def core(self) -> str:
        """The name of the core, by which generated code may differ."""
        return core(self.cpu, self.features)

    @property
    def target(self) -> Target:
        """The description of this machine that codegen uses."""
        return Target(self.vector_bytes, self.has_fma, self.core, self.cache)


def l2_bytes() -> int:
    """Return the bytes of this machine's L2, a power of two between ``LEAST_CACHE`` and ``MOST_CACHE``; a usual size if Linux
    does not report it."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            size = int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return DEFAULT_L2_BYTES
    return min(max(1 << size.bit_length() - 1, LEAST_CACHE), MOST_CACHE) if size > 0 else DEFAULT_L2_BYTES


def find_host(level: str | None = None) -> Host:
    """Return this machine as a compilation target.

    `level`, else the environment's `PULLBACK_CPU`, is "native" (the default), or on x86-64 "baseline", "avx2" or "avx512",
    which compile for any machine of that level. Raises ValueError for another word, and for a level that this CPU does not
    have.
    """
    llvm = llvm_binding()
    level = level or CPU.read() or "native"
    triple = llvm.get_process_triple()
    available = llvm.get_host_cpu_features()
    if level == "native":
        vector_bytes = 64 if available.get("avx512f") else 32 if available.get("avx2") else 16
        has_fma = bool(available.get("fma")) or triple.startswith(("aarch64", "arm64"))
        return Host(
            triple=triple, cpu=llvm.get_host_cpu_name(), features=available.flatten(), vector_bytes=vector_bytes, has_fma=has_fma,
            cache=l2_bytes(),
        )  # fmt: skip
    if level not in LEVELS:
        raise ValueError(f"{CPU.name}={level}: {CPU.expected} is expected")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise ValueError(f"PULLBACK_CPU={level}: this is {platform.machine()}, where only native is known")
    cpu, needed = LEVELS[level]
    missing = [feature for feature in needed if not available.get(feature)]
    if missing:
        raise ValueError(f"PULLBACK_CPU={level}: this CPU has no {', '.join(missing)}")
    vector_bytes = {"baseline": 16, "avx2": 32, "avx512": 64}[level]
    return Host(triple=triple, cpu=cpu, features="", vector_bytes=vector_bytes, has_fma="fma" in needed)
