"""One function on every target there is: the interpreter of each stage's text, and the compiled program.

The verifier runs after every stage, and each stage's text must print and parse back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import Function, Module
from pullback.ir.interpret import interpret
from pullback.ir.passes.pipeline import BEFORE_GRAD, OPTIMIZE, run
from pullback.ir.passes.size_classes import templated
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.text import parse_module, print_module
from pullback.ir.verify import verify_module
from pullback.runtime.program import executable as program_executable
from pullback.runtime.program.executable import Executable

Results = tuple[Any, ...]
MOST_INTERPRETED = 3000
"""Programs on more elements skip the interpreter of kernels, which takes microseconds for each scalar."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """Every stage of a function of concrete shapes."""

    function: Function
    optimised: Function
    fused: Function
    lowered: Module
    scheduled: Module
    executable: Executable
    sizes: Mapping[str, int]
    constants: tuple[Any, ...]

    @property
    def kernels(self) -> int:
        return len(self.lowered.functions) - 1

    def run(self, arguments: Sequence[Any]) -> Results:
        """Return the compiled program's results, and check that nothing is written next to their memory."""
        with guarded_memory():
            return tuple(self.executable.run([*arguments, *self.constants], self.sizes))


class _Guarded:
    """NumPy for the runtime, except that ``empty`` arrays are surrounded by bytes that must not change."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, int, int]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def empty(self, shape: Any, dtype: Any) -> Any:
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        whole = np.full(count + 256, 0xA5, np.uint8)
        first = 128 + -(whole.ctypes.data + 128) % 64
        self.made.append((whole, first, first + count))
        return whole[first : first + count].view(dtype).reshape(shape)

    def check(self) -> None:
        for whole, first, last in self.made:
            outside = np.concatenate([whole[:first], whole[last:]])
            assert (outside == 0xA5).all(), (
                f"{(outside != 0xA5).sum()} bytes beside a buffer of {last - first} bytes were written"
            )


@contextmanager
def guarded_memory() -> Iterator[None]:
    """Results and temporaries of programs are made with guards around them, which are checked in the end."""
    guarded = _Guarded()
    with patch.object(program_executable, "np", guarded):
        yield
    guarded.check()


def checked(module: Module) -> Module:
    """A module that is well-formed and whose text is a fixed point of parsing and printing."""
    verify_module(module)
    text = print_module(module)
    assert print_module(parse_module(text)) == text
    return module


def layout_of(argument: Any) -> str:
    """The memory order the runtime would name for an argument."""
    return "c" if np.asarray(argument).flags.c_contiguous else "strided"


def compiled(function: Function, layouts: Sequence[str] = ()) -> Compiled:
    """All stages of a function. ``layouts`` of its parameters: "c" or "strided"; all "c" if empty."""
    checked(Module((function,)))
    result = templated(function)
    count = len(result.constants)
    last = result.function.parameters[len(result.function.parameters) - count :]
    constants = tuple(v.type.dtype.numpy.type(c) for v, c in zip(last, result.constants, strict=True))
    optimised = run(grad(run(result.function, BEFORE_GRAD)), OPTIMIZE)
    fused = fuse(optimised)
    for stage in (result.function, optimised, fused):
        checked(Module((stage,)))
    everything = (*(layouts or ["c"] * len(function.parameters)), *["c"] * count)
    lowered = checked(lower(fused, everything))
    first, *kernels = lowered.functions
    scheduled = checked(Module((first, *map(schedule, kernels))))
    return Compiled(
        function=function,
        optimised=optimised,
        fused=fused,
        lowered=lowered,
        scheduled=scheduled,
        executable=Executable(scheduled),
        sizes=result.sizes,
        constants=constants,
    )


def run_targets(function: Function, arguments: Sequence[Any]) -> dict[str, Results]:
    """The results on every target, by the target's name; "interpreter" runs the func itself and is the oracle.

    Arguments that are not contiguous are passed with their strides.
    """
    result = compiled(function, [layout_of(a) for a in arguments])
    results: dict[str, Results] = {"interpreter": interpret(grad(function), *arguments)}
    inputs = (*arguments, *result.constants)
    results["fused"] = interpret(result.fused, *inputs, sizes=result.sizes)
    if (
        sum(_elements(f.results) for f in (result.function, result.fused)) + sum(np.size(a) for a in arguments)
        <= MOST_INTERPRETED
    ):
        for stage, module in (("kernels", result.lowered), ("scheduled", result.scheduled)):
            results[stage] = interpret(module.functions[0], *inputs, sizes=result.sizes, module=module)
    results["cpu"] = result.run(arguments)
    return results


def _elements(values: Sequence[Any]) -> int:
    return sum(int(np.prod([e for e in v.type.shape if isinstance(e, int)])) for v in values)


def spacing(x: Any) -> Any:
    """The distance of floats near ``x``, subnormal numbers included, in float64."""
    info = np.finfo(x.dtype) if x.dtype.name != "bfloat16" else None
    if info is None:
        return np.abs(x.astype(np.float64)) * 2.0**-8 + 2.0**-133
    size = np.minimum(np.abs(np.where(np.isfinite(x), x, 0)), np.nextafter(info.max, np.zeros_like(info.max)))
    return np.spacing(size).astype(np.float64)


def assert_close(result: Any, expected: Any, ulps: float = 0, floor: Any = 0.0, note: object = "") -> None:
    """One result agrees in dtype, shape and value: NaNs and infinities alike, other floats to ``ulps`` units in the last place of
    the expected value or of ``floor``; zeros keep their sign if ``ulps`` is 0. Of complex numbers: units of the larger part."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape), note
    if expected.dtype.kind == "c":
        larger = np.maximum(np.abs(expected.real), np.abs(expected.imag))
        for part in ("real", "imag"):
            wanted = getattr(expected, part)
            known = np.where(np.isfinite(larger), larger, np.abs(wanted))
            least = np.maximum(np.where(np.isfinite(known), known, 0.0), floor)
            assert_close(getattr(result, part), wanted, ulps, least, f"{part} part, {note}")
        return
    if expected.dtype.kind not in "fV":
        np.testing.assert_array_equal(result, expected, err_msg=str(note))
        return
    a, e = result.astype(np.float64), expected.astype(np.float64)
    same = (a == e) | (np.isnan(a) & np.isnan(e))
    if ulps:
        size = np.maximum(spacing(expected), spacing(np.broadcast_to(np.asarray(floor, expected.dtype), expected.shape)))
        with np.errstate(invalid="ignore"):
            same |= np.isfinite(a) & np.isfinite(e) & (np.abs(a - e) <= ulps * size)
    else:
        same &= (np.signbit(a) == np.signbit(e)) | np.isnan(e)
    if not same.all():
        wrong = np.argwhere(~same)[:8]
        lines = [f"at {tuple(map(int, w))}: {result[tuple(w)]!r}, expected {expected[tuple(w)]!r}" for w in wrong]
        raise AssertionError("\n".join([f"{(~same).sum()} of {same.size} elements differ: {note}", *lines]))
