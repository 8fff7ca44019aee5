"""Random programs in the styles of several classes, each with statements of its own: dicts, closures, tuples and objects, arrays
and their views, searches and errors, ints."""

from __future__ import annotations

import functools
import math
import random
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np


class Pair(NamedTuple):
    """A namedtuple of a program."""

    x: Any
    y: Any


@dataclass
class Particle:
    """An object of a program, which its methods change."""

    x: Any
    v: Any
    n: int = 0

    def step(self, h: Any) -> Any:
        self.x += h * self.v
        self.n += 1
        return self.x


@dataclass(frozen=True)
class Frozen:
    """An object of a program, of which it makes others."""

    x: Any
    y: Any


NAMES = {"np": np, "math": math, "functools": functools, "Counter": Counter, "defaultdict": defaultdict, "deque": deque}
NAMES |= {"Pair": Pair, "Particle": Particle, "Frozen": Frozen, "replace": replace}
"""The globals of a program."""


@dataclass(frozen=True)
class Style:
    """What programs of a class consist of. In texts, ``$x`` stands for a float, ``$i`` for an int and ``$c`` for a condition."""

    starts: Sequence[str]
    statements: Sequence[str]
    results: Sequence[str]
    tests: Sequence[str] = field(default=("$c",))
    loops: Sequence[str] = field(default=())


