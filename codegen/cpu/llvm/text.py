"""LLVM IR text in the making: what every function of a module is written with."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pullback.codegen.slots import Slot
from pullback.ir.core.types import Extent

THREADS = ("run", "enter", "leave", "gemm")
"""The functions whose addresses begin the table of the slot ("threads",); the number of threads follows."""
NO_MEMORY = 0xFFFFFFFE
"""The status of a kernel that got no memory of its own."""
# The other way of the branch is taken this many times as often.
RARELY = '!9000 = !{!"branch_weights", i32 1, i32 100000}'
BRIEF = "; brief\n"
"""What a module begins with that does little but call others: to compile it better would take longer than it ever runs."""
TIERED = "; tiered\n"
"""What a module begins with that is compiled as a brief one for the call that waits for it, and well by a thread later on, for
who asks for it then, and if it is one function for who has it already."""
BETTER = "better"
"""The variable of a module that is compiled quickly in which the address of its function is put that was compiled well."""
_DEFINED = re.compile(r"^define (\w+) @([\w.$-]+)\((.*)\)(.*) \{$", re.MULTILINE)
_EACH_TIME = frozenset({"load", "call", "alloca"})
"""The words that instructions begin with that may give another value when written again."""
_OF_MEMORY = "llvm.masked."
"""What the names of intrinsics that read memory begin with."""
NAMELESS = "kernel"
"""The name of a kernel while it is written that is named after its text."""

_writing = threading.RLock()


class Unwritten:
    """A text that is written when somebody asks for it, by ``str``: once, whatever threads do."""

    def __init__(self, write: Callable[[], str]) -> None:
        self._write: Callable[[], str] | None = write
        self._text = ""

    @property
    def is_written(self) -> bool:
        """Whether somebody has."""
        return self._write is None

    def __str__(self) -> str:
        if self._write is not None:
            with _writing:
                write = self._write
                if write is not None:
                    self._text = write()
                    self._write = None
        return self._text


@dataclass(frozen=True)
class Emitted:
    """``text``: a module that defines ``name``. ``slots``: what the arguments are, as tuples ("pointer", position), ("stride",
    position, axis), ("scalar", position, dtype), ("size", number), ("library", name), ("gemm", name), ("sort", name),
    ("ufunc", name, types, part), ("threads",), ("room", "state", "take" or "give"): memory for the kernel alone, ("choice",
    subject, dtype, extents): what was chosen, as bits, ("shared", name, text): a function of another module, whose text
    may be ``Unwritten``, and ("shared", name, text, steps): one that is called only if the kernel's sizes reach it (``reach``);
    it need not be there for others."""

    name: str
    text: str
    slots: tuple[Slot, ...]


def named(text: str, name: str) -> tuple[str, str]:
    """A text of which the symbols begin with ``name``, or end with it behind a point, with another one in its place, and that
    one: a hash of the text, whatever ``name`` is."""

    def spelled(by: str) -> str:
        return text.replace(f"@{name}", f"@{by}").replace(f".{name}", f".{by}")

    own = "k" + hashlib.sha256(spelled("").encode()).hexdigest()[:24]
    return spelled(own), own


def is_brief(text: str) -> bool:
    return text.startswith(BRIEF)


def is_tiered(text: str) -> bool:
    return text.startswith(TIERED)


def quick(text: str) -> str:
    """A tiered text as it is compiled quickly. If it is one function, that runs the one in ``BETTER``, once this is there."""
    found = _DEFINED.findall(text)
    if len(found) != 1 or " global " in text:
        return BRIEF + text
    result, name, parameters, attributes = found[0]
    given = ", ".join(f"{parameter.split()[0]} {parameter.split()[-1]}" for parameter in parameters.split(", ") if parameter)
    ways = {"quick": f"@{name}.quick", "well": "%found"}
    calls = {way: f"call {result} {callee}({given})" for way, callee in ways.items()}
    if result == "void":
        ends = {way: f"{call}\n  ret void" for way, call in calls.items()}
    else:
        ends = {way: f"%of.{way} = {call}\n  ret {result} %of.{way}" for way, call in calls.items()}
    written = "\n".join(f"{way}:\n  {end}" for way, end in ends.items())
    inside = _DEFINED.sub(f"define internal {result} @{name}.quick({parameters}){attributes} {{", text)
    return f"""{BRIEF}{inside}
