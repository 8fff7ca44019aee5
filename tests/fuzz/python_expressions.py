"""Random expressions of Python on dyadic numbers, whose values depend on no order of evaluation but Python's."""

from __future__ import annotations

import random

FLOATS, INTS, ARRAYS = ("p", "q", "r"), ("m", "k"), ("a", "b")
LENGTH = 4
"""Number of elements of each array."""
THEMES = (
    "list", "dict", "object", "growing", "deque", "nothing", "text", "unbound", "function", "match", "views", "alias", "ints",
    "wide", "errors", "raises", "tries", "kinds", "rows", "walrus", "division", "columns", "library", "grid", "slices", "masks",
    "comprehensions", "tuples", "objects", "sorted", "keys", "recursion", "lengths", "runs",
)  # fmt: skip
"""What a program may have besides branches and loops on numbers and arrays. A program has a few of these."""


class Expressions:
    """Writes expressions. ``themes``: those of the program; ``indices``: the loop variables that are bound."""

    def __init__(self, seed: int, themes: set[str]) -> None:
        self.random = random.Random(seed)
        self.themes = themes
        self.indices: list[str] = []

    def pick(self, *options: str) -> str:
        """Return one of some texts."""
        return self.random.choice(options)

    def has(self, theme: str, chance: float = 1.0) -> bool:
        """Return whether the program has a theme, and by chance."""
        return theme in self.themes and self.random.random() < chance

    def constant(self) -> str:
        return self.pick("0.5", "1.25", "-0.75", "2.0", "-1.5", "0.0")

    def atom(self) -> str:
        """Return a float that a name, an item or an attribute holds, or a constant."""
        options = [*FLOATS, *FLOATS, f"a[{self.index()}]", f"b[{self.index()}]", self.constant()]
        themes = {
            "list": ["s[0]", "s[-1]", "t[1]"], "dict": ["d['x']"], "object": ["g.x", "g.x"], "growing": ["h[-1]", "h[0]"],
            "deque": ["u[0]", "u[-1]"], "unbound": ["e"], "views": ["c[0]", "c[-1]"], "alias": ["c[1]"],
            "columns": [f"j[{self.pick('0', '1', 'm % 2')}, {self.index()}]"], "tuples": ["f[0]", "f[1][0]", "f[-1][1]"],
            "grid": [f"G[{self.pick('0', '1', 'm % 2')}][{self.pick('0', '-1', 'k % 2')}]"], "keys": ["D[m % 2]", "D[k % 2]"],
            "objects": ["O[0].x", "O[1].x", "O[m % 2].x"],
        }  # fmt: skip
        for theme in sorted(self.themes & themes.keys()):
            if self.random.random() < (0.15 if theme == "unbound" else 0.6):
                options += themes[theme]
        return self.pick(*options)

    def index(self) -> str:
        options = ["0", "1", "-1", "m % 4", "k % 4"]
        options += [f"{i} % 4" for i in self.indices]
        if self.has("errors", 0.15):
            options = ["m", "k", "k - 3", "v[0]", "v[m % 4]"]
        elif self.has("ints", 0.2):
            options += ["v[0] % 4", "-1 - k % 4"]
        return self.pick(*options)

    def float(self) -> str:
        """Return an expression of a Python float or one of NumPy's."""
        a, b = self.atom(), self.atom()
        options = [
            a, f"{a} + {b}", f"{a} - {b}", f"0.5 * {a}", f"0.5 * ({a} + {b})", f"abs({a})", f"-{a}", f"0.25 * {a} + 0.5",
            f"{a} - 0.5 * {b}",
        ]  # fmt: skip
        choice = self.random.random()
        if choice < 0.1:
            return f"({a} if {self.test()} else {b})"
        if choice < 0.16:
            options = [f"min({a}, {b})", f"max({a}, {b})", f"({a} or {b})", f"({a} and {b})", f"float({a} > {b})"]
        elif self.has("walrus", 0.3):
            options = [f"(y := {a} + 0.5)", f"(r := {a}) + r", f"(y := {a}) - 0.5 * y"]
        elif self.has("function", 0.4):
            options = [f"step({a})", f"step({a}, {b})", f"each({a})", "total()"]
        elif self.has("slices", 0.3):
            i, j = self.pick("k % 4", "m % 3", "1", *self.indices), self.pick("m % 4", "3", "-1", "k % 5")
            options = [f"sum(a[{i}:])", f"a[:{j}].sum()", f"np.sum(b[{i}:{j}])", f"a[{i}:{i} + 2].sum()", f"a[::-1][{i} % 4]"]
            options += [f"float(len(a[{i}:]))", f"a[{i} % 3:].max()", f"a[{i}:] @ b[{i}:]"]
        elif self.has("masks", 0.3):
            options = [f"a[a > {a}].sum()", f"float((a > {a}).sum())", f"np.where(a > {a}, a, b).sum()", f"np.maximum(a, {a})[0]"]
            options += [f"float(np.any(a > {a}))", f"float(len(a[a < {a}]))", f"a[np.argmax(b)] + {a}", "a[[0, 2]].sum()"]
        elif self.has("comprehensions", 0.3):
            options = [f"sum([w * 0.5 for w in a if w > {a}])", f"max([w - {a} for w in (p, q, r)])", "sum(w for w in b)"]
            options += [f"float(any(w > {a} for w in a))", f"float(all([p > {a}, q < {b}]))", f"[w + {a} for w in a][k % 4]"]
            options += [f"{{w: {a} * w for w in (0, 1)}}[1]", "sum([w for row in (a, b) for w in row])", f"[{a}, {b}][m % 2]"]
        elif self.has("sorted", 0.3):
            options = [f"sorted([{a}, {b}, p])[m % 3]", f"sorted([{a}, {b}], reverse=True)[0]", "np.sort(a)[k % 4]"]
            options += [f"max(p, q, {a})", f"min([{a}, {b}, q])", f"max([p, q, r], key=lambda w: abs(w - {a}))", "max(a)"]
            options += ["a[int(np.argmin(a))]", f"(lambda w: w + {a})(q)"]
        elif self.has("lengths", 0.4):
            options = ["L.sum()", f"np.sum(L * {a})", f"float(len(L)) - {a}", f"(L[0] if len(L) else {a})", "sum(L)"]
            options += [f"sum([w for w in L if w > {a}])", f"(L[-1] + {a} if L.size > 1 else {b})", f"np.sum(L > {a}) * 0.5"]
        elif self.has("recursion", 0.4):
            options = [f"down({a}, 3)", f"down({a}, m % 3)", f"down(0.5 * {a}, k % 4)"]
        elif self.has("division", 0.3):
            options = [f"{a} / {b}", f"{a} / 2", f"{a} // {b}", f"{a} % {b}", f"1.0 / {a}", f"{a} ** 2", f"divmod({a}, {b})[1]"]
        elif self.has("ints", 0.15):
            options = [f"{a} * {self.pick(*INTS)}", f"float({self.pick(*INTS)})", f"{a} + v[{self.index()}]"]
        return self.pick(*options)

    def int(self) -> str:
        """Return an expression of a Python int."""
        options = ["m + 1", "k - 1", "m", "k", "(m + k) % 5", "m // 2", "3", "-k", *self.indices]
        if self.random.random() < 0.1:
            return f"(k if {self.test()} else m)"
        if self.has("ints", 0.6):
            options = [
                "m * k % 11", "m % -3", "k // -2", "m << 2", "k >> 1", "m & 3", "k ^ m", "~m", "m | 4", "(k % 9) ** 2", "abs(k)",
                "min(m, k)", "max(m, 1)", "int(p > q)", "divmod(k, 3)[0]", "m & 7", "(m > 2) + k", "int(2 * q)", "len(a)",
                "-m % 5",
            ]  # fmt: skip
        if self.has("errors", 0.1):
            options = ["m // k", "m % k", "1 << max(-1, min(k, 9))", "m >> k"]
        return self.pick(*options)

    def test(self) -> str:
        """Return an expression of a truth."""
        a, b = self.atom(), self.atom()
        simple = self.pick(
            f"{a} > {b}", f"{a} <= {b}", f"{a} < {self.constant()}", "m < k", "k == 2", "m % 2 == 0", f"{a} != {b}",
            f"{self.constant()} < {a} <= {b}", *(f"{i} == 1" for i in self.indices), *(f"{i} > k" for i in self.indices),
        )  # fmt: skip
        other = self.pick(f"{b} > {self.constant()}", "k >= 1", "m != 3")
        if self.has("nothing", 0.3):
            simple = self.pick(
                "o is None", "o is not None", f"(o is not None and o > {a})", f"(o is None or o <= {a})", "not o", "o"
            )  # fmt: skip
        elif self.has("text", 0.3):
            simple = self.pick("z == 'low'", "z != 'high'", "z in ('mid', 'high')", "z not in ('low',)")
        elif self.has("ints", 0.2):
            simple = self.pick("m in (1, 3)", "k & 1", "m", "not k", "v[0] > m", "m == v[1]", "1 <= m < k")
        elif self.has("walrus", 0.2):
            simple = f"(y := {a}) > {b}"
        elif self.has("growing", 0.2):
            simple = self.pick("len(h) > 2", "len(h) % 2", f"h[-1] < {a}")
        elif self.has("lengths", 0.3):
            simple = self.pick("len(L) > 2", "L.size % 2", f"np.any(L > {a})", "len(L) == k", "len(L)")
        return self.pick(simple, simple, simple, f"{simple} and {other}", f"{simple} or {other}", f"not ({simple})")
