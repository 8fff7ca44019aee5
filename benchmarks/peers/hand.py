"""Loops written by hand: Numba's and C's. They write into arrays made once, which the other systems do not; but for calls that
are shorter than it takes to make an array, which make theirs."""

import importlib
from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case

Call = Callable[[], Any]


def prepare(module: str, case: Case, arguments: Arguments, table: str = "LOOPS") -> Call:
    loops = importlib.import_module(module)
    make = getattr(loops, table).get((case.workload, case.kind))
    if make is None:
        raise NotImplementedError("no loop written by hand for this one")
    return make(*arguments)


def prepare_numba(case: Case, arguments: Arguments) -> Call:
    return prepare("benchmarks.hand.numba_loops", case, arguments)


def prepare_numba_kept(case: Case, arguments: Arguments) -> Call:
    return prepare("benchmarks.hand.numba_loops", case, arguments, "KEPT")


def prepare_c(case: Case, arguments: Arguments) -> Call:
    return prepare("benchmarks.hand.c_loops", case, arguments)
