"""Functions with the structures of everyday Python: namespaces, classes, closures, caches, iterators, texts.

Each is in ``PROGRAMS`` with the arguments of calls, which are of several kinds and outcomes, and the arguments by which it is
differentiated.
"""

import collections
import functools
import math
import operator
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial, reduce
from itertools import (
    accumulate,
    chain,
    combinations,
    cycle,
    groupby,
    islice,
    pairwise,
    permutations,
    product,
    starmap,
    zip_longest,
)  # fmt: skip
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

A = np.array
x3, y3, x5 = A([1.0, 2.0, 3.0]), A([0.5, -1.0, 2.5]), A([3.0, 1.0, 4.0, 1.5, 5.0])


PROGRAMS: list[Any] = []


def program(*calls, grad=()):
    """Add the decorated function with the arguments of calls."""

    def add(function):
        PROGRAMS.append((function, calls, grad))
        return function

    return add


@program((SimpleNamespace(a=2.0, b=A([1.0, 2.0])), 3.0), (SimpleNamespace(a=5.0, b=A([4.0, 2.0])), 1.0), grad=(1,))
def ns_arg(p, x):
    return p.a * x + np.sum(p.b) * x


@program(
    (SimpleNamespace(a=2.0, inner=SimpleNamespace(k=3.0)), 3.0),
    (SimpleNamespace(a=5.0, inner=SimpleNamespace(k=4.0)), 1.0),
    grad=(1,),
)
def ns_nested(p, x):
    return p.a * x**p.inner.k


@program((2.0,), (3.0,), grad=(0,))
def ns_made(x):
    s = SimpleNamespace(pos=0.0, vel=x)
    for _ in range(10):
        s.vel -= 0.1 * s.pos
        s.pos += 0.1 * s.vel
    return s.pos


@program((2.0,), (3.0,), grad=(0,))
def ns_returned(x):
    return SimpleNamespace(value=x * 2, label="a").value


class Params:
    scale = 2.0

    def __init__(self, k, w):
        self.k = k
        self.w = w
        self.name = "p"

    @property
    def kk(self):
        return self.k * self.k

    def f(self, x):
        return self.kk * np.sum(self.w) * x * self.scale


@program((Params(2.0, x3), 3.0), (Params(4.0, y3), 1.0), grad=(1,))
def plain_arg(p, x):
    return p.f(x)


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a = a
        self.b = b


@program((Slotted(2.0, 1.0), 3.0), (Slotted(4.0, 7.0), 1.0), grad=(1,))
def slotted_arg(p, x):
    return p.a * x + p.b


@lru_cache(maxsize=None)
def binomial(n, k):
    return math.comb(n, k)


@program((0.3,), (0.6,), grad=(0,))
def bernstein(t):
    s = 0.0
    for k in range(6):
        s += binomial(5, k) * t**k * (1 - t) ** (5 - k) * (k + 1)
    return s


@lru_cache
def helper(x):
    return x * x + 1


@program((0.3,), (0.6,), grad=(0,))
def lru_traced(t):
    return helper(t) + helper(2.0) + helper(t)


@cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


@program((0.3,), (0.6,), grad=(0,))
def lru_rec(t):
    return fib(20) * t


@program((5,), (12,), (8,))
def lru_inner(n):
    @lru_cache(None)
    def f(k):
        return k if k < 2 else f(k - 1) + f(k - 2)

    return f(n)


@program((2.0,), (3.0,), grad=(0,))
def closures(x):
    fs = []
    for i in range(4):
        fs.append(lambda t, i=i: t**i)
    return sum(f(x) for f in fs)


@program((2.0,), (3.0,), grad=(0,))
def closures_late(x):
    fs = [lambda t: t * i for i in range(4)]
    return sum(f(x) for f in fs)


@program((2.0,), (-3.0,), grad=(0,))
def closures_make(x):
    def make(k):
        def g(t):
            if t > 0:
                return k * t
            return -t / (k + 1)

        return g

    total = 0.0
    for g in [make(k) for k in range(3)]:
        total += g(x)
    return total


@program((x5,), (x3,))
def reduce_max(x):
    return reduce(lambda a, b: a if a > b else b, x)


@program((x5,), (x3,))
def reduce_mul(x):
    return reduce(operator.mul, x, 1.0)


@program(([1.0, 2.0, 3.0],), ([3.0, 4.0, 5.0],))
def reduce_list(x):
    return reduce(lambda a, b: a * 0.5 + b, x)


@program(([x3, y3],), ([y3, y3],))
def reduce_arrays(xs):
    return reduce(np.add, xs)


