"""Random functions with Python's own control flow on dyadic numbers, whose results plain Python gives bit for bit."""

from __future__ import annotations

import linecache
import math
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.fuzz.python_expressions import ARRAYS, FLOATS, INTS, LENGTH, THEMES, Expressions

START = {
    "list": "s = t = [p, 0.5, q]", "dict": "d = {'x': 0.25, 'n': 1}", "object": "g = Level(p)", "growing": "h = [p]",
    "deque": "u = deque([p, 0.5, q])", "nothing": "o = None", "text": "z = 'low'", "views": "c = a[1:3]", "alias": "c = a",
    "walrus": "y = 0.25", "columns": "j = np.zeros((2, 4))", "library": "x, l = 0.5, np.ones(4)",
    "grid": "G = [[p, 0.5], [q, 0.25]]", "tuples": "f = (p, (q, 0.5))", "objects": "O = [Level(p), Level(0.5)]",
    "keys": "D = {0: p, 1: 0.5}", "lengths": "L = a[:2].copy()", "runs": "A, B = [p], [q]",
}  # fmt: skip
"""The statements that bind a theme's names."""
FUNCTIONS = (
    "    def step(x, y=0.25):", "        if x > y:", "            return 0.5 * x", "        return y - x",
    "    def total():", "        nonlocal r", "        r += 0.25", "        return r + p",
    "    each = lambda x: x if x > q else 0.5",
)  # fmt: skip
"""The lines of the functions inside a program of the theme ``function``."""
RECURSIVE = ("    def down(x, d):", "        return x if d <= 0 else 0.5 * down(x + q, d - 1)")
"""The lines of the function of the theme ``recursion``."""
RESULTS = {
    "list": "s[0], s[1], s[2], t[0]", "dict": "d['x'], d['n']", "object": "g.x, g.n", "growing": "np.array(h), len(h), h[-1]",
    "deque": "list(u)", "nothing": "o", "text": "z", "views": "c[0]", "alias": "c.copy()", "walrus": "y", "columns": "j",
    "library": "{'rough': (x, l)}", "grid": "G[0][0], G[0][1], G[1][0], G[1][1]", "tuples": "f", "keys": "D",
    "objects": "O[0].x, O[1].x, O[0].n", "lengths": "L, len(L)", "runs": "A, B, A is B",
}  # fmt: skip
"""What a theme's names add to the result."""
MOST_DEPTH = 3
"""Greatest depth of statements in statements."""


class Level:
    """An object of state."""

    def __init__(self, x: Any) -> None:
        self.x, self.n = x, 0

    def raised(self, by: Any) -> Any:
        self.x += by
        self.n += 1
        return self.x


