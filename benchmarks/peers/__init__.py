"""The systems that are compared: one function each that prepares a case and returns a call without arguments.

A call computes everything, waits for it and returns NumPy arrays. Arguments are placed where the system wants them before the
clock starts. Libraries are imported late: any may be absent, and all count processors when first imported.
"""

from collections.abc import Callable
from typing import Any

from benchmarks.case import Arguments, Case
from benchmarks.peers import autograd_peer, drjit_peer, hand, jax_peer, numpy_peers, openblas, torch_peer

Call = Callable[[], Any]
Prepare = Callable[[Case, Arguments], Call]

OURS: dict[str, Prepare] = {"pullback": numpy_peers.prepare_pullback}
HAND: dict[str, Prepare] = {
    "numpy": numpy_peers.prepare_numpy,
    "numexpr": numpy_peers.prepare_numexpr,
    "numba": hand.prepare_numba,
    "c": hand.prepare_c,
    "openblas_avx512": openblas.prepare_avx512,
    "openblas_avx2": openblas.prepare_avx2,
}
AD: dict[str, Prepare] = {
    "jax": jax_peer.prepare_jax,
    "torch": torch_peer.prepare_torch,
    "tcompile": torch_peer.prepare_tcompile,
    "tcompile_fn": torch_peer.prepare_tcompile_fn,
    "drjit": drjit_peer.prepare_drjit,
    "autograd": autograd_peer.prepare_autograd,
}
KEPT: dict[str, Prepare] = {"numba_kept": hand.prepare_numba_kept}
"""Loops by hand that do less than the others: they write into an array made once where all others make one. They are shown."""
PEERS: dict[str, Prepare] = {**OURS, **AD, **HAND, **KEPT}
