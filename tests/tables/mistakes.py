"""What people write that cannot be compiled, or is wrong in NumPy too: each a whole program that ends in an error.

A program starts with a line ``=== title`` (TraceError) or ``=== title [kind of error]``, after the two imports that all have.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = "import numpy as np\nimport pullback as pb\n"


@dataclass(frozen=True, kw_only=True)
class Mistake:
    section: str
    title: str
    code: str
    kind: str = "TraceError"


TEXT = """
#### Branches and loops

=== if
@pb.jit(loops="unroll")
def normalise(x):
    total = np.sum(x * x)
    if total > 3:
        return x / total
    return x

normalise(np.arange(3.0))

=== if, with else
@pb.jit(loops="unroll")
def huber(r):
    if abs(r) < 1:
        loss = 0.5 * r * r
    else:
        loss = abs(r) - 0.5
    return loss

huber(2.0)

=== if on a captured array
weights = np.array([1.0, 2.0])

@pb.jit(loops="unroll")
def f(x):
    return x if weights[0] > 0 else -x

f(2.0)

=== if on an array [ValueError]
@pb.jit
def relu(x):
    if x > 0:
        return x
    return 0 * x

relu(np.arange(3.0))

=== while
@pb.jit(loops="unroll")
def root(a):
    x = a
    while abs(x * x - a) > 1e-9:
        x = 0.5 * (x + a / x)
    return x

root(2.0)

=== break
@pb.jit(loops="unroll")
def root(a):
    x = a
    for _ in range(50):
        new = 0.5 * (x + a / x)
        if abs(new - x) < 1e-9:
            break
        x = new
    return x

root(2.0)

=== a conditional expression, and a chained comparison
@pb.jit(loops="unroll")
def inside(x):
    return 1.0 if 0 < x < 1 else 0.0

inside(0.5)

=== and
@pb.jit(loops="unroll")
def quadrant(x, y):
    return (x > 0 and y > 0) * x

quadrant(1.0, 2.0)

=== not
@pb.jit(loops="unroll")
def f(x):
    return not x > 0

f(1.0)

=== in
@pb.jit(loops="unroll")
def known(x, table):
    return x * (x in table)

known(3.0, np.arange(4.0))

=== match
@pb.jit(loops="unroll")
def f(kind, x):
    match kind:
        case 1.5:
            return x
        case _:
            return -x

f(1.5, 2.0)

=== assert
@pb.jit(loops="unroll")
def f(p):
    assert np.all(p >= 0), "negative"
    return np.sqrt(p)

f(np.ones(3))

=== raise
@pb.jit(loops="unroll")
def f(p):
    if np.any(p < 0):
        raise ValueError("negative")
    return np.sqrt(p)

f(np.ones(3))

=== a filter in a comprehension
@pb.jit(loops="unroll")
def f(x):
    return sum([v for v in x if v > 0])

f(np.arange(3.0))

=== sorted elements of several structures
@pb.jit(guards=False)
def f(x):
    return sorted([x[0], (x[1], x[2])], key=np.sum)[0]

f(np.arange(3.0))

=== a branch in a helper
def clip(v, top):
    return v if v < top else top

@pb.jit(loops="unroll")
def f(params, x):
    return clip(params["scale"] * x, 1.0)

f({"scale": 2.0}, 3.0)

=== a branch in a function called under pb.grad
@pb.jit(loops="unroll")
def step(t):
    return t if t > 0 else 0.0

@pb.grad
def f(x):
    y = np.sin(x)
    return step(y) * x

f(0.5)

=== recursion that ends on a value
@pb.jit(loops="unroll")
def power(x, n):
    return 1.0 if n == 0 else x * power(x, n - 1)

power(2.0, 3.0)

=== recursion without end [RecursionError]
@pb.jit
def f(x):
    return x * f(x - 1.0)

f(3.0)

#### Functions for loops and branches

=== branches of different shapes
@pb.jit
def start(n, x):
    return pb.cond(n > 0, lambda: 0.0, lambda: x)

start(1, np.arange(3.0))

=== branches of different dtypes
@pb.jit
def count(x):
    def found():
        return np.argmax(x)

    return pb.cond(np.any(x > 2), found, lambda: x[0])

count(np.arange(3.0))

=== branches of different containers
@pb.jit
def both(x):
    return pb.cond(x > 0, lambda: (x, x), lambda: [x, x])

