"""The limits of this machine: measured once per process, by three small programs."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.codegen.fuse.fuse import fuse_with_decisions
from pullback.codegen.lower.lower import lower
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Module
from pullback.ir.core.types import DTYPES
from pullback.ir.text import parse_module
from pullback.programs.pipeline import scheduled, scheduled_kernel, target_of
from pullback.runtime.program.profile import TimedExecutable
from pullback.runtime.threads.threads import get_num_threads

if TYPE_CHECKING:
    from pullback.runtime.cuda.arrays import device_array as cuda_device_array
    from pullback.runtime.cuda.device import device as cuda_device
    from pullback.runtime.cuda.program import profile as cuda_profile
    from pullback.runtime.cuda.program.profile import TimedProgram
else:
    cuda_device_array, cuda_device = (
        later("pullback.runtime.cuda.arrays.device_array"),
        later("pullback.runtime.cuda.device.device"),
    )
    cuda_profile = later("pullback.runtime.cuda.program.profile")

TEXT = """pullback-ir 2

func {name}({parameters}) -> ({result}) {{
  %0: {result} = {text}
  return %0
}}
"""
"""The IR of a measured program."""
FOOTPRINTS = tuple(1 << k for k in (15, 17, 19, 21, 23, 25, 27))
"""Bytes, half read and half written, at which the traffic is measured."""
PRODUCT = 512
"""Rows and columns of the multiplied matrices."""
FUNCTIONS = 1 << 13
"""Number of elements of which ``exp`` is computed."""
TRIES, LEAST_S = 10, 1e-2
"""Least number of timed calls of a program, and their least total time in seconds."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Hold the limits of a machine or device.

    Attributes
    ----------
    traffic : tuple of (int, float)
        Bytes per second that elementwise kernels read and write, by their footprint in bytes, ascending: data that fits a cache
        is faster.
    flops : mapping of str to float
        Operations per second of a matrix product, by dtype ("f64", "f32").
    functions : float
        ``exp`` of f64 per second.
    threads : int
        The number of threads with which they hold.
    source : str
        Where the figures come from.
    where : str
        The device, empty for the CPU.

    See Also
    --------
    Profile : Compares times with them.

    Examples
    --------
    >>> limits = pb.inspection.Limits(traffic=((1 << 40, 1e10),), flops={"f64": 1e11}, functions=1e9, threads=1)
    >>> limits.seconds(bytes=10**9, flops=10**6, functions=0, footprint=10**9)
    (0.1, 'memory')
    """

    traffic: tuple[tuple[int, float], ...]
    flops: Mapping[str, float]
    functions: float
    threads: int
    source: str = "given"
    where: str = ""

    def traffic_of(self, footprint: int) -> float:
        """Return the bytes per second at a footprint in bytes."""
        return next((rate for size, rate in self.traffic if size >= footprint), self.traffic[-1][1])

    def seconds(self, *, bytes: int, flops: int, functions: int, footprint: int, dtype: str = "f64") -> tuple[float, str]:
        """Return the least time for some work, and the limit that sets it: "memory" or "compute"."""
        moving = bytes / self.traffic_of(footprint)
        computing = flops / self.flops.get(dtype, self.flops["f64"]) + functions / self.functions
        return (moving, "memory") if moving >= computing else (computing, "compute")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the measured programs: bytes, half read and half written, for the traffic; rows and columns of the
    multiplied matrices; elements of the function."""

    footprints: tuple[int, ...]
    product: int
    functions: int


SIZES = {
    "cpu": Sizes(footprints=FOOTPRINTS, product=PRODUCT, functions=FUNCTIONS),
    "cuda": Sizes(footprints=tuple(1 << k for k in (18, 20, 22, 24, 26, 28, 30)), product=4096, functions=1 << 24),
}
"""The measured sizes by target."""


def limits(device: str = "cpu") -> Limits:
    """Return the limits of this machine with the present number of threads, or of a CUDA device; measured at the first call,
    in half a second.

    Each is the best of a few runs of a small program: ``x + x`` for the traffic, a product of square matrices, and ``exp``.
    """
    return _measured(get_num_threads() if device == "cpu" else 0, device)


@functools.cache
def _measured(threads: int, device: str) -> Limits:
    sizes = SIZES[target_of(device)]

    def best(name: str, parameter: str, text: str, x: np.ndarray) -> float:
        named = {"n": len(x)} if x.ndim == 1 else {}
        description = f"an array of {x.dtype} and shape {x.shape}"
        argument = x if device == "cpu" else cuda_device_array.uploaded(x, device, description)
        return _best(_program(name, parameter, text, device), [argument], named)

    fitting = [size for size in sizes.footprints if device == "cpu" or size <= cuda_device.device(device).free_bytes() // 4]
    rates = [size / best("doubled", "f64[n]", "add %x, %x", np.ones(size // 16)) for size in fitting]
    traffic = [(size, max(rates[k:])) for k, size in enumerate(fitting)]
    rows, count = sizes.product, sizes.functions
    flops = {}
    for dtype in ("f64", "f32"):
        x = np.full((rows, rows), 0.5, DTYPES[dtype].numpy)
        flops[dtype] = 2 * rows**3 / best("product", f"{dtype}[{rows},{rows}]", 'contract %x, %x {spec="ij,jk->ik"}', x)
    functions = count / best("exponentials", "f64[n]", "exp %x", np.linspace(-1, 1, count))
    where = "" if device == "cpu" else f"{device}, {cuda_device.device(device).title}"
    return Limits(
        traffic=tuple(traffic), flops=flops, functions=functions, threads=threads, source="measured in this process", where=where
    )


def timed_program(module: Module, device: str, title: str) -> TimedExecutable | TimedProgram:
    """Return a lowered program for a device, instrumented to time its steps."""
    if device == "cpu":
        return TimedExecutable(scheduled(module, device))
    return cuda_profile.TimedProgram(module, device, title, scheduled_kernel)


def _program(name: str, parameter: str, text: str, device: str) -> TimedExecutable | TimedProgram:
    text = TEXT.format(name=name, parameters=f"%x: {parameter}", result=parameter, text=text)
    function = parse_module(text).functions[0]
    return timed_program(lower(fuse_with_decisions(function).function, ("c",), target_of(device)), device, name)


def _best(program: TimedExecutable | TimedProgram, arguments: list[Any], sizes: Mapping[str, int]) -> float:
    """Return the seconds that the steps take in the fastest of several calls."""
    instance: Any = program.instance(sizes)
    best, spent, tries = float("inf"), 0.0, 0
    while tries < TRIES or (spent < LEAST_S and tries < 1000):
        timing = program.timed(instance, arguments)
        taken = float(timing.laps.sum()) * timing.second
        best, spent, tries = min(best, taken), spent + taken, tries + 1
    return best
