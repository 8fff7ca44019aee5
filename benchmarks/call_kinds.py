"""Times each kind of call relative to the plainest one, on one small array: ``python -m benchmarks.call_kinds``.

The table has, for each kind of call, the time of a warm call by the generic entry point (``PULLBACK_CALL_PATH=native``), of a
frequent call, which a small program's own entry point may serve (``fused``), and of the same call through Python (``plain``),
as multiples of the plainest warm call by the generic entry point. Each time is the best of several rounds, in one process each.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import time
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pullback as pb
from pullback.fastcall import describe as fastcall_describe

ROUNDS, CALLS = 9, 2000
MEASURE = "--measure"
PATHS = ("native", "fused", "plain")

Point = namedtuple("Point", "x y")
Case = tuple[str, Callable[..., Any], tuple[Any, ...], dict[str, Any]]

RATE = 0.5
RATES = {"rate": 0.5, "layers": [2, 3]}
ARRAYS = [np.ones(3), np.zeros(3)]
TABLE = np.zeros(3)


@dataclasses.dataclass
class Pair:
    x: Any
    y: Any


class Segment:
    def __init__(self, start: Any, end: Any) -> None:
        self.start, self.end = start, end


pb.tree.register(Segment, lambda s: ((s.start, s.end), None), lambda _, ends: Segment(*ends))


class Model:
    def __init__(self) -> None:
        self.w = np.ones(3)

    @pb.jit
    def scale(self, x: Any) -> Any:
        return x * self.w


class Special(np.ndarray):
    pass


def add_one(x: Any) -> None:
    x += 1


def set_table(x: Any) -> None:
    TABLE[:] = x


def step(p: Any, g: Any) -> Any:
    return {k: p[k] - 0.1 * g[k] for k in p}


def with_default(x: Any, y: float = 2.0, *, z: float = 1.0) -> Any:
    return x * y + z


def cases() -> Iterator[Case]:
    x, y = np.ones(3), np.arange(3.0)
    double, model = pb.jit(lambda x: x * 2), Model()
    pair = pb.jit(lambda p: p.x * p.y)

    def case(name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Case:
        return name, function, args, kwargs

    yield case("an array", double, x)
    yield case("a float", pb.jit(lambda x: x * 2), 2.0)
    yield case("an array that is not contiguous", pb.jit(lambda x: x * 2), np.ones(6)[::2])
    yield case("a dict of arrays, in and out", pb.jit(step), {"a": x, "b": y}, {"a": x, "b": y})
    yield case("the same with `donate=0`", pb.jit(step, donate=0), {"a": x + 1, "b": y + 1}, {"a": x, "b": y})
    yield case("keywords, and defaults of both kinds", pb.jit(with_default), x, y=2.0)
    yield case("a static argument", pb.jit(lambda x, n: x * n, static_argnames=("n",)), x, 3)
    shown = pb.jit(lambda x, s, t, f: f(x[s]).astype(t))
    yield case("a slice, a dtype, a function", shown, x, slice(1, 3), np.dtype("f4"), np.sin)
    yield case("a namedtuple, in", pair, Point(x, y))
    yield case("a namedtuple, out", pb.jit(lambda x: Point(x * 2, x * 3)), x)
    yield case("a dataclass, in", pair, Pair(x, y))
    yield case("a dataclass, out", pb.jit(lambda x: Pair(x * 2, x * 3)), x)
    yield case("a registered class, in", pb.jit(lambda s: s.end - s.start), Segment(x, y))
    yield case("a registered class, out", pb.jit(lambda x: Segment(x * 2, x * 3)), x)
    yield case("an `OrderedDict`, in", pb.jit(lambda p: p["a"] * 2), OrderedDict(a=x))
    yield case("writes into an argument, `x += 1`", pb.jit(add_one), np.ones(3))
    yield case("the same, not contiguous", pb.jit(add_one), np.ones(6)[::2])
    yield case("writes into a global array", pb.jit(set_table), x)
    yield case("`f.into(out, x)`", functools.partial(double.into, np.zeros(3)), x)
    yield case("a bound method, kept", model.scale, x)
    yield case("a bound method, `m.f(x)`", lambda x: model.scale(x), x)
    yield case("a global number", pb.jit(lambda x: x * RATE), x)
    yield case("a global dict of numbers and lists", pb.jit(lambda x: x * RATES["rate"] + RATES["layers"][1]), x)
    yield case("a global list of arrays", pb.jit(lambda x: x * ARRAYS[0] + ARRAYS[1]), x)
    yield case("an array of a subclass", pb.jit(lambda x: x * 2), x.view(Special))
    yield case("a `memoryview`", pb.jit(lambda x: x * 2), memoryview(x))
    four = np.ones(4)
    yield case("arrays that share memory, one donated", pb.jit(lambda x, y: x + y, donate=0), four[:3], four[1:])
    yield case("an array in another byte order", pb.jit(lambda x: x * 2), x.astype(">f8"))
    yield case("`pb.jit(debug=True)`", pb.jit(debug=True)(lambda x: x * 2), x)


def measured() -> dict[str, float]:
    """Seconds of a call of each kind."""
    result = {}
    for name, function, args, kwargs in cases():
        for _ in range(8):
            function(*args, **kwargs)
            while fastcall_describe.is_underway():
                time.sleep(0.01)
        calls = CALLS // 50 if "debug" in name else CALLS
        best = float("inf")
        for _ in range(ROUNDS):
            start = time.perf_counter()
            for _ in range(calls):
                function(*args, **kwargs)
            best = min(best, (time.perf_counter() - start) / calls)
        result[name] = best
    return result


def main() -> None:
    if MEASURE in sys.argv:
        print(json.dumps(measured()))
        return
    command, result = [sys.executable, "-m", "benchmarks.call_kinds", MEASURE], []
    for path in PATHS:
        environment = {**os.environ, "PULLBACK_CALL_PATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        result.append(json.loads(done.stdout))
    unit = result[0]["an array"]
    print("| a call with | warm | called often | through Python |\n| --- | ---: | ---: | ---: |")
    for name in result[0]:
        warm, often, plain = (seconds[name] / unit for seconds in result)
        print(f"| {name} | {warm:.1f} | {often:.1f} | {plain:.0f} |")


if __name__ == "__main__":
    main()