both(2.0)

=== an array as the predicate
@pb.jit
def relu(x):
    return pb.cond(x > 0, lambda: x, lambda: 0 * x)

relu(np.arange(3.0))

=== a float as the index of a switch
@pb.jit
def chosen(k, x):
    return pb.switch(k, [np.sin, np.cos], x)

chosen(1.0, 2.0)

=== an operand written in a branch
@pb.jit
def clear(x):
    def reset(a):
        a[:] = 0.0

    pb.cond(x[0] > 0, reset, lambda a: None, x)
    return x

clear(np.arange(3.0))

=== a carry that changes dtype
@pb.jit
def total(x):
    return pb.fori_loop(0, len(x), lambda i, s: s + x[i], np.int64(0))

total(np.arange(3.0))

=== a carry that changes dtype, in a tree
def step(state, x):
    return {"mean": state["mean"] + 0.1 * x, "n": state["n"] + 1.0}, None

@pb.jit
def average(x):
    return pb.scan(step, {"mean": np.float32(0), "n": np.int32(0)}, x)[0]

average(np.arange(3.0))

=== a carry that grows without a bound
@pb.jit
def collect(x):
    return pb.fori_loop(0, 3, lambda i, out: np.concatenate([out, out]), x)

collect(np.ones(2))

=== a carry that changes its containers
@pb.jit
def fibonacci(n):
    return pb.fori_loop(0, n, lambda i, s: [s[1], s[0] + s[1]], (0, 1))

fibonacci(10)

