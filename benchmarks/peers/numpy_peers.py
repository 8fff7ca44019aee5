"""NumPy by hand, numexpr, and pullback: each takes NumPy arrays and gives NumPy arrays."""

import functools
import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case

Call = Callable[[], Any]


def prepare_numpy(case: Case, arguments: Arguments) -> Call:
    return functools.partial(case.by_hand, *arguments)


def prepare_pullback(case: Case, arguments: Arguments) -> Call:
    import pullback as pb

    function = case.function
    if case.wanted:
        function = pb.value_and_grad(function, argnums=case.argnums)
    return functools.partial(pb.jit(function), *arguments)


EXPRESSIONS = {
    ("chain", "map"): "x * y + half * x * x * y - y * y * x",
    ("chain", "fwd"): "sum(x * y + half * x * x * y - y * y * x)",
}


def prepare_numexpr(case: Case, arguments: Arguments) -> Call:
    ne = importlib.import_module("numexpr")
    if (case.workload, case.kind) not in EXPRESSIONS:
        raise NotImplementedError("no expression of one line")
    x, y = arguments
    names = {"x": x, "y": y, "half": x.dtype.type(0.5)}
    return functools.partial(ne.evaluate, EXPRESSIONS[case.workload, case.kind], names, {})
