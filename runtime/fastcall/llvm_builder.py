"""A builder of native functions as LLVM IR text: loads, stores, calls, conditions and loops over 64-bit words and pointers.

A function's variables are stack slots at its head, which LLVM promotes to registers. A ``Word`` is a value: the text of an
operand and its type. Constants are folded while the text is emitted: of a constant condition one side is emitted, short loops
over ``each`` are unrolled, and loads from ``Known`` memory return its contents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from pullback.ir.core.records import dataclass

MAX_UNROLLED = 64
"""The largest trip count of a loop over ``each`` that is unrolled."""


@dataclass(frozen=True)
class Word:
    """An operand of the text and its type: "i64", "i32", "i8", "i1" or "ptr"."""

    text: str
    type: str = "i64"

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


@dataclass(frozen=True)
class Known(Word):
    """A pointer to memory with known contents: at ``contents[offset]`` bytes, a constant, an operand, or the contents of the
    memory that a pointer there leads to."""

    type: str = "ptr"
    contents: Mapping[int, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Parted(Word):
    """A pointer to memory in several parts, each with its first offset, its end and its own pointer."""

    type: str = "ptr"
    parts: tuple[tuple[int, int, Word], ...] = ()


Operand = Word | int
NULL = Word("null", "ptr")
YES, NO = Word("true", "i1"), Word("false", "i1")
_CONSTANTS = {"true": 1, "false": 0, "null": 0}


def constant_of(value: Operand) -> int | None:
    """Return the value of a constant operand; None if it is not constant."""
    if isinstance(value, int):
        return value
    constant = _CONSTANTS.get(value.text)
    if constant is None and value.text.lstrip("-").isdecimal():
        return int(value.text)
    return constant


def function_at(name: str) -> Word:
    """Return the function of that name in the same text."""
    return Word(f"@{name}", "ptr")


class Native:
    """A builder of one function. Its text is complete once every path through it has returned."""

    def __init__(
        self, name: str, parameters: Sequence[str], result: str = "i64", *, internal: bool = True, inline: bool = False
    ) -> None:
        self.parameters = [Word(f"%p{k}", type) for k, type in enumerate(parameters)]
        head = f"{'internal ' if internal else ''}{result} @{name}({', '.join(map(str, self.parameters))})"
        self._head = f"define {head} {'alwaysinline ' if inline else ''}nounwind {{"
        self._result = result
        self._allocas: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._loops: list[_Loop] = []
        self._inlined: list[_Inlined] = []
        self._has_left = False

    @property
    def text(self) -> str:
        lines = [self._head, "entry:", *self._allocas, *self._lines]
        return "\n".join([*lines, *([] if self._has_left else ["  unreachable"]), "}", ""])

    # values

    def let(self, expression: str, type: str = "i64") -> Word:
        """Emit an expression and return its value."""
        self._count += 1
        self._line(f"%v{self._count} = {expression}")
        return Word(f"%v{self._count}", type)

    def let_nothing(self, expression: str) -> None:
        """Emit an instruction without a value."""
        self._line(expression)

    def load(self, base: Word, offset: Operand = 0, type: str = "i64") -> Word:
        """Return the value at an address plus ``offset`` bytes."""
        at = constant_of(offset)
        content = base.contents.get(at) if isinstance(base, Known) and at is not None else None
        if isinstance(content, Word):
            return content
        if isinstance(content, int):
            return NULL if type == "ptr" and not content else Word(str(content), type)
        value = self.let(f"load {type}, {self.at(base, offset)}", type)
        return value if content is None else Known(value.text, contents=content)

    def item(self, base: Word, index: Operand, type: str = "i64") -> Word:
        """Return word ``index`` of the memory at an address."""
        return self.load(base, self.scaled(index), type)

    def store(self, value: Operand, base: Word, offset: Operand = 0) -> None:
        self._line(f"store {_word(value)}, {self.at(base, offset)}")

    def put(self, value: Operand, base: Word, index: Operand) -> None:
        """Store word ``index`` of the memory at an address."""
        self.store(value, base, self.scaled(index))

    def at(self, base: Word, offset: Operand) -> Word:
        """Return an address plus ``offset`` bytes."""
        n = constant_of(offset)
        if isinstance(base, Parted) and n is not None:
            first, _, pointer = next(part for part in base.parts if n < part[1])
            return self.at(pointer, n - first)
        if n == 0:
            return base
        pointer_ = self.let(f"getelementptr i8, {base}, {_word(offset)}", "ptr")
        if isinstance(base, Known) and n is not None:
            return Known(pointer_.text, contents={at - n: x for at, x in base.contents.items() if at >= n})
        return pointer_

    def scaled(self, index: Operand) -> Operand:
        return self.shl(_word(index), 3)

    def add(self, a: Word, b: Operand) -> Word:
        return self._binary("add", a, b)

    def sub(self, a: Word, b: Operand) -> Word:
        return self._binary("sub", a, b)

    def mul(self, a: Word, b: Operand) -> Word:
        return self._binary("mul", a, b)

    def bit_and(self, a: Word, b: Operand) -> Word:
        return self._binary("and", a, b)

    def bit_or(self, a: Word, b: Operand) -> Word:
        return self._binary("or", a, b)

    def xor(self, a: Word, b: Operand) -> Word:
        return self._binary("xor", a, b)

    def shl(self, a: Word, b: Operand) -> Word:
        return self._binary("shl", a, b)

    def shr(self, a: Word, b: Operand) -> Word:
        return self._binary("lshr", a, b)

    def eq(self, a: Word, b: Operand) -> Word:
        return self._compare("eq", a, b)

    def ne(self, a: Word, b: Operand) -> Word:
        return self._compare("ne", a, b)

    def lt(self, a: Word, b: Operand) -> Word:
        return self._compare("slt", a, b)

    def ge(self, a: Word, b: Operand) -> Word:
        return self._compare("sge", a, b)

    def is_null(self, a: Word) -> Word:
        if isinstance(a, Known) or a.text == "null":
            return NO if isinstance(a, Known) else YES
        return self.let(f"icmp eq {a}, null", "i1")

    def as_pointer(self, a: Word) -> Word:
        return self.let(f"inttoptr {a} to ptr", "ptr")

    def as_word(self, a: Word) -> Word:
        if a.type != "ptr" and (known := constant_of(a)) is not None:
            return Word(str(known))
        return self.let(f"{'ptrtoint' if a.type == 'ptr' else 'zext'} {a} to i64")

    def narrowed(self, a: Word, type: str) -> Word:
        if constant_of(a) is not None:
            return Word(a.text, type)
        return self.let(f"trunc {a} to {type}", type)

    def call(self, result: str, function: Word, *operands: Operand) -> Word:
        """Emit a call of a native function and return its result; no value for "void"."""
        text = f"call {result} {function.text}({', '.join(str(_word(o)) for o in operands)})"
        if result == "void":
            self._line(text)
            return Word("", "void")
        return self.let(text, result)

    # stack memory

    def variable(self, value: Operand) -> Variable:
        """Return a variable with an initial value."""
        word = _word(value)
        variable_ = self.variable_of(word.type)
        variable_.set(word)
        return variable_

    def variable_of(self, type: str) -> Variable:
        """Return an uninitialised variable."""
        self._count += 1
        slot = Word(f"%s{self._count}", "ptr")
        self._allocas.append(f"  {slot.text} = alloca {type}")
        return Variable(self, slot, type)

    def words(self, count: int, align: int = 16) -> Word:
        """Return ``count`` words on the stack."""
        self._count += 1
        self._allocas.append(f"  %s{self._count} = alloca [{count} x i64], align {align}")
        return Word(f"%s{self._count}", "ptr")

    def many_words(self, count: Word) -> Word:
        """Return a number of words on the stack that may be known only at run time; they live until the function returns."""
        known = constant_of(count)
        if known is not None:
            return self.words(max(known, 1))
        return self.let(f"alloca i64, {count}, align 16", "ptr")

    # control

    @contextmanager
    def when(self, condition: Word) -> Iterator[None]:
        """Run the code emitted inside if the condition holds."""
        known = constant_of(condition)
        if self._has_left or known is not None:
            before = self._has_left
            self._has_left = before or not known
            yield
            self._has_left = before or (bool(known) and self._has_left)
            return
        inside, after = self._label(), self._label()
        self._line(f"br {condition}, label %{inside}, label %{after}")
        self._start(inside)
        yield
        self._jump(after)
        self._start(after)

    @contextmanager
    def unless(self, condition: Word) -> Iterator[None]:
        """Run the code emitted inside if the condition does not hold."""
        with self.when(self.xor(condition, 1)):
            yield

    @contextmanager
    def loop(self) -> Iterator[None]:
        """Repeat the code emitted inside until it leaves."""
        if self._has_left:
            self._loops.append(_Loop(""))
            yield
            self._loops.pop()
            return
        inside, after = self._label(), self._label()
        self._jump(inside)
        self._start(inside)
        self._loops.append(_Loop(after))
        yield
        self._jump(inside)
        if self._loops.pop().is_left:
            self._start(after)

    def each(self, count: Operand, start: Operand = 0) -> Iterator[Word]:
        """Yield ``start``, ``start + 1``, ... below ``count``, for a Python loop. A short constant range is unrolled;
        otherwise the body is emitted once, with a variable. A loop that ends early must call ``leave``."""
        first, end = constant_of(start), constant_of(count)
        if first is None or end is None or end - first > MAX_UNROLLED:
            with self.count_to(count, start) as k:
                yield k
            return
        left = _Loop(self._label())
        for n in range(first, end):
            self._loops.append(left)
            yield Word(str(n))
            self._loops.pop()
        if left.is_left:
            self._jump(left.after)
            self._start(left.after)

    @contextmanager
    def count_to(self, count: Operand, start: Operand = 0) -> Iterator[Word]:
        """As ``each``, never unrolled."""
        k = self.variable(start)
        with self.loop():
            current = k.get()
            self.leave_if(self.ge(current, count))
            yield current
            k.set(self.add(current, 1))

    def leave_if(self, condition: Word) -> None:
        """Leave the innermost loop if the condition holds."""
        with self.when(condition):
            self.leave()

    def leave(self) -> None:
        if not self._has_left:
            self._loops[-1].is_left = True
            self._jump(self._loops[-1].after)

    @contextmanager
    def inlined(self, result: str) -> Iterator[Callable[[], Word]]:
        """Inline the function emitted inside: values that it returns are the value of the yielded callable afterwards. The
        code inside cannot leave a loop outside."""
        inlined_, loops = _Inlined(None if result == "void" else self.variable_of(result), self._label()), self._loops
        self._loops = []
        self._inlined.append(inlined_)
        yield lambda: Word("", "void") if inlined_.value is None else inlined_.value.get()
        self._inlined.pop()
        self._loops = loops
        if inlined_.is_left:
            self._jump(inlined_.after)
            self._start(inlined_.after)

    def ret(self, value: Operand) -> None:
        """Return a value from the function."""
        if self._has_left:
            return
        if self._inlined:
            inner = self._inlined[-1]
            if inner.value is not None:
                inner.value.set(value)
            inner.is_left = True
            self._jump(inner.after)
            return
        self._line(f"ret {_word(value)}")
        self._has_left = True

    def ret_void(self) -> None:
        if self._inlined:
            self.ret(0)
            return
        self._line("ret void")
        self._has_left = True

    def _binary(self, name: str, a: Word, b: Operand) -> Word:
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None and a.type in ("i64", "i1"):
            return _folded(name, x, y, a.type)
        if a.type == "i1" and name in ("and", "or") and (x is not None or y is not None):
            known, other = (x, _word(b)) if x is not None else (y, a)
            return other if bool(known) == (name == "and") else (YES if known else NO)
        return self.let(f"{name} {a}, {_text(b)}", a.type)

    def _compare(self, name: str, a: Word, b: Operand) -> Word:
        x, y = constant_of(a), constant_of(b)
        if x is not None and y is not None and a.type != "ptr":
            return YES if {"eq": x == y, "ne": x != y, "slt": x < y, "sge": x >= y}[name] else NO
        return self.let(f"icmp {name} {a}, {_text(b)}", "i1")

    def _label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def _line(self, text: str) -> None:
        if not self._has_left:
            self._lines.append(f"  {text}")

    def _jump(self, label: str) -> None:
        if not self._has_left:
            self._line(f"br label %{label}")
        self._has_left = True

    def _start(self, label: str) -> None:
        if not self._has_left and not self._lines[-1].lstrip().startswith("br"):
            self._line(f"br label %{label}")
        self._lines.append(f"{label}:")
        self._has_left = False


@dataclass
class _Loop:
    """A loop being emitted: the label after it, and whether it is left."""

    after: str
    is_left: bool = False


@dataclass
class _Inlined:
    """A function being inlined: the variable of its result, and the label after it."""

    value: Variable | None
    after: str
    is_left: bool = False


@dataclass(frozen=True)
class Variable:
    """A mutable value in a stack slot."""

    native: Native
    slot: Word
    type: str

    def get(self) -> Word:
        return self.native.load(self.slot, 0, self.type)

    def set(self, value: Operand) -> None:
        self.native.store(value, self.slot)


def _word(value: Operand) -> Word:
    return Word(str(value)) if isinstance(value, int) else value


def _folded(name: str, x: int, y: int, type: str) -> Word:
    result = {
        "add": lambda: x + y, "sub": lambda: x - y, "mul": lambda: x * y, "and": lambda: x & y, "or": lambda: x | y,
        "xor": lambda: x ^ y, "shl": lambda: x << y, "lshr": lambda: (x & _MASK) >> y,
    }[name]()  # fmt: skip
    if type == "i1":
        return YES if result & 1 else NO
    result &= _MASK
    return Word(str(result - (1 << 64) if result >> 63 else result))


_MASK = (1 << 64) - 1


def _text(value: Operand) -> str:
    return str(_word(value).text)