@program((x3,), (y3,))
def reduce_compose(x):
    fs = [np.sin, np.cos, lambda v: v * 2]
    return reduce(lambda acc, f: f(acc), fs, x)


@program((x5,), (x3,))
def it_product(x):
    return sum(a * b for a, b in product(x, repeat=2))


@program((x5,), (x3,))
def it_comb(x):
    best = 0.0
    for a, b in combinations(x, 2):
        d = abs(a - b)
        if d > best:
            best = d
    return best


@program((x5,), (x3,))
def it_comb3(x):
    return sum(math.sqrt(abs(a * b * c)) for a, b, c in combinations(x, 3))


@program((x5,), (x3,))
def it_acc(x):
    return list(accumulate(x))


@program((x5,), (x3,))
def it_acc_max(x):
    return np.array(list(accumulate(x, max)))


@program(([1.0, 2.0, 3.0],), ([3.0, 4.0, 5.0],))
def it_acc_mul(x):
    return list(accumulate(x, operator.mul, initial=1.0))


@program((x5,), (x3,))
def it_pair(x):
    return sum((b - a) ** 2 for a, b in pairwise(x))


@program((x5,), (x3,))
def it_pair_loop(x):
    n = 0
    for a, b in pairwise(x):
        if b > a:
            n += 1
    return n


@program((x5, x3), (x3, x3))
def it_chain(x, y):
    s = 0.0
    for v in chain(x, y):
        if v > 1.2:
            s += v
    return s


@program(([1.0, 2.0], [3.0]), ([1.0, 2.5], [3.0]))
def it_chain_list(x, y):
    return max(chain(x, y)), list(chain.from_iterable([x, y]))


@program((x3,), (y3,))
def it_perm(x):
    return max(a - b * c for a, b, c in permutations(x))


@program((x5,), (x3,))
def it_islice(x):
    return sum(islice(x, 1, 3)), list(islice(x, 2))


@program((x5, x3), (y3, x3))
def it_ziplong(x, y):
    return sum(a * b for a, b in zip_longest(x, y, fillvalue=1.0))


@program((x3, y3), (y3, x3))
def it_starmap(x, y):
    return sum(starmap(lambda a, b: a * b, zip(x, y)))


@program((x3, y3), (y3, x3))
def op_map(x, y):
    return sum(map(operator.mul, x, y))


@program((x3, y3), (y3, x3))
def op_get(x, y):
    pts = [(float(a), float(b)) for a, b in zip(x, y)]
    return max(pts, key=operator.itemgetter(1))[0]


@program((x3, y3), (y3, x3))
def op_sorted(x, y):
    pts = sorted(zip(x, y), key=operator.itemgetter(1))
    return np.array([p[0] for p in pts])


@program((2.0, "+", 3.0), (2.0, "/", 3.0), (2.0, "/", 0.0), (2.0, "?", 0.0))
def op_table(a, o, b):
    ops = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
    return ops[o](a, b)


@program((SimpleNamespace(a=1.0), 2.0), (SimpleNamespace(a=2.0), 2.0))
def op_attr(s, x):
    return operator.attrgetter("a")(s) * x


@program((2.0,), (-3.0,))
def fstring(x):
    if x < 0:
        raise ValueError(f"x = {x:.3f} is negative ({x!r})")
    return x, f"x is {x:8.2e}"


@program((2,), (30,))
def fstring_int(n):
    return f"{n:04d} of {n * 2}"


@program((2.0, 3.0), (5.0, 1.0))
def percent(a, b):
    return "%.2f%%" % (100 * a / b), "{:>10.3f}".format(a), str(a * b)


@program((2.0,), (3.0,), grad=(0,))
def class_super(x):
    class Base:
        def __init__(self, k):
            self.k = k

        def f(self, t):
            return self.k * t

    class Child(Base):
        def __init__(self, k):
            super().__init__(k * 2)
            self.extra = 1.0

        def f(self, t):
            return super().f(t) + self.extra

    return Child(x).f(3.0)


@program((2.0,), (-3.0,), grad=(0,))
def class_state(x):
    class Pid:
        def __init__(self):
            self.i = 0.0
            self.last = 0.0

        def step(self, e):
            self.i += e
            d = e - self.last
            self.last = e
            return e + 0.1 * self.i + 0.2 * d

    p = Pid()
    y = x
    for _ in range(20):
        y = y - 0.1 * p.step(y)
        if y > 10:
            y = 10.0
    return y


@program((2.0,), (-3.0,), grad=(0,))
def class_dc(x):
    @dataclass
    class S:
        p: float
        v: float = 1.0

    s = S(x)
    for _ in range(5):
        s = replace(s, p=s.p + 0.1 * s.v, v=s.v - 0.1 * s.p)
    return s.p