STYLES = {
    "dicts": Style(
        ("d = {}", "e = {0: p, 2: 0.5}", "g = defaultdict(list)", "c = Counter()"),
        (
            "d[$i] = d.get($i, 0.0) + $x", "e[$i % 3] = $x", "s += e.get($i, 0.25)", "s += d.pop($i, 0.5)",
            "s += sum(d.values())",
            "s += d.setdefault($i % 3, $x)", "d.update({$i: $x})", "e.pop($i, None)", "d = {}", "d[$i % 3], e[$i % 3] = $x, s",
            "for key, value in d.items():\n    s += value * key", "for key in list(d):\n    if d[key] > $x:\n        del d[key]",
            "e = {key: value * 0.5 for key, value in d.items()}", "e = dict(d)", "if d:\n    m = max(d, key=d.get)",
            "if d:\n    m = min(d.items(), key=lambda item: item[1])[0]", "d |= {$i: $x}", "d.clear()",
            "try:\n    s += d[$i]\nexcept KeyError:\n    t += 1.0", "s += d[$i] if $i in d else 0.25", "g[$i % 3].append($x)",
            "c[$i % 3] += 1", "s += len(g)", "for key, values in g.items():\n    s += sum(values)", "m += c[$i]",
            "for key in sorted(d):\n    s = s * 0.5 + d[key]", "if g[$i % 3]: s += g[$i % 3].pop()",
        ),
        ("d", "e", "g", "c"), ("$i in d", "$i not in e", "len(d) > 2", "d", "any(w > $x for w in e.values())", "c[$i] > 1"),
        ("for key in [*d]:\n    s += 0.5", "for key, value in list(e.items()):\n    s += value"),
    ),
    "functions": Style(
        (
            "def early(x, y=0.5):\n    if x > y:\n        return x - y\n    if x < 0:\n        return -x\n    return x * y",
            "def steps(x, count):\n    r = 0.0\n    for i in range(count):\n        if r > 4: return r\n"
            "        r += x * 0.5\n    return r",
            "def counted(x, j, *rest, scale=1.0):\n    if j % 2:\n        return x, j\n    return x * scale + len(rest), j + 1",
            "def count():\n    nonlocal m, t\n    m += 1\n    t = t * 0.5 + m\n    return m",
            "def maybe(x):\n    if x > q:\n        return x",
            "def gcd(u, w):\n    while w:\n        u, w = w, u % w\n    return u",
            "def scaled(c):\n    def inner(x):\n        return x * c + s\n    return inner", "g = scaled(p)",
            "def find(values, x):\n    for i, w in enumerate(values):\n        if w > x:\n            return i\n    return -1",
            "def put(array, i, x):\n    array[i % len(array)] += x\n    return array",
            "h = lambda x, k=0.25: x + k if x > t else k",
        ),
        (
            "s = early($x)", "s = early($x, y=$x)", "s += steps($x, $i % 5)", "s, m = counted($x, $i)", "count()", "s += count()",
            "s, m = counted($x, $i, 1, 2, scale=$x)", "w = maybe($x)\nif w is not None: s += w", "m = gcd($i % 7, abs($i) + 1)",
            "g = scaled($x)", "s = g($x)", "t = h($x)", "s = (early, h)[$i % 2]($x)", "s += sum(map(h, (p, q, s)))",
            "s = functools.reduce(lambda u, w: u * 0.5 + w, [p, q, $x])", "m = find(a, $x)", "put(a, $i, $x)",
            "a = put(a.copy(), $i, $x)", "for function in (early, h):\n    s += function($x)",
            "s += [early(w) for w in a][$i % 4]",
            "s = max((p, q, s), key=lambda u: abs(u - t))", "def late(x):\n    return x * s - t\ns = late($x)",
        ),
        (), ("early($x) > $x", "maybe($x) is None", "find(v, $i) >= 0"),
    ),
    "objects": Style(
        (
            "u = (p, q)", "w = (0, 1)", "z = Pair(p, 0.5)", "o = Particle(p, q)", "b = Frozen(p, q)", "best = None",
            "l = [p, q, 0.5]",
        ),
        (
            "u = ($x, u[0])", "u = u[::-1]", "p, q = q, p + q * 0.5", "w = (w[1], sum(w) % 7)", "z = z._replace(x=$x)",
            "z = Pair(z.y, $x)", "s, *rest = (p, q, $x)\nt = rest[-1]", "o.x += $x", "o.step($x)",
            "o = Particle($x, o.v, o.n + 1)",
            "o.x, o.v = o.v, o.x", "b = replace(b, x=$x)", "b = Frozen(b.y, $x)", "best = None", "best = $x if $c else best",
            "if best is None or $x < best: best = $x", "l[$i % 3] = $x", "l[0], l[1] = l[1], l[0]",
            "l[-1], l[$i % 3] = l[$i % 3], l[-1]",
            "s, t, *l = [*l, $x, s]", "l = [*l[1:], $x]", "l = sorted(l, key=lambda y: -y)", "l.sort()", "u = tuple(l[:2])",
            "s = u[$i % 2]",
            "s += l[$i % 3]", "l += [$x]; l.pop(0)", "l = [max(y, $x) for y in l]", "m += l.index(max(l))",
            "l.insert(0, l.pop())",
            "other = o\nother.v = $x", "s = best if best is not None else $x", "m = m + 0.5 if $c else m",
        ),
        ("u", "w", "z", "o", "b", "best", "l"),
        ("best is None", "best is not None and best != $x", "u < ($x, s)", "z.x > $x", "l[0] > l[1]", "o.n > 2", "$x in l"),
    ),
    "arrays": Style(
        ("A = np.zeros((3, 3))", "b = np.array([p, q, 0.5, 1.0])", "B = np.arange(9.0).reshape(3, 3)", "r = A[0]", "kept = []"),
        (
            "A[$i % 3, $i % 3] += $x", "A[$i % 3] += $x", "A[:, $i % 3] = $x", "A[[$i % 3, 1]] = A[[1, $i % 3]]", "r += $x",
            "r = A[$i % 3]\nr += $x", "r = A[$i % 3]", "r = B[$i % 3]", "r[$i % 3] = $x", "r = r + $x", "A, B = B, A",
            "A = B.copy()",
            "B = A * 0.5", "b[$i % 4] = $x", "a[$i % 4] += $x", "a[$i % 4:] *= 0.5", "b[:$i % 5] = $x", "a, b = b, a",
            "b = a.copy()",
            "b = np.append(b[1:], $x)", "b = np.concatenate([b[2:], [$x, s]])", "kept.append(a.copy())", "kept.append(b)",
            "s += kept[-1][$i % 3] if kept else 0.5", "A[1:, :2] += B[:2, 1:]", "A[$i % 3, :$i % 4] = $x",
            "np.fill_diagonal(A, $x)",
            "b += a", "b -= b[$i % 4]", "r = A[:, $i % 3]", "a[a > $x] = s", "b = np.where(a > $x, a, b)", "s += a[a > $x].sum()",
            "m += int(np.argmax(a))", "m += len(b[b > $x])", "a[:] = a[::-1]", "b[1:] -= b[:-1] * 0.5", "A.flat[$i % 9] = $x",
            "A[$i % 3] = A[$i % 3]", "np.maximum(a, $x, out=a)", "for w in A:\n    w += $x", "x2 = a[1:3]\nx2 += $x",
            "v[$i % 4] = $i",
        ),
        ("A", "B", "b", "r", "kept"), ("A[$i % 3, 1] > $x", "r[0] > $x", "(a > $x).any()", "len(kept) > 2", "b[0] == a[0]"),
        ("for w in A:\n    s += w[0]", "for j, w in enumerate(b):\n    s += w * j", "for w, y in zip(a, b):\n    t += w * y"),
    ),
    "searches": Style(
        ("l = [p, q, 0.5]", "o = Particle(p, q)", "best = None"),
        (
            "try:\n    s = 1.0 / $x\nexcept ZeroDivisionError:\n    s = $x",
            "try:\n    m = $i // $i\nexcept ArithmeticError:\n    m += 1",
            "try:\n    s = a[$i]\nexcept IndexError:\n    t = $x\nelse:\n    t += 1\nfinally:\n    m += 1",
            "try:\n    if $c: raise KeyError($i)\n    s = $x\nexcept (KeyError, ValueError) as error:\n    m += len(error.args)",
            "match ($i % 3, $i % 2):\n    case (0, 0): s = $x\n    case (y, 1) if y > 1: t = $x\n    case _: m += 1",
            "match $i % 4:\n    case 0: s = $x\n    case 1 | 2: t = $x\n    case y if y > 2: m += 1",
            "match o:\n    case Particle(n=1 | 2): s = $x\n    case Particle(x=y) if y > $x: t = y",
            "if (y := $x) > s:\n    s = y", "s = sum(y * w for y in l for w in (p, 0.5) if y > $x)",
            "m = sum(1 for y in a if y > $x)",
            "m = any(y > $x for y in l)", "m = all(y > $x for y in a) + 1", "s = max((y for y in l if y > $x), default=0.25)",
            "s = next((y for y in a if y > $x), 0.25)", "l = [y for y in l if y > $x] or [p]", "l = sorted(l, reverse=True)",
            "for j, y in enumerate(l, 1):\n    s += j * y\n    if s > $x: break\nelse:\n    t = 0.25", "l.append($x)",
            "l = l[-3:]",
            "for j in range(3):\n    for e in range(j, n):\n        if $c: break\n    else:\n        continue\n    break",
            "for y in reversed(l):\n    s = s * 0.5 + y", "for j in range(n, -1, -2):\n    if $c: continue\n    t += j",
            "best = min(l, default=None)", "s = best or $x", "m = ($c) + ($c)", "while l and l[-1] > $x:\n    l.pop()",
            "m = max(range(len(l)), key=l.__getitem__, default=0)", "m = min(range(4), key=lambda j: a[j])", "o.step($x)",
        ),
        ("l", "best", "o"), ("l", "best is None", "any(y > $x for y in l)", "(m := m + 1) % 2", "p < $x < q", "-1 < $x < 2.5"),
        ("for y in l[:]:\n    s += y", "for y in (w for w in a if w > $x):\n    s += y",
         "for y in sorted(l):\n    s = s * 0.5 + y"),
    ),
    "ints": Style(
        ("b = k + 1", "h = 5", "big = 1", "flag = False", "x0 = 0"),
        (
            "b = $i // ($i * 2 + 1)", "b, h = divmod($i, $i * 2 + 1)", "b = $i ** 2", "b = 2 ** ($i % 5)", "b = (-$i) % 3",
            "b = $i << ($i % 4)",
            "b = $i >> ($i % 4)", "h = $i ^ $i", "h = ($i & 6) | $i", "h = ~$i", "flag = not flag", "flag = $c", "b = flag + $i",
            "b = round($x)", "b = int($x)", "b = math.floor($x)", "b = math.ceil($x * 2)", "b = math.gcd($i, $i)",
            "b = max($i, 2, $i)",
            "big = (big * 1103515245 + $i) % 2 ** 31", "h = (h * 31 + $i) % 1009", "s = $i / 4", "s = $x // 0.5", "s = $x % 0.75",
            "b = b // 2 if b % 2 == 0 else (3 * b + 1) % 99", "x0 += $i", "x0 += $x", "x0 = flag", "b = sum(range($i % 6))",
            "b = len(range($i, $i))", "b = v[$i % 4]", "b = int(v[1]) % 3", "flag = flag and $c", "b = (n, m, k)[$i % 3]",
            "s = 0.5 ** ($i % 4)", "b = $i if flag else h", "b = b.bit_length()", "b = 7 % -(abs($i) + 1)",
        ),
        ("b", "h", "big", "flag", "x0"), ("flag", "b % 3 == 1", "h > 4", "x0", "b in (1, 2, 5)", "flag is True",
         "isinstance(x0, float)"),
        ("for j in range(b % 4, 4):\n    m += j", "for j in range(5, h % 5, -1):\n    s += j"),
    ),
}  # fmt: skip
COMMON = ("s = $x", "t += $x", "m = (m + $i) % 7", "s, t = t, $x", "p = $x * 0.5", "s += a[$i % 4]")
"""Statements of all classes."""
MOST_DEPTH = 2
"""Greatest depth of statements in statements."""
ARGUMENTS = ((0.25, 1.5, 2), (1.0, -0.5, 3), (2.0, 0.75, 1), (0.5, 2.25, 0))


