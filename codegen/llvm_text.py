"""LLVM IR text in the making: what every function of a module is written with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

THREADS = ("run", "enter", "leave", "gemm")
"""The functions whose addresses begin the table of the slot ("threads",)."""


@dataclass(frozen=True)
class Emitted:
    """``text``: a module that defines ``name``. ``slots``: what the arguments are, as tuples ("pointer", position), ("stride",
    position, axis), ("scalar", position, dtype), ("size", number), ("library", name), ("sort", name),
    ("ufunc", name, types, part), ("threads",)."""

    name: str
    text: str
    slots: tuple[tuple[Any, ...], ...]


class Writer:
    """A function in the making: its lines, those of its entry, the functions that it declares and the slots that it reads."""

    def __init__(self) -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.slots: list[tuple[object, ...]] = []
        self.natives: dict[tuple[object, ...], str] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def at_entry(self, text: str) -> str:
        """A value that is computed once, before everything else."""
        name = self.fresh()
        self.entry.append(f"  {name} = {text}")
        return name

    def slot(self, type_: str) -> str:
        """A stack slot."""
        return self.at_entry(f"alloca {type_}, align 64" if "<" in type_ else f"alloca {type_}")

    def argument(self, *what: object) -> str:
        """The i64 in the next argument slot, read at entry."""
        self.slots.append(what)
        return self.at_entry(f"load i64, ptr {self.at_entry(f'getelementptr i64, ptr %args, i64 {len(self.slots) - 1}')}")

    def address(self, *what: object) -> str:
        """The address in the next argument slot."""
        return self.at_entry(f"inttoptr i64 {self.argument(*what)} to ptr")

    def native(self, *what: object) -> str:
        """The address of a native function as an i64."""
        if what not in self.natives:
            self.natives[what] = self.argument(*what)
        return self.natives[what]

    def callee(self, *what: object) -> str:
        """A native function to call."""
        return self.let(f"inttoptr i64 {self.native(*what)} to ptr")

    def intrinsic(self, result: str, name: str, operands: Sequence[tuple[str, str]]) -> str:
        """A call of an LLVM intrinsic."""
        self.declared[f"declare {result} @{name}({', '.join(t for t, _ in operands)})"] = None
        call = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})"
        if result == "void":
            self.line(call)
            return ""
        return self.let(call)