class Writer(Expressions):
    """Writes one function ``f(p, q, n, a, v)``. ``is_loss``: it returns one float, for derivatives.

    Numbers that come from functions of the library, whose last digits may differ, are in the variables ``x`` and ``l``, which
    decide nothing.
    """

    def __init__(self, seed: int, is_loss: bool = False) -> None:
        choose = random.Random(seed + 10**6)
        super().__init__(seed, set(choose.sample(THEMES, choose.choice((0, 1, 2, 2, 3, 4)))))
        self.themes -= {"kinds", "wide"} if is_loss else {"rows"} if "wide" in self.themes else set()
        self.is_loss = is_loss
        self.is_shared = self.random.random() < 0.3
        if "views" in self.themes:
            self.themes.discard("alias")
        self.lines: list[str] = []
        self.count = 0
        self.loops: list[str] = []

    def run(self) -> str:
        """Return the text of the function."""
        self.lines = ["def f(p, q, n, a, v):", "    r = 0.5", "    m = 1"]
        count = self.pick("n", "n", "abs(v[3])", "int(abs(v[2]))")
        self.lines += [f"    k = int({count})" if "wide" in self.themes else f"    k = {count}", "    b = np.zeros(4)"]
        if self.random.random() < 0.4:
            self.lines.append("    a = a.copy()")
        self.lines += [f"    {START[theme]}" for theme in START if theme in self.themes]
        if "unbound" in self.themes:
            self.lines += [f"    if {self.pick('p > q', 'q < 0.5', 'k > 0')}:", "        e = 0.5 * p"]
        self.lines += FUNCTIONS if "function" in self.themes else ()
        self.lines += RECURSIVE if "recursion" in self.themes else ()
        more = [RESULTS[theme] for theme in RESULTS if theme in self.themes and self.random.random() < 0.8]
        result = self.pick("p, q, r, m, k, a, b", "p, q, r, m, k, a, b", "r + p - q, m", "r, p, k, a")
        more += [*(["e"] if self.has("unbound", 0.3) else []), *(["v"] if self.has("ints") else [])]
        self.result = ", ".join([result, *more])
        if self.is_loss:
            rough = " + x * 0.5 + l[0] - l[3]" if "library" in self.themes else ""
            self.result = f"r + 0.5 * p - 0.25 * q + 0.5 * (a[0] - a[1] + a[2] - a[3]) + b[0] - b[1]{rough}"
        for _ in range(self.random.randint(2, 4)):
            self.statement(1)
        self.lines.append(f"    return {self.result}")
        return "\n".join(self.lines) + "\n"

    def line(self, depth: int, text: str) -> None:
        """Append a line."""
        self.lines.append("    " * depth + text)

    def simple(self, depth: int) -> None:
        """Write a statement without statements inside."""
        themed = [theme for theme in sorted(self.themes) if theme in _STATEMENTS]
        if themed and self.random.random() < 0.45:
            self.line(depth, self.themed(self.random.choice(themed)))
            return
        choice = self.random.random()
        if choice < 0.4:
            self.line(depth, f"{self.pick(*FLOATS)} {self.pick('=', '=', '+=', '-=')} {self.float()}")
        elif choice < 0.55:
            self.line(depth, f"{self.pick(*INTS)} {self.pick('=', '=', '+=')} {self.int()}")
        elif choice < 0.8:
            self.line(depth, f"{self.pick(*ARRAYS)}[{self.index()}] {self.pick('=', '+=')} {self.float()}")
        elif choice < 0.88:
            self.line(depth, f"{self.pick(*ARRAYS)} = {self.pick('0.5 * a', 'a + b', 'b.copy()', 'a - 0.5 * b', 'b', 'a * p')}")
        elif choice < 0.94:
            self.line(depth, self.pick("p, q = q, p", "p, q, r = r, p, q", "a, b = b, a", "m, k = k, m", "p = r = q"))
        else:
            self.line(depth, f"{self.pick(*ARRAYS)}[1:3] {self.pick('=', '+=', '*=')} {self.float()}")

    def themed(self, theme: str) -> str:
        """Return a statement of a theme."""
        x, i, row = self.float(), self.index(), self.pick("0", "1", "m % 2")
        sign, i_two = self.pick("=", "+="), self.pick("0", "-1", "k % 2")
        low, high = self.pick("k % 4", "m % 3", "1", "n % 3"), self.pick("m % 4", "3", "-1", "k % 5")
        item = f"{self.pick('s[0]', 's[1]', 's[-1]', 't[2]')} {sign} {x}"
        statements: dict[str, tuple[str, ...]] = {
            "list": (item, item, "s[0], s[1] = t[1], t[2]", "t = [s[2], *t[:2]]"),
            "dict": (f"d['x'] {sign} {x}", "d['n'] += 1", f"d['n'] = {self.int()}", f"d = {{'x': {x}, 'n': d['n']}}"),
            "object": (f"g.x {sign} {x}", "g.n += 1", f"r = g.raised({x})", f"setattr(g, 'x', {x})"),
            "growing": (f"h.append({x})", f"h.append({x})", f"h[-1] = {x}", "r += h[-1]", f"h += [{x}]", "r += sum(h)"),
            "deque": (f"u.append({x}); u.popleft()", f"u[0] {sign} {x}", "u.rotate(1)"),
            "nothing": (
                f"o = {x}", "o = None", f"o = {x} if {self.test()} else None", "r = 0.5 * o if o is not None else r",
                "o = -o if o else o", "p = p if o is None else o", "r = r + 0.5 * o" if self.has("errors") else "o = 0.5",
            ),
            "text": (
                "z = 'high'", "z = 'mid'", "z = 'low' if z == 'high' else 'high'", "q = 0.25 if z == 'mid' else q",
                f"z = 'low' if {self.test()} else z",
            ),
            "unbound": (f"e = {x}", "r += e", "del e" if self.random.random() < 0.2 else "e = q", "e += 0.5"),
            "views": (
                f"c[{i if self.has('errors') else row}] {sign} {x}", "c[:] = 0.5 * c", "a[::2] += c", "c = a[::-1]", "c = b[:2]",
                "a[1:] = a[:-1]",
            ),
            "alias": (f"c[{i}] {sign} {x}", "c = b", "c = a", "b = a", "c += 0.5", "c = c + 0.25", "a, c = c, a"),
            "ints": (
                f"v[{i}] {sign} {self.int()}", f"v[1:] {sign} {self.int()}", "v = v + 1", "v = v[::-1].copy()", "m = m * 3 % 7",
                "v //= 2", "r += 0.5 * v[0]",
            ),
            "wide": (
                "m = m * 1099511628211 + k", "k = k * k % 2 ** 50", "m = (m * 6364136223846793005 + 1) % 2 ** 32",
                "k = 2 ** (k % 70)", "m = m << 20",
            ),
            "walrus": (f"r = (y := {x}) + y", f"b[{i}] = (y := {x})"),
            "columns": (
                f"j[{row}, {i}] {sign} {x}", f"j[:, {i}] {sign} {x}", "j[0] = a", "j[1, 1:3] += j[0, :2]", f"j[{row}] *= 0.5",
                "j = j[::-1].copy()",
            ),
            "grid": (
                f"G[{row}][{i_two}] {sign} {x}", f"G[0] = [{x}, p]", "G[0], G[1] = G[1], G[0]", f"R = G[{row}]; R[0] {sign} {x}",
                "G = [[0.5 * y for y in R] for R in G]", "r += sum(G[m % 2])",
            ),
            "slices": (
                f"a[{low}:] {sign} {x}", f"b[:{high}] {sign} {x}", f"a[{low}:{high}] *= 0.5", f"a[{low}:] = b[{low}:]",
                f"b[{low}:{low} + 2] += 0.25", f"a[{low}:][::-1] {sign} 0.5" if self.has("views") else f"a[{low}::2] += 0.5",
            ),
            "masks": (
                f"a[a > {x}] = 0.5", f"b[a < {x}] += 0.25", f"a = np.where(a > {x}, a, b)", "a[[0, 2]] += 0.5",
                "np.add.at(b, [0, 0, m % 4], 0.5)", f"b = np.maximum(b, {x})", "a[[k % 4, m % 4]] = b[:2]",
                f"b[np.argmax(a)] {sign} {x}", "a = np.minimum(a, b)",
            ),
            "comprehensions": (
                f"a = np.array([w + {x} for w in a])", f"r = sum([w if w > {x} else 0.5 for w in b])",
                "b = np.array([w * 0.5 for w in b])", f"p, q = [w - 0.5 * {x} for w in (p, q)]",
            ),
            "tuples": (f"f = (f[1][0], (f[0], {x}))", f"f = ({x}, f[1])", "p, (q, r) = f", "f = (r, (f[0], *f[1][:1]))"),
            "objects": (
                f"O[{row}].x {sign} {x}", "O[0], O[1] = O[1], O[0]", f"r = O[{row}].raised({x})", "r += sum([y.x for y in O])",
                f"O[{row}] = Level({x})",
            ),
            "sorted": (
                "p, q = sorted((p, q))", "a = np.sort(a)", "a.sort()", "p, q = min(p, q), max(p, q)", "b = b[np.argsort(a)]",
            ),
            "keys": (f"D[{row}] {sign} {x}", "D[m % 2], D[k % 2] = p, q", f"D = {{0: {x}, 1: D[0]}}", "r += sum(D.values())"),
            "lengths": (
                f"L = a[a > {x}]", f"L = b[{low}:].copy()", "L = L[1:]", "L = L[:k % 4]", f"L = np.append(L[:3], {x})",
                f"L = L + {x}", "L = L[::-1]", "L = np.zeros(abs(k) % 5)", "L = np.concatenate([L[:2], a[:m % 3]])",
                "L = L[L > 0.25]", f"L = a[:{high}] - {x}", "L *= 0.5", f"L[:1] {sign} {x}", "L = a * 0.5", "L = np.array([])",
                "L = np.repeat(p, m % 4)", f"L = np.array([w for w in a if w > {x}])", "b[:len(L[:3])] += L[:3]",
                "L = b[np.nonzero(a)[0]]", f"L[{i}] {sign} {x}" if self.has("errors") else "r += sum(L)",
                f"L = np.append(L, {x})[-4:]", f"L = L if len(L) > 6 else np.append(L, {x})", "L = np.sort(L)[::-1]",
            ),
            "runs": (
                f"A.append({x})", f"A.append({x})", f"A = [{x}]", "A = []", "r += sum(A)", "r += len(A)",
                f"A = [0.5 * w for w in A if w > {x}]",
                f"B.append({x})", f"B = [{x}, 0.5]", "r = A[-1] if A else 0.5", "r += B.pop() if B else p", "B, m = [], len(B)",
                "B = A" if self.is_shared else f"A += [{x}]", "A = B" if self.is_shared else "B.extend(A)",
            ),
            "library": self.library(x, i),
            "raises": (f"assert {self.test()}, 'text'", f"assert {self.test()}"),
        }  # fmt: skip
        return self.pick(*statements[theme])

    def library(self, x: str, i: str) -> tuple[str, ...]:
        """Return statements with functions of NumPy and of math."""
        return (
            f"x = {self.pick('np.sin', 'np.tanh', 'math.cos', 'np.arctan', 'math.atan')}(x + {x})", f"x = np.exp(-abs(x)) - {x}",
            f"x = {self.pick('np.sqrt(abs(x))', 'np.log1p(x * x)', '1.0 / (1.0 + x * x)', 'math.sqrt(x * x + 1.0)')}",
            f"l = np.tanh(l + {x})", f"l[{i}] = np.sin(x)", "l[1:] *= 0.5 * x", "x = np.sum(l) * 0.25", "x = l @ np.sin(l)",
            "l = np.cumsum(l) / 4", "x += l.mean()", f"x = np.maximum(x, {x})", f"l = np.where({self.test()}, l, 0.5 * x)",
            "x = np.tanh(l).max()", "l = np.sqrt(abs(l)) + np.roll(l, 1) / 3", "x = x / 3", "l = l / (1 + l * l)",
        )  # fmt: skip

    def body(self, depth: int) -> None:
        for _ in range(self.random.randint(1, 2)):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        """Write a statement at a depth."""
        choice = self.random.random()
        if depth > MOST_DEPTH or choice < 0.4:
            self.simple(depth)
        elif choice < 0.62:
            self.branch(depth)
        elif self.has("match", 0.3):
            self.match(depth)
        elif self.has("tries", 0.3):
            self.trial(depth)
        elif choice < 0.84:
            self.counted(depth)
        else:
            self.while_loop(depth)

    def branch(self, depth: int) -> None:
        """Write an ``if``, which may leave the loop or the function."""
        self.line(depth, f"if {self.test()}:")
        self.body(depth + 1)
        if self.loops and self.random.random() < 0.25:
            self.line(depth + 1, self.pick("break", "continue"))
        elif self.random.random() < 0.12:
            self.line(depth + 1, f"return {self.returned()}")
        elif self.has("raises", 0.3):
            self.line(depth + 1, f"raise {self.pick('ValueError', 'KeyError', 'RuntimeError', 'ZeroDivisionError')}('text')")
        if self.random.random() < 0.25:
            self.line(depth, f"elif {self.test()}:")
            self.body(depth + 1)
        if self.random.random() < 0.4:
            self.line(depth, "else:")
            self.body(depth + 1)

    def returned(self) -> str:
        """Return what a ``return`` in the middle returns."""
        if self.has("kinds", 0.7):
            return self.pick("None", "p", "m", "'early'", "p, m", "a", "True", "[p, q]", "{'p': p}", "a[0]")
        return self.result

    def match(self, depth: int) -> None:
        """Write a ``match``."""
        options = [
            ["m % 4", "0", "1 | 3", "_"], ["k", "0", "2", "x if x > 2"],
            ["(m % 2, k % 2)", "(0, 0)", "(1, _)", "(x, y) if x < y"],
            ["p", "0.5", "0.0", "_"], ["(p > q, m)", "(True, 1)", "(False, _)", "_"], ["[p, m]", "[_, 1]", "[x, *_]"],
        ]  # fmt: skip
        options += [["z", "'low'", "'mid' | 'high'"]] if "text" in self.themes else []
        options += [["o", "None", "_"]] if "nothing" in self.themes else []
        subject, *patterns = self.random.choice(options)
        self.line(depth, f"match {subject}:")
        for pattern in patterns:
            self.line(depth + 1, f"case {pattern}:")
            self.body(depth + 2)

    def trial(self, depth: int) -> None:
        """Write a ``try``."""
        self.line(depth, "try:")
        self.body(depth + 1)
        if self.random.random() < 0.4:
            failing = self.pick("r = 1.0 / q", "r += a[k]", "m = 3 // k", "raise ValueError('text')", "q = p / (k - 1)")
            self.line(depth + 1, failing)
        kind = self.pick("finally", "(ZeroDivisionError, IndexError)", "ValueError", "Exception", "Exception as x")
        self.line(depth, "finally:" if kind == "finally" else f"except {kind}:")
        self.body(depth + 1)
        if kind != "finally" and self.random.random() < 0.3:
            self.line(depth, "else:")
            self.body(depth + 1)

    def counted(self, depth: int) -> None:
        """Write a ``for``."""
        self.count += 1
        name = f"i{self.count}"
        extent = self.pick(
            "3", "n", "abs(v[1])", "4", "0", "k % 4", "2", "m % 4", "n + 1", "len(a)", *(f"{i} + 1" for i in self.indices),
        )  # fmt: skip
        start = self.pick("1", "0", "m % 3", *self.indices)
        target, use = name, self.pick(
            f"r += 0.25 * {name}", f"a[{name} % 4] += 0.5", f"m = (m + {name}) % 7", f"k = {name}", f"p += b[{name} % 4]"
        )  # fmt: skip
        header = self.pick(
            f"range({extent})", f"range({start}, {extent})", "range(3, -1, -1)", f"range(0, {extent}, 2)",
            f"range({extent}, 0, -1)", f"range({extent}, {start}, -2)", f"reversed(range({extent}))",
        )  # fmt: skip
        if self.has("rows", 0.5):
            pair = f"{name}, x"
            target, header, use = self.random.choice((
                (name, "a", f"r += {name}"), (pair, "enumerate(a)", f"r += {name} * x"), (pair, "zip(a, b)", f"r += {name} - x"),
                (name, "(0.5, p, q)", f"r += {name}"), (pair, "[(1, p), (2, q)]", f"r += {name} * x"),
                (name, "v", f"m = (m + {name}) % 5"), (pair, "enumerate(b, 1)", f"b[{name} % 4] = 0.5 * x"),
                (name, "a[::-1]", f"r = 0.5 * r + {name}"), (name, "('low', 'mid')", f"r += len({name})"),
                (pair, "{'x': p, 'y': 0.5}.items()", f"r += x * ({name} == 'y')"),
                (name, "[x + 0.5 for x in (p, q)]", f"r += {name}"),
            ))  # fmt: skip
        self.line(depth, f"for {target} in {header}:")
        self.line(depth + 1, use)
        if "range" in header:
            self.indices.append(name)
        self.loop(depth)
        if "range" in header:
            self.indices.remove(name)
        if self.random.random() < 0.1:
            self.line(depth, f"r += {name} * 0.5")

    def while_loop(self, depth: int) -> None:
        """Write a ``while`` of few iterations."""
        self.count += 1
        name = f"w{self.count}"
        self.line(depth, f"{name} = 0")
        endless = self.random.random() < 0.2
        self.line(depth, "while True:" if endless else f"while ({self.test()}) and {name} < 5:")
        self.line(depth + 1, f"{name} += 1")
        if endless:
            self.line(depth + 1, f"if {name} > {self.pick('2', 'k % 5', 'n')} or {self.test()}:")
            self.line(depth + 2, self.pick("break", "break", f"return {self.returned()}"))
        self.loop(depth)

    def loop(self, depth: int) -> None:
        """Write the statements of a loop, and its ``else``."""
        self.loops.append("")
        self.body(depth + 1)
        self.loops.pop()
        if self.random.random() < 0.15:
            self.line(depth, "else:")
            self.simple(depth + 1)
            if self.loops and self.random.random() < 0.5:
                self.line(depth + 1, f"if {self.test()}:")
                self.line(depth + 2, self.pick("break", "continue"))


