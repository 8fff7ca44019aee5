"""Measure the time of a routine on a device, by a generated kernel or by a library, on temporary buffers.

Matrices are far from singular, so that no candidate ends early. Times are measured on the device, between events on its
stream; the work is launched as a graph if it can be captured, as programs launch it, so that host time is excluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pullback.codegen.cuda.source.launch import Launch
from pullback.ir.core.types import DTYPES
from pullback.runtime.choices.choices import Unmeasurable
from pullback.runtime.cuda.device.graphs import Graph, captured
from pullback.runtime.cuda.driver.driver import cuda
from pullback.runtime.cuda.driver.errors import DeviceError
from pullback.runtime.cuda.libraries.calls import LibraryCall, SizedRoutine

if TYPE_CHECKING:
    from pullback.runtime.cuda.device.device import Device

REPEATS, ROUNDS = 8, 3
"""The number of repetitions per measurement, and of measurements."""
MAX_BYTES = 256 << 20
"""The largest size in bytes of the buffers of a measurement."""
Start = Callable[[Launch, Mapping[int, int], Any], None]
"""Enqueues a generated launch on a stream, with the operands' addresses by position."""


def seconds(
    device: Device, start: Start, launch: Launch, call: SizedRoutine, library: LibraryCall | None, own: Sequence[int]
) -> float:
    """Return the seconds of one candidate; ``own`` are the bytes of a library's buffers. Raises Unmeasurable."""
    sizes = [
        max(math.prod(shape), 1) * call.element(k) * (call.batch if call.routine.operands[k].is_batched else 1)
        for k, shape in enumerate(call.shapes)
    ]
    if sum(sizes) + sum(own) > MAX_BYTES:
        raise Unmeasurable("it would take too much memory")
    try:
        blocks = [device.take(size, "a measurement") for size in (*sizes, *own)]
        for k, (size, block) in enumerate(zip(sizes, blocks, strict=False)):
            _fill(device, call, k, size, block.address)
        by_position = {each.position: block.address for each, block in zip(call.routine.operands, blocks, strict=False)}
        if library is None:
            return timed(device, lambda stream: start(launch, by_position, stream))
        addresses = [*(by_position[k] for k in library.operands), *(block.address for block in blocks[len(sizes) :])]
        return timed(device, lambda stream: library.call(addresses, stream), library.captures)
    except (DeviceError, MemoryError, cuda.Error) as error:
        raise Unmeasurable(str(error)) from error


def _fill(device: Device, call: SizedRoutine, position: int, size: int, address: int) -> None:
    shape = call.shapes[position]
    if position in call.op.integers or position in call.op.work or len(shape) != 2 or not call.routine.is_for_small_matrices:
        cuda.memset_d8_async(address, 0, size, device.stream)
        return
    one = np.full(shape, 1 / 1024, _element_type(call, position))
    one[np.arange(min(shape)), np.arange(min(shape))] = 4
    count = size // one.nbytes
    device.staging.upload(np.ascontiguousarray(np.broadcast_to(one, (count, *shape))), address)


def _element_type(call: SizedRoutine, position: int) -> Any:
    real = DTYPES[call.routine.dtype].numpy
    is_complex = call.routine.is_complex and position not in call.op.real
    return np.result_type(real, np.complex64) if is_complex else real


def timed(device: Device, work: Callable[[Any], None], captures: bool = True) -> float:
    """Return the smallest mean time, in seconds, that the device takes for the work that ``work(stream)`` enqueues."""
    work(device.stream)
    repeated = _repeated(device, work) if captures else None
    times = []
    for _ in range(ROUNDS):
        first, last = cuda.Event(), cuda.Event()
        first.record(device.stream)
        if repeated is not None:
            repeated.launch(device.handle)
        else:
            for _ in range(REPEATS):
                work(device.stream)
        last.record(device.stream)
        last.synchronize()
        times.append(first.time_till(last) * 1e-3 / REPEATS)
    return float(min(times))


def _repeated(device: Device, work: Callable[[Any], None]) -> Graph | None:
    """Return a graph of ``REPEATS`` consecutive repetitions of the work; None if it cannot be captured."""
    try:
        return captured(device, [work] * REPEATS, [(k - 1,) if k else () for k in range(REPEATS)])
    except (DeviceError, cuda.Error, AttributeError):
        return None
