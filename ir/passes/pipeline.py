"""The pass pipelines, and ``run``, which executes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pullback.ir.core.environment import is_verified
from pullback.ir.core.structure import Function
from pullback.ir.passes.algebra.merge_sums import sums
from pullback.ir.passes.algebra.norms import norms
from pullback.ir.passes.algebra.powers_of_two import powers_of_two
from pullback.ir.passes.algebra.shift_invariance import shifts
from pullback.ir.passes.algebra.symmetric_sums import mirrors
from pullback.ir.passes.editing.cse import cse
from pullback.ir.passes.editing.dce import dce
from pullback.ir.passes.hoist_guards import guards_first
from pullback.ir.passes.inline_custom import uncustom
from pullback.ir.passes.loops.element_carries import element_carries
from pullback.ir.passes.loops.exit_selects import exit_selects
from pullback.ir.passes.loops.final_elements import final_elements
from pullback.ir.passes.loops.hoist_contractions import beforehand
from pullback.ir.passes.loops.index_ranges import index_ranges
from pullback.ir.passes.loops.loop_invariants import regions
from pullback.ir.passes.loops.loop_versions import loop_versions
from pullback.ir.passes.loops.sink_contractions import fission
from pullback.ir.passes.order_clocks import order_clocks
from pullback.ir.passes.simplify.simplify import simplify
from pullback.ir.passes.singular.even_powers import even_powers
from pullback.ir.passes.singular.log_sums import log_sums
from pullback.ir.passes.singular.roots import roots
from pullback.ir.passes.singular.spectral_sums import spectral_sums
from pullback.ir.passes.strip_markers import unbarrier, untap
from pullback.ir.passes.structure.rolls import rolls
from pullback.ir.passes.structure.split_axes import cuts
from pullback.ir.passes.structure.split_coordinates import components
from pullback.ir.passes.structure.split_short import parts
from pullback.ir.passes.structure.write_through import write_through
from pullback.ir.passes.transforms.expand import grad
from pullback.ir.passes.transforms.logistic_tails import tails
from pullback.ir.passes.transforms.rematerialize import recomputed
from pullback.ir.verify import verify

Pass = Callable[[Function], Function]
Observer = Callable[[str, Function], None]

PASSES: dict[str, Pass] = {
    p.__name__: p
    for p in (
        index_ranges,
        exit_selects,
        loop_versions,
        element_carries,
        rolls,
        cuts,
        write_through,
        parts,
        simplify,
        regions,
        cse,
        even_powers,
        roots,
        norms,
        log_sums,
        spectral_sums,
        shifts,
        powers_of_two,
        final_elements,
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
        order_clocks,
        dce,
        unbarrier,
    )
}
"""Every pass by its name, as used in files and on the command line."""

BEFORE_GRAD: list[Pass] = [
    *(simplify, parts, regions, cse, element_carries, even_powers, roots, norms, log_sums, spectral_sums, shifts, dce)
]
"""The passes that a function runs through before transforms are expanded."""
OPTIMIZE: list[Pass] = [
    *(uncustom, untap, guards_first, simplify, regions, cse, element_carries, write_through, components, mirrors, sums, dce),
    *(beforehand, fission, simplify, recomputed, tails, dce, unbarrier),
]
"""The passes that a function runs through after transforms are expanded."""
ON_CPU: list[Pass] = [exit_selects, loop_versions]
"""The passes that follow for a CPU, where a program branches at no cost."""


def run(function: Function, passes: Sequence[Pass], observe: Observer | None = None) -> Function:
    """Return the function after the passes, in order.

    ``observe(name, function)`` is called with the name and result of each pass. With ``PULLBACK_VERIFY=1`` in the environment
    each result is verified, unless the pass returned its input; raises VerifyError.
    """
    checked = is_verified()
    for step in passes:
        before, function = function, step(function)
        if checked and function is not before:
            verify(function)
        if observe is not None:
            observe(step.__name__, function)
    return function
