"""Rarer forms of loops and branches: match, walrus, nonlocal, generators, else of loops, iterators of NumPy, truth of arrays."""

import math

import numpy as np

from tests.corpus.case import Case


def activation(x, kind):
    """One of several functions by its name, element by element."""
    out = []
    for v in x:
        match kind:
            case "relu":
                out.append(v if v > 0 else 0.0)
            case "leaky" | "prelu":
                out.append(v if v > 0 else 0.01 * v)
            case "elu":
                out.append(v if v > 0 else np.exp(v) - 1)
            case _:
                raise ValueError(f"unknown activation {kind}")
    return np.array(out)


def stack_machine(codes, constants):
    """Evaluates postfix code: 0 pushes, 1 adds, 2 multiplies, 3 negates, 4 takes the larger."""
    stack = []
    position = 0
    for code in codes:
        match code:
            case 0:
                stack.append(constants[position])
                position += 1
            case 1:
                b, a = stack.pop(), stack.pop()
                stack.append(a + b)
            case 2:
                b, a = stack.pop(), stack.pop()
                stack.append(a * b)
            case 3:
                stack.append(-stack.pop())
            case 4:
                b, a = stack.pop(), stack.pop()
                stack.append(a if a > b else b)
    return stack[-1]


def halving(x, tol):
    """Walrus in the condition and else of the while loop."""
    steps = 0
    while (y := x / 2) > tol:
        x = y
        steps += 1
        if steps > 200:
            break
    else:
        x = -x
    return x, steps


def first_prime_after(n):
    """Nested loops with break and else."""
    while True:
        n += 1
        for d in range(2, int(n**0.5) + 1):
            if n % d == 0:
                break
        else:
            return n


def count_signs(x):
    """Sums of booleans, and the truth of whole arrays."""
    positive = 0
    for v in x:
        positive += v > 0
    if (x > 0).all():
        return positive, "all"
    if not np.any(x > 0):
        return positive, "none"
    return positive, "some"


def clip_rows(A, limit):
    """Rows by iteration, scaled in place if their norm is too large; columns by the transposed array."""
    for row in A:
        norm = np.sqrt((row**2).sum())
        if norm > limit:
            row *= limit / norm
    largest = -np.inf
    for column in A.T:
        if column.sum() > largest:
            largest = column.sum()
    return largest


def weighted_entries(A):
    """ndenumerate and ndindex."""
    total = 0.0
    for (i, j), v in np.ndenumerate(A):
        if v > 0:
            total += v * (i + 2 * j)
    for index in np.ndindex(*A.shape):
        if sum(index) % 2 == 0:
            total -= A[index]
    return total


def flat_maximum(A):
    """Iteration over the flat array with the running best as None."""
    best = None
    where = -1
    for k, v in enumerate(A.flat):
        if best is None or v > best:
            best, where = v, k
    return best, divmod(where, A.shape[1])


def generator_pairs(x):
    """Generator expressions in sum, max and any."""
    closest = min(abs(a - b) for i, a in enumerate(x) for b in x[i + 1:])
    farthest = max(abs(a - b) for i, a in enumerate(x) for b in x[:i])
    return closest, farthest, any(v > 1.0 for v in x), all(v < 3 for v in x)


def running(values):
    total = 0.0
    for v in values:
        total += v
        yield total


def generator_sums(x, limit):
    """A generator that is left early."""
    kept = []
    for s in running(x):
        if s > limit:
            break
        kept.append(s)
    return sum(kept), len(kept)


def filtered(x, lo, hi):
    """Comprehensions with conditions."""
    inside = [v * v for v in x if lo <= v <= hi]
    outside = [v for v in x if not lo <= v <= hi]
    if not inside:
        return 0.0, len(outside)
    return sum(inside) / len(inside), len(outside)


def default_step(x, step=None, bounds=None):
    """Arguments that are None, and `or`."""
    h = step or 0.1
    lo, hi = bounds if bounds is not None else (-np.inf, np.inf)
    y = x
    for _ in range(5):
        y = y - h * np.sin(y)
        if not lo < y < hi:
            break
    return y


def stepping_ranges(x, stride):
    """Ranges with computed bounds and steps, forwards and backwards."""
    total = 0.0
    for start in range(stride):
        for i in range(start, len(x), stride):
            total += (i - start + 1) * x[i]
    for i in range(len(x) - 1, 0, -stride):
        if x[i] < x[i - 1]:
            total += x[i]
    for i in range(len(x))[::-2]:
        total -= 0.1 * x[i] * x[-1 - i]
    return total


