"""Python's own branches and loops in a trace: the operators that rewritten functions call (``tracer/syntax``)."""

from pullback.tracer.statements import (
    branches,
    catching,
    completions,
    heaps,
    items,
    iterators,
    keyed,
    loops,
    matches,
    raising,
    searches,
    texts,
    try_statements,
)

__all__ = [
    "branches", "catching", "completions", "heaps", "items", "iterators", "keyed", "loops", "matches", "raising", "register",
    "searches", "texts", "try_statements",
]  # fmt: skip


def register() -> None:
    """Register the operators, as the import of this package does."""
