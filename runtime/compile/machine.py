"""The machine that code is made for: this one, by what LLVM and the system say of it, or a level that many have."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from pullback.codegen.targets import SECOND_CACHE, Target, core
from pullback.ir.core.environment import CPU
from pullback.runtime.compile.llvmlite_binding import llvm_binding

LEAST_CACHE, MOST_CACHE = 1 << 18, 1 << 21

LEVELS = {
    "baseline": ("x86-64-v2", ("sse4.1", "sse4.2", "popcnt")),
    "avx2": ("x86-64-v3", ("avx2", "fma", "bmi", "bmi2", "f16c", "lzcnt", "movbe")),
    "avx512": ("x86-64-v4", ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "fma")),
}


@dataclass(frozen=True, kw_only=True)
class Host:
    """What code is made for: LLVM's names, the bytes of the widest vector register, whether it multiplies and adds in one, and
    the bytes of the second cache."""

    triple: str
    cpu: str
    features: str
    vector_bytes: int
    has_fma: bool
    cache: int = SECOND_CACHE

    @property
    def core(self) -> str:
        """The name by which code is made differently for it."""
        return core(self.cpu, self.features)

    @property
    def target(self) -> Target:
        """What the generator asks of it."""
        return Target(self.vector_bytes, self.has_fma, self.core, self.cache)


def second_cache() -> int:
    """The bytes of this machine's second cache, a power of two within what there is; the usual ones where Linux does not say."""
    try:
        with open("/sys/devices/system/cpu/cpu0/cache/index2/size", encoding="ascii") as file:
            found = int(file.read().strip().removesuffix("K")) << 10
    except (OSError, ValueError):
        return SECOND_CACHE
    return min(max(1 << found.bit_length() - 1, LEAST_CACHE), MOST_CACHE) if found > 0 else SECOND_CACHE


def find_host(level: str | None = None) -> Host:
    """This machine as a target.

    `level`, else the environment's `PULLBACK_CPU`, is "native" (the default), or on x86-64 "baseline", "avx2"
    or "avx512", which give code for any machine of that level. Raises ValueError for another word, and for a
    level that this CPU does not have.
    """
    llvm = llvm_binding()
    level = level or CPU.read() or "native"
    triple = llvm.get_process_triple()
    have = llvm.get_host_cpu_features()
    if level == "native":
        wide = 64 if have.get("avx512f") else 32 if have.get("avx2") else 16
        has_fma = bool(have.get("fma")) or triple.startswith(("aarch64", "arm64"))
        return Host(
            triple=triple, cpu=llvm.get_host_cpu_name(), features=have.flatten(), vector_bytes=wide, has_fma=has_fma,
            cache=second_cache(),
        )  # fmt: skip
    if level not in LEVELS:
        raise ValueError(f"{CPU.name}={level}: {CPU.expected} is expected")
    if platform.machine().lower() not in ("x86_64", "amd64"):
        raise ValueError(f"PULLBACK_CPU={level}: this is {platform.machine()}, where only native is known")
    cpu, needed = LEVELS[level]
    missing = [feature for feature in needed if not have.get(feature)]
    if missing:
        raise ValueError(f"PULLBACK_CPU={level}: this CPU has no {', '.join(missing)}")
    wide = {"baseline": 16, "avx2": 32, "avx512": 64}[level]
    return Host(triple=triple, cpu=cpu, features="", vector_bytes=wide, has_fma="fma" in needed)
