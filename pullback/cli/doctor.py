"""`pullback doctor`: report on this installation, for users and for bug reports."""

from __future__ import annotations

import importlib.metadata
import os
import platform

from pullback.cli import selftest
from pullback.codegen.cpu.matmul.shape_classes import CLASSES, NO_CHOICE, has_choice
from pullback.fastcall import describe as fastcall_describe
from pullback.runtime.cache.cache import default_cache
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.compile.llvmlite_binding import llvm_version
from pullback.runtime.compile.machine import find_host
from pullback.runtime.compile.platforms import python_support, support
from pullback.runtime.cuda import discovery as cuda_discovery
from pullback.runtime.libraries.symbols import blas_name
from pullback.runtime.memory import result_arrays
from pullback.runtime.threads.threads import get_num_threads
from pullback.tracer.user_code.ownership import has_dict_globals

PACKAGES = ("numpy", "scipy", "llvmlite", "ml_dtypes", "pycuda")
"""Packages whose versions are shown; all but pycuda are required."""
VECTORS = ("avx", "avx2", "fma", "avx512f", "avx512dq", "avx512vl")
"""Vector features of the processor that are shown."""


def version(package: str) -> str:
    """Return the version of an installed package, or "not installed"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def report(*, check: bool = False) -> int:
    """Print the report; return 1 if something that compiling needs is missing. ``check``: compile and check kernels too."""
    print(f"pullback   {version('pullback')}")
    print(f"python     {platform.python_version()} ({platform.python_implementation()}): {_python()}")
    print(f"system     {platform.system()} {platform.release()}, {platform.machine()}: {support()}")
    missing = []
    for package in PACKAGES:
        print(f"{package:<10} {version(package)}")
        if version(package) == "not installed" and package != "pycuda":
            missing.append(package)
    processor = None if missing else _processor()
    print(f"processor  {processor or 'unknown: packages are missing'}")
    print(f"threads    {_threads()}")
    print(f"cache      {_cache()}")
    print(f"memory     {result_arrays.status()}")
    print(f"products   {'unknown: packages are missing' if missing else _products()}")
    print(f"calls      {'plain (packages are missing)' if missing else fastcall_describe.status()}")
    print(f"cuda       {_cuda()}")
    for part in cuda_discovery.parts():
        print(f"  {part.name:<8} {part.text}")
    for package in missing:
        print(f"missing: {package} (pip install {package})")
    if missing:
        return 1
    return selftest.report() if check else 0


def _python() -> str:
    """Return the level of support for this Python, and whether names in traced functions can be replaced in it."""
    names = "" if has_dict_globals() else "; names are not seen by the tracer, so that only NumPy's protocols serve"
    return python_support() + names


def _processor() -> str:
    host = find_host()
    have = {word[1:] for word in host.features.split(",") if word.startswith("+")}
    vectors = [name for name in VECTORS if name in have]
    return f"{host.core}, vectors of {host.vector_bytes} bytes ({' '.join(vectors) or 'no vector features'}), {llvm_version()}"


def _threads() -> str:
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return f"{get_num_threads()} used for one loop, {available} available"


def _cache() -> str:
    info = default_cache().info()
    if info["path"] is None:
        return f"in memory alone ({info['problem'] or 'PULLBACK_CACHE_DIR=off'})"
    return f"{info['path']}, {info['entries']:,} entries, {info['bytes']:,} bytes"


def _products() -> str:
    """Return which implementation computes plain matrix products, by size class, and whether it was measured, pinned or
    tabulated."""
    if not has_choice(find_host().target):
        return f"{NO_CHOICE} ({blas_name()})"
    settled = {dtype: choices_matmul.settled(dtype) for dtype in choices_matmul.DTYPES}
    by_class = [f"{dtype} {CLASSES[k].name} {each.chosen}" for dtype, named in settled.items() for k, each in enumerate(named)]
    hows = {each.how for named in settled.values() for each in named}
    why = "as measured by `pullback tune`" if "remembered" in hows else "pinned" if "pinned" in hows else "by the written table"
    return f"{why} ({blas_name()}): {', '.join(by_class)}"


def _cuda() -> str:
    """Return the CUDA devices, or that none can be used; the parts printed below it give the reason."""
    devices = cuda_discovery.devices()
    return ", ".join(map(str, devices)) if devices else "no device can be used"
