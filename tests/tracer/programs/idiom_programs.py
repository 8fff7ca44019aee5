"""Functions with idioms of Python around numbers: caches, closures, folds, iterators, texts of errors, classes, vectorised functions.

Each is in ``PROGRAMS`` with the arguments of calls, which are of several kinds and outcomes, and the arguments by which it is
differentiated.
"""

import functools
import itertools
import math
import operator
from functools import cache, lru_cache, partial, reduce
from itertools import accumulate, chain, combinations, count, islice, pairwise, product, repeat, takewhile
from types import SimpleNamespace
from typing import Any

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


ones = program((0.3,), (-0.6,), (2.0,), grad=(0,))
points = program((0.3,), (-0.6,), (2.0,))
arrays = program((x5,), (x3,), (y3,))
pairs = program((x3, y3), (y3, x3))


# caches


@lru_cache(maxsize=128)
def nodes(n):
    return [math.cos(math.pi * (k + 0.5) / n) for k in range(n)]


@lru_cache(None)
def weights(n):
    return np.array([1.0 / (k + 1) for k in range(n)])


@cache
def stirling(n, k):
    return 1 if n == k else 0 if k == 0 or k > n else k * stirling(n - 1, k) + stirling(n - 1, k - 1)


@functools.cache
def table(name):
    return {"lin": (0.0, 1.0), "quad": (0.0, 0.0, 1.0)}[name]


@lru_cache
def scaled(x, k=2.0):
    return x * k


class Basis:
    def __init__(self, n):
        self.n = n

    @functools.cached_property
    def powers(self):
        return list(range(self.n))

    @staticmethod
    @lru_cache
    def factor(k):
        return 1.0 / math.factorial(k)

    def __call__(self, t):
        return sum(self.factor(k) * t**k for k in self.powers)


BASIS = Basis(6)


@ones
def cached_nodes(t):
    return sum(math.exp(-((t - v) ** 2)) for v in nodes(7))


@ones
def cached_array(t):
    return np.sum(weights(5) * np.sin(t * np.arange(5)))


@ones
def cached_numbers(t):
    return sum(stirling(5, k) * t**k for k in range(6))


@program((0.3, "lin"), (0.3, "quad"), (0.3, "none"), grad=(0,))
def cached_table(t, name):
    return sum(c * t**i for i, c in enumerate(table(name)))


@ones
def cached_values(t):
    return scaled(t) + scaled(t, k=3.0) + scaled(2.0) + scaled(t)


@ones
def cached_in_a_class(t):
    return BASIS(t)


@ones
def cached_inside(t):
    @cache
    def power(n):
        return 1.0 if n == 0 else t * power(n - 1)

    return power(3) + power(5)


@arrays
def cached_by_length(x):
    return np.dot(weights(len(x)), x)


@ones
def cache_by_hand(t):
    memo = {}

    def f(n):
        if n not in memo:
            memo[n] = t if n < 2 else f(n - 1) + t * f(n - 2)
        return memo[n]

    return f(10) + len(memo)


@program((3,), (10,), (0,))
def cached_ints(n):
    return stirling(n, 2) if n else 0


# closures made in loops


@ones
def closures_in_a_list(t):
    return sum(f(t) for f in [lambda v, k=k: v**k for k in range(4)])


@ones
def closures_of_the_last(t):
    return sum(f(t) for f in [lambda v: v * k for k in range(4)])


@ones
def closures_in_a_dict(t):
    table = {name: (lambda v, c=c: c * v) for name, c in (("a", 1.0), ("b", t), ("c", 3.0))}
    return table["a"](2.0) + table["b"](t) - table["c"](t)


@ones
def closures_composed(t):
    f = lambda v: v
    for k in range(1, 4):
        f = (lambda g, k: lambda v: math.sin(g(v)) + k)(f, k)
    return f(t)


@ones
def closures_that_share(t):
    def make():
        total = 0.0

        def add(v):
            nonlocal total
            total += v
            return total

        def read():
            return total

        return add, read

    pairs = [make() for _ in range(3)]
    for i, (add, _) in enumerate(pairs):
        for j in range(i + 1):
            add(t * j)
    return [read() for _, read in pairs]


@ones
def closures_of_branches(t):
    steps = []
    for k in range(5):
        if t > k * 0.13:
            steps.append(lambda v, k=k: v + k)
        else:
            steps.append(lambda v, k=k: v - k)
    r = t
    for step in steps:
        r = step(r)
    return r