=== a condition that is not a bool
@pb.jit
def halved(x):
    return pb.while_loop(lambda x: x // 2, lambda x: x // 2, x)

halved(8)

=== a condition on an array
@pb.jit
def settle(x):
    return pb.while_loop(lambda x: x > 1e-3, lambda x: x / 2, x)

settle(np.arange(3.0))

=== a scan whose function returns one value
@pb.jit
def total(x):
    return pb.scan(lambda s, x: s + x, 0.0, x)

total(np.arange(3.0))

=== a scan over arrays of different lengths
@pb.jit
def dot(x, y):
    return pb.scan(lambda s, xy: (s + xy[0] * xy[1], None), 0.0, (x, y))[0]

dot(np.arange(3.0), np.arange(4.0))

=== a scan over the wrong length
pb.scan(lambda s, x: (s + x, s), 0.0, np.arange(3.0), length=2)

=== a scan over a list of numbers
pb.scan(lambda s, x: (s + x, s), 0.0, [1.0, 2.0, 3.0])

=== a scan over nothing
pb.scan(lambda s, x: (s + 1, s), 0.0)

=== a loop with float bounds
@pb.jit
def power(x, n):
    return pb.fori_loop(0, n, lambda i, p: p * x, 1.0)

power(2.0, 3.0)

=== a write into an array outside a loop
@pb.jit
def running(x):
    out = np.zeros(len(x))

    def body(i, total):
        total = total + x[i]
        out[i] = total
        return total

    pb.fori_loop(0, len(x), body, 0.0)
    return out

running(np.arange(3.0))

=== a write into a row of a scan
@pb.jit
def doubled(x):
    def body(total, row):
        row *= 2
        return total + row.sum(), row

    return pb.scan(body, 0.0, x)[1]

doubled(np.ones((2, 3)))

=== a list that a loop appends to
@pb.jit
def halves(x):
    found = []

    def body(i, x):
        found.append(x)
        return x / 2

    pb.fori_loop(0, 3, body, x)
    return np.stack(found)

halves(8.0)

=== a variable that a loop counts in
@pb.jit
def halves(x):
    steps = 0

    def body(x):
        nonlocal steps
        steps += 1
        return x / 2

    return pb.while_loop(lambda x: x > 1, body, x), steps

halves(8.0)

=== a branch in a loop
@pb.jit(loops="unroll")
def clipped(x):
    def body(i, s):
        if s > 10:
            s = 10.0
        return s + x[i]

    return pb.fori_loop(0, len(x), body, 0.0)

clipped(np.arange(3.0))

=== an associative scan that changes shapes
pb.associative_scan(lambda a, b: np.sum(a + b), np.arange(4.0))

=== an argument that is not a function [TypeError]
pb.fori_loop(0, 3, 1.0, lambda i, s: s + 1)

#### Python numbers and containers

=== range() of a value
@pb.jit(loops="unroll")
def f(x):
    total = 0.0
    for k in range(np.argmax(x)):
        total += x[k]
    return total

f(np.arange(3.0))

=== range() of a float [TypeError]
@pb.jit(loops="unroll")
def f(x, n):
    for _ in range(n):
        x = x * 2
    return x

f(1.0, 3.0)

=== a key of a dict
@pb.jit(guards=False)
def f(x):
    table = {0: np.sin, 1: np.cos, 2: np.tan}
    return table[np.argmax(x)](x)

f(np.arange(3.0))

=== bytes of a number
import struct

@pb.jit
def f(x, y):
    return struct.pack("d", x + y)

f(1.0, 2.0)

=== a number in a format
@pb.jit(effects="trace")
def f(x):
    loss = np.sum(x * x)
    print(f"loss {loss:.3f}")
    return loss

f(np.arange(3.0))

=== a number in a % format
@pb.jit(effects="trace")
def f(x):
    loss = np.sum(x * x)
    print("loss %.3f" % loss)
    return loss

f(np.arange(3.0))

=== .tolist()
@pb.jit
def f(x):
    return [2 * v for v in x.tolist()]

f(np.arange(3000.0))

=== the order of a set
@pb.jit
def f(x):
    return list({x[0], x[1]})

f(np.arange(3.0))

#### Shapes that depend on values

=== more coefficients than are known
@pb.jit
def f(x):
    return np.polyval(x[x > 0], 2.0)

f(np.array([1.0, -1.0, 3.0]))

=== an estimator of bins that tries all
@pb.jit
def f(x):
    return np.histogram(x, "stone")

f(np.arange(3.0))

=== a grid with a traced bound
@pb.jit
def f(length):
    return np.mgrid[0:length]

f(2.0)

#### Randomness, clocks, files

=== np.random
@pb.jit
def f(x):
    return x + np.random.normal(size=3)

f(np.arange(3.0))

=== a generator from outside
rng = np.random.default_rng(0)

@pb.jit
def f(x):
    return x + rng.normal(size=3)

f(np.arange(3.0))

=== a generator as an argument
@pb.jit
def f(x, rng):
    return x + rng.normal(size=3)

f(np.arange(3.0), np.random.default_rng(0))

=== a generator made inside
@pb.jit
def f(x):
    rng = np.random.default_rng(0)
    return x + rng.normal(size=3)

f(np.arange(3.0))

=== the random module
import random

@pb.jit
def f(x):
    return x * random.random()

f(1.0)

=== a draw from a distribution
from scipy import stats

@pb.jit
def f(x):
    return x + stats.norm.rvs(size=3)

f(np.arange(3.0))

=== a clock in a loop
import time

@pb.jit
def f(x):
    return pb.fori_loop(0, 3, lambda i, s: s + time.time(), x)

f(1.0)

=== datetime.now()
from datetime import datetime

@pb.jit
def f(x):
    return x * datetime.now().hour

f(1.0)

=== an open file
@pb.jit
def f(x):
    with open("data.txt") as file:
        return x * float(file.read())

f(1.0)

=== np.loadtxt
@pb.jit
def f(x):
    return x + np.loadtxt("data.txt")

f(1.0)

=== input()
@pb.jit
def f(x):
    return x * float(input("scale: "))

f(1.0)

=== np.save
@pb.jit
def f(x):
    y = x * 2
    np.save("y.npy", y)
    return y

f(np.arange(3.0))

=== pickle
import pickle

@pb.jit
def f(x):
    y = x * 2
    with_copy = pickle.loads(pickle.dumps(y))
    return with_copy

f(np.arange(3.0))

=== json [TypeError]
import json

@pb.jit
def f(x):
    loss = np.sum(x)
    print(json.dumps({"loss": loss}))
    return loss

f(np.arange(3.0))

#### State outside the function

=== a store in a function that is mapped
class Model:
    calls = 0

    def row(self, x):
        self.calls += 1
        return np.sum(x * x)

model = Model()
pb.vmap(model.row)(np.ones((4, 3)))

=== a store in the body of pb.scan
history = []

def body(total, x):
    history.append(total)
    return total + x, total

pb.jit(lambda xs: pb.scan(body, 0.0, xs))(np.arange(3.0))

=== an iterator from outside
rates = iter([0.1, 0.2, 0.3])

@pb.jit
def f(x):
    return x * next(rates)

f(1.0)

=== a dict of a class of your own
class Table(dict):
    pass

data = Table(x=np.ones(3))

@pb.jit
def f(w):
    return w * data["x"]

f(2.0)

=== a traced value that is kept
from queue import SimpleQueue

kept = SimpleQueue()

@pb.jit
def f(x):
    y = x * 2
    kept.put(y)
    return y

f(np.arange(3.0))
print(kept.get() + 1)

=== another thread
import threading

def work(x, results):
    results.append(x + 1)

@pb.jit
def f(x):
    results = []
    thread = threading.Thread(target=work, args=(x, results))
    thread.start()
    thread.join()
    return results

f(1.0)

=== a pool of threads
from concurrent.futures import ThreadPoolExecutor

@pb.jit
def f(x):
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(np.sum, [x, x + 1]))