_STATEMENTS = frozenset(
    ("list", "dict", "object", "growing", "deque", "nothing", "text", "unbound", "views", "alias", "ints", "wide", "walrus",
     "columns", "raises", "library", "grid", "slices", "masks", "comprehensions", "tuples", "objects", "sorted", "keys",
     "lengths", "runs")
)  # fmt: skip
"""The themes that have statements of their own."""


def function_of(seed: int, is_loss: bool = False) -> tuple[Callable[..., Any], str]:
    """Return a random function, whose source a line cache has, and its text."""
    text = Writer(seed, is_loss).run()
    return defined(text, f"<program {seed}>"), text


def defined(text: str, file: str) -> Callable[..., Any]:
    """Return the function ``f`` of a text, whose source a line cache has."""
    namespace: dict[str, Any] = {"np": np, "math": math, "Level": Level, "deque": deque}
    exec(compile(text, file, "exec", dont_inherit=True), namespace)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    function: Callable[..., Any] = namespace["f"]
    return function


def arguments_of(seed: int) -> tuple[Any, ...]:
    """Return arguments of dyadic numbers. The seeds 1000 S to 1000 S + 999 have those of program S, of the same types."""
    rng, kind = np.random.default_rng(seed), random.Random(seed // 1000)
    p, q = rng.integers(-8, 8, 2) * 0.25
    number = kind.choice((float, float, float, np.float64))
    dtype = kind.choice(("f8",) * 7 + ("f4",) * 2 + ("i8",))
    count = kind.choice((int, np.int64))
    scale = 1 if dtype == "i8" else 0.25
    a = (rng.integers(-8, 8, LENGTH) * scale).astype(dtype)
    return number(p), number(q), count(rng.integers(0, 5)), a, rng.integers(-4, 5, LENGTH)


def is_equal(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the bit, but for the sign of zeros. A number may have the dtype that the
    variable has on another path: float32, a float instead of int64, float64 or int64 instead of bool. The values of the key
    "rough" are equal to rounding."""
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_equal, a, b))
    if isinstance(a, dict):
        is_item_equal = _is_close if "rough" in a else is_equal
        return isinstance(b, dict) and [*a] == [*b] and all(is_item_equal(a[key], b[key]) for key in a)
    if a is None or isinstance(a, str):
        return type(a) is type(b) and bool(a == b)
    if b is None or isinstance(b, str | tuple | list | dict):
        return False
    x, y = np.asarray(a), np.asarray(b)
    if {x.dtype.char, y.dtype.char} in ({"f", "d"}, {"l", "d"}, {"l", "f"}, {"?", "l"}, {"?", "d"}):
        x, y = x.astype("f"), y.astype("f")
    return x.dtype == y.dtype and bool(np.array_equal(x, y, equal_nan=x.dtype.kind == "f"))


def _is_close(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Return whether numbers and arrays are equal to rounding, which is that of float32 for a number that the variable has in it
    on another path."""
    tolerance = 1e-3 if any(np.asarray(x).dtype.char == "f" for x in (*a, *b)) else 1e-9
    bounds = [max(tolerance, 1e-6 * (type(x) is float and np.float32(x) == x)) for x in a]
    return all(np.allclose(x, y, rtol=e, atol=e, equal_nan=True) for x, y, e in zip(a, b, bounds, strict=True))