@ones
def closures_by_partial(t):
    fs = [partial(pow, t), partial(math.atan2, t), partial(max, t, 0.5)]
    return [f(2.0) for f in fs]


@ones
def closure_over_a_later_name(t):
    def f():
        return later * t

    later = 3.0
    first = f()
    later = t
    return first + f()


@ones
def decorators_in_a_loop(t):
    def twice(f):
        return lambda v: f(f(v))

    f = lambda v: 0.5 * v + 1
    for _ in range(3):
        f = twice(f)
    return f(t)


@program((2.0, 3), (0.5, 0), (1.5, 40), grad=(0,))
def counters(t, n):
    c = itertools.count(1)
    tick = lambda: next(c)
    for _ in range(n):
        t = t + 1.0 / tick()
    return t


# folds


@arrays
def reduce_max_pair(x):
    return reduce(lambda a, b: a if a > b else b, x)


@arrays
def reduce_horner(x):
    return reduce(lambda acc, c: acc * 0.5 + c, x, 0.0)


@ones
def reduce_matrices(t):
    ms = [A([[1.0, t], [0.0, 1.0]]), A([[t, 0.0], [1.0, 1.0]]), A([[0.0, 1.0], [1.0, t]])]
    return reduce(np.matmul, ms)[0, 1]


@points
def reduce_dicts(t):
    parts = [{"a": t}, {"b": 2 * t}, {"a": 3 * t}]
    return reduce(lambda d, e: {**d, **e}, parts)


@program(([],), ([1.0],), ([1.0, 2.5],))
def reduce_empty(x):
    return reduce(operator.add, x)


@program(([], 2.0), ([1.5], 2.0), grad=(1,))
def reduce_start(x, t):
    return reduce(operator.mul, x, t)


@pairs
def reduce_arrays_op(x, y):
    return reduce(np.maximum, [x, y, x * y])


@arrays
def reduce_state(x):
    mean, n = reduce(lambda s, v: (s[0] + (v - s[0]) / (s[1] + 1), s[1] + 1), x, (0.0, 0))
    return mean, n


@program((12, 18, 30), (7, 5, 3), (0, 4, 6))
def reduce_gcd(a, b, c):
    return reduce(math.gcd, (a, b, c))


@ones
def reduce_functions(t):
    return reduce(lambda v, f: f(v), [math.sin, math.exp, abs, math.sqrt], t)


@points
def reduce_bools(t):
    return reduce(operator.and_, [t > 0, t < 1, t != 0.5])


# iterators


@ones
def product_of_ranges(t):
    return sum(t ** (i + j) for i, j in product(range(3), range(2)))


@arrays
def product_of_values(x):
    return max(a * b - c for a, b, c in product(x[:3], repeat=3))


@arrays
def combination_distances(x):
    return min(abs(a - b) for a, b in combinations(x, 2))


@pairs
def combination_indices(x, y):
    return sum((x[i] - x[j]) * (y[i] - y[j]) for i, j in combinations(range(len(x)), 2))


@arrays
def accumulated_products(x):
    return list(accumulate(x, operator.mul))


@arrays
def accumulated_from(x):
    return list(accumulate(x, lambda s, v: 0.5 * s + v, initial=1.0))


@arrays
def pairwise_slopes(x):
    return [b - a for a, b in pairwise(x)]


@arrays
def pairwise_changes(x):
    changes = 0
    for a, b in pairwise(x):
        if (a > 2) != (b > 2):
            changes += 1
    return changes


@pairs
def chained(x, y):
    total = 0.0
    for i, v in enumerate(chain(x, [10.0], y)):
        total += i * v
    return total


@pairs
def chained_iterables(x, y):
    return sum(chain.from_iterable([x, y, (1.0, 2.0)])), len(list(chain(x, y)))


@ones
def counted_terms(t):
    total, term = 0.0, 1.0
    for k in count(1):
        total += term
        term *= t / k
        if k > 20:
            break
    return total


@ones
def sliced_iterators(t):
    squares = (k * k for k in count())
    return sum(t * k for k in islice(squares, 2, 6))


@program(((1.0, 2.0, 5.0, 1.0),), ((7.0,),))
def taken_while(x):
    return list(takewhile(lambda v: v < 4, x))


@arrays
def repeated(x):
    return sum(map(pow, x, repeat(2)))


@arrays
def zipped_stars(x):
    rows = [(a, b) for a, b in zip(x, x[::-1])]
    first, second = zip(*rows)
    return sum(first) - second[0]


@arrays
def sorted_by(x):
    return [i for i, _ in sorted(enumerate(x), key=operator.itemgetter(1))]


