"""The variables that the blocks of a statement share with the function around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import CellType, FunctionType
from typing import Any

from pullback.tracer.arrays.frame import frame_of
from pullback.tracer.arrays.traced import Keyed, Listed, Tagged, TracedArray, has_rows
from pullback.tracer.arrays.tree import flatten
from pullback.tracer.arrays.views import root_of
from pullback.tracer.names.places import Content, IsStored, Place, Since, VariablePlace
from pullback.tracer.statements.containers import State, bound_outside
from pullback.tracer.statements.unbound import UNBOUND
from pullback.tracer.syntax.sole_names import Names

ALIAS = "it may be one of several arrays; write into a copy of it"
"""Why an array is read-only that a branch or loop bound to a name that may be another one's."""

Block = Callable[..., Any]


class Variables:
    """The cells of the variables called ``names``, from the closures of blocks, that these or other blocks bind, those that
    functions bind as nonlocal ones, and the items of the containers that functions reach (``reaches``): the ``state``.
    ``sole``: the indices of variables that hold lists of their own (``tracer/syntax/sole_names.py``). ``places``: those
    outside to which the function stored, or blocks store, by the indices of their contents; whether something is stored there is
    the next variable. ``outside``: the indices of items of containers that are visible outside."""

    def __init__(self, names: Sequence[str], blocks: Sequence[Block | None], reaches: Sequence[Any] = ()) -> None:
        cells: dict[str, CellType] = {}
        for block in blocks:
            if block is not None:
                cells.update(cells_of(block))
        self.state = State([f for f in reaches if f is not None])
        bound = tuple(name for name in names if name in cells)
        own = [(name, cells[name]) for name in bound]
        self.sole = {k for k, name in enumerate(bound) if isinstance(names, Names) and name in names.sole}
        own += [pair for pair in self.state.bound if not any(pair[1] is cell for _, cell in own)]
        self.names: tuple[str, ...] = (*(name for name, _ in own), *self.state.names)
        self.cells: list[Any] = [*(cell for _, cell in own), *self.state.slots]
        self.outside = {k + len(own) for k in self.state.slots_outside}
        self.places: dict[int, Place] = {}
        self.add_places(frame_of().root.names.places.variables())

    def add_places(self, places: Sequence[Place]) -> None:
        """Add places outside, in place of the cells in which they are."""
        cells = {id(target.cell) for target in places if isinstance(target, VariablePlace)}
        for k, cell in enumerate(self.cells):
            if id(cell) in cells:
                self.cells[k] = CellType()
        for target in places:
            self.places[len(self.cells)] = target
            self.cells += [Content(target), IsStored(target), Since(target)]
            of = target.describe
            self.names = (*self.names, f"the content of {of}", f"whether {of} is stored", f"since when there is {of}")

    def read(self) -> list[Any]:
        """Return the contents of the variables, with ``UNBOUND`` for a variable without one."""
        return [content_of(cell) for cell in self.cells]

    def write(self, values: Sequence[Any]) -> None:
        """Set the contents of the variables."""
        for cell, value in zip(self.cells, values, strict=True):
            if value is not UNBOUND:
                cell.cell_contents = value
            elif content_of(cell) is not UNBOUND:
                del cell.cell_contents


def note_partly_bound(names: Sequence[str], values: Sequence[Any], *paths: Sequence[Any]) -> None:
    """Note the variables that have no value after a statement although one of its paths binds them."""
    bound = {name for path in paths for name, x in zip(names, path, strict=True) if x is not UNBOUND}
    frame_of().root.partly_bound |= bound & {name for name, x in zip(names, values, strict=True) if x is UNBOUND}


def cells_of(block: Any, seen: set[int] | None = None) -> dict[str, CellType]:
    """Return the cells of a block by name, with those of the blocks that it calls."""
    code = block.__code__
    cells = dict(zip(code.co_freevars, block.__closure__ or ()))
    seen = {id(block)} if seen is None else seen
    for name in [*cells]:
        inner = content_of(cells[name])
        if name.startswith("pullback:") and isinstance(inner, FunctionType) and id(inner) not in seen:
            seen.add(id(inner))
            cells = {**cells_of(inner, seen), **cells}
    return cells


def bound_by(blocks: Sequence[Any]) -> list[str]:
    """Return the variables of the function around blocks that these, or the blocks that they call, bind."""
    names: dict[str, None] = {}
    work, seen = list(blocks), set[int]()
    while work:
        block = work.pop()
        if not isinstance(block, FunctionType) or id(block) in seen:
            continue
        seen.add(id(block))
        names.update(dict.fromkeys(sorted(bound_outside(block.__code__))))
        inner = zip(block.__code__.co_freevars, block.__closure__ or (), strict=True)
        work += [content_of(cell) for name, cell in inner if name.startswith("pullback:")]
    return list(names)


def content_of(cell: Any) -> Any:
    """Return what a cell holds, or ``UNBOUND``."""
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


def is_same(a: Any, b: Any) -> bool:
    """Return whether two contents of a variable are the same object, or equal trees of the same arrays and equal numbers."""
    if a is b:
        return True
    if a is UNBOUND or b is UNBOUND or without_rows(a) is not a or without_rows(b) is not b:
        return False
    (xs, one), (ys, other) = flatten(a), flatten(b)
    return one == other and all(_is_same_leaf(x, y) for x, y in zip(xs, ys, strict=True))


def _is_same_leaf(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if isinstance(a, TracedArray) and isinstance(b, TracedArray):
        return a.literal is not None and a.weak == b.weak and a.type == b.type and repr(a.literal) == repr(b.literal)
    return type(a) is type(b) and isinstance(a, int | float | complex) and repr(a) == repr(b)


def arrays_in(values: Sequence[Any]) -> Iterator[TracedArray]:
    """Yield the arrays in the contents of variables that a statement could write into."""
    for value in values:
        if value is not UNBOUND:
            yield from (x for x in flatten(without_rows(value))[0] if isinstance(x, TracedArray) and (x.shape or x.is_cell))


def without_rows(value: Any) -> Any:
    """Return a tree without the lists whose elements are rows of arrays; these have their own variables."""
    if has_rows(value):
        return None
    if isinstance(value, Keyed):
        return without_rows(value.entries)
    if isinstance(value, Tagged):
        cases = tuple(map(without_rows, value.cases))
        return value if all(a is b for a, b in zip(cases, value.cases, strict=True)) else (value.tag, cases)
    if type(value) in (tuple, list) or isinstance(value, Listed):
        inside = [without_rows(x) for x in value]
        return value if all(a is b for a, b in zip(inside, value, strict=True)) else tuple(inside)
    if type(value) is dict:
        pairs = {k: without_rows(x) for k, x in value.items()}
        return value if all(pairs[k] is value[k] for k in value) else pairs
    return value


def is_alias(x: TracedArray, others: Sequence[TracedArray], inner: Any) -> bool:
    """Return whether an array is, or may be, an array of another frame or one of ``others``, or a view."""
    root = root_of(x)
    if root is not x or root.frame is not inner or root.readonly or root.aliases:
        return True
    return any(root is root_of(y) for y in others if y is not x)
