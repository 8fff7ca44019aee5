"""Random programs that store to what is outside of them, print, log and warn, with Python's control flow on dyadic numbers.

A program is the text of a module: its state, a function ``f(p, q, n, a, v)``, which may be a method, and ``look()``, which
returns all of the state.
"""

from __future__ import annotations

import linecache
import random
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.fuzz.python_control import Writer

FILE = "<stores {}>"
"""The file of the program of a seed."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """A kind of state: statements and expressions on the names that ``start`` binds.

    ``start``: statements of the module, or of the function around ``f`` if its names are ``nonlocals``; ``globals``: those of its
    names that ``f`` binds. In ``statements``, ``<x>`` stands for a float, ``<m>`` for an int, ``<t>`` for a truth and ``<i>`` for
    an index of four elements. ``floats``, ``ints`` and ``tests`` are expressions, and ``look`` has those of all that is stored.
    """

    start: str
    statements: Sequence[str]
    look: str
    floats: Sequence[str] = ()
    ints: Sequence[str] = ()
    tests: Sequence[str] = ()
    globals: Sequence[str] = ()
    nonlocals: Sequence[str] = ()


STORES = {
    "object": Store(
        start="""
            class Model:
                hits = 0
                def __init__(self):
                    self.x, self.n, self.last, self.best, self.mode = 0.5, 0, None, None, "low"
                def raised(self, v):
                    self.n += 1
                    self.x = 0.5 * v
                    return self.x
                def seen(self, v):
                    if v > self.x:
                        self.mode = "high"
                    self.last = v
                    return self.n
            M = Model()
        """,
        statements=(
            "M.x = <x>", "M.x += <x>", "M.n += 1", "M.n += 1", "M.n = <m>", "M.last = a", "M.last = <x>", "M.last = b",
            "M.new = <x>",
            "M.best = <x> if M.best is None else max(M.best, <x>)", "M.mode = 'high'", "M.mode = 'mid' if <t> else M.mode",
            "r = M.raised(<x>)", "m = M.seen(<x>)", "M.hits += 1", "Model.hits += 1", "type(M).hits = <m>",
            "setattr(M, 'x', <x>)",
            "M.pair = (<x>, m)", "M.x, M.n = <x>, k", "M.log = [<x>]", "M.last = None", "M.new = a", "M.kept = M.last",
        ),
        floats=("M.x", "M.x"), ints=("M.n", "M.hits"), look="Model.hits, M",
        tests=("M.n % 3 == 0", "M.n > 4", "M.mode == 'low'", "M.best is None", "hasattr(M, 'new')", "M.last is a",
        "M.last is None"),
    ),
    "slots": Store(
        start="""
            class Slotted:
                __slots__ = ("x", "n", "last")
                def __init__(self):
                    self.x, self.n = 0.25, 1
            T = Slotted()
        """,
        statements=("T.x = <x>", "T.x -= <x>", "T.n += 1", "T.last = <x>", "T.last = a", "T.x, T.n = q, <m>", "del T.last"),
        floats=("T.x",), ints=("T.n",), tests=("T.n % 2", "hasattr(T, 'last')"),
        look="T.x, T.n, getattr(T, 'last', None)",
    ),
    "property": Store(
        start="""
            class Set:
                def __init__(self):
                    self._v, self.sets = 1.0, 0
                @property
                def v(self):
                    return self._v
                @v.setter
                def v(self, value):
                    if value < -100:
                        raise ValueError("far below")
                    self.sets += 1
                    self._v = 0.5 * value
            P = Set()
        """,
        statements=("P.v = <x>", "P.v += <x>", "P.sets = 0", "P._v = <x>"), floats=("P.v", "P._v"), ints=("P.sets",), look="P",
        tests=("P.sets > 3",),
    ),
    "setter": Store(
        start="""
            class Renamed:
                def __init__(self):
                    self.v = 1.0
                def __setattr__(self, name, value):
                    super().__setattr__("_" + name, value)
            class Doubled:
                def __set_name__(self, owner, name):
                    self.name = "_" + name
                def __get__(self, obj, kind=None):
                    return getattr(obj, self.name)
                def __set__(self, obj, value):
                    setattr(obj, self.name, 2 * value)
                    obj.sets += 1
            class Described:
                v = Doubled()
                def __init__(self):
                    self.sets = 0
                    self.v = 0.25
            S, R = Renamed(), Described()
        """,
        statements=("S.v = <x>", "S.n = <m>", "R.v = 0.25 * <x>", "R.sets += 1", "S._v += 0.5"), floats=("S._v", "R._v", "R.v"),
        ints=("R.sets",), look="S, R",
    ),
    "globals": Store(
        start="""
            G, H, Z = 0.5, 0, None
            def tally(v):
                global H
                H += 1
                return 0.5 * v
        """,
        statements=("G = <x>", "G += <x>", "H += 1", "H = <m>", "r = tally(<x>)", "Z = a", "Z = <x>", "Z = None", "G, H = p, k"),
        floats=("G", "tally(G)"), ints=("H",), tests=("H % 2 == 0", "Z is None", "H > 3"), globals=("G", "H", "Z"),
        look="G, H, Z",
    ),
    "nonlocals": Store(
        start="""
            N, Y = 0, 0.25
            def counted():
                nonlocal N
                N += 1
                return N
        """,
        statements=("N += 1", "Y = <x>", "Y += <x>", "m = counted()", "N = <m>", "Y, N = Y - p, N + 2"), floats=("Y",),
        ints=("N", "counted()"), tests=("N % 2 == 1", "counted() % 3 == 0"), nonlocals=("N", "Y"), look="N, Y",
    ),
    "items": Store(
        start="L = [0.5, 1.0, 2]",
        statements=(
            "L[0] = <x>", "L[1] += <x>", "L[2] += 1", "L[m % 2] = <x>", "L[0], L[1] = L[1], L[0]", "L[:2] = [<x>, p]",
            "L[-1] = <m>",
        ),
        floats=("L[0]", "L[1]", "L[m % 2]"), ints=("L[2]",), tests=("L[2] % 2", "L[0] > L[1]"), look="L",
    ),
    "history": Store(
        start="Q, I = [], []",
        statements=(
            "Q.append(<x>)", "Q.append(float(<x>))", "Q.append((<x>, m))", "Q.extend([<x>, q])", "Q += [<x>]", "I.append(m)",
            "I.append(a)", "Q.append(None)", "I.append([<x>])", "I.append({'x': <x>})",
        ),
        look="Q, I", globals=("Q",),
    ),
    "queue": Store(
        start="E = [0.5, 1.5]",
        statements=(
            "E.append(<x>)", "E.append(<x>)", "E.insert(0, <x>)", "r = E.pop()", "E.pop(0)", "E.remove(0.5)", "E.sort()",
            "E.reverse()",
            "E.clear()", "E[:] = [<x>, p]", "del E[0]", "E[0] = <x>", "E += [<x>]", "E.sort(reverse=True)", "del E[:1]",
            "if len(E) < 40: E *= 2",
        ),
        floats=("(E[-1] if E else 0.5)", "sum(E)", "E[0]"), ints=("len(E)", "E.count(0.5)"), look="E", globals=("E",),
        tests=("len(E) > 3", "E", "0.5 in E", "len(E) % 2"),
    ),
    "dict": Store(
        start="D = {'x': 0.5, 'n': 0}",
        statements=(
            "D['x'] = <x>", "D['x'] += <x>", "D['n'] += 1", "D['n'] += 1", "D['new'] = <x>", "D.update(x=<x>)",
            "D.setdefault('z', <x>)",
            "D.pop('new', None)", "D['a'] = a", "del D['new']", "D.update({'n': <m>, 'y': <x>})", "r = D.setdefault('x', 2.0)",
            "D['x'], D['y'] = q, D['x']", "r = D.get('z', 0.5)",
        ),
        floats=("D['x']", "D.get('new', 0.5)"), ints=("D['n']", "len(D)"), tests=("D['n'] % 3 == 0", "'new' in D", "'z' in D"),
        look="D",
    ),
    "cache": Store(
        start="c = {}",
        statements=("c[m] = <x>", "c[k] = a", "c[m, 'x'] = <x>", "c['last'] = b", "c[n % 3] = <x>"), look="c",
    ),
    "memo": Store(
        start="c = {0: 0.5}",
        statements=("c[m] = <x>", "c[k % 3] = <x>", "c[m % 2] = c.get(m % 2, 0.5) + 0.25", "c.pop(k, None)", "c.clear()"),
        floats=("c.get(m, 0.25)", "c[m % 2]"), tests=("m in c", "k not in c", "len(c) > 2"), look="c",
    ),
    "set": Store(
        start="K = {1, 2}",
        statements=(
            "K.add(m)", "K.discard(k)", "K.remove(1)", "K.update({m, k})", "K.clear()", "K.add(5)", "K |= {7}", "K -= {k}",
        ),
        ints=("len(K)", "sum(K)"), tests=("m in K", "k not in K", "len(K) > 3", "K"), look="K", globals=("K",),
    ),
    "deques": Store(
        start="""
            u = deque([0.5, 1.0], maxlen=3)
            w = deque([0.25])
        """,
        statements=(
            "u.append(<x>)", "w.append(<x>)", "u.appendleft(<x>)", "u.rotate(1)", "u[0] = <x>", "w.popleft()",
            "w.extend([<x>, p])",
            "w.clear()", "u[-1] += <x>", "r = w.pop()", "w.appendleft(<x>)",
        ),
        floats=("u[0]", "u[-1]", "sum(w)"), ints=("len(w)", "len(u)"), tests=("len(w) > 2", "w"), look="u, w",
    ),
    "counts": Store(
        start="""
            C = Counter()
            X = defaultdict(list)
            J = defaultdict(float)
        """,
        statements=(
            "C['calls'] += 1", "C[m] += 1", "C.update([m, k])", "X['x'].append(<x>)", "X[m].append(<x>)", "J['s'] += <x>",
            "J[k % 2] -= <x>", "C['x'] -= 2", "C.subtract({m: 1})", "del C['x']", "C.update(x=2)",
        ),
        floats=("J['s']",), ints=("C['calls']", "C[m]", "len(X)"), tests=("C['calls'] % 2", "C['calls'] > 2", "'x' in X"),
        look="C, X, J",
    ),
    "order": Store(
        start="W = OrderedDict(x=0.5, y=1.5)",
        statements=(
            "W['x'] = <x>", "W['z'] = <x>", "W.move_to_end('x')", "W.popitem(last=False)", "W['y'] += 0.5", "W.pop('z', 0.5)",
        ),
        floats=("sum(W.values())",), ints=("len(W)",), tests=("'z' in W", "len(W) > 2"), look="W",
    ),
    "record": Store(
        start="""
            @dataclass
            class Fit:
                x: float = 0.5
                n: int = 0
                log: list = field(default_factory=list)
                best: object = None
                def note(self, v):
                    self.log.append(v)
                    self.n += 1
            F = Fit()
        """,
        statements=(
            "F.x = <x>", "F.n += 1", "F.log.append(<x>)", "F.best = a", "F.note(<x>)", "F.best = <x>", "F.log = [<x>]",
            "F.x -= <x>",
        ),
        floats=("F.x",), ints=("F.n", "len(F.log)"), tests=("F.n % 2 == 0", "F.best is None", "F.log"), look="F",
    ),
    "array": Store(
        start="B, A = np.arange(4.0), np.ones(4)",
        statements=(
            "B[<i>] = <x>", "B[<i>] += <x>", "B[1:3] = <x>", "B *= 0.5", "B[:] = a", "B += a", "A = A * 0.5", "A = a",
            "A = b", "A = a + B",
            "A = A - 0.25", "B[::2] -= A[::2]", "B[B > <x>] = 0.5", "A, b = b, A",
        ),
        floats=("B[<i>]", "A[<i>]", "A.sum()"), tests=("A is a", "B[0] > A[1]"), globals=("A", "B"), look="B, A",
    ),
    "nested": Store(
        start="t = {'log': [], 'best': {'x': np.zeros(4), 'v': 0.5}, 'rows': [[0.5, 1.0], [2.0, 0.25]]}",
        statements=(
            "t['log'].append(<x>)", "t['best']['x'] = a", "t['best']['v'] = <x>", "t['rows'][0][1] += <x>",
            "t['rows'][1] = [<x>, p]",
            "t['best'] = {'x': b, 'v': <x>}", "t['rows'][0], t['rows'][1] = t['rows'][1], t['rows'][0]",
            "t['rows'].append([<x>])",
            "t['best'].update(v=<x>)", "t['x'] = t['best']",
        ),
        floats=("t['best']['v']", "t['rows'][0][0]", "t['best']['x'][<i>]"), ints=("len(t['log'])",), look="t",
        tests=("len(t['log']) > 2", "t['rows'][0][0] > 0.5"),
    ),
    "names": Store(
        start="""
            g = [0.5, 1.0]
            h = g
            o = {'g': g, 'h': [0.25]}
        """,
        statements=(
            "g.append(<x>)", "h[0] = <x>", "o['g'] = [<x>]", "o['g'].append(<x>)", "o['h'] = h", "h.append(<x>)",
            "o['h'][0] = <x>",
            "o['x'] = o['g']", "g[-1] = <x>",
        ),
        floats=("g[0]", "h[-1]", "o['h'][0]"), ints=("len(g)", "len(o['g'])"), tests=("o['g'] is g", "o['h'] is h", "len(h) > 3"),
        look="g, h, o",
    ),
    "objects": Store(
        start="""
            class Item:
                def __init__(self, x):
                    self.x, self.n, self.other = x, 0, None
                def moved(self, by):
                    self.x += by
                    self.n += 1
                    return self.x
            O = [Item(0.5), Item(1.0)]
            O[0].other = O[1]
        """,
        statements=(
            "O[0].x = <x>", "O[1].x += <x>", "r = O[0].moved(<x>)", "O[0].other.n += 1", "O[m % 2].n += 1", "O[1].other = O[0]",
            "O[0], O[1] = O[1], O[0]", "for y in O: y.x *= 0.5", "O[1].last = a", "r += sum([y.moved(0.5) for y in O])",
            "O[0].other.x = <x>", "O[0].list = [<x>, O[1].x]",
        ),
        floats=("O[0].x", "O[1].x", "(O[0].other.x if O[0].other else 0.5)"), ints=("O[0].n", "O[1].n"), tests=("O[0].n > 2",),
        look="O",
    ),
    "namespace": Store(
        start="V = SimpleNamespace(x=0.5, n=0, log=[])",
        statements=("V.x = <x>", "V.n += 1", "V.log.append(<x>)", "V.last = a", "V.new = <x>", "V.x *= 0.5", "V.n = <m>"),
        floats=("V.x",), ints=("V.n",), tests=("V.n % 2", "hasattr(V, 'new')"), look="V",
    ),
    "function": Store(
        start="""
            def helper(x, log=[]):
                helper.calls += 1
                log.append(x)
                helper.last = x
                return 0.5 * x + len(log)
            helper.calls, helper.last = 0, None
        """,
        statements=("r = helper(<x>)", "helper.calls = 0", "helper.last = a", "helper(<x>)", "q = helper(p)"),
        floats=("helper(p)",), ints=("helper.calls",), tests=("helper.calls % 2 == 0", "helper.last is None"),
        look="helper.calls, helper.last, helper.__defaults__",
    ),
}  # fmt: skip
"""The kinds of state."""
EFFECTS = (
    "print('r', r, m)", "print(f'{p:.3f} {m}', q)", "print(a)", "print(q, end=' ')", "print('e', k, file=sys.stderr)", "print()",
    "sys.stdout.write(f'w {r}\\n')", "log.info('x %s %d', <x>, m)", "log.warning(f'{r:.2f} of {m}')", "warnings.warn('odd')",
    "warnings.warn(f'value {r}', RuntimeWarning)", "print(<x>, <m>, sep='|')", "print([p, m], (r,), {'q': q})",
    "log.debug('k %r', k)",
    "print('%.2f %d' % (<x>, m))", "sys.stderr.write('err\\n')", "print(a[<i>], <t>)",
)  # fmt: skip
"""Statements that print, log and warn."""
LOCAL = ("errors", "raises", "rows", "tries", "kinds", "walrus", "comprehensions")
"""Themes of control flow without names of their own that a program may have."""
IMPORTS = """\
import logging, math, sys, warnings
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
import numpy as np
log = logging.getLogger("pullback-fuzz-stores")
"""


class StoreWriter(Writer):
    """Writes one program with a few kinds of state. ``is_loss``: ``f`` returns one float, for derivatives."""

    def __init__(self, seed: int, is_loss: bool = False) -> None:
        super().__init__(seed, is_loss)
        choose = random.Random(seed + 10**7)
        self.themes = {theme for theme in LOCAL if choose.random() < 0.15}
        self.kinds = choose.sample(sorted(STORES), choose.choice((1, 1, 2, 2, 3)))
        if {"cache", "memo"} <= set(self.kinds):
            self.kinds.remove("cache")
        self.has_effects = choose.random() < 0.5
        self.is_straight = choose.random() < 0.35
        self.is_method = "object" in self.kinds and choose.random() < 0.5

    def run(self) -> str:
        """Return the text of the module."""
        stores = [STORES[kind] for kind in self.kinds]
        self.lines = ["    r = 0.5", "    m = 1", "    k = n", "    b = np.zeros(4)"]
        for word in ("global", "nonlocal"):
            names = [name for store in stores for name in getattr(store, f"{word}s")]
            self.lines += [f"    {word} {', '.join(names)}"] if names else []
        if self.random.random() < 0.3 or self.is_loss:
            self.lines.append("    a = a.copy()")
        more = [x for store in stores for x in (*store.floats, *store.ints)]
        result = self.pick("p, q, r, m, k", "r, m, a", "r + p - q, m", "r", "r, b")
        shown = self.random.sample(more, min(len(more), self.random.randint(0, 2)))
        self.result = ", ".join([result, *map(self.filled, shown)])
        if self.is_loss:
            self.result = "r + 0.5 * p - 0.25 * q + 0.5 * (a[0] - a[1] + a[2] - a[3]) + b[0] - b[1]"
        for _ in range(self.random.randint(2, 5)):
            self.statement(1)
        self.lines.append(f"    return {self.result}")
        return self.module(stores, "\n".join(self.lines) + "\n")

    def module(self, stores: Sequence[Store], body: str) -> str:
        """Return the text of the module around the body of ``f``."""
        outer = [textwrap.dedent(store.start).strip() + "\n" for store in stores if not store.nonlocals]
        inner = [textwrap.dedent(store.start).strip() + "\n" for store in stores if store.nonlocals]
        look = f"def look():\n    return {', '.join(f'({store.look})' for store in stores)},\n"
        function = f"def f(p, q, n, a, v):\n{body}"
        if self.is_method:
            function = f"def method(M, p, q, n, a, v):\n{body}Model.f = method\nf = M.f\n"
        inside = "".join([*inner, "\n", function, look])
        if inner:
            inside = f"def make():\n{textwrap.indent(inside, '    ')}    return f, look\nf, look = make()\n"
        return "".join([IMPORTS, *outer, "\n", inside])

    def filled(self, text: str) -> str:
        """Return a text with expressions in it."""
        fills = {"<x>": self.float, "<m>": self.int, "<t>": self.test, "<i>": self.index}
        return re.sub("<[xmti]>", lambda match: fills[match.group()](), text)

    def of_state(self, what: str) -> list[str]:
        """Return the expressions of the state that are floats, ints or tests."""
        return [x for kind in self.kinds for x in getattr(STORES[kind], what)]

    def atom(self) -> str:
        options = self.of_state("floats")
        return self.filled(self.pick(*options)) if options and self.random.random() < 0.3 else super().atom()

    def int(self) -> str:
        options = self.of_state("ints")
        return self.pick(*options) if options and self.random.random() < 0.25 else super().int()

    def test(self) -> str:
        options = self.of_state("tests")
        return self.pick(*options) if options and self.random.random() < 0.4 else super().test()

    def simple(self, depth: int) -> None:
        choice = self.random.random()
        if choice < 0.55:
            self.line(depth, self.filled(self.pick(*STORES[self.random.choice(self.kinds)].statements)))
        elif self.has_effects and choice < 0.75:
            self.line(depth, self.filled(self.pick(*EFFECTS)))
        else:
            super().simple(depth)

    def statement(self, depth: int) -> None:
        if self.is_straight or self.random.random() < 0.3:
            self.simple(depth)
        else:
            super().statement(depth)


def text_of(seed: int, is_loss: bool = False) -> str:
    """Return the text of the program of a seed."""
    return StoreWriter(seed, is_loss).run()


def module_of(text: str, file: str) -> dict[str, Any]:
    """Return the names of a new module of a text, whose source a line cache has."""
    names: dict[str, Any] = {"__name__": "stored_program"}
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec", dont_inherit=True), names)
    return names
