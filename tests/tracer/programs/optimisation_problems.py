"""Test problems of optimisation as public suites write them: classes with a counter, bounds and element loops.

Each class is in ``PROBLEMS``. ``evaluate`` is the function; a call counts, and keeps the best value and its point.
"""

import math
from itertools import product

import numpy as np

PROBLEMS = []


def problem(cls):
    """Add the decorated class."""
    PROBLEMS.append(cls)
    return cls


class Problem:
    """A function of several variables with bounds, which counts its calls and keeps the best one. ``step``: of differences."""

    dimension = 4
    low, high = -5.0, 5.0
    step = 1e-3

    def __init__(self, dimension=None):
        self.dimension = dimension or type(self).dimension
        self.bounds = [(self.low, self.high)] * self.dimension
        self.calls = 0
        self.best = np.inf
        self.best_x = None
        self.history = []

    def evaluate(self, x):
        raise NotImplementedError

    def __call__(self, x, *args):
        self.calls += 1
        value = self.evaluate(x)
        self.history.append(float(value))
        if value < self.best:
            self.best = value
            self.best_x = x
        return value


@problem
class Ackley(Problem):

    def evaluate(self, x):
        a, b, c = 20.0, 0.2, 2 * np.pi
        squares = cosines = 0.0
        for v in x:
            squares += v**2
            cosines += math.cos(c * v)
        n = float(self.dimension)
        return -a * np.exp(-b * np.sqrt(squares / n)) - np.exp(cosines / n) + a + np.exp(1.0)


@problem
class Beale(Problem):
    dimension = 2

    def evaluate(self, x):
        return sum((c - x[0] + x[0] * x[1] ** (i + 1)) ** 2 for i, c in enumerate((1.5, 2.25, 2.625)))


@problem
class Booth(Problem):
    dimension = 2

    def evaluate(self, x):
        x1, x2 = x
        return (x1 + 2 * x2 - 7) ** 2 + (2 * x1 + x2 - 5) ** 2


@problem
class Branin(Problem):
    dimension = 2

    def __init__(self, dimension=None):
        super().__init__(dimension)
        self.bounds = [(-5.0, 10.0), (0.0, 15.0)]
        self.a, self.b, self.c = 1.0, 5.1 / (4 * np.pi**2), 5 / np.pi

    def evaluate(self, x):
        t = 1 / (8 * np.pi)
        return self.a * (x[1] - self.b * x[0] ** 2 + self.c * x[0] - 6) ** 2 + 10 * (1 - t) * np.cos(x[0]) + 10


@problem
class Colville(Problem):
    def evaluate(self, x):
        return (
            100 * (x[0] - x[1] ** 2) ** 2
            + (1 - x[0]) ** 2
            + 90 * (x[3] - x[2] ** 2) ** 2
            + (1 - x[2]) ** 2
            + 10.1 * ((x[1] - 1) ** 2 + (x[3] - 1) ** 2)
            + 19.8 * (x[1] - 1) * (x[3] - 1)
        )


@problem
class Corana(Problem):
    step = 1e-6

    def evaluate(self, x):
        weights = [1.0, 1000.0, 10.0, 100.0]
        total = 0.0
        for j in range(4):
            z = math.floor(abs(x[j] / 0.2) + 0.49999) * np.sign(x[j]) * 0.2
            if abs(x[j] - z) < 0.05:
                total += 0.15 * ((z - 0.05 * np.sign(z)) ** 2) * weights[j]
            else:
                total += weights[j] * x[j] * x[j]
        return total


@problem
class CosineMixture(Problem):
    low, high = -1.0, 1.0

    def evaluate(self, x):
        return -0.1 * np.sum(np.cos(5.0 * np.pi * x)) - np.sum(x**2.0)


@problem
class Csendes(Problem):
    low, high = -1.0, 1.0

    def evaluate(self, x):
        try:
            return np.sum((x**6.0) * (2.0 + np.sin(1.0 / x)))
        except ZeroDivisionError:
            return np.nan


@problem
class DixonPrice(Problem):
    def evaluate(self, x):
        i = np.arange(2, self.dimension + 1)
        return np.sum(i * (2.0 * x[1:] ** 2.0 - x[:-1]) ** 2.0) + (x[0] - 1.0) ** 2.0


@problem
class Easom(Problem):
    dimension = 2

    def evaluate(self, x):
        return -np.cos(x[0]) * np.cos(x[1]) * np.exp(-((x[0] - np.pi) ** 2) - (x[1] - np.pi) ** 2)