@program((2.0,), (-3.0,), grad=(0,))
def class_nt(x):
    class S(NamedTuple):
        p: float
        v: float

    s = S(x, 1.0)
    for _ in range(50):
        s = s._replace(p=s.p + 0.1 * s.v, v=s.v - 0.1 * s.p)
    return s.p


class Vec:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def __add__(self, o):
        return Vec(self.x + o.x, self.y + o.y)

    def __mul__(self, k):
        return Vec(self.x * k, self.y * k)

    __rmul__ = __mul__

    def __abs__(self):
        return math.hypot(self.x, self.y)

    def __eq__(self, o):
        return self.x == o.x and self.y == o.y

    def __bool__(self):
        return self.x != 0 or self.y != 0

    def __iter__(self):
        return iter((self.x, self.y))

    def __len__(self):
        return 2

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __call__(self, t):
        return self.x + t * self.y


@program((Vec(1.0, 2.0), 3.0), (Vec(0.0, 0.0), 2.0), grad=(1,))
def vec_ops(v, k):
    w = v + k * v
    if not v:
        return -1.0
    a, b = w
    return abs(w) + w[1] * a + w(b) + (1.0 if w == v else 0.0)


@np.vectorize
def vclip(v, lo):
    if v < lo:
        return lo
    return v


@program((x5, 2.0), (x3, 1.5))
def vectorized(x, lo):
    return vclip(x, lo)


@program((x5,), (x3,))
def vectorized_inside(x):
    f = np.vectorize(lambda v: v * 2 if v > 2 else v / 2)
    return f(x)


@program((x5,), (x3,))
def vectorized_ot(x):
    def g(v):
        n = 0
        while v > 1:
            v /= 2
            n += 1
        return n

    return np.vectorize(g, otypes=[float])(x)


@program((np.zeros(0),), (x3,))
def empty_default(x):
    return np.sum(x), x.size, np.array([], dtype=float) + 1.0


def with_default(x, extra=np.array([])):
    return np.sum(x) + np.sum(extra) + len(extra)


@program((x3,), (x5,), (x3, y3))
def default_empty(x, extra=np.array([])):
    return np.sum(x) + np.sum(extra) + len(extra)


@program((x3,), (x5,))
def default_call(x):
    return with_default(x) + with_default(x, x)


@program((x3,), (x5,), (x3, [1.0]))
def default_list(x, extra=[]):
    return np.sum(x) + sum(extra)


@program((x3,), (x5,), (x3, (1.0,)))
def default_tuple(x, w=()):
    return np.sum(x) + sum(w)


@program((x3,), (np.zeros(0),))
def empty_concat(x):
    return np.concatenate([np.array([]), x, np.empty(0)])


@program((2.0,), (3.0,), grad=(0,))
def partials(x):
    f = partial(lambda a, b, c: a * b + c, 2.0, c=1.0)
    return f(x) + partial(pow, 2.0)(x)


@program((2.0,), (3.0,), grad=(0,))
def nonlocal_count(x):
    n = 0

    def f(v):
        nonlocal n
        n += 1
        return v * n

    return f(x) + f(x) + n


@program((2.0,), (3.0,), grad=(0,))
def gen(x):
    def terms(t, n):
        term = 1.0
        for k in range(n):
            yield term
            term *= t / (k + 1)

    return sum(terms(x, 15))


@program((2.0,), (-3.0,), grad=(0,))
def decorated(x):
    def positive(f):
        @functools.wraps(f)
        def g(*a, **k):
            if a[0] < 0:
                return 0.0
            return f(*a, **k)

        return g

    @positive
    def h(v, k=2):
        return v**k

    return h(x) + h(x, k=3)


@program((2.0,), (-3.0,))
def counter(x):
    c = collections.Counter("abracadabra")
    d = collections.defaultdict(float)
    for k, v in c.items():
        d[v] += x
    return dict(d)


@program((2.0, 1), (-3.0, "a"), (2.5, None))
def matching(x, k):
    match k:
        case int():
            return x * k
        case str():
            return -x
        case None:
            return 0.0


@program((x5,), (x3,))
def walrus(x):
    if (n := len(x)) > 3:
        return n * x[0]
    return x[-1]


@program((x5,), (x3,))
def group(x):
    return [sum(g) for k, g in groupby([1, 1, 2, 2, 3])]


@program((x5,), (x3,))
def cyc(x):
    return sum(a * b for a, b in zip(x, cycle([1.0, -1.0])))


@program((x5,), (x3,))
def starred(x):
    first, *rest = x
    return first + sum(rest), [*rest, first]