def bracket_root(a, b, growth):
    """Widen an interval until the function changes its sign; the loop has no other end."""
    f = lambda x: x**3 - 20.0
    fa, fb = f(a), f(b)
    tries = 0
    while fa * fb > 0:
        if abs(fa) < abs(fb):
            a += growth * (a - b)
            fa = f(a)
        else:
            b += growth * (b - a)
            fb = f(b)
        tries += 1
    return a, b, tries


def parse_units(values, units):
    """A table of functions and of factors, by strings known before."""
    table = {"C": lambda t: t + 273.15, "F": lambda t: (t + 459.67) * 5 / 9, "K": lambda t: t}
    result = {}
    for unit, value in zip(units, values):
        kelvin = table[unit](value)
        if kelvin < 0:
            raise ValueError(f"{value} {unit} is below absolute zero")
        result.setdefault(unit, []).append(kelvin)
    return {unit: np.mean(ks) for unit, ks in result.items()}


def accumulate_by_key(keys, values):
    """Sums and counts in dicts whose keys are values of an array."""
    sums = {0: 0.0, 1: 0.0, 2: 0.0}
    counts = dict.fromkeys(sums, 0)
    for k, v in zip(keys, values):
        if k == 0:
            sums[0] += v
            counts[0] += 1
        elif k == 1:
            sums[1] += v * v
            counts[1] += 1
        else:
            sums[2] += abs(v)
            counts[2] += 1
    return sums, counts


def swap_buffers(u, steps, c):
    """Two arrays that are exchanged in each step, written by slices."""
    old, new = u.copy(), np.empty_like(u)
    for n in range(steps):
        new[1:-1] = old[1:-1] + c * (old[2:] - 2 * old[1:-1] + old[:-2])
        new[0], new[-1] = old[0], old[-1]
        if np.max(np.abs(new - old)) < 1e-3:
            break
        old, new = new, old
    return old


def alias_after_branch(x, y, flag_value):
    """One name for either of two arrays, then a store through it."""
    x, y = x.copy(), y.copy()
    if flag_value > 0:
        target = x
    else:
        target = y
    target[0] = 10.0
    view = x[1:]
    for i in range(len(view)):
        if view[i] < 0:
            view[i] = -view[i]
    return x, y


def late_binding(x, n):
    """Names bound in a loop and read after it."""
    for i in range(n):
        last = x * (i + 1)
        if last > 5:
            stopped = i
            break
    else:
        stopped = n
    return last, i, stopped


def safe_ratio(a, b):
    """try and except of an error that depends on the value."""
    out = []
    for p, q in zip(a.tolist(), b.tolist()):
        try:
            out.append(p / q)
        except ZeroDivisionError:
            out.append(0.0)
    return np.array(out)


def float_conversions(x):
    """float, int and round of values that then decide."""
    total = 0.0
    for v in x:
        f = float(v)
        n = int(f)
        if n % 2:
            total += f - n
        elif round(f) > n:
            total += 2 * (f - n)
        else:
            total -= math.floor(f) * 0.5
    return total


def ackermann(m, n):
    if m == 0:
        return n + 1
    if n == 0:
        return ackermann(m - 1, 1)
    return ackermann(m - 1, ackermann(m, n - 1))


def hanoi_weight(weights, n, source=0, target=2, spare=1):
    """Recursion whose depth is an argument; the work of moving discs."""
    if n == 0:
        return 0.0
    work = hanoi_weight(weights, n - 1, source, spare, target)
    work += weights[n - 1] * abs(target - source)
    return work + hanoi_weight(weights, n - 1, spare, target, source)


def golden_recursive(lo, hi, centre, depth):
    """Recursion that ends on a value."""
    m = (lo + hi) / 2
    if hi - lo < 0.01 or depth == 0:
        return m * centre
    if m < centre:
        return golden_recursive(m, hi, centre, depth - 1)
    return golden_recursive(lo, m, centre, depth - 1)


def mixed_returns(x, kind):
    """Returns at several depths from nested loops."""
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if x[i, j] > 1.0:
                return x[i, j] * 2, i, j
            if kind and x[i, j] < -1.5:
                return -x[i, j], i, -1
    return np.sum(x), -1, -1


