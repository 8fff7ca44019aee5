"""Writes native functions as LLVM IR text: loads, stores, calls, conditions and loops over 64-bit words and pointers.

A function's variables are stack slots at its head, which LLVM turns into registers. A ``Word`` is a value: the text of an operand
and its type.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

WORD_BYTES = 8


@dataclass(frozen=True)
class Word:
    """An operand of the text and its type: "i64", "i32", "i8", "i1" or "ptr"."""

    text: str
    type: str = "i64"

    def __str__(self) -> str:
        return f"{self.type} {self.text}"


Operand = Word | int
NULL = Word("null", "ptr")


def function_at(name: str) -> Word:
    """A function of the same text."""
    return Word(f"@{name}", "ptr")


class Native:
    """One function. Its text is complete once every way through it has returned."""

    def __init__(
        self, name: str, parameters: Sequence[str], result: str = "i64", *, internal: bool = True, inline: bool = False
    ) -> None:
        self.parameters = [Word(f"%p{k}", type) for k, type in enumerate(parameters)]
        head = f"{'internal ' if internal else ''}{result} @{name}({', '.join(map(str, self.parameters))})"
        self._head = f"define {head} {'alwaysinline ' if inline else ''}nounwind {{"
        self._result = result
        self._places: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._loops: list[tuple[str, str]] = []
        self._has_left = False

    @property
    def text(self) -> str:
        lines = [self._head, "entry:", *self._places, *self._lines]
        return "\n".join([*lines, *([] if self._has_left else ["  unreachable"]), "}", ""])

    # values

    def let(self, expression: str, type: str = "i64") -> Word:
        """A new value."""
        self._count += 1
        self._line(f"%v{self._count} = {expression}")
        return Word(f"%v{self._count}", type)

    def let_nothing(self, expression: str) -> None:
        """What is done for its effect."""
        self._line(expression)

    def load(self, base: Word, offset: Operand = 0, type: str = "i64") -> Word:
        """What lies at an address, ``offset`` bytes further."""
        return self.let(f"load {type}, {self.at(base, offset)}", type)

    def item(self, base: Word, index: Operand, type: str = "i64") -> Word:
        """Word ``index`` at an address."""
        return self.load(base, self.scaled(index), type)

    def store(self, value: Operand, base: Word, offset: Operand = 0) -> None:
        self._line(f"store {_word(value)}, {self.at(base, offset)}")

    def put(self, value: Operand, base: Word, index: Operand) -> None:
        """Store word ``index`` at an address."""
        self.store(value, base, self.scaled(index))

    def at(self, base: Word, offset: Operand) -> Word:
        """An address some bytes further."""
        if offset == 0:
            return base
        return self.let(f"getelementptr i8, {base}, {_word(offset)}", "ptr")

    def scaled(self, index: Operand) -> Operand:
        return index * WORD_BYTES if isinstance(index, int) else self.shl(index, 3)

    def add(self, a: Word, b: Operand) -> Word:
        return self._binary("add", a, b)

    def sub(self, a: Word, b: Operand) -> Word:
        return self._binary("sub", a, b)

    def mul(self, a: Word, b: Operand) -> Word:
        return self._binary("mul", a, b)

    def both(self, a: Word, b: Operand) -> Word:
        return self._binary("and", a, b)

    def either(self, a: Word, b: Operand) -> Word:
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
        return self.let(f"icmp eq {a}, null", "i1")

    def as_pointer(self, a: Word) -> Word:
        return self.let(f"inttoptr {a} to ptr", "ptr")

    def as_word(self, a: Word) -> Word:
        return self.let(f"{'ptrtoint' if a.type == 'ptr' else 'zext'} {a} to i64")

    def narrowed(self, a: Word, type: str) -> Word:
        return self.let(f"trunc {a} to {type}", type)

    def call(self, result: str, function: Word, *operands: Operand) -> Word:
        """The result of a call of a native function; no value for "void"."""
        text = f"call {result} {function.text}({', '.join(str(_word(o)) for o in operands)})"
        if result == "void":
            self._line(text)
            return Word("", "void")
        return self.let(text, result)

    # memory of the call

    def variable(self, value: Operand) -> Variable:
        """A variable that starts with a value."""
        self._count += 1
        word = _word(value)
        place = Word(f"%s{self._count}", "ptr")
        self._places.append(f"  {place.text} = alloca {word.type}")
        made = Variable(self, place, word.type)
        made.set(word)
        return made

    def words(self, count: int) -> Word:
        """A few words on the stack."""
        self._count += 1
        self._places.append(f"  %s{self._count} = alloca [{count} x i64], align 16")
        return Word(f"%s{self._count}", "ptr")

    def many_words(self, count: Word) -> Word:
        """As many words on the stack as the call asks for, until the function returns."""
        return self.let(f"alloca i64, {count}, align 16", "ptr")

    # control

    @contextmanager
    def when(self, condition: Word) -> Iterator[None]:
        """What is written inside runs if the condition holds."""
        inside, after = self._label(), self._label()
        self._line(f"br {condition}, label %{inside}, label %{after}")
        self._start(inside)
        yield
        self._jump(after)
        self._start(after)

    @contextmanager
    def unless(self, condition: Word) -> Iterator[None]:
        """What is written inside runs if the condition does not hold."""
        with self.when(self.xor(condition, 1)):
            yield

    @contextmanager
    def loop(self) -> Iterator[None]:
        """What is written inside runs until it leaves."""
        inside, after = self._label(), self._label()
        self._jump(inside)
        self._start(inside)
        self._loops.append((inside, after))
        yield
        self._loops.pop()
        self._jump(inside)
        self._start(after)

    @contextmanager
    def count_to(self, count: Operand, start: Operand = 0) -> Iterator[Word]:
        """Gives ``start``, ``start + 1``, ... below ``count``. What leaves early has to ``leave``; there is no ``again``."""
        k = self.variable(start)
        with self.loop():
            now = k.get()
            self.leave_if(self.ge(now, count))
            yield now
            k.set(self.add(now, 1))

    def leave_if(self, condition: Word) -> None:
        """Leave the innermost loop."""
        on = self._label()
        self._line(f"br {condition}, label %{self._loops[-1][1]}, label %{on}")
        self._start(on)

    def leave(self) -> None:
        self._jump(self._loops[-1][1])

    def give(self, value: Operand) -> None:
        """Return a value."""
        self._line(f"ret {_word(value)}")
        self._has_left = True

    def give_nothing(self) -> None:
        self._line("ret void")
        self._has_left = True

    def _binary(self, name: str, a: Word, b: Operand) -> Word:
        return self.let(f"{name} {a}, {_text(b)}", a.type)

    def _compare(self, name: str, a: Word, b: Operand) -> Word:
        return self.let(f"icmp {name} {a}, {_text(b)}", "i1")

    def _label(self) -> str:
        self._count += 1
        return f"l{self._count}"

    def _line(self, text: str) -> None:
        if self._has_left:
            self._start(self._label())
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


@dataclass(frozen=True)
class Variable:
    """A value that changes."""

    native: Native
    place: Word
    type: str

    def get(self) -> Word:
        return self.native.load(self.place, 0, self.type)

    def set(self, value: Operand) -> None:
        self.native.store(value, self.place)


def _word(value: Operand) -> Word:
    return Word(str(value)) if isinstance(value, int) else value


def _text(value: Operand) -> str:
    return str(_word(value).text)