class Writer:
    """Writes one program of a style."""

    def __init__(self, seed: int, style: Style) -> None:
        self.random, self.style = random.Random(seed), style
        self.indices: list[str] = []
        self.loops = self.count = 0
        self.result = ", ".join(["s", "t", "m", *style.results])

    def text(self) -> str:
        starts = ["s, t, m = 0.5, 0.0, 1", "n = int(abs(q) * 2) % 5", *"\n".join(self.style.starts).split("\n")]
        body = [line for _ in range(self.random.randint(0, 2)) for line in self.statement(0)]
        lines = [*starts, *body, *self.loop(0), f"return {self.result}"]
        return "\n".join(["def f(p, q, k, a, v):", *(f"    {line}" for line in lines), ""])

    def filled(self, text: str) -> str:
        """Return a text with expressions in place of ``$x``, ``$i`` and ``$c``."""
        writers: dict[str, Callable[[], str]] = {"x": self.float, "i": self.int, "c": self.condition}
        return re.sub(r"\$(\w)", lambda match: writers[match[1]](), text)

    def float(self, depth: int = 0) -> str:
        choice = self.random.random()
        if depth > 1 or choice < 0.5:
            return self.random.choice(("p", "q", "s", "t", "0.5", "1.0", "-0.25"))
        first, second = self.float(depth + 1), self.float(depth + 1)
        if choice < 0.8:
            return f"({first} {self.random.choice('+-*')} {second})"
        if choice < 0.9:
            return f"{self.random.choice(('min', 'max'))}({first}, a[{self.int()} % 4])"
        return f"({first} if {self.condition()} else {second})"

    def int(self) -> str:
        one = self.random.choice(("n", "m", "k", "1", "2", *self.indices, *self.indices))
        return one if self.random.random() < 0.7 else f"({one} {self.random.choice('+-*')} {self.random.choice(('n', 'm', '2'))})"

    def condition(self) -> str:
        if self.random.random() < 0.6:
            return f"{self.float(2)} {self.random.choice('<>')} {self.float(2)}"
        return self.random.choice((f"{self.int()} > 1", f"{self.int()} % 2", f"{self.float(2)} > 0 or {self.int()} == 2"))

    def statement(self, depth: int) -> list[str]:
        choice = self.random.random()
        if depth >= MOST_DEPTH or choice < 0.55:
            return self.filled(self.random.choice((*self.style.statements, self.random.choice(COMMON)))).split("\n")
        return self.branch(depth) if choice < 0.75 else self.loop(depth)

    def block(self, depth: int) -> list[str]:
        return [f"    {line}" for _ in range(self.random.randint(1, 3)) for line in self.statement(depth + 1)]

    def branch(self, depth: int) -> list[str]:
        lines = [f"if {self.filled(self.random.choice((*self.style.tests, '$c')))}:", *self.block(depth)]
        if self.loops and self.random.random() < 0.2:
            lines.append(f"    {self.random.choice(('break', 'continue', f'return {self.result}'))}")
        return [*lines, "else:", *self.block(depth)] if self.random.random() < 0.4 else lines

    def loop(self, depth: int) -> list[str]:
        self.count += 1
        self.loops += 1
        name = f"i{self.count}_{self.random.randrange(1000)}"
        choice = self.random.random()
        if self.style.loops and choice < 0.25:
            lines = [*self.filled(self.random.choice(self.style.loops)).split("\n"), *self.block(depth)]
        elif choice < 0.7:
            ends = ("n", "0, m % 4", "3", "1, n + 1", "n, -1, -1", "0, 5, 2", *(f"{i} + 1" for i in self.indices))
            header = f"for {name} in range({self.random.choice(ends)}):"
            self.indices.append(name)
            lines = [header, *self.block(depth)]
            self.indices.remove(name)
        else:
            test = self.filled(self.random.choice((*self.style.tests, "$c")))
            lines = [f"{name} = 0", f"while {name} < 5 and {test}:", f"    {name} += 1", *self.block(depth)]
        self.loops -= 1
        return lines


def text_of(style: str, seed: int) -> str:
    """Return the text of the program of a style and a seed."""
    return Writer(seed, STYLES[style]).text()


def arguments_of(call: int) -> tuple[Any, ...]:
    """Return the arguments of a call: dyadic numbers, and arrays of them."""
    rng = np.random.default_rng(call)
    return *ARGUMENTS[call], rng.integers(-6, 7, 4) * 0.25, rng.integers(-4, 5, 4)