f(np.arange(3.0))

=== np.seterr
@pb.jit
def f(x):
    np.seterr(divide="raise")
    return 1 / x

f(2.0)

=== np.errstate that raises
@pb.jit
def f(x):
    with np.errstate(divide="raise"):
        return 1 / x

f(np.zeros(2))

=== eval
@pb.jit
def f(x):
    return eval("x + 1")

f(1.0)

=== exec
@pb.jit
def f(x):
    exec("y = x + 1")
    return x

f(1.0)

=== except that depends on a value
@pb.jit(loops="unroll")
def f(x):
    try:
        scale = 1.0 if x[0] > 0 else 2.0
    except Exception:
        scale = 3.0
    return scale * x

f(np.arange(3.0))

=== except, and an error that follows from it
@pb.jit
def f(x):
    try:
        first = list(set(x))[0]
    except Exception:
        first = None
    return first * x

f(np.arange(3.0))

#### Arguments

=== complex numbers of 256 bits
@pb.jit
def f(x):
    return np.abs(x)

f(np.array([1 + 2j], np.clongdouble))

=== the gradient of a complex result
@pb.grad
def f(x):
    return np.sum(np.exp(1j * x))

f(np.arange(3.0))

=== an array of objects
@pb.jit
def f(x):
    return np.sum(x)

f(np.array([1.0, None, 2.0]))

=== an array of strings
@pb.jit
def f(names, x):
    return x[names == "a"]

f(np.array(["a", "b"]), np.ones(2))

=== an array of dates
@pb.jit
def f(t):
    return t[1] - t[0]