@{BETTER} = dso_local global ptr null

define {result} @{name}({parameters}){attributes} {{
  %found = load atomic ptr, ptr @{BETTER} monotonic, align 8
  %is.quick = icmp eq ptr %found, null
  br i1 %is.quick, label %quick, label %well
{written}
}}
"""


def has_better(text: str) -> bool:
    """Whether a quick text looks for a better function."""
    return is_brief(text) and f"@{BETTER} = " in text


class Writer:
    """A function in the making: its lines, those of its entry, the functions that it declares and the slots that it reads.

    ``known``: what instructions written so far gave, by their texts; of those alone that are sure to run before the next line.
    """

    def __init__(self) -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.slots: list[tuple[object, ...]] = []
        self.natives: dict[tuple[object, ...], str] = {}
        self.known: dict[str, str] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The value of an instruction, which is written once where it is known."""
        found = self.known.get(text)
        if found is None:
            found = self.fresh()
            self.line(f"{found} = {text}")
            if text.partition(" ")[0] not in _EACH_TIME:
                self.known[text] = found
        return found

    def label(self, name: str, follows: bool = False) -> None:
        """A block begins. ``follows``: it is only reached by way of all that is known."""
        if not follows:
            self.known = {}
        self.lines.append(f"{name}:")

    def here(self) -> str:
        """The name of the block that is being written."""
        found = (line for text in reversed(self.lines) for line in reversed(text.split("\n")) if line.endswith(":"))
        return next(found, "entry:")[:-1]

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is written inside may not run before what is written after: it is forgotten there."""
        known = self.known
        self.known = dict(known)
        yield
        self.known = known

    @contextmanager
    def when(self, test: str, rarely: bool = False) -> Iterator[None]:
        """What is written inside runs if an i1 is true, which it may hardly ever be."""
        self.count += 1
        then, after = f"then{self.count}", f"after{self.count}"
        weights = ", !prof !9000" if rarely else ""
        if rarely:
            self.declared[RARELY] = None
        self.line(f"br i1 {test}, label %{then}, label %{after}{weights}")
        with self.aside():
            self.label(then, follows=True)
            yield
            self.line(f"br label %{after}")
        self.label(after, follows=True)

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
        if name.startswith(_OF_MEMORY):
            return self.let(call)
        if call not in self.known:
            self.known[call] = self.let(call)
        return self.known[call]


class Extents(Writer):
    """A writer that computes extents, at entry, from sizes that it has by name."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[Extent, str] = {}

    def size(self, name: str) -> str:
        """A size as an i64."""
        raise NotImplementedError

    def extent(self, extent: Extent) -> str:
        """An extent, or a product of extents, as an i64."""
        if isinstance(extent, int):
            return str(extent)
        if extent not in self.products:
            total, *rest = map(self.factor, extent.split("*"))
            for factor in rest:
                total = self.at_entry(f"mul i64 {total}, {factor}")
            self.products[extent] = total
        return self.products[extent]

    def factor(self, factor: str) -> str:
        """A number, a name, or a quotient that is rounded up."""
        whole, _, divisor = factor.partition("/")
        total, *rest = (n if n.isdigit() else self.size(n) for n in whole.split("."))
        for name in rest:
            total = self.at_entry(f"mul i64 {total}, {name}")
        if not divisor:
            return total
        return self.at_entry(f"udiv i64 {self.at_entry(f'add i64 {total}, {int(divisor) - 1}')}, {divisor}")