@ones
def nested_product(t):
    grid = {(i, j): t * i - j for i, j in product((0, 1, 2), (1, 3))}
    return max(grid.values()), grid[2, 3]


# operator


@program(("add", 2.0, 3.0), ("sub", 2.0, 3.0), ("truediv", 1.0, 0.0), ("pow", 2.0, 0.5), ("mod", 5.0, 3.0), grad=(1, 2))
def operators_by_name(name, a, b):
    return getattr(operator, name)(a, b)


@pairs
def operator_dot(x, y):
    return sum(map(operator.mul, x, y)), operator.matmul(x, y)


@ones
def operator_attributes(t):
    p = SimpleNamespace(a=SimpleNamespace(b=t), c=2.0)
    return operator.attrgetter("a.b")(p) * operator.attrgetter("c")(p)


@arrays
def operator_items(x):
    return operator.itemgetter(0, -1)(x), operator.getitem(x, 1)


@ones
def operator_in_place(t):
    a = [t]
    a = operator.iadd(a, [2 * t])
    return operator.neg(operator.abs(t)), operator.truth(t), a


@program((2.0, 1.0), (1.0, 1.0), (float("nan"), 1.0))
def operator_comparisons(a, b):
    return [f(a, b) for f in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)]


@ones
def operator_methods(t):
    return operator.methodcaller("sum")(A([t, 2.0])), operator.methodcaller("__add__", 1.0)(t)


@program((7, 3), (-7, 3), (7, 0))
def operator_ints(a, b):
    return operator.floordiv(a, b), operator.mod(a, b), operator.lshift(a, 2), operator.xor(a, b)


@points
def operator_sort(t):
    rows = [("a", t), ("b", 0.1), ("c", 1.0)]
    return sorted(rows, key=operator.itemgetter(1))[0]


@ones
def sorted_names(t):
    rows = [("a", t), ("b", 0.1), ("c", 1.0)]
    rows.sort(key=lambda row: -row[1])
    name, v = rows[0]
    return v * 2 if name == "a" else -v


@points
def sorted_with_ties(t):
    rows = sorted(zip([t, 0.3, 0.3, -t], ["x", "z", "y", "w"]), reverse=True)
    return rows[0][1], [name for _, name in rows], rows[-1]


@points
def sorted_by_table(t):
    values = {"a": t, "b": 0.1, "c": 1.0}
    return sorted(values, key=values.get), sorted(["c", "a"], key=lambda n: values[n])


# texts of errors


@ones
def error_with_value(t):
    if t < 0:
        raise ValueError(f"t = {t:.3e} is below {0.0}")
    return math.sqrt(t)


@program((1.0, 2.0), (2.0, 1.0), (1.0, 1.0))
def error_with_two(a, b):
    if a >= b:
        raise ValueError(f"need a < b, got a={a!r} and b={b!r} (difference {a - b:+.2f})")
    return b - a


@arrays
def error_with_shape(x):
    if len(x) != 3:
        raise ValueError(f"expected shape (3,), got {x.shape} of {x.dtype}")
    return x.sum()


@program((5,), (0,), (-3,))
def error_with_int(n):
    if n <= 0:
        raise ValueError(f"n must be positive: {n:d} ({n:>5}, {n:#x})")
    return 1 / n


class NotConverged(RuntimeError):
    def __init__(self, iterations, residual):
        super().__init__(f"not converged after {iterations} iterations: {residual:.2e}")
        self.iterations, self.residual = iterations, residual


@program((2.0, 1e-3), (2.0, 1e-30), (0.5, 1e-8), grad=(0,))
def error_of_a_class(a, tol):
    x = a
    for k in range(8):
        step = (x * x - a) / (2 * x)
        x -= step
        if abs(step) < tol:
            return x
    raise NotConverged(k + 1, step)


@ones
def error_chained(t):
    try:
        if t < 0:
            raise ValueError(f"bad {t}")
        return math.log(t)
    except ValueError as error:
        raise RuntimeError(f"failed at {t:.1f}") from error


@ones
def error_assert(t):
    assert t < 1, f"too large: {t:.4f}"
    return 1 - t


@program(({"a": 1.0}, "a"), ({"a": 1.0}, "b"))
def error_of_a_key(d, k):
    if k not in d:
        raise KeyError(f"{k!r} is not in {sorted(d)}")
    return d[k]