@problem
class GoldsteinPrice(Problem):
    dimension = 2
    low, high = -2.0, 2.0

    def evaluate(self, x):
        a = 1 + (x[0] + x[1] + 1) ** 2 * (19 - 14 * x[0] + 3 * x[0] ** 2 - 14 * x[1] + 6 * x[0] * x[1] + 3 * x[1] ** 2)
        b = 30 + (2 * x[0] - 3 * x[1]) ** 2 * (18 - 32 * x[0] + 12 * x[0] ** 2 + 48 * x[1] - 36 * x[0] * x[1] + 27 * x[1] ** 2)
        return a * b


@problem
class Griewank(Problem):
    def evaluate(self, x):
        product_ = 1.0
        for i, v in enumerate(x):
            product_ *= math.cos(v / math.sqrt(i + 1))
        return np.sum(x**2) / 4000 - product_ + 1


@problem
class Hartmann(Problem):
    dimension = 3
    low, high = 0.0, 1.0

    def __init__(self, dimension=None):
        super().__init__(dimension)
        self.a = np.array([[3.0, 10, 30], [0.1, 10, 35], [3.0, 10, 30], [0.1, 10, 35]])
        self.p = np.array([[0.3689, 0.117, 0.2673], [0.4699, 0.4387, 0.747], [0.1091, 0.8732, 0.5547], [0.03815, 0.5743, 0.8828]])
        self.c = [1.0, 1.2, 3.0, 3.2]

    def evaluate(self, x):
        total = 0.0
        for i in range(4):
            inner = 0.0
            for j in range(self.dimension):
                inner -= self.a[i, j] * (x[j] - self.p[i, j]) ** 2
            total -= self.c[i] * np.exp(inner)
        return total


@problem
class Himmelblau(Problem):
    dimension = 2

    def evaluate(self, x):
        return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


@problem
class Langermann(Problem):
    dimension = 2
    low, high = 0.0, 10.0

    def evaluate(self, x):
        a = [3, 5, 2, 1, 7]
        b = [5, 2, 1, 4, 9]
        c = [1, 2, 5, 2, 3]
        return -sum(
            ci * np.exp(-r / np.pi) * np.cos(np.pi * r)
            for ai, bi, ci in zip(a, b, c)
            for r in [(x[0] - ai) ** 2 + (x[1] - bi) ** 2]
        )


@problem
class Levy(Problem):
    def evaluate(self, x):
        z = [1 + (v - 1) / 4 for v in x]
        s = np.sin(np.pi * z[0]) ** 2
        for i in range(len(z) - 1):
            s += (z[i] - 1) ** 2 * (1 + 10 * np.sin(np.pi * z[i] + 1) ** 2)
        return s + (z[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * z[-1]) ** 2)


@problem
class Michalewicz(Problem):
    low, high = 0.0, np.pi

    def evaluate(self, x):
        m = 10
        i = np.arange(1, self.dimension + 1)
        return -np.sum(np.sin(x) * np.sin(i * x**2 / np.pi) ** (2 * m))


