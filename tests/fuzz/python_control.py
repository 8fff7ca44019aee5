"""Random functions with Python's own control flow on dyadic numbers, whose results plain Python gives bit for bit."""

from __future__ import annotations

import linecache
import random
from collections.abc import Callable
from typing import Any

import numpy as np

FLOATS, INTS, ARRAYS = ("p", "q", "r"), ("m", "k"), ("a", "b")
CONTAINERS = {"s": "t = [p, 0.5, q]", "d": "{'x': 0.25, 'n': 1}", "h": "[p]"}
"""A list with two names, a dict and a list that grows, by the names of their variables."""
LENGTH = 4
"""Number of elements of each array."""
MOST_DEPTH = 3
"""Greatest depth of statements in statements."""


class Writer:
    """Writes one function. ``loops``: the number of loops around the statement that is written."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.count = 0

    def run(self) -> str:
        """Return the text of a function ``f(p, q, n, a)``."""
        self.lines = ["def f(p, q, n, a):", "    r = 0.5", "    m = 1", "    k = n", "    b = np.zeros(4)"]
        self.lines += ["    o = None", "    z = 'low'"]
        self.containers = self.pick("", "", "s", "d", "s, d", "h", "h, s")
        self.lines += [f"    {name} = {CONTAINERS[name]}" for name in self.containers.split(", ") if name]
        if self.random.random() < 0.5:
            self.lines.append("    a = a.copy()")
        read = {"s": "s[0], s[1], s[2], t[0]", "d": "d['x'], d['n']", "h": "np.array(h), len(h), h[-1]"}
        more = [read[name] for name in self.containers.split(", ") if name]
        result = self.pick("p, q, r, m, k, a, b", "p, q, r, m, k, a, b", "r + p - q", "r, o, z", "p, o, z, m")
        self.result = ", ".join([result, *more])
        for _ in range(self.random.randint(2, 5)):
            self.statement(1, 0)
        self.lines.append(f"    return {self.result}")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def pick(self, *options: str) -> str:
        return self.random.choice(options)

    def number(self) -> str:
        return self.pick("0.5", "1.25", "-0.75", "2.0", "-1.5", "0.0")

    def atom(self) -> str:
        return self.pick(*FLOATS, *FLOATS, f"a[{self.index()}]", f"b[{self.index()}]", self.number())

    def index(self) -> str:
        return self.pick("0", "1", "-1", "m % 4", "k % 4")

    def float(self) -> str:
        a, b = self.atom(), self.atom()
        return self.pick(
            a, f"{a} + {b}", f"{a} - {b}", f"0.5 * {a}", f"0.5 * ({a} + {b})", f"abs({a})", f"-{a}",
            f"({a} if {self.test()} else {b})", f"0.25 * {a} + 0.5", f"{a} - 0.5 * {b}",
        )  # fmt: skip

    def int(self) -> str:
        return self.pick("m + 1", "k - 1", "m", "k", "(m + k) % 5", "m // 2", "3", f"(k if {self.test()} else m)")

    def test(self) -> str:
        a, b = self.atom(), self.atom()
        simple = self.pick(f"{a} > {b}", f"{a} <= {b}", f"{a} < {self.number()}", "m < k", "k == 2", "m % 2 == 0", f"{a} != {b}")
        other = self.pick(f"{b} > {self.number()}", "k >= 1", "m != 3")
        if self.random.random() < 0.2:
            simple = self.pick(
                "o is None", "o is not None", f"(o is not None and o > {a})", f"(o is None or o <= {a})", "z == 'low'",
                "z != 'high'", "z in ('mid', 'high')", "z not in ('low',)", "m in (1, 3)", "not o", "o",
            )  # fmt: skip
        chain = f"{self.number()} < {a} <= {b}"
        return self.pick(simple, simple, simple, f"{simple} and {other}", f"{simple} or {other}", f"not {simple}", chain)

    def state(self, depth: int) -> None:
        """Write a statement that changes a container."""
        name = self.random.choice(self.containers.split(", "))
        if name == "s":
            item = self.pick("s[0]", "s[1]", "s[-1]", "t[2]", "t[0]")
            change = f"{item} {self.pick('=', '+=')} {self.float()}"
            self.line(depth, self.pick(change, change, change, "s[0], s[1] = t[1], t[2]", "t = [s[2], *t[:2]]"))
        elif name == "d":
            self.line(depth, self.pick(f"d['x'] {self.pick('=', '+=')} {self.float()}", "d['n'] += 1", f"d['n'] = {self.int()}"))
        else:
            append = f"h.append({self.float()})"
            self.line(depth, self.pick(append, append, append, f"h[-1] = {self.float()}", f"r += h[-1] + {self.float()}"))

    def simple(self, depth: int) -> None:
        if self.containers and self.random.random() < 0.3:
            self.state(depth)
            return
        choice = self.random.random()
        if self.random.random() < 0.2:
            a = self.float()
            self.line(depth, self.pick(
                f"o = {a}", f"o = {a}", "o = None", f"o = {a} if {self.test()} else None", "z = 'high'", "z = 'mid'", "z = 'low'",
                "r = 0.5 * o if o is not None else r", "z = 'low' if z == 'high' else 'high'", "q = 0.25 if z == 'mid' else q",
                "o = -o if o else o", "r = r + 0.5 * o" if self.random.random() < 0.1 else "p = p if o is None else o",
            ))  # fmt: skip
        elif choice < 0.4:
            self.line(depth, f"{self.pick(*FLOATS)} {self.pick('=', '=', '+=', '-=')} {self.float()}")
        elif choice < 0.55:
            self.line(depth, f"{self.pick(*INTS)} = {self.int()}")
        elif choice < 0.8:
            self.line(depth, f"{self.pick(*ARRAYS)}[{self.index()}] {self.pick('=', '+=')} {self.float()}")
        elif choice < 0.88:
            self.line(depth, f"{self.pick(*ARRAYS)} = {self.pick('0.5 * a', 'a + b', 'b.copy()', 'a - 0.5 * b', 'b')}")
        elif choice < 0.94:
            self.line(depth, "p, q = q, p")
        else:
            self.line(depth, f"{self.pick(*ARRAYS)}[1:3] {self.pick('=', '+=')} {self.float()}")

    def body(self, depth: int, loops: int) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.statement(depth, loops)

    def statement(self, depth: int, loops: int) -> None:
        choice = self.random.random()
        if depth > MOST_DEPTH or choice < 0.4:
            self.simple(depth)
        elif choice < 0.66:
            self.line(depth, f"if {self.test()}:")
            self.body(depth + 1, loops)
            if loops and self.random.random() < 0.25:
                self.line(depth + 1, self.pick("break", "continue"))
            elif self.random.random() < 0.12:
                self.line(depth + 1, f"return {self.result}")
            if self.random.random() < 0.3:
                self.line(depth, f"elif {self.test()}:")
                self.body(depth + 1, loops)
            if self.random.random() < 0.5:
                self.line(depth, "else:")
                self.body(depth + 1, loops)
        elif choice < 0.84:
            self.count += 1
            name = f"i{self.count}"
            extent = self.pick("3", "n", "4", "0", "k % 4", "2")
            header = self.pick(f"range({extent})", f"range(1, {extent})", "range(3, -1, -1)", f"range(0, {extent}, 2)")
            self.line(depth, f"for {name} in {header}:")
            self.line(depth + 1, self.pick(f"r += 0.25 * {name}", f"a[{name} % 4] += 0.5", f"m = (m + {name}) % 7"))
            self.body(depth + 1, loops + 1)
            if self.random.random() < 0.15:
                self.line(depth, "else:")
                self.simple(depth + 1)
                if loops and self.random.random() < 0.5:
                    self.line(depth + 1, f"if {self.test()}:")
                    self.line(depth + 2, self.pick("break", "continue"))
        else:
            self.count += 1
            name = f"w{self.count}"
            self.line(depth, f"{name} = 0")
            self.line(depth, f"while ({self.test()}) and {name} < 5:")
            self.line(depth + 1, f"{name} += 1")
            self.body(depth + 1, loops + 1)


def function_of(seed: int) -> tuple[Callable[..., Any], str]:
    """Return a random function, whose source a line cache has, and its text."""
    text = Writer(seed).run()
    file = f"<program {seed}>"
    namespace: dict[str, Any] = {"np": np}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    return namespace["f"], text


def arguments_of(seed: int) -> tuple[Any, ...]:
    """Return arguments of dyadic numbers."""
    rng = np.random.default_rng(seed)
    p, q = rng.integers(-8, 8, 2) * 0.25
    return float(p), float(q), int(rng.integers(0, 5)), rng.integers(-8, 8, LENGTH) * 0.25


def is_equal(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the bit, but for the sign of zeros."""
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_equal, a, b))
    if a is None or isinstance(a, str):
        return type(a) is type(b) and bool(a == b)
    return b is not None and not isinstance(b, str) and bool(np.array_equal(np.asarray(a), np.asarray(b)))
