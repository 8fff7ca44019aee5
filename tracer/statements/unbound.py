"""The content of a variable without one."""

from __future__ import annotations


class Unbound:
    """The content of a variable that no statement has bound."""

    def __repr__(self) -> str:
        return "unbound"


UNBOUND = Unbound()
