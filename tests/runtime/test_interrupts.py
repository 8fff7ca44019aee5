"""Ctrl-C while a function is traced and compiled, and between the steps of a long program."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import time

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.program import interrupts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows cannot send itself a signal")

STEPS = """
import signal
import numpy as np, pullback as pb
from pullback.runtime.program import polling

class Late(BaseException):
    pass

def ring(number, frame):
    raise Late

signal.signal(signal.SIGALRM, ring)
polling.WORK = 1 << 12

def chain(w, x):
    for _ in range(300):
        x = np.tanh(x @ w)
    w = w + x
    pb.print("finished", x[0, 0] > 2)
    return w, np.sum(x)

function = pb.jit(chain, {options})
w, x = np.random.default_rng(0).normal(size=(2, 260, 260)) / 20
for turn in range({warm}):
    w = np.array(w)
    expected = function(w, x)[1]
before, w = w.copy(), np.array(w)
print("warm", flush=True)
signal.setitimer(signal.ITIMER_REAL, 0.03)
try:
    function(w, x)
except Late:
    print("stopped", np.array_equal(w, before), flush=True)
signal.setitimer(signal.ITIMER_REAL, 0)
print(function(w, x)[1] == pb.jit(chain)(before, x)[1], flush=True)
"""


@pytest.mark.parametrize("options", ["", "donate=0"])
@pytest.mark.parametrize("warm", [1, 4], ids=["through Python", "native"])
def test_a_long_program_stops_between_its_steps(options: str, warm: int) -> None:
    code = STEPS.format(options=options, warm=warm)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    said = done.stdout.partition("warm\n")[2].splitlines()
    assert (done.returncode, said) == (0, ["stopped True", "finished False", "finished False", "True"]), done.stderr


CALLING = """
import signal, time
import numpy as np, pullback as pb

class Late(BaseException):
    pass

def ring(number, frame):
    raise Late

def heavy(x):
    for _ in range(48):
        x = np.tanh(x @ x)
    return x

def called(x):
    return pb.callback(lambda v: v * 0 + 7, pb.ShapeDtypeStruct((5,), np.float64), x[0, :5])

def once(x):
    return called(heavy(x))

def in_a_loop(x):
    return pb.scan(lambda c, _: (called(heavy(x + 0 * c[0])), None), np.zeros(5), None, length=1)[0]

signal.signal(signal.SIGALRM, ring)
x = np.random.default_rng(0).normal(size=(500, 500)) / 30
for function in pb.jit(once), pb.jit(in_a_loop):
    function(x)
    start = time.perf_counter()
    function(x)
    duration = time.perf_counter() - start
    for turn in range(6):
        signal.setitimer(signal.ITIMER_REAL, duration / 5 if turn % 2 else 0)
        try:
            found = function(x).tolist()
        except Late:
            found = "late"
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(found, end=" ")
"""


@pytest.mark.long
def test_a_signal_before_a_step_in_python_is_not_lost() -> None:
    done = subprocess.run([sys.executable, "-c", CALLING], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{[7.0] * 5} late " * 6, "")


def test_small_programs_do_not_look() -> None:
    function = pb.jit(lambda x: np.sort(np.sort(x, axis=0) @ x, axis=1))
    for n, expected in ((9, False), (1100, True)):
        function(np.ones((n, n)))
        program = next(iter(function._entries.by_key.values()))[-1].program
        looks = program.template.executable.instance(dict.fromkeys(program.instance.sizes, n)).looks
        assert bool(looks) == expected and looks[:1] == (0,) * expected


def test_nothing_is_looked_for_after_a_parameter_may_be_written() -> None:
    def steps(p: object, a: object) -> object:
        s = np.sort(a @ a, axis=0)  # type: ignore[operator]
        return p - np.sort(s, axis=1) @ a, np.sum(s)  # type: ignore[operator]

    x = np.ones((1100, 1100))
    result = []
    for function in (pb.jit(steps), pb.jit(steps, donate=0)):
        function(np.array(x), x)
        instance = next(iter(function._entries.by_key.values()))[-1].program.instance
        result.append(instance.looks)
    assert result[0] and result[1] == result[0][: len(result[1])]


COMPILING = """
import signal, threading, time
import numpy as np, pullback as pb

class Late(BaseException):
    pass

def ring(number, frame):
    if "importlib" in frame.f_code.co_filename:  # CPython ignores what the weak references of its import locks raise
        signal.setitimer(signal.ITIMER_REAL, 0.002)
    else:
        raise Late

def long(x):
    for k in range(120):
        x = np.sin(x * k) + np.sort(x) * k if k % 7 == 0 else np.cos(x) * x
    return x

signal.signal(signal.SIGALRM, ring)
x = np.linspace(0, 1, 50)
function, stops = pb.jit(long), 0
for turn in range(12):
    signal.setitimer(signal.ITIMER_REAL, 0.01 * 1.5**turn)
    try:
        found = function(x)
        break
    except Late:
        stops += 1
signal.setitimer(signal.ITIMER_REAL, 0)
found = function(x)
assert np.allclose(found, long(x)) and stops, stops
# threading lists a thread for ever that an exception kept from starting
while any("compile" in thread.name and thread.is_alive() for thread in threading.enumerate()):
    time.sleep(0.01)
print("right")
"""


def test_what_is_interrupted_while_it_compiles_is_compiled_later() -> None:
    done = subprocess.run([sys.executable, "-c", COMPILING], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the other clocks are those of the C library")
def test_loops_read_a_clock_without_a_system_call() -> None:
    table = dict(zip(interrupts.FIELDS, interrupts.table(), strict=True))
    assert table["gettime"] and table["clock_id"] == interrupts.COARSE
    seconds = np.zeros(2, np.int64)
    read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)(int(table["gettime"]))
    assert read(interrupts.COARSE, seconds.ctypes.data) == 0
    assert abs(seconds @ [10**9, 1] - time.monotonic_ns()) < 10**9
