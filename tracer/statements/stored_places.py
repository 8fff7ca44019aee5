"""Places and containers outside to which blocks store: what blocks cannot leave there, and how their changes are undone."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from pullback.tracer.names.places import Place
from pullback.tracer.statements.containers import Container, containers_in
from pullback.tracer.statements.growing import GrowingList
from pullback.tracer.stores import ContainersOfCall, changing_part
from pullback.tracer.user_code.errors import TraceError


def refuse_absent(target: Place) -> None:
    """Raise TraceError for a place that may hold nothing after a block, unless each read of it can find that."""
    if not target.may_be_absent:
        raise TraceError(f"a branch or loop on traced values stores to {target.describe}, which is not there; bind it before")


def refuse_objects(values: Iterable[Any], name: str) -> None:
    """Raise TraceError if a place, of which values decide the content, holds a list, dict or object, which would be a copy."""
    for container in containers_in((name, value) for value in values):
        raise TraceError(
            f"{name} is a {type(container.value).__name__} that values decide, which would be a copy; store numbers or arrays"
        )


class OutsideContents:
    """The containers from outside that are met before a block, ``besides`` those of some ids: of others the block's changes are
    undone."""

    def __init__(self, stores: ContainersOfCall, besides: Collection[int]) -> None:
        self._stores = stores
        self._known = {*besides, *(id(changing_part(copy)) for _, copy in stores.stored_copies())}

    def restore(self) -> None:
        """Give the containers that were met since what they held outside."""
        for describe, copy, items in self._stores.outside_copies(is_stored=True):
            part = changing_part(copy)
            if id(part) not in self._known:
                if isinstance(part, GrowingList):
                    part.rows = None
                container = Container(part, describe)
                container.restore([(x, True) for _, x in items] if container.kind == "set" else items)
