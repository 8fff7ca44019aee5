"""What kernels call outside: the addresses that their slots hold, and which of these the sizes of a program reach."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from pullback.codegen.cpu.llvm.text import Unwritten
from pullback.codegen.cpu.loops.reachability import Steps, is_reached
from pullback.codegen.slots import Slot
from pullback.ir.core.structure import Instruction
from pullback.ir.ops.program import Launch
from pullback.ir.shapes.extents import value_of
from pullback.runtime.choices import matmul as product_choices
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.libraries import symbols
from pullback.runtime.memory import kernel_scratch as own_memory
from pullback.runtime.threads import threads

NATIVE = frozenset({"threads", "library", "gemm", "sort", "ufunc", "c", "shared", "room", "choice"})
"""The kinds of slots that hold addresses of native functions, or what was chosen on this machine: the same for all programs."""
Sizes = Mapping[str, int]


def native_address(slot: Slot) -> int:
    """What a slot of a kind in ``NATIVE`` holds: an address, or a choice."""
    if slot[0] == "threads":
        return threads.table()
    if slot[0] == "shared":
        return default_engine().load(str(slot[2]), symbols=[slot[1]])[slot[1]]
    if slot[0] in ("library", "gemm"):
        threads.tame_library()
    if slot[0] in ("library", "gemm", "sort"):
        return symbols.address(slot[1])
    if slot[0] == "room":
        return own_memory.addresses()[slot[1]]
    if slot[0] == "c":
        return symbols.address(f"c.{slot[1]}")
    if slot[0] == "choice":
        return product_choices.bits(slot[2])
    loop = symbols.ufunc_loop(slot[1], slot[2])
    return int((loop.function if slot[3] == "function" else loop.data) or 0)


def steps_of(slot: Slot) -> Steps:
    """The steps of a slot ("shared", ...)."""
    return slot[3] if len(slot) > 3 else ()


def reaches(i: Instruction, steps: Steps, sizes: Sizes, chosen: Callable[[str], int] = product_choices.bits) -> bool:
    """Whether a kernel may call a function of which such steps tell, launched by a program with these sizes; one without steps is
    always called. ``chosen``: as ``is_reached`` has it."""
    return not steps or is_reached(steps, {f"s{k}": value_of(e, sizes) for k, e in enumerate(i.params["sizes"])}, chosen)


class Callees:
    """What the kernels of a program's steps call of other modules, and the choices by which they do; ``slots``: those of a
    kernel."""

    def __init__(self, steps: Sequence[Instruction], slots: Mapping[str, Sequence[Slot]]) -> None:
        own = {name: [slot for slot in each if slot[0] in ("shared", "choice")] for name, each in slots.items()}
        self._steps = [(i, own[i.params["kernel"]] if isinstance(i.op, Launch) else []) for i in steps]
        self._addresses: dict[Slot, int] = {}
        self.has_written = False
        """Whether texts were written for calls that no entry of the cache has: see ``Executable.keep``."""

    def of(self, sizes: Sizes) -> Sequence[Mapping[Slot, int]]:
        """For each step what these slots hold with these sizes, but for functions that are not called. What no call has reached
        before is compiled, by several threads. Raises CompileError."""
        chosen = functools.cache(product_choices.bits)  # settled once, so that what is called is there
        found: list[list[Slot]] = []
        for i, slots in self._steps:
            found.append([slot for slot in slots if slot[0] == "choice" or reaches(i, steps_of(slot), sizes, chosen)])
        called = dict.fromkeys(slot for each in found for slot in each if slot[0] == "shared")
        new = [slot for slot in called if slot not in self._addresses]
        if new:
            waiting = [slot[2] for slot in new if isinstance(slot[2], Unwritten)]
            self.has_written |= any(self._addresses or not text.is_written for text in waiting)
            with default_engine().ahead(threads.get_num_threads() - 1) as compile_ahead:
                for slot in new:
                    compile_ahead(str(slot[2]))
            self._addresses.update((slot, native_address(slot)) for slot in new)
        return [{slot: chosen(slot[2]) if slot[0] == "choice" else self._addresses[slot] for slot in each} for each in found]
