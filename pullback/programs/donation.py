"""Donated arguments: arrays of a call in whose memory its results may be.

Which result may be in which argument is decided here, by the structure of both; whether it is, by the plan of the program, which
must show that nothing reads the argument afterwards and that nothing can fail any more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pullback.ir.core.types import ArrayType, Type
from pullback.programs.overlap import overlapping
from pullback.programs.pipeline import Over, split_outcomes
from pullback.tracer import Parameters, Signature, Trace
from pullback.tracer.arrays.tree import TreeDef

OWNDATA, WRITEABLE = 0x0004, 0x0400
"""NumPy's flags of an array."""

Donated = tuple[tuple[TreeDef, int], ...]
"""The structures of donated arguments, each with the index of its first leaf in the call."""


@dataclass(frozen=True, kw_only=True)
class Donation:
    """The arguments that calls donate, by position and by name."""

    argnums: tuple[int, ...] = ()
    argnames: tuple[str, ...] = ()

    def after_self(self) -> Donation:
        """The same for a function whose first argument is ``self``, which positions do not count."""
        return Donation(argnums=tuple(k + (k >= 0) for k in self.argnums), argnames=self.argnames)

    def names(self, parameters: Parameters) -> frozenset[str]:
        """The names of the arguments, as ``parameters`` calls them."""
        known = len(parameters.names)
        return frozenset((*self.argnames, *(parameters.name(k if k >= 0 else k + known) for k in self.argnums)))

    def check(self, function: Callable[..., Any], parameters: Parameters) -> None:
        """Raises ValueError for an argument that the function does not have or that is static."""
        try:
            found = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        kinds = {p.kind for p in found}
        title = f"{getattr(function, '__name__', function)}, which has {[p.name for p in found]}"
        for k in self.argnums:
            count = len(parameters.names)
            if not -count <= k < count and not (k >= 0 and inspect.Parameter.VAR_POSITIONAL in kinds):
                raise ValueError(f"donate={k}: no position of {title}")
        for name in self.argnames:
            if name not in {p.name for p in found} and inspect.Parameter.VAR_KEYWORD not in kinds:
                raise ValueError(f"donate={name!r}: no parameter of {title}")
        static = self.names(parameters) & parameters.static
        if static:
            raise ValueError(f"donate: {', '.join(sorted(static))} is static, and has no memory to give")

    def of(self, parameters: Parameters, call: Signature) -> Donated:
        """The donated arguments of a call."""
        wanted = self.names(parameters)
        positional, keyed = call.tree.children
        names = [parameters.name(k) for k in range(len(positional.children))]
        found, first = [], 0
        for name, tree in zip((*names, *keyed.keys), (*positional.children, *keyed.children), strict=True):
            if name in wanted:
                found.append((tree, first))
            first += tree.count
        return tuple(found)


def donation(given: Any) -> Donation | None:
    """What ``donate`` says: positions and names. Raises TypeError for anything else."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    numbers, names = [], []
    for one in several:
        if isinstance(one, str):
            names.append(one)
        elif isinstance(one, int | np.integer) and not isinstance(one, bool):
            numbers.append(int(one))
        else:
            raise TypeError(f"donate is positions and names of arguments, not {given!r}")
    return Donation(argnums=tuple(numbers), argnames=tuple(names)) if numbers or names else None


def over_of(trace: Trace, donated: Donated) -> Over:
    """The results of a trace's program that may be in the memory of parameters: what is written into an argument in that
    argument, the others in donated ones. No argument that is returned, or copied after the call, is among them."""
    function, outcomes = split_outcomes(trace)
    count = len(outcomes) - trace.writes_count
    kept = {o.index for o in outcomes if o.source in ("leaf", "parameter")}
    types = ((k, p.type) for k, p in enumerate(function.parameters) if k not in kept)
    free = {k: t for k, t in types if isinstance(t, ArrayType) and t.rank}
    pairs: dict[int, int] = {}
    for leaf, outcome in zip(trace.writes, outcomes[count:]):
        if outcome.source == "result" and free.get(leaf) == function.results[outcome.index].type:
            pairs[outcome.index] = leaf
            del free[leaf]
    results = [
        (o.index, function.results[o.index].type) if o.source == "result" and o.index not in pairs else None
        for o in outcomes[:count]
    ]  # fmt: skip
    for tree, first in donated:
        taken = _matching(trace.out_tree, results, tree, [free.get(first + k) for k in range(tree.count)])
        for k, position in enumerate(taken):
            found = None if position is None else results[position]
            if position is not None and found is not None:
                pairs[found[0]] = first + k
                results[position] = None
    return tuple(sorted(pairs.items()))


def _matching(
    out: TreeDef, results: Sequence[tuple[int, Type] | None], tree: TreeDef, types: Sequence[Type | None]
) -> list[int | None]:
    """For each leaf of an argument the leaf of the result that may be in it: of the first part of the result that is like the
    whole argument, else the first of its type."""

    def fits(position: int, t: Type | None) -> bool:
        found = results[position]
        return t is not None and found is not None and found[1] == t

    best: list[int | None] = []
    for start in _like(out, tree, 0):
        part = [start + k if fits(start + k, t) else None for k, t in enumerate(types)]
        if sum(k is not None for k in part) > sum(k is not None for k in best):
            best = part
    if any(k is not None for k in best):
        return best
    found: list[int | None] = []
    for t in types:
        found.append(next((k for k in range(len(results)) if k not in found and fits(k, t)), None))
    return found


def _like(out: TreeDef, tree: TreeDef, start: int) -> Iterator[int]:
    """The first leaves of the parts of a tree that are like another."""
    if out == tree:
        yield start
    for child in out.children:
        yield from _like(child, tree, start)
        start += child.count


def apart(arguments: Sequence[Any], lent: Iterable[int]) -> list[Any]:
    """The arguments, with copies of those among ``lent`` that cannot be written or that may share memory with another."""
    found = list(arguments)
    arrays = {k: a for k, a in enumerate(found) if isinstance(a, np.ndarray)}
    flags = {k: a.flags.num for k, a in arrays.items()}
    # Two arrays that own their memory share none.
    own = all(f & OWNDATA for f in flags.values()) and len(set(map(id, arrays.values()))) == len(arrays)
    shared = frozenset[int]() if own else overlapping(arrays)
    for k in lent:
        if k in shared or not flags[k] & WRITEABLE or type(arrays[k]) is not np.ndarray:
            found[k] = np.array(arrays[k], order="C", subok=False)
    return found
