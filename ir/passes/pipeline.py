"""The lists of passes, and ``run``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.passes.beforehand import beforehand
from pullback.ir.passes.components import components
from pullback.ir.passes.cse import cse
from pullback.ir.passes.cuts import cuts
from pullback.ir.passes.dce import dce
from pullback.ir.passes.even_powers import even_powers
from pullback.ir.passes.fission import fission
from pullback.ir.passes.grad import grad
from pullback.ir.passes.guards import guards_first
from pullback.ir.passes.log_sums import log_sums
from pullback.ir.passes.mirrors import mirrors
from pullback.ir.passes.norms import norms
from pullback.ir.passes.recomputed import recomputed
from pullback.ir.passes.regions import regions
from pullback.ir.passes.roots import roots
from pullback.ir.passes.shifts import shifts
from pullback.ir.passes.simplify import simplify
from pullback.ir.passes.spectral_sums import spectral_sums
from pullback.ir.passes.sums import sums
from pullback.ir.passes.tails import tails
from pullback.ir.passes.uncustom import uncustom
from pullback.ir.passes.untap import unbarrier, untap
from pullback.ir.settings import is_verified
from pullback.ir.structure import Function
from pullback.ir.verify import verify

Pass = Callable[[Function], Function]
Observer = Callable[[str, Function], None]

PASSES: dict[str, Pass] = {
    p.__name__: p
    for p in (
        cuts,
        simplify,
        regions,
        cse,
        even_powers,
        roots,
        norms,
        log_sums,
        spectral_sums,
        shifts,
        grad,
        components,
        mirrors,
        sums,
        beforehand,
        fission,
        recomputed,
        tails,
        uncustom,
        untap,
        guards_first,
        dce,
        unbarrier,
    )
}
"""Every pass by its name, as files and the command line call it."""

BEFORE_GRAD: list[Pass] = [simplify, regions, cse, even_powers, roots, norms, log_sums, spectral_sums, shifts, dce]
OPTIMIZE: list[Pass] = [
    *(uncustom, untap, guards_first, simplify, regions, cse, components, mirrors, sums, dce),
    *(beforehand, fission, simplify, recomputed, tails, dce, unbarrier),
]


def run(function: Function, passes: Sequence[Pass], observe: Observer | None = None) -> Function:
    """The function after the passes, in order.

    ``observe(name, function)`` is told each pass and its result. With ``PULLBACK_VERIFY=1`` in the environment each result
    is verified, but for a pass that gave back what it was given; raises VerifyError.
    """
    checked = is_verified()
    for step in passes:
        before, function = function, step(function)
        if checked and function is not before:
            verify(function)
        if observe is not None:
            observe(step.__name__, function)
    return function
