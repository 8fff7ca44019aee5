"""Compiled functions on a device, by the runtime that users have: on the stand-in for a GPU, and with ``-m gpu`` on one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pullback.compiled import function as compiled_function
from pullback.ir import Function
from pullback.ir.passes.size_classes import templated
from pullback.programs import pipeline, placement
from pullback.runtime.cuda.arrays.device_array import DeviceArray, uploaded
from pullback.runtime.cuda.compile import compile as cuda_compile
from pullback.runtime.cuda.device import device as cuda_device
from tests import cuda_host
from tests.support.cuda.targets import needs_host

on_each_place = pytest.mark.parametrize(
    "runs_on", [pytest.param("host", id="host", marks=needs_host), pytest.param("gpu", id="gpu", marks=pytest.mark.gpu)]
)
ORDERS = 50


@contextmanager
def opened(position: str, order: int = 0) -> Iterator[cuda_device.Device]:
    """The first device: of the stand-in, where threads, blocks and streams run in an order of a number, or a GPU."""
    before = None
    if position == "host":
        cuda_host.activate()
        cuda_host.forgive()
        cuda_host.order(order % ORDERS)
        before = cuda_compile.use(cuda_host.Compiler())
    result = cuda_device.device("cuda:0") if position == "gpu" else _stand_in()
    try:
        yield result
        result.synchronize()
    finally:
        if position == "host":
            cuda_host.order(0)
            cuda_compile.use(before)


def _stand_in() -> cuda_device.Device:
    """The stand-in's device, whose buffers end where their last element ends; a kernel that failed is forgotten."""
    for result in cuda_device._devices.values():
        result._broken = ""
    result = cuda_device.device("cuda:0")
    result.pool.grain = 16
    return result


@contextmanager
def compiled_there(position: str, order: int = 0) -> Iterator[None]:
    """Compile for this device, within the context, whatever is compiled for no particular device."""

    def device_of(asked: str | None, leaves: Sequence[Any]) -> str:
        return placement.device_of(asked or "cuda:0", leaves)

    with opened(position, order), pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_function, "device_of", device_of)
        yield


def laid_out(x: Any, rng: np.random.Generator) -> Any:
    """An array of the same elements on the device, in a memory order of chance: rows, columns, with gaps, backwards."""
    x = np.asarray(x)
    if not x.ndim or rng.integers(3) == 0:
        return uploaded(x, "cuda:0")
    axes = rng.permutation(x.ndim)
    steps = rng.integers(1, 4, x.ndim) * rng.choice([-1, 1], x.ndim)
    wide = np.zeros([n * abs(s) + rng.integers(2) for n, s in zip(np.transpose(x, axes).shape, steps, strict=True)], x.dtype)
    part = wide[tuple(slice(None, n * abs(s), abs(s)) for n, s in zip(np.transpose(x, axes).shape, steps, strict=True))]
    part = part[tuple(slice(None, None, -1 if s < 0 else 1) for s in steps)]
    view = np.transpose(part, np.argsort(axes))
    view[...] = x
    base = uploaded(wide, "cuda:0")
    first = view.ctypes.data - wide.ctypes.data if x.size else 0
    return DeviceArray(base.gpu, base.address + first, x.dtype, x.shape, base, view.strides)


def calls_of(
    function: Function, arguments: Sequence[Any], rng: np.random.Generator, times: int = 3, device: str = "cuda:0"
) -> list[list[Any]]:  # fmt: skip
    """Return the results of a func called once with arrays of the host, then ``times`` times with arrays of the device in random
    memory orders, often enough for a graph.

    A program's results contain neither parameters nor a value twice, as ``pipeline.split_outcomes`` ensures.
    """
    shown = tuple(dict.fromkeys(v for v in function.results if v not in function.parameters))
    result = templated(replace(function, body=replace(function.body, results=shown)))
    constants = pipeline.typed_constants(result)
    built = []
    there = [laid_out(x, rng) for x in arguments] if times else []
    for inputs, count in ((list(arguments), 1), (there, times))[: 1 + bool(times)]:
        layouts = [g.layout if isinstance(g, DeviceArray) else "c" for g in inputs]
        executable = pipeline.build(result, (*layouts, *["c"] * len(constants)), device).executable
        for _ in range(count):
            results = executable.call(executable.instance(result.sizes), [*inputs, *constants])
            env = dict(zip(function.parameters, arguments)) | dict(zip(shown, map(np.asarray, results)))
            built.append([np.asarray(env[v]) for v in function.results])
            del results
    return built