def compare_chain(a, b, c):
    """Chained comparisons, not, nested conditional expressions."""
    middle = b if a <= b <= c or c <= b <= a else (a if b <= a <= c or c <= a <= b else c)
    spread = max(a, b, c) - min(a, b, c)
    if not (spread > 1 and not middle < 0):
        return middle, spread
    return middle / spread, -spread


CASES = [
    Case(function=activation, seeds=6, argnums=(0,),
         arguments=lambda rng, n: (rng.normal(size=n), str(rng.choice(["relu", "leaky", "elu"]))),
         failing=lambda rng: (np.ones(3), "tanh")),
    Case(function=stack_machine, argnums=(1,), arguments=lambda rng, n: (np.array([0, 0, 1, 0, 2, 0, 4, 3]), rng.normal(size=4))),
    Case(function=halving, seeds=6, argnums=(0,), arguments=lambda rng, n: (rng.uniform(1, 9), 1e-3)),
    Case(function=first_prime_after, arguments=lambda rng, n: (int(rng.integers(20, 100)),)),
    Case(function=count_signs, seeds=6, arguments=lambda rng, n: (rng.normal(size=n) + rng.choice([0, 9]),)),
    Case(function=clip_rows, argnums=(0, 1), writes=True, size=4, turns=500,
         arguments=lambda rng, n: (rng.normal(size=(n, 3)), 1.7)),
    Case(function=weighted_entries, argnums=(0,), size=3, turns=40, arguments=lambda rng, n: (rng.normal(size=(n, n + 1)),)),
    Case(function=flat_maximum, argnums=(0,), size=3, turns=40, arguments=lambda rng, n: (rng.normal(size=(n, n + 1)),)),
    Case(function=generator_pairs, argnums=(0,), size=5, turns=60, arguments=lambda rng, n: (rng.normal(size=n),)),
    Case(function=generator_sums, argnums=(0,), arguments=lambda rng, n: (rng.uniform(size=n), 2.5)),
    Case(function=filtered, argnums=(0,), arguments=lambda rng, n: (rng.normal(size=n), -0.5, 1.0)),
    Case(function=default_step, seeds=6, argnums=(0,), arguments=lambda rng, n: (rng.uniform(0.5, 2), None, (1.0, 2.0))),
    Case(function=stepping_ranges, argnums=(0,), size=10, arguments=lambda rng, n: (rng.normal(size=n), 3)),
    Case(function=bracket_root, seeds=6, argnums=(0, 1, 2),
         arguments=lambda rng, n: (rng.uniform(0, 1), rng.uniform(1.1, 1.4), 0.8)),
    Case(function=parse_units, argnums=(0,), size=4, turns=300,
         arguments=lambda rng, n: (rng.uniform(1, 99, n), list("CFKC" * n)[:n]), failing=lambda rng: (np.array([-300.0]), ["C"])),
    Case(function=accumulate_by_key, argnums=(1,), arguments=lambda rng, n: (rng.integers(0, 3, n), rng.normal(size=n))),
    Case(function=swap_buffers, argnums=(0, 2), size=6, arguments=lambda rng, n: (rng.normal(size=7), n, 0.2)),
    Case(function=alias_after_branch, seeds=6, argnums=(0, 1), size=4,
         arguments=lambda rng, n: (rng.normal(size=n), rng.normal(size=n), rng.choice([-1.0, 1.0]))),
    Case(function=late_binding, seeds=6, argnums=(0,), size=6, arguments=lambda rng, n: (rng.uniform(0.5, 2.0), n)),
    Case(function=safe_ratio, size=6, arguments=lambda rng, n: (rng.normal(size=n), rng.integers(0, 2, n) * 1.5)),
    Case(function=float_conversions, argnums=(0,), arguments=lambda rng, n: (rng.uniform(0, 9, n),)),
    Case(function=ackermann, arguments=lambda rng, n: (2, int(rng.integers(2, 4)))),
    Case(function=hanoi_weight, argnums=(0,), size=4, turns=10, arguments=lambda rng, n: (rng.uniform(size=n), n)),
    Case(function=golden_recursive, seeds=6, argnums=(2,), arguments=lambda rng, n: (0.0, 1.0, rng.uniform(0.2, 0.8), 12)),
    Case(function=mixed_returns, seeds=6, argnums=(0,), size=4, turns=50,
         arguments=lambda rng, n: (rng.normal(size=(n, 3)) / 2, bool(rng.integers(2)))),
    Case(function=compare_chain, seeds=6, argnums=(0, 1, 2), arguments=lambda rng, n: tuple(rng.normal(size=3))),
]  # fmt: skip
