"""Arguments that another thread changes during a call: results may be of a mixture, memory is safe, the next call is right."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAMS = {
    "looked up, with the gradient": (
        "pb.value_and_grad(lambda t, i: np.sum(t[i] ** 2))",
        "(rng.normal(size=(500, 8)), rng.integers(0, 500, n))",
        "rng.integers(0, 500, n)",
    ),
    "of a table of numbers": (
        "pb.grad(lambda t, i: np.sum(t[i] ** 2))",
        "(rng.normal(size=500), rng.integers(0, 500, n))",
        "rng.integers(-(2**62), 2**62, n)",
    ),
    "rows summed": (
        "pb.jit(lambda v, i: added(np.zeros((300, 4)), i, v))",
        "(rng.normal(size=(n, 4)), rng.integers(0, 300, n))",
        "rng.integers(0, 300, n)",
    ),
    "put": (
        "pb.jit(lambda v, i: put(np.zeros(300), i, v))",
        "(rng.normal(size=n), rng.integers(0, 300, n))",
        "rng.integers(-(2**62), 2**62, n)",
    ),
    "one of each row": (
        "pb.grad(lambda x, i: np.sum(x[np.arange(n), i] ** 2))",
        "(rng.normal(size=(n, 6)), rng.integers(0, 6, n))",
        "rng.integers(-(2**62), 2**62, n)",
    ),
    "chosen by a mask": (
        "pb.jit(lambda x, m: (np.sum(x[m]), np.sum(np.nonzero(m)[0])))",
        "(rng.normal(size=n), rng.random(n) < 0.1)",
        "rng.random(n) < 0.9",
    ),
    "ordered": (
        "pb.jit(lambda k, x: (np.sort(x), np.argsort(x), np.argsort(x.astype(np.int64))))",
        "(0, rng.normal(size=n) * 1e9)",
        "rng.normal(size=n) * 1e-9",
    ),
    "turns of a loop": (
        "pb.value_and_grad(lambda x, k: pb.fori_loop(0, k[0], lambda j, c: np.sin(c) + x[j % 8], 0.0))",
        "(rng.normal(size=8), np.array([3000]))",
        "np.array([90000])",
    ),
}
"""A function of two arguments, the arguments, and what the second becomes now and then."""

SCRIPT = """
import sys, threading, time
import numpy as np, pullback as pb

def added(t, i, v):
    np.add.at(t, i, v)
    return t

def put(t, i, v):
    t[i] = v
    t[i] += v
    return t

n, rng = 100_000, np.random.default_rng(0)
function, arguments = {function}, {arguments}
changing, going = arguments[1], threading.Event()
first, second = changing.copy(), np.asarray({other}).astype(changing.dtype)
expected = function(*arguments)

def change():
    while not going.is_set():
        changing[...] = second
        changing[...] = first

thread = threading.Thread(target=change)
thread.start()
end, count = time.monotonic() + 1.0, 0
while time.monotonic() < end or count < 10:
    try:
        function(*arguments)
    except IndexError:
        pass
    count += 1
going.set()
thread.join()
for a, b in zip(pb.tree.leaves(function(*arguments)), pb.tree.leaves(expected), strict=True):
    np.testing.assert_array_equal(a, b)
print("right")
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_argument_changes_during_the_call(name: str) -> None:
    function, arguments, other = PROGRAMS[name]
    code = SCRIPT.format(function=function, arguments=arguments, other=other)
    environment = {**os.environ, "PULLBACK_POOL_BYTES": "0"}
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