@arrays
def error_in_a_loop(x):
    total = 0.0
    for i, v in enumerate(x):
        if v < 0:
            raise ValueError(f"x[{i}] = {v:.2f} is negative")
        total += math.sqrt(v)
    return total


@program((2.0, "m"), (-1.0, "km"))
def error_percent(v, unit):
    if v < 0:
        raise ValueError("%.1f %s is %s" % (v, unit, "negative"))
    return "{:.1f} {}".format(v, unit)


# classes made inside, super()


@ones
def super_of_three(t):
    class A:
        def f(self, v):
            return [v]

    class B(A):
        def f(self, v):
            return [*super().f(v), 2 * v]

    class C(B):
        def f(self, v):
            return [*super().f(v), 3 * v]

    return C().f(t)


@ones
def super_of_a_diamond(t):
    class Base:
        def f(self):
            return t

    class Left(Base):
        def f(self):
            return 2 * super().f()

    class Right(Base):
        def f(self):
            return 1 + super().f()

    class Both(Left, Right):
        pass

    return Both().f()


@ones
def super_in_init(t):
    class Shape:
        def __init__(self, name, scale=1.0):
            self.name, self.scale = name, scale

        def area(self):
            return 0.0

    class Circle(Shape):
        def __init__(self, r):
            super().__init__("circle", scale=2.0)
            self.r = r

        def area(self):
            return super().area() + self.scale * math.pi * self.r**2

    return Circle(t).area()


@ones
def super_with_arguments(t):
    class A:
        def go(self, *args, **kwargs):
            return sum(args) + kwargs.get("k", 0.0)

    class B(A):
        def go(self, *args, **kwargs):
            return super(B, self).go(*args, t, **kwargs)

    return B().go(1.0, 2.0, k=t)


@ones
def super_property(t):
    class A:
        @property
        def v(self):
            return t

    class B(A):
        @property
        def v(self):
            return super().v * 2

    return B().v


@ones
def class_methods_inside(t):
    class P:
        unit = 2.0

        def __init__(self, v):
            self.v = v

        @classmethod
        def of(cls, v):
            return cls(v * cls.unit)

        @staticmethod
        def twice(v):
            return 2 * v

    class Q(P):
        unit = 3.0

    return P.of(t).v + Q.of(t).v + Q.twice(t)


@ones
def class_attribute_inside(t):
    class Counter:
        made = 0

        def __init__(self):
            type(self).made += 1

    for _ in range(3):
        Counter()
    return t * Counter.made


@ones
def operators_inside(t):
    class Dual:
        def __init__(self, a, b=0.0):
            self.a, self.b = a, b

        def __add__(self, o):
            o = o if isinstance(o, Dual) else Dual(o)
            return Dual(self.a + o.a, self.b + o.b)

        __radd__ = __add__

        def __mul__(self, o):
            o = o if isinstance(o, Dual) else Dual(o)
            return Dual(self.a * o.a, self.a * o.b + self.b * o.a)

        __rmul__ = __mul__

    d = Dual(t, 1.0)
    r = 2 * d * d + 3 * d + 1
    return r.a, r.b


@ones
def context_inside(t):
    class Scope:
        def __init__(self, log):
            self.log = log

        def __enter__(self):
            self.log.append("in")
            return self

        def __exit__(self, *error):
            self.log.append("out")
            return False

    log = []
    with Scope(log):
        r = t * 2
    return r, log


@ones
def calls_inside(t):
    class Poly:
        def __init__(self, *c):
            self.c = c

        def __call__(self, v):
            r = 0.0
            for c in reversed(self.c):
                r = r * v + c
            return r

        def __len__(self):
            return len(self.c)

        def __iter__(self):
            return iter(self.c)

    p = Poly(1.0, t, 3.0)
    return p(t) + len(p) + sum(p)


# vectorised functions


@np.vectorize
def clipped(v, low=0.0, high=2.0):
    if v < low:
        return low
    elif v > high:
        return high
    return v


def _piece(v):
    if v < 1:
        return v * v
    if v < 3:
        return 2 * v - 1
    return 5.0


piece = np.vectorize(_piece)


@arrays
def vectorized_branches(x):
    return piece(x)


@arrays
def vectorized_defaults(x):
    return clipped(x), clipped(x, high=1.5)


@arrays
def vectorized_lambda(x):
    return np.vectorize(lambda v: math.exp(-v) if v > 0 else 1.0)(x)


@pairs
def vectorized_two(x, y):
    return np.vectorize(lambda a, b: a - b if a > b else a + b)(x, y)


@ones
def vectorized_scalar(t):
    return float(piece(t))


