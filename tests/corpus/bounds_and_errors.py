"""Loops whose bounds are values, loops of no iterations, and programs that raise for some arguments, each with its error."""

import math

import numpy as np

from tests.corpus.case import Case


class ConvergenceError(RuntimeError):
    """Raised when an iteration does not converge."""


def last_positive(x):
    """A name that is unbound if no element is positive."""
    for i, v in enumerate(x):
        if v > 0:
            last = v
            where = i
    return last, where


def segment_sums(x, starts, stops):
    """Sums over ranges whose bounds are elements of arrays; a range may be empty."""
    out = np.zeros(len(starts))
    for k in range(len(starts)):
        for i in range(starts[k], stops[k]):
            out[k] += x[i]
    return out


def strided_sum(x, step):
    """A range whose step is an argument, possibly negative."""
    total = 0.0
    start, stop = (0, len(x)) if step > 0 else (len(x) - 1, -1)
    for i in range(start, stop, step):
        total += x[i] * (1 + i)
    return total


def follow_pointers(successor, weights, start):
    """A linked list in an array of indices, until -1; the program fails at an index out of range."""
    total = 0.0
    node = start
    length = 0
    while node != -1:
        total += weights[node]
        node = successor[node]
        length += 1
        if length > len(successor):
            raise ValueError("the list has a cycle")
    return total, length


def csr_product(indptr, indices, data, x):
    """Sparse matrix times vector, row by row."""
    y = np.zeros(len(indptr) - 1)
    for row in range(len(y)):
        for k in range(indptr[row], indptr[row + 1]):
            y[row] += data[k] * x[indices[k]]
    return y


def sparse_lower_solve(indptr, indices, data, b):
    """Forward substitution with a sparse lower triangular matrix whose diagonal comes last in each row."""
    x = b.copy()
    for i in range(len(b)):
        start, end = indptr[i], indptr[i + 1]
        for k in range(start, end - 1):
            x[i] -= data[k] * x[indices[k]]
        x[i] /= data[end - 1]
    return x


def checked_newton(a, x, max_iter):
    """A square root with checks on every step and an error class of its own."""
    if a < 0:
        raise ValueError("a is negative")
    for k in range(max_iter):
        assert x > 0, "x left the domain"
        x_new = 0.5 * (x + a / x)
        if abs(x_new - x) < 1e-14 * x:
            return x_new
        x = x_new
    raise ConvergenceError("no root after all iterations")


def validated_mean(values, low, high):
    """Every element is checked; the first that is wrong is in the message."""
    total = 0.0
    for i in range(len(values)):
        if not low <= values[i] <= high:
            raise ValueError(f"value {i} is outside the range")
        total += values[i]
    return total / len(values)


def normalise_rows(A):
    """Rows are divided by their sums in place; a row of zeros is an error, after which nothing should be half done."""
    for i in range(A.shape[0]):
        s = A[i].sum()
        if s == 0:
            raise ZeroDivisionError("a row sums to zero")
        A[i] /= s
    return A.max()


def triangle_area(a, b, c):
    """Heron's formula with checks in a helper."""
    def check(p, q, r):
        if p + q <= r:
            raise ValueError("not a triangle")

    check(a, b, c)
    check(b, c, a)
    check(c, a, b)
    s = (a + b + c) / 2
    return math.sqrt(s * (s - a) * (s - b) * (s - c))


def schedule(lengths, deadline):
    """Shortest jobs first, until the deadline; the late ones are counted."""
    order = np.argsort(lengths)
    t = 0.0
    flow = 0.0
    late = 0
    for job in order:
        t += lengths[job]
        if t > deadline:
            late += 1
            continue
        flow += t
    if late == len(lengths):
        raise ConvergenceError("no job is in time")
    return flow, late


def empty_or_not(x, threshold):
    """Lists that may stay empty, and the loop over one of them."""
    above = []
    for v in x:
        if v > threshold:
            above.append(v)
    if len(above) == 0:
        return 0.0, 0
    product = 1.0
    for v in above:
        product *= v
    return product, len(above)


def countdown(n):
    """A while loop of no iterations for small n."""
    steps = 0
    while n > 10:
        n -= 3
        steps += 1
    return n, steps


def growing_window(x, tolerance):
    """Slices whose length grows until their mean settles."""
    k = 1
    mean = x[0]
    while k < len(x):
        k += 1
        new = x[:k].mean()
        if abs(new - mean) < tolerance:
            return new, k
        mean = new
    return mean, k


