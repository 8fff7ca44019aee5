"""Build the LLVM IR text of a module's functions."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pullback.codegen.slots import Slot
from pullback.ir.core.records import dataclass
from pullback.ir.core.types import Extent

THREADS = ("run", "enter", "leave", "gemm")
"""The functions whose addresses are the first entries of the table in the slot ("threads",); the number of threads follows."""
NO_MEMORY = 0xFFFFFFFE
"""The status of a kernel that could not allocate heap memory."""
# Branch weights: the other successor is taken 100,000 times as often.
RARELY = '!9000 = !{!"branch_weights", i32 1, i32 100000}'
NOTHING = "!9001 = !{}"
"""What the mark of a load says of memory to which nothing writes."""
BRANCHY = "; many loops and branches\n"
"""First line of a driver with many loops and branches, which LLVM compiles without its pass NewGVN: an assertion of that pass,
which ends the process, limits the number of times that it visits a value, and nested loops that exchange values exceed it."""
HOT_LOOPS = "; hot loops\n"
"""First line of a driver with few branches that has loops in loops, or a loop over scalars: LLVM runs its usual passes, which
keep elements of arrays in registers from one iteration to the next and vectorise. NewGVN may fail for loops in loops too."""
BRIEF = "; brief\n"
"""The first line of a module that mostly calls others; optimising it would take longer than it ever runs."""
TIERED = "; tiered\n"
"""The first line of a module that is first compiled quickly, like a brief one, for the call that needs it, and later optimised
by a background thread for later callers; if it is a single function, callers that already have its address use the
optimised one too."""
OPTIMISED = "better"
"""The global variable of a quickly compiled module that receives the address of the optimised function."""
_DEFINED = re.compile(r"^define (\w+) @([\w.$-]+)\((.*)\)(.*) \{$", re.MULTILINE)
_IMPURE = frozenset({"load", "call", "alloca"})
"""First words of instructions that may yield another value when repeated."""
_READS_MEMORY = "llvm.masked."
"""Prefix of the names of intrinsics that read memory."""
NAMELESS = "kernel"
"""The provisional name of a kernel that is to be named by a hash of its text."""

_writing = threading.RLock()


class LazyText:
    """A text that is generated when ``str`` is first called on it, once across all threads."""

    def __init__(self, write: Callable[[], str]) -> None:
        self._write: Callable[[], str] | None = write
        self._text = ""

    @property
    def is_written(self) -> bool:
        """Return whether the text has been generated."""
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
    """An emitted module.

    ``text``: a module that defines ``name``. ``slots``: the arguments, as tuples ("pointer", position), ("stride", position,
    axis), ("scalar", position, dtype), ("size", number), ("library", name), ("gemm", name), ("sort", name), ("ufunc", name,
    types, part), ("threads",), ("room", "state", "take" or "give"): heap memory of the kernel, ("choice", subject, dtype,
    extents): the result of a tuning, as bits, ("shared", name, text): a function of another module, whose text may be a
    ``LazyText``, and ("shared", name, text, steps): one that is called only if the kernel's sizes reach it (``reachability``)
    and may be absent otherwise.
    """

    name: str
    text: str
    slots: tuple[Slot, ...]


def named(text: str, name: str) -> tuple[str, str]:
    """Name a module by a hash of its text; return the text and the new name.

    The symbols of ``text`` begin with ``name``, or end with it after a dot. The hash does not depend on ``name``.
    """

    def renamed(replacement: str) -> str:
        """Return the text with another name in the place of ``name``."""
        return text.replace(f"@{name}", f"@{replacement}").replace(f".{name}", f".{replacement}")

    symbol = "k" + hashlib.sha256(renamed("").encode()).hexdigest()[:24]
    return renamed(symbol), symbol


def is_brief(text: str) -> bool:
    """Return whether a module is marked as brief."""
    return text.startswith(BRIEF)


def has_hot_loops(text: str) -> bool:
    """Return whether a module is marked as one with loops in loops, or a loop over scalars."""
    return text.startswith(HOT_LOOPS)


def is_branchy(text: str) -> bool:
    """Return whether a module is marked as one of many loops and branches."""
    return text.startswith(BRANCHY)


def is_tiered(text: str) -> bool:
    """Return whether a module is marked as tiered."""
    return text.startswith(TIERED)


def quick_form(text: str) -> str:
    """Return a tiered text in the form that is compiled quickly; a single function calls the one in ``OPTIMISED`` once it is
    set."""
    definitions = _DEFINED.findall(text)
    if len(definitions) != 1 or " global " in text:
        return BRIEF + text
    result, name, parameters, attributes = definitions[0]
    arguments = ", ".join(f"{parameter.split()[0]} {parameter.split()[-1]}" for parameter in parameters.split(", ") if parameter)
    callees = {"quick": f"@{name}.quick", "well": "%found"}
    calls = {way: f"call {result} {callee}({arguments})" for way, callee in callees.items()}
    if result == "void":
        ends = {way: f"{call}\n  ret void" for way, call in calls.items()}
    else:
        ends = {way: f"%of.{way} = {call}\n  ret {result} %of.{way}" for way, call in calls.items()}
    written = "\n".join(f"{way}:\n  {end}" for way, end in ends.items())
    inside = _DEFINED.sub(f"define internal {result} @{name}.quick({parameters}){attributes} {{", text)
    return f"""{BRIEF}{inside}
@{OPTIMISED} = dso_local global ptr null

