"""Native functions that kernels call: their addresses, and which of them are reachable with the sizes of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.cpu.llvm.text import LazyText
from pullback.codegen.cpu.loops.reachability import Steps, is_reached
from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.program import Launch
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries import symbols
from pullback.runtime.memory import kernel_scratch
from pullback.runtime.threads import threads

NATIVE = frozenset({"threads", "library", "gemm", "sort", "ufunc", "c", "shared", "room", "choice"})
"""The kinds of slots that hold addresses of native functions, or choices made on this machine: the same for all programs."""
Sizes = Mapping[str, int]


def native_address(slot: Slot) -> int:
    """Return the value of a slot whose kind is in ``NATIVE``: an address, or a choice."""
    if slot[0] == "threads":
        return threads.table()
    if slot[0] == "shared":
        return default_engine().load(str(slot[2]), symbols=[slot[1]])[slot[1]]
    if slot[0] in ("library", "gemm"):
        threads.make_library_sequential()
    if slot[0] in ("library", "gemm", "sort"):
        return symbols.address(slot[1])
    if slot[0] == "room":
        return kernel_scratch.addresses()[slot[1]]
    if slot[0] == "c":
        return symbols.address(f"c.{slot[1]}")
    if slot[0] == "choice":
        return choices_matmul.generated_mask(slot[2])
    loop = symbols.ufunc_loop(slot[1], slot[2])
    return int((loop.function if slot[3] == "function" else loop.data) or 0)


def steps_of(slot: Slot) -> Steps:
    """Return the steps of a slot ("shared", ...)."""
    return slot[3] if len(slot) > 3 else ()


def reaches(i: Instruction, steps: Steps, sizes: Sizes, chosen: Callable[[str], int] = choices_matmul.generated_mask) -> bool:
    """Return whether a kernel, launched by a program with these sizes, may call a function guarded by these steps; a function
    without steps is always called. ``chosen``: as for ``is_reached``."""
    return not steps or is_reached(steps, {f"s{k}": value_of(e, sizes) for k, e in enumerate(i.params["sizes"])}, chosen)


class Callees:
    """The functions of other modules that the kernels of a program's steps call, and the choices that select them; ``slots``:
    the slots of each kernel."""

    def __init__(self, steps: Sequence[Instruction], slots: Mapping[str, Sequence[Slot]]) -> None:
        own = {name: [slot for slot in each if slot[0] in ("shared", "choice")] for name, each in slots.items()}
        self._steps = [(i, own[i.params["kernel"]] if isinstance(i.op, Launch) else []) for i in steps]
        self._addresses: dict[Slot, int] = {}
        self.has_written = False
        """Whether texts were written for calls that no entry of the cache has: see ``Executable.keep``."""

    def addresses(self, sizes: Sizes) -> Sequence[Mapping[Slot, int]]:
        """Return for each step the values of these slots with these sizes, without functions that are not called. Functions
        that no call has reached before are compiled, by several threads. Raises CompileError."""
        chosen = functools.cache(choices_matmul.generated_mask)  # evaluated once, so that the called functions match the choices
        reached: list[list[Slot]] = []
        for i, slots in self._steps:
            reached.append([slot for slot in slots if slot[0] == "choice" or reaches(i, steps_of(slot), sizes, chosen)])
        called = dict.fromkeys(slot for each in reached for slot in each if slot[0] == "shared")
        new = [slot for slot in called if slot not in self._addresses]
        if new:
            deferred = [slot[2] for slot in new if isinstance(slot[2], LazyText)]
            self.has_written |= any(self._addresses or not text.is_written for text in deferred)
            with default_engine().precompile(threads.get_num_threads() - 1) as compile_ahead:
                for slot in new:
                    compile_ahead(str(slot[2]))
            self._addresses.update((slot, native_address(slot)) for slot in new)
        return [{slot: chosen(slot[2]) if slot[0] == "choice" else self._addresses[slot] for slot in each} for each in reached]
