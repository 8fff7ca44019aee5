"""Random programs whose loops make several lists longer, by numbers that values decide, against plain Python."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import pytest

import pullback as pb
from tests.fuzz.store_checks import interpreted

DEFAULT, LONG, PARTS = 25, 4_000, 40
"""Numbers of programs in the default run and behind the long mark, and the parts of the latter."""
MOST_REFUSED = 0.2
"""Greatest share of the programs that may be refused: loops without a bound in others that read their lists."""
ARGUMENTS = [(0.25, 1.5, 2), (1.0, -0.5, 3), (2.0, 0.5, 1), (0.5, 2.0, 0), (-1.0, 0.25, 2)]
CONDITIONS = ("k == 2", "p > q", "s < 3.0", "k > 1", "q < 0")
ELEMENTS = ("p", "q * 2.0", "s + 1.0", "p * q", "1.0")


class Generator:
    """A program on dyadic numbers: loops, one in another, that append to lists and read them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lists = ["A", "B", "C"][: self.random.randint(2, 3)]
        self.loops = 0

    def text(self) -> str:
        starts = [f"    {name} = [{', '.join(['0.5'] * self.random.randint(0, 2))}]" for name in self.lists]
        loops = [line for _ in range(self.random.randint(1, 3)) for line in self.loop("    ", 0)]
        return "\n".join(["def f(p, q, k):", "    s = 0.0", *starts, *loops, f"    return s, {', '.join(self.lists)}", ""])

    def loop(self, indent: str, depth: int) -> list[str]:
        self.loops += 1
        counter, inner = f"w{self.loops}", indent + "    "
        if self.random.random() < 0.4:
            count = self.random.choice(["2", "k", "3", "k + 1"])
            return [f"{indent}for {counter} in range({count}):", *self.body(inner, depth)]
        test = self.random.choice(["p != 0.5", "q < 3.0", "s < 40.0"])
        most = self.random.choice(["3", "k", "k + 2", "4"])
        lines = [f"{indent}{counter} = 0", f"{indent}while {test} and {counter} < {most}:", f"{inner}{counter} += 1"]
        lines += self.body(inner, depth)
        return [*lines, f"{inner}if s > {self.random.randint(1, 20)}.5: break"] if self.random.random() < 0.3 else lines

    def body(self, indent: str, depth: int) -> list[str]:
        lines = [f"{indent}{self.statement()}" for _ in range(self.random.randint(1, 3))]
        return lines + self.loop(indent, depth + 1) if depth < 2 and self.random.random() < 0.35 else lines

    def statement(self) -> str:
        name, element = self.random.choice(self.lists), self.random.choice(ELEMENTS)
        condition, kind = self.random.choice(CONDITIONS), self.random.random()
        if kind < 0.4:
            return f"{name}.append({element})"
        if kind < 0.7:
            return f"if {condition}: {name}.append({element})"
        if kind < 0.8:
            return f"{name}.append({element} if {condition} else s)"
        return f"s += float(len({name}))" if kind < 0.9 else f"if {name}: s += {name}[-1] * 0.25"


def function_of(seed: int) -> Callable[..., Any]:
    """The function of a seed, whose source is at hand."""
    text, file = Generator(seed).text(), f"<lists {seed}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    names: dict[str, Any] = {}
    exec(compile(text, file, "exec"), names)
    function: Callable[..., Any] = names["f"]
    return function


def check(seeds: range) -> None:
    """Check programs. At most a share of them may be refused."""
    refused = 0
    for seed in seeds:
        function = function_of(seed)
        compiled = pb.jit(function, guards=False)
        for arguments in ARGUMENTS:
            try:
                with interpreted():
                    result = compiled(*arguments)
            except pb.TraceError:
                refused += 1
                break
            assert repr(result) == repr(function(*arguments)), (seed, arguments, Generator(seed).text())
    assert refused <= MOST_REFUSED * len(seeds)


def test_lists_have_the_elements_of_plain_python() -> None:
    check(range(DEFAULT))


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
def test_lists_of_many_programs_have_the_elements_of_plain_python(part: int) -> None:
    count = LONG // PARTS
    check(range(10_000 + part * count, 10_000 + (part + 1) * count))