def skyline(heights, widths):
    """The largest rectangle under a histogram, by a stack of indices."""
    stack, best = [], 0.0
    position = np.concatenate([[0.0], np.cumsum(widths)])
    for i in range(len(heights) + 1):
        current = heights[i] if i < len(heights) else 0.0
        while stack and heights[stack[-1]] > current:
            h = heights[stack.pop()]
            left = stack[-1] + 1 if stack else 0
            best = max(best, h * (position[i] - position[left]))
        stack.append(i)
    return best


def segments(rng, n):
    starts = rng.integers(0, n // 2, 4)
    stops = starts + rng.integers(0, n // 2, 4)
    stops[rng.integers(4)] = 0
    return rng.normal(size=n), starts, stops


def chain(rng, n):
    order = rng.permutation(n)
    successor = np.full(n, -1)
    for a, b in zip(order[:-2], order[1:-1]):
        successor[a] = b
    return successor, rng.normal(size=n), order[0]


def sparse(rng, n):
    counts = rng.integers(0, 3, n)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return indptr, rng.integers(0, n, indptr[-1]), rng.normal(size=indptr[-1]), rng.normal(size=n)


def sparse_lower(rng, n):
    columns = [[*np.flatnonzero(rng.uniform(size=i) < 0.4), i] for i in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(c) for c in columns])])
    return indptr, np.concatenate(columns).astype(int), rng.uniform(1, 2, indptr[-1]), rng.normal(size=n)


CASES = [
    Case(function=last_positive, argnums=(0,), seeds=3, size=6, arguments=lambda rng, n: (np.append(rng.normal(size=n), 0.5),),
         failing=lambda rng: (-np.ones(6),)),
    Case(function=segment_sums, argnums=(0,), arguments=segments,
         failing=lambda rng: (np.ones(5), np.array([0, 3]), np.array([2, 7]))),
    Case(function=strided_sum, argnums=(0,), seeds=4,
         arguments=lambda rng, n: (rng.normal(size=n), int(rng.choice([-3, -1, 1, 2]))),
         failing=lambda rng: (np.ones(5), 0)),
    Case(function=follow_pointers, argnums=(1,), size=6, arguments=chain,
         failing=lambda rng: (np.array([1, 2, 0]), np.ones(3), 0)),
    Case(function=csr_product, argnums=(2, 3), size=6, arguments=sparse,
         failing=lambda rng: (np.array([0, 1]), np.array([4]), np.ones(1), np.ones(3))),
    Case(function=sparse_lower_solve, argnums=(2, 3), size=5, turns=60, arguments=sparse_lower),
    Case(function=checked_newton, argnums=(0,), seeds=3, arguments=lambda rng, n: (rng.uniform(0.5, 90), 1.0, 30),
         failing=lambda rng: (2.0, 1.0, 2)),
    Case(function=validated_mean, argnums=(0,), arguments=lambda rng, n: (rng.uniform(size=n), 0.0, 1.0),
         failing=lambda rng: (np.array([0.5, 0.1, 2.0, 3.0]), 0.0, 1.0)),
    Case(function=normalise_rows, argnums=(0,), writes=True, size=4, turns=500,
         arguments=lambda rng, n: (rng.uniform(1, 2, (n, 3)),),
         failing=lambda rng: (np.array([[1.0, 3], [0, 0], [2, 2]]),)),
    Case(function=triangle_area, argnums=(0, 1, 2), arguments=lambda rng, n: tuple(rng.uniform(2, 3, 3).tolist()),
         failing=lambda rng: (1.0, 5.0, 2.0)),
    Case(function=schedule, argnums=(0,), size=8, arguments=lambda rng, n: (rng.uniform(1, 3, n), 1.2 * n),
         failing=lambda rng: (np.array([3.0, 4.0]), 1.0)),
    Case(function=empty_or_not, argnums=(0,), seeds=6, size=5, turns=300,
         arguments=lambda rng, n: (rng.uniform(0.5, 1.5, n), rng.choice([0.9, 2.0]))),
    Case(function=countdown, seeds=4, arguments=lambda rng, n: (int(rng.choice([3, 10, 11, n + 20])),)),
    Case(function=growing_window, argnums=(0,), seeds=3, size=8, turns=300, arguments=lambda rng, n: (rng.normal(size=n), 0.05)),
    Case(function=skyline, argnums=(0, 1), size=6, turns=300,
         arguments=lambda rng, n: (rng.uniform(1, 9, n), rng.uniform(1, 2, n))),
]  # fmt: skip