f(np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[D]"))

=== a structured array
@pb.jit
def f(points):
    return points["x"] + points["y"]

f(np.zeros(2, [("x", float), ("y", float)]))

=== np.matrix
@pb.jit
def f(a):
    return a * a

f(np.matrix([[1.0, 2.0], [3.0, 4.0]]))

=== a method of a Series
import pandas as pd

@pb.jit
def f(s):
    return s.std()

f(pd.Series([1.0, 2.0, 4.0]))

=== a sum of a Series, which pandas computes
import pandas as pd

@pb.jit
def f(s):
    return np.sum(s * 2)

f(pd.Series([1.0, np.nan, 4.0]))

=== two Series that are aligned by their labels
import pandas as pd

@pb.jit
def f(s, t):
    return s + t

s = pd.Series([1.0, 2.0, 4.0])
f(s, s[::-1])

=== a dask array
import dask.array as da

@pb.jit
def f(d):
    return np.sort(d)

f(da.ones(4, chunks=2))

=== a Series made of traced values
import pandas as pd

@pb.jit
def f(x):
    return pd.Series(x).mean()

f(np.ones(3))

=== a masked array
@pb.jit
def f(a):
    return a.mean()

f(np.ma.masked_invalid([1.0, np.nan]))

=== long double
@pb.jit
def f(x):
    return x * 2

f(np.longdouble(1))

=== an integer beyond 64 bits
@pb.jit
def f(x, n):
    return np.outer(x, n)

f(np.ones(3), 2**70)

=== an integer out of bounds [OverflowError]
@pb.jit
def f(image, n):
    return image + n

f(np.zeros(3, np.uint8), 300)

=== an array of objects inside a container
@pb.jit
def f(params):
    return params["layers"][0] @ params["layers"][1]

f({"layers": [np.ones((2, 2)), np.array([None, 1.0])]})

=== a buffer that is not an array
from array import array

@pb.jit
def f(x):
    return x * 2

f(array("d", [1.0, 2.0]))

=== a view of keys
@pb.jit
def f(x, names):
    return x * len(names)

f(1.0, {"a": 1, "b": 2}.keys())

=== a static argument without a hash
@pb.jit(static_argnames="config")
def f(x, config):
    return x * config["scale"]

f(1.0, {"scale": 2.0})

=== static_argnames that name no parameter [ValueError]
def f(x, mode):
    return x * 2

pb.jit(f, static_argnames="node")

=== a missing argument [TypeError]
@pb.jit
def f(w, x):
    return w * x

f(1.0)

=== an argument with the wrong name [TypeError]
@pb.jit
def f(w, x):
    return w * x

f(1.0, y=2.0)

=== not a function [TypeError]
pb.jit(np.arange(3.0))

=== a device that does not exist [ValueError]
pb.jit(np.sin, device="gpu")

#### Results

=== a generator
@pb.jit
def rows(x):
    for row in x:
        yield row * 2

rows(np.arange(3.0))

=== async def
@pb.jit
async def f(x):
    return x * 2

f(1.0)

=== an object that holds traced values
class Result:
    def __new__(cls, value):
        return super().__new__(cls)

    def __init__(self, value):
        self.value = value

@pb.jit
def f(x):
    return Result(np.sum(x))

f(np.arange(3.0))

=== a function that holds traced values
@pb.jit
def line(a, b):
    return lambda x: a * x + b

line(1.0, 2.0)

=== a class as the function
@pb.jit
class Scaled:
    def __new__(cls, w):
        return super().__new__(cls)

    def __init__(self, w):
        self.w = w * 2

Scaled(1.0)

=== an array of objects as the result
@pb.jit
def f(x):
    rows = np.empty(2, dtype=object)
    rows[0] = x
    return rows

f(np.arange(3.0))

#### Functions that do not compile

=== a function of NumPy
@pb.jit
def f(x):
    return np.lib.stride_tricks.as_strided(x, (2, 2), (8, 8))

f(np.arange(3.0))


=== a root by SciPy
import scipy.optimize

@pb.jit
def f(a):
    return scipy.optimize.root(lambda x: x * x - a, 1.0).x

f(2.0)

=== a minimum by SciPy
import scipy.optimize

@pb.jit
def f(a):
    return scipy.optimize.minimize(lambda x: np.sum((x - a) ** 2), np.zeros(2)).x

f(2.0)

=== a differential equation by solve_ivp
import scipy.integrate

@pb.jit
def f(rate):
    return scipy.integrate.solve_ivp(lambda t, y: -rate * y, (0, 1), [1.0]).y

f(2.0)

=== an integral by quad
import scipy.integrate

@pb.jit
def f(rate):
    return scipy.integrate.quad(lambda t: np.exp(-rate * t), 0, 1)[0]

f(2.0)

=== a matrix that multiplies by *
@pb.jit
def f(x):
    return np.asmatrix(x) * np.asmatrix(x)

f(np.eye(2))

=== a rotation
from scipy.spatial.transform import Rotation

@pb.jit
def f(angle, v):
    return Rotation.from_euler("z", angle).apply(v)

f(0.5, np.arange(3.0))

=== an assertion on values
@pb.jit
def f(x):
    np.testing.assert_allclose(x, 1.0)
    return x * 2

f(np.ones(3))

=== complex numbers in a function of real ones
@pb.jit
def f(z):
    return np.interp(z, [0.0, 1.0], [0.0, 2.0])

f(np.array([0.5 + 1j]))

=== a function that is not followed for complex numbers
import scipy.special

@pb.jit
def f(z):
    return scipy.special.gamma(z)

f(np.array([0.5 + 1j]))

=== floats from bits
@pb.jit
def absolute(x):
    return (x.view(np.uint64) & 0x7FFFFFFFFFFFFFFF).view(float)

absolute(np.array([-1.0, 2.0]))

=== a shape that is set
@pb.jit
def f(x):
    y = x * 2
    y.shape = (2, 2)
    return y

f(np.arange(4.0))

=== sending a traced value to another process
import pickle

@pb.jit
def f(x):
    return pickle.dumps(x * 2)

f(np.arange(3.0))

=== a decomposition of two matrices
import scipy.linalg

@pb.jit
def f(a, b):
    return scipy.linalg.qz(a, b)

f(np.eye(2), np.eye(2))

=== a special function
from scipy.special import kolmogorov

@pb.jit
def f(x):
    return kolmogorov(x)

f(1.0)

=== an integral
from scipy.integrate import quad

@pb.jit
def f(a):
    return quad(lambda t: np.exp(-a * t), 0, 1)[0]

f(2.0)

=== an optimiser
from scipy.optimize import minimize

@pb.jit
def fit(start):
    return minimize(lambda x: np.sum(x * x), start).x

fit(np.ones(2))

=== a root finder
from scipy.optimize import brentq

@pb.jit
def f(a):
    return brentq(lambda x: x * x - a, 0.0, 10.0)

f(2.0)

=== an ODE solver
from scipy.integrate import solve_ivp

@pb.jit
def f(k):
    return solve_ivp(lambda t, y: -k * y, (0.0, 1.0), [1.0]).y

f(2.0)

=== an interpolation object
from scipy.interpolate import interp1d

@pb.jit
def f(x):
    return interp1d([0.0, 1.0, 2.0], [0.0, 1.0, 4.0])(x)

f(0.5)

=== a sparse matrix
from scipy import sparse

A = sparse.csr_matrix(np.eye(3))

@pb.jit
def f(x):
    return A @ x

f(np.ones(3))

=== a tree of neighbours
from scipy.spatial import KDTree

@pb.jit
def f(points):
    return KDTree(points).query(points[0])

f(np.ones((3, 2)))

=== a function of another library, in C
import struct

@pb.jit
def f(x):
    return struct.pack("d", x)

f(1.0)

=== a method
@pb.jit
def f(x):
    return x.tobytes()

f(np.arange(3.0))

=== setting .shape
@pb.jit
def f(x):
    y = x * 2
    y.shape = (2, 2)
    return y

f(np.ones(4))

=== ufunc.at
@pb.jit
def f(x, i):
    y = x.copy()
    np.power.at(y, i, 2.0)
    return y

f(np.arange(3.0), np.zeros(100, int))

=== ufunc.reduceat
@pb.jit
def f(x, starts):
    return np.add.reduceat(x, starts)

f(np.arange(3.0), np.array([0, 2]))

=== where= without out=
@pb.jit
def f(x):
    return np.log(x, where=x > 0)

f(np.arange(3.0))

=== np.frompyfunc
double = np.frompyfunc(lambda v: v * 2, 1, 1)

@pb.jit
def f(x):
    return double(x)

f(np.arange(3.0))

=== np.vectorize of a branch
@np.vectorize
def relu(v):
    if v > 0:
        return v
    return 0.0

@pb.jit(loops="unroll")
def f(x):
    return relu(x)

f(np.arange(3.0))

=== a view that was read after a write
@pb.jit
def f(x):
    y = x.T * 2
    line = y.ravel()
    y[0] = 7.0
    return line * 2

f(np.ones((2, 3)))

=== a write into a view that repeats elements
@pb.jit
def f(x):
    rows, columns = np.broadcast_arrays(x, x[:, None])
    rows[0, 0] = 1.0
    return rows * columns

f(np.arange(3.0))

#### Gradients

=== with respect to an array of ints
def loss(x):
    return np.sum(x * x)

pb.grad(loss)(np.arange(3))

=== with respect to a Python int
pb.grad(lambda x: x * x)(3)

=== with respect to an object with an int
class Model:
    def __init__(self):
        self.w = np.ones(3)
        self.power = 2

def loss(model, x):
    return np.sum(model.w * x**model.power)

pb.grad(loss)(Model(), np.arange(3.0))

=== of an array
def f(x):
    return x * x

pb.grad(f)(np.arange(3.0))

=== of an int
def f(x):
    return np.argmax(x)

pb.grad(f)(np.arange(3.0))

=== of None: a missing return
def loss(x):
    total = np.sum(x * x)

pb.grad(loss)(np.arange(3.0))

=== of a tuple
def loss(x):
    return np.sum(x * x), x

pb.grad(loss)(np.arange(3.0))

=== has_aux without a pair
@pb.value_and_grad(has_aux=True)
def loss(x):
    return np.sum(x * x)

loss(np.arange(3.0))

=== argnums out of range
pb.grad(lambda x, y: x * y, argnums=2)(1.0, 2.0)

=== argnums of a name [TypeError]
pb.grad(lambda x, y: x * y, argnums="y")

=== argnames that name no argument
pb.grad(lambda x, y: x * y, argnames="z")(1.0, 2.0)

=== argnums of a keyword
pb.grad(lambda x, y: x * y, argnums=1)(1.0, y=2.0)

=== a missing argument of a gradient [TypeError]
def loss(w, x):
    return np.sum(w * x)

pb.grad(loss)(np.arange(3.0))

#### Derivatives and axes

=== a tangent of the wrong shape
def f(x):
    return np.sin(x)

pb.jvp(f, (np.ones(3),), (np.ones(4),))

=== primals that are not a tuple [TypeError]
def f(x):
    return np.sin(x)

x = np.ones(3)
pb.jvp(f, x, x)

=== a tangent of an integer
def power(x, n):
    return x**n

pb.jvp(power, (2.0, 3), (1.0, 0.0))

=== tangents in the wrong container
def predict(p, x):
    return p["w"] @ x + p["b"]

p = {"w": np.ones(3), "b": 0.0}
pb.jvp(predict, (p, np.ones(3)), ({"w": np.ones(3)}, None))

=== a cotangent of the wrong shape
y, pull = pb.vjp(lambda x: x[1:] - x[:-1], np.ones(4))
pull(np.ones(4))

=== a Jacobian of an integer
@pb.jacobian
def f(x):
    return np.argmax(x)

f(np.ones(3))

=== a Hessian with respect to integers
@pb.hessian
def f(x):
    return np.sum(x**2)

f(np.arange(3))

=== hvp of a vector
pb.hvp(np.sin, (np.ones(3),), (np.ones(3),))

=== vmap over unequal sizes
distances = pb.vmap(lambda x, y: np.sum((x - y) ** 2))

distances(np.ones((5, 2)), np.ones((4, 2)))

=== vmap over a number
scaled = pb.vmap(lambda x, s: x * s)

scaled(np.ones((5, 2)), 3.0)

=== vmap with too few axes
scaled = pb.vmap(lambda x, s: x * s, in_axes=(0,))

scaled(np.ones((5, 2)), 3.0)

=== vmap over nothing
scaled = pb.vmap(lambda x: x * 2, in_axes=None)

scaled(np.ones((5, 2)))

=== out_axes of None for a result that differs between rows
totals = pb.vmap(lambda x: np.sum(x), out_axes=None)

totals(np.ones((5, 2)))

=== rows that write into an array that is not mapped
def count(row, total):
    total[0] += np.sum(row)
    return row

pb.vmap(count, in_axes=(0, None))(np.ones((5, 2)), np.zeros(1))

=== a wrong axis_size
draws = pb.vmap(lambda x: x * 2, axis_size=4)

draws(np.ones(3))

=== a cotangent from a rule, of the wrong shape
@pb.custom_vjp
def total(x):
    return np.sum(x)

total.defvjp(lambda x: (np.sum(x), x), lambda x, ct: (ct,))

pb.grad(total)(np.ones(3))

=== a rule with another result type than its function
@pb.custom_vjp
def halves(x):
    return {"a": x[:2], "b": x[2:]}

halves.defvjp(lambda x: ({"a": x[:1], "b": x[2:]}, None), lambda _, ct: (np.concatenate([ct["a"], ct["b"]]),))

pb.grad(lambda x: np.sum(halves(x)["a"]))(np.ones(4))

=== a cotangent of integers
@pb.custom_vjp
def square(x):
    return x * x

square.defvjp(lambda x: (x * x, x), lambda x, ct: ((2 * x * ct).astype(int),))

pb.grad(square)(3.0)

=== a tangent from a rule, in the wrong container
@pb.custom_jvp
def pair(x):
    return x, x * x

pair.defjvp(lambda primals, tangents: (pair(*primals), tangents[0]))

pb.jvp(pair, (3.0,), (1.0,))

=== a singular matrix in a row [LinAlgError]
pb.vmap(np.linalg.inv)(np.array([np.eye(2), np.zeros((2, 2))]))

=== an index out of range in a row [IndexError]
pick = pb.vmap(pb.vmap(lambda x, k: x[k]))

pick(np.ones((2, 3, 4)), np.array([[0, 1, 2], [3, 4, 5]]))

=== a branch for each row
relu = pb.vmap(pb.jit(lambda x: x if x > 0 else 0.0, loops="unroll"))

relu(np.ones(3))

#### As in NumPy

=== shapes that do not match [ValueError]
@pb.jit
def f(x, y):
    return x + y

f(np.ones(3), np.ones(4))

=== a matrix product [ValueError]
@pb.jit
def f(a, b):
    return a @ b

f(np.ones((2, 3)), np.ones((2, 3)))

=== an axis too many [AxisError]
@pb.jit
def f(x):
    return np.sum(x, axis=1)

f(np.ones(3))

=== reshape [ValueError]
@pb.jit
def f(x):
    return x.reshape(2, 2)

f(np.ones(3))

=== arrays to join in place of a list [ValueError]
@pb.jit
def f(x):
    return np.concatenate([x, x[0]])

f(np.ones(3))

=== rows of different lengths [ValueError]
@pb.jit
def f(x):
    return np.array([x, x[:2]])

f(np.arange(3.0))

=== an index out of range [IndexError]
@pb.jit
def f(x):
    return x[7]

f(np.ones(3))

=== an index out of range, in compiled code [IndexError]
@pb.jit
def f(x, i):
    return 2 * x[i]

f(np.ones(3), np.array([0, 7]))

=== a float as an index [IndexError]
@pb.jit
def f(x, i):
    return x[i]

f(np.ones(3), 1.0)

=== an integer to a negative power, in compiled code [ValueError]
@pb.jit
def f(n, k):
    return n**k

f(np.arange(3), np.array([1, 0, -1]))

=== an int that does not fit its dtype [OverflowError]
@pb.jit
def f(x):
    return x + 300

f(np.arange(3, dtype=np.uint8))

=== an int that does not fit int64 [OverflowError]
@pb.jit
def f(x):
    return x + 10**30

f(np.arange(3))

=== a write into a view that np.broadcast_to gave [ValueError]
@pb.jit
def f(x):
    rows = np.broadcast_to(x, (2, 3))
    rows[0, 0] = 1.0
    return rows

f(np.arange(3.0))

=== floats into an array of ints [UFuncTypeError]
@pb.jit
def f(x):
    y = np.zeros(3, dtype=int)
    y += x
    return y

f(np.ones(3))

=== a scalar unpacked [TypeError]
@pb.jit
def f(theta):
    a, b = theta
    return a * b

f(1.0)

=== too few names for the elements [ValueError]
@pb.jit
def f(theta):
    a, b = theta
    return a * b

f(np.ones(3))

=== None in arithmetic [TypeError]
@pb.jit
def f(x, bias=None):
    return x + bias

f(np.ones(3))

=== a string in arithmetic [TypeError]
@pb.jit
def f(x):
    return x + "1"

f(1.0)

=== minus of a bool [TypeError]
@pb.jit
def f(mask):
    return -mask

f(np.array([True, False]))

=== one subscript too many [ValueError]
@pb.jit
def f(x):
    return np.einsum("ij,jk->ik", x, x)

f(np.ones(3))

=== a matrix that is not square [LinAlgError]
@pb.jit
def f(a):
    return np.linalg.det(a)

f(np.ones((2, 3)))

=== a singular matrix, in compiled code [LinAlgError]
@pb.jit
def f(a, b):
    return np.linalg.solve(a, b)

f(np.zeros((2, 2)), np.ones(2))

=== a name that does not exist [NameError]
@pb.jit
def f(x):
    return x * scale

f(1.0)

=== a function that NumPy does not have [AttributeError]
@pb.jit
def f(x):
    return np.arctg(x)

f(1.0)

=== an attribute that arrays do not have [AttributeError]
@pb.jit
def f(x):
    return x.length

f(np.ones(3))

=== the user's own error [ValueError]
@pb.jit
def f(x, mode):
    if mode not in ("sum", "mean"):
        raise ValueError(f"unknown mode {mode!r}")
    return np.sum(x)

f(np.ones(3), "max")
"""


def _parsed(text: str) -> list[Mistake]:
    result = []
    for part in re.split(r"^#### ", text, flags=re.MULTILINE)[1:]:
        section, _, rest = part.partition("\n")
        for program in re.split(r"^=== ", rest, flags=re.MULTILINE)[1:]:
            line, _, code = program.partition("\n")
            title, kind = re.fullmatch(r"(.*?)(?: \[(\w+)\])?", line).groups()  # type: ignore[union-attr]
            result.append(Mistake(section=section, title=title, code=f"{HEAD}\n{code.strip()}\n", kind=kind or "TraceError"))
    return result


MISTAKES = _parsed(TEXT)