@problem
class Powell(Problem):
    def evaluate(self, x):
        total = 0.0
        for k in range(0, self.dimension, 4):
            a, b, c, d = x[k : k + 4]
            total += (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4
        return total


@problem
class Rastrigin(Problem):
    def evaluate(self, x):
        total = 10.0 * self.dimension
        for i in range(self.dimension):
            total += x[i] ** 2 - 10.0 * np.cos(2 * np.pi * x[i])
        return total


@problem
class Rosenbrock(Problem):
    def evaluate(self, x):
        return np.sum(100.0 * (x[1:] - x[:-1] ** 2.0) ** 2.0 + (1 - x[:-1]) ** 2.0)


@problem
class LongRosenbrock(Problem):
    dimension = 300

    def evaluate(self, x):
        total = 0.0
        for i in range(len(x) - 1):
            total += 100.0 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
        return total


@problem
class Salomon(Problem):
    def evaluate(self, x):
        u = np.sqrt(np.sum(x**2))
        return 1 - np.cos(2 * np.pi * u) + 0.1 * u


@problem
class Schaffer(Problem):
    dimension = 2

    def evaluate(self, x):
        num = np.sin(x[0] ** 2 - x[1] ** 2) ** 2 - 0.5
        den = (1 + 0.001 * (x[0] ** 2 + x[1] ** 2)) ** 2
        return 0.5 + num / den


@problem
class Schwefel(Problem):
    low, high = -500.0, 500.0

    def evaluate(self, x):
        return 418.9829 * self.dimension - sum([v * np.sin(np.sqrt(abs(v))) for v in x])


@problem
class Schwefel222(Problem):

    def evaluate(self, x):
        return np.sum(np.abs(x)) + np.prod(np.abs(x))


@problem
class Shekel(Problem):
    low, high = 0.0, 10.0

    def evaluate(self, x):
        a = np.asarray([[4.0, 4, 4, 4], [1, 1, 1, 1], [8, 8, 8, 8], [6, 6, 6, 6], [3, 7, 3, 7]])
        c = np.asarray([0.1, 0.2, 0.2, 0.4, 0.4])
        return -np.sum(1.0 / (np.sum((x - a) ** 2.0, axis=1) + c))


@problem
class Sphere(Problem):
    def evaluate(self, x):
        return sum(v * v for v in x)


@problem
class Step(Problem):

    def evaluate(self, x):
        return sum((np.floor(v + 0.5)) ** 2 for v in x) + 0.25 * x[0]


@problem
class StyblinskiTang(Problem):
    def evaluate(self, x):
        return np.sum([v**4 - 16 * v**2 + 5 * v for v in x]) / 2


@problem
class Trid(Problem):
    def evaluate(self, x):
        s = (x[0] - 1) ** 2
        for i in range(1, len(x)):
            s += (x[i] - 1) ** 2 - x[i] * x[i - 1]
        return s


@problem
class Weierstrass(Problem):
    low, high = -0.5, 0.5
    step = 2e-6

    def evaluate(self, x):
        a, b, kmax = 0.5, 3.0, 6
        total = 0.0
        for v in x:
            for k in range(kmax + 1):
                total += a**k * np.cos(2 * np.pi * b**k * (v + 0.5))
        return total - self.dimension * sum(a**k * math.cos(np.pi * b**k) for k in range(kmax + 1))


@problem
class Zakharov(Problem):
    def evaluate(self, x):
        u = np.sum(x**2)
        v = np.sum(0.5 * np.arange(1, self.dimension + 1) * x)
        return u + v**2 + v**4


@problem
class Zettl(Problem):
    dimension = 2

    def evaluate(self, x):
        return (x[0] ** 2 + x[1] ** 2 - 2 * x[0]) ** 2 + 0.25 * x[0]


@problem
class Bukin(Problem):
    dimension = 2
    low, high = -15.0, -3.0

    def evaluate(self, x):
        return 100 * np.sqrt(np.abs(x[1] - 0.01 * x[0] ** 2)) + 0.01 * np.abs(x[0] + 10)


@problem
class Matyas(Problem):
    dimension = 2

    def evaluate(self, x):
        return 0.26 * np.dot(x, x) - 0.48 * x[0] * x[1]


@problem
class PenaltyOne(Problem):
    low, high = -20.0, 20.0

    def evaluate(self, x):
        penalty = 0.0
        for v in x:
            if v > 10:
                penalty += 100 * (v - 10) ** 4
            elif v < -10:
                penalty += 100 * (-v - 10) ** 4
        y = 1 + (x + 1) / 4
        inner = np.sum((y[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * y[1:]) ** 2))
        return np.pi / self.dimension * (10 * np.sin(np.pi * y[0]) ** 2 + inner + (y[-1] - 1) ** 2) + penalty


@problem
class Shubert(Problem):
    dimension = 2

    def evaluate(self, x):
        total = 1.0
        for v in x:
            total *= sum(j * np.cos((j + 1) * v + j) for j in range(1, 6))
        return total


@problem
class ThreeHumps(Problem):
    dimension = 2

    def evaluate(self, x):
        x1, x2 = x[0], x[1]
        return 2 * x1**2 - 1.05 * x1**4 + x1**6 / 6 + x1 * x2 + x2**2


@problem
class Trigonometric(Problem):
    def evaluate(self, x):
        c = np.sum(np.cos(x))
        total = 0.0
        for i, v in enumerate(x, 1):
            total += (self.dimension - c + i * (1 - math.cos(v) - math.sin(v))) ** 2
        return total


@problem
class Bohachevsky(Problem):
    def evaluate(self, x):
        total = 0.0
        for a, b in zip(x[:-1], x[1:]):  # noqa: RUF007
            total += a * a + 2 * b * b - 0.3 * np.cos(3 * np.pi * a) - 0.4 * np.cos(4 * np.pi * b) + 0.7
        return total


@problem
class SumOfGrid(Problem):
    dimension = 3
    low, high = 0.0, 1.0

    def evaluate(self, x):
        return sum((x[i] - 0.3 * x[j] * i) ** 2 for i, j in product(range(3), repeat=2))


@problem
class Watson(Problem):
    low, high = -1.0, 1.0

    def evaluate(self, x):
        total = x[0] ** 2
        for i in range(1, 30):
            t = i / 29.0
            first = second = 0.0
            for j, v in enumerate(x):
                if j:
                    first += j * v * t ** (j - 1)
                second += v * t**j
            total += (first - second**2 - 1) ** 2
        return total