@pairs
def vectorized_outer(x, y):
    return np.vectorize(lambda a, b: max(a, b))(x[:, None], y[None, :])


@arrays
def vectorized_whiles(x):
    def halvings(v):
        n = 0
        while v > 0.5:
            v *= 0.5
            n += 1
        return n

    return np.vectorize(halvings, otypes=[int])(x)


@arrays
def vectorized_two_results(x):
    return np.vectorize(lambda v: (v, -v) if v > 1 else (0.0, v))(x)


@arrays
def vectorized_grid(x):
    return np.vectorize(_piece)(np.outer(x, x)).sum()


@np.vectorize
def signed(v):
    return 1.0 if v > 0 else -1.0 if v < 0 else 0.0


@program((y3,), (A([0.0, -0.0, 1.0]),), (A([-2, 3]),))
def vectorized_signs(x):
    return signed(x)


# defaults without elements


def _joined(x, more=np.array([])):
    return np.concatenate([x, more])


def _weighted(x, w=(), names=[], options={}):
    return sum(a * b for a, b in zip(x, w)) + len(names) + options.get("k", 0.0)


@arrays
def default_array(x):
    return _joined(x), _joined(x, x[:1])


@arrays
def default_containers(x):
    return _weighted(x), _weighted(x, (1.0, 2.0)), _weighted(x, options={"k": x[0]})


@program((x3,), (x3, x5))
def default_of_zeros(x, w=np.zeros(0)):
    return x.sum() + w.sum(), w.size, w.shape


@program((np.zeros((0, 2)),), (np.ones((3, 2)),))
def rows_without_elements(x):
    return x.sum(axis=0), x.shape, x.T @ x


@program((2.0,), (2.0, None), (2.0, 3.0))
def default_none(t, s=None):
    s = t if s is None else s
    return s * t


@arrays
def keyword_only(x, *, start=0.0, log=[]):
    return x.sum() + start + len(log)


@program((np.zeros(0),), (x3,))
def mean_of_some(x):
    return np.mean(x) if len(x) else 0.0


@program((np.zeros(0),), (x3,))
def max_with_default(x):
    return max(x, default=-1.0)


@arrays
def appended_to_empty(x):
    r = np.array([])
    for v in x:
        if v > 1.2:
            r = np.append(r, v)
    return r


@program((x3, []), (x3, [1.0]), (x3, [1.0, 2.0]))
def empty_argument(x, more):
    return np.array(more).sum() + np.sum(x[: len(more)])


# namespaces


@ones
def namespace_of_results(t):
    r = SimpleNamespace(value=t, steps=0, log=[])
    while r.value > 0.1:
        r.value *= 0.5
        r.steps += 1
    return r.value, r.steps


@program((SimpleNamespace(k=2.0, n=3), 0.5), (SimpleNamespace(k=1.0, n=0), 0.5), grad=(1,))
def namespace_options(o, t):
    for _ in range(o.n):
        t = t * o.k + 1
    return t


@ones
def namespace_by_items(t):
    p = SimpleNamespace(**{f"w{k}": t * k for k in range(4)})
    return sum(vars(p).values()), sorted(vars(p))


@ones
def namespace_with_functions(t):
    ops = SimpleNamespace(f=math.sin, g=lambda v: v if v > 0 else -v, name="ops")
    return ops.f(t) + ops.g(t) + len(ops.name)


@program((SimpleNamespace(x=x3, y=None), 1.0), (SimpleNamespace(x=x3, y=y3), 1.0), grad=(1,))
def namespace_of_none(d, t):
    return t * d.x.sum() if d.y is None else t * (d.x @ d.y)


@ones
def namespaces_in_a_list(t):
    ps = [SimpleNamespace(m=k + 1.0, v=t) for k in range(3)]
    for a, b in combinations(ps, 2):
        d = 0.1 * (b.m - a.m)
        a.v += d
        b.v -= d
    return [p.v for p in ps]


@ones
def namespace_updated(t):
    p = SimpleNamespace(a=1.0)
    p.__dict__.update(a=t, b=2 * t)
    p.c = p.a + p.b
    del p.a
    return p.c, hasattr(p, "a"), getattr(p, "d", -1.0)


@program((SimpleNamespace(a=1.0, b=(2.0, 3.0)),), (SimpleNamespace(a=-1.0, b=(2.0,)),))
def namespace_returned(p):
    return SimpleNamespace(total=p.a + sum(p.b), parts=[v * p.a for v in p.b], is_positive=p.a > 0)
