"""Donated arguments: arrays of a call whose memory its results may reuse.

The structure of arguments and results decides here which result may reuse which argument; whether it does is decided by the
plan of the program, which must show that nothing reads the argument afterwards and that nothing can fail any more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from pullback.ir.core.records import dataclass
from pullback.ir.core.types import ArrayType, Type
from pullback.programs.overlap import overlapping
from pullback.programs.pipeline import Over, split_outcomes
from pullback.tracer import Parameters, Signature, Trace
from pullback.tracer.arrays.tree import TreeDef

OWNDATA, WRITEABLE = 0x0004, 0x0400
"""NumPy's array flags."""

Donated = tuple[tuple[TreeDef, int], ...]
"""The structures of donated arguments, each with the index of its first leaf in the call."""


@dataclass(frozen=True, kw_only=True)
class Donation:
    """The arguments that calls donate, by position and by name."""

    argnums: tuple[int, ...] = ()
    argnames: tuple[str, ...] = ()

    def after_self(self) -> Donation:
        """Return the donation of a function whose first argument is ``self``, which positions do not count."""
        return Donation(argnums=tuple(k + (k >= 0) for k in self.argnums), argnames=self.argnames)

    def names(self, parameters: Parameters) -> frozenset[str]:
        """Return the names of the arguments in ``parameters``."""
        count = len(parameters.names)
        return frozenset((*self.argnames, *(parameters.name(k if k >= 0 else k + count) for k in self.argnums)))

    def check(self, function: Callable[..., Any], parameters: Parameters) -> None:
        """Raise ValueError for an argument that the function does not have or that is static."""
        try:
            known = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return
        kinds = {p.kind for p in known}
        title = f"{getattr(function, '__name__', function)}, which has {[p.name for p in known]}"
        for k in self.argnums:
            count = len(parameters.names)
            if not -count <= k < count and not (k >= 0 and inspect.Parameter.VAR_POSITIONAL in kinds):
                raise ValueError(f"donate={k}: no position of {title}")
        for name in self.argnames:
            if name not in {p.name for p in known} and inspect.Parameter.VAR_KEYWORD not in kinds:
                raise ValueError(f"donate={name!r}: no parameter of {title}")
        static = self.names(parameters) & parameters.static
        if static:
            raise ValueError(f"donate: {', '.join(sorted(static))} is static, and has no memory to give")

    def of(self, parameters: Parameters, call: Signature) -> Donated:
        """Return the donated arguments of a call."""
        wanted = self.names(parameters)
        positional, keyed = call.tree.children
        names = [parameters.name(k) for k in range(len(positional.children))]
        trees, first = [], 0
        for name, tree in zip((*names, *keyed.keys), (*positional.children, *keyed.children), strict=True):
            if name in wanted:
                trees.append((tree, first))
            first += tree.count
        return tuple(trees)


def donation(donate: Any) -> Donation | None:
    """Parse the option ``donate``: positions and names. Raises TypeError for anything else."""
    items = donate if isinstance(donate, Iterable) and not isinstance(donate, str) else (donate,)
    numbers, names = [], []
    for item in items:
        if isinstance(item, str):
            names.append(item)
        elif isinstance(item, int | np.integer) and not isinstance(item, bool):
            numbers.append(int(item))
        else:
            raise TypeError(f"donate is positions and names of arguments, not {donate!r}")
    return Donation(argnums=tuple(numbers), argnames=tuple(names)) if numbers or names else None


def over_of(trace: Trace, donated: Donated) -> Over:
    """Return pairs of a result of a trace's program and the parameter whose memory it may reuse.

    A write into an argument may reuse that argument, other results may reuse donated ones. Arguments that are returned, or
    copied after the call, are excluded.
    """
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
            reused = None if position is None else results[position]
            if position is not None and reused is not None:
                pairs[reused[0]] = first + k
                results[position] = None
    return tuple(sorted(pairs.items()))


def _matching(
    out: TreeDef, results: Sequence[tuple[int, Type] | None], tree: TreeDef, types: Sequence[Type | None]
) -> list[int | None]:
    """Return for each leaf of an argument the leaf of the result that may reuse it: of the first part of the result with the
    structure of the entire argument, or else the first of its type."""

    def fits(position: int, t: Type | None) -> bool:
        result = results[position]
        return t is not None and result is not None and result[1] == t

    best: list[int | None] = []
    for start in _like(out, tree, 0):
        part = [start + k if fits(start + k, t) else None for k, t in enumerate(types)]
        if sum(k is not None for k in part) > sum(k is not None for k in best):
            best = part
    if any(k is not None for k in best):
        return best
    positions: list[int | None] = []
    for t in types:
        positions.append(next((k for k in range(len(results)) if k not in positions and fits(k, t)), None))
    return positions


def _like(out: TreeDef, tree: TreeDef, start: int) -> Iterator[int]:
    """Yield the first leaf of each part of a tree that equals another tree."""
    if out == tree:
        yield start
    for child in out.children:
        yield from _like(child, tree, start)
        start += child.count


def with_separate_memory(arguments: Sequence[Any], reused: Iterable[int]) -> list[Any]:
    """Return the arguments, with copies of those among ``reused`` that cannot be written or that may share memory with
    another."""
    separated = list(arguments)
    arrays = {k: a for k, a in enumerate(separated) if isinstance(a, np.ndarray)}
    flags = {k: a.flags.num for k, a in arrays.items()}
    # Two arrays that own their memory share none.
    own = all(f & OWNDATA for f in flags.values()) and len(set(map(id, arrays.values()))) == len(arrays)
    shared = frozenset[int]() if own else overlapping(arrays)
    for k in reused:
        if k in shared or not flags[k] & WRITEABLE or type(arrays[k]) is not np.ndarray:
            separated[k] = np.array(arrays[k], order="C", subok=False)
    return separated