define {result} @{name}({parameters}){attributes} {{
  %found = load atomic ptr, ptr @{OPTIMISED} monotonic, align 8
  %is.quick = icmp eq ptr %found, null
  br i1 %is.quick, label %quick, label %well
{written}
}}
"""


def calls_optimised(text: str) -> bool:
    """Return whether a quick text calls an optimised function once it is set."""
    return is_brief(text) and f"@{OPTIMISED} = " in text


class Writer:
    """The writer of a function: its lines, the lines of its entry block, its declarations and its argument slots.

    ``available``: the results of the instructions that dominate the next line, by their text, for common subexpression
    elimination.
    """

    def __init__(self) -> None:
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.declared: dict[str, None] = {}
        self.slots: list[tuple[object, ...]] = []
        self.natives: dict[tuple[object, ...], str] = {}
        self.available: dict[str, str] = {}
        self.count = 0

    def fresh(self) -> str:
        """Return a new value name."""
        self.count += 1
        return f"%v{self.count}"

    def line(self, text: str) -> None:
        """Append a line."""
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """Return the result of an instruction, which is emitted unless an equal one is available."""
        name = self.available.get(text)
        if name is None:
            name = self.fresh()
            self.line(f"{name} = {text}")
            if text.partition(" ")[0] not in _IMPURE:
                self.available[text] = name
        return name

    def label(self, name: str, follows: bool = False) -> None:
        """Begin a block. ``follows``: all that is available dominates it."""
        if not follows:
            self.available = {}
        self.lines.append(f"{name}:")

    def current_block(self) -> str:
        """Return the label of the current block."""
        labels = (line for text in reversed(self.lines) for line in reversed(text.split("\n")) if line.endswith(":"))
        return next(labels, "entry:")[:-1]

    @contextmanager
    def conditional(self) -> Iterator[None]:
        """Enclose lines that may not run before later ones; results computed in them are not available afterwards."""
        known = self.available
        self.available = dict(known)
        yield
        self.available = known

    @contextmanager
    def when(self, test: str, rarely: bool = False) -> Iterator[None]:
        """Enclose lines that run if an i1 is true. ``rarely``: mark the branch as unlikely."""
        self.count += 1
        then, after = f"then{self.count}", f"after{self.count}"
        weights = ", !prof !9000" if rarely else ""
        if rarely:
            self.declared[RARELY] = None
        self.line(f"br i1 {test}, label %{then}, label %{after}{weights}")
        with self.conditional():
            self.label(then, follows=True)
            yield
            self.line(f"br label %{after}")
        self.label(after, follows=True)

    def at_entry(self, text: str) -> str:
        """Emit an instruction in the entry block; return its result."""
        name = self.fresh()
        self.entry.append(f"  {name} = {text}")
        return name

    def slot(self, type_: str) -> str:
        """Allocate a stack slot."""
        return self.at_entry(f"alloca {type_}, align 64" if "<" in type_ else f"alloca {type_}")

    def argument(self, *slot: object) -> str:
        """Return the i64 of a new argument slot, loaded at entry."""
        self.slots.append(slot)
        return self.at_entry(f"load i64, ptr {self.at_entry(f'getelementptr i64, ptr %args, i64 {len(self.slots) - 1}')}")

    def address(self, *slot: object) -> str:
        """Return the pointer of a new argument slot."""
        return self.at_entry(f"inttoptr i64 {self.argument(*slot)} to ptr")

    def native(self, *slot: object) -> str:
        """Return the address of a native function as an i64; each has one argument slot."""
        if slot not in self.natives:
            self.natives[slot] = self.argument(*slot)
        return self.natives[slot]

    def callee(self, *slot: object) -> str:
        """Return a native function as a pointer to call."""
        return self.let(f"inttoptr i64 {self.native(*slot)} to ptr")

    def intrinsic(self, result: str, name: str, operands: Sequence[tuple[str, str]]) -> str:
        """Emit a call of an LLVM intrinsic; return its result, or "" for void."""
        self.declared[f"declare {result} @{name}({', '.join(t for t, _ in operands)})"] = None
        call = f"call {result} @{name}({', '.join(f'{t} {v}' for t, v in operands)})"
        if result == "void":
            self.line(call)
            return ""
        if name.startswith(_READS_MEMORY):
            return self.let(call)
        if call not in self.available:
            self.available[call] = self.let(call)
        return self.available[call]


class Extents(Writer):
    """A writer that computes extents, at entry, from named sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.products: dict[Extent, str] = {}

    def size(self, name: str) -> str:
        """Return a size as an i64."""
        raise NotImplementedError

    def extent(self, extent: Extent) -> str:
        """Return an extent or a product of extents as an i64."""
        if isinstance(extent, int):
            return str(extent)
        if extent not in self.products:
            total, *factors = map(self.factor, extent.split("*"))
            for factor in factors:
                total = self.at_entry(f"mul i64 {total}, {factor}")
            self.products[extent] = total
        return self.products[extent]

    def factor(self, factor: str) -> str:
        """Return a factor of an extent: an integer, a name, or a quotient rounded up."""
        dividend, _, divisor = factor.partition("/")
        total, *names = (n if n.isdigit() else self.size(n) for n in dividend.split("."))
        for name in names:
            total = self.at_entry(f"mul i64 {total}, {name}")
        if not divisor:
            return total
        return self.at_entry(f"udiv i64 {self.at_entry(f'add i64 {total}, {int(divisor) - 1}')}, {divisor}")
