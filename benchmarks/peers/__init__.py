"""The systems that are compared: one function each that prepares a case and returns a call without arguments.

A call computes everything, waits for it and returns NumPy arrays. Arguments are placed where the system wants them before the
clock starts. Libraries are imported late: any may be absent, and all count processors when first imported.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case
from benchmarks.peers import hand, numpy_peers

Call = Callable[[], Any]
Prepare = Callable[[Case, Arguments], Call]

OURS: dict[str, Prepare] = {"pullback": numpy_peers.prepare_pullback}
HAND: dict[str, Prepare] = {
    "numpy": numpy_peers.prepare_numpy,
    "numexpr": numpy_peers.prepare_numexpr,
    "numba": hand.prepare_numba,
    "c": hand.prepare_c,
}
AD: dict[str, Prepare] = {}
PEERS: dict[str, Prepare] = {**OURS, **AD, **HAND}
