"""How a native call puts its result together, and what it fills of the caller's, as rows for ``runtime.fastcall.records``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pullback.fastcall.arguments import Flat
from pullback.programs.entry import Entry
from pullback.programs.out import Out
from pullback.programs.overlap import overlapping, overlaps_itself
from pullback.programs.pipeline import Outcome
from pullback.runtime.fastcall.record_layout import Build, Demand, Node
from pullback.runtime.fastcall.records import NotNative
from pullback.tracer import Captured, Trace
from pullback.tracer.arrays.strides import strides_in
from pullback.tracer.arrays.tree import TreeDef

Row = tuple[Build, Any, Any]

_HEAP_TYPE = 1 << 9


class Built:
    """The result of an entry's calls: ``rows`` that put it together, none if Python has to. ``given`` are the arrays of the
    caller's that results are in, ``puts`` pairs of a register to fill and one with what goes there."""

    def __init__(self, entry: Entry, flat: Flat, everything: Sequence[int], leaves: Sequence[Any]) -> None:
        self._entry = entry
        self._leaves = leaves
        self._everything = everything
        self._flat = flat
        self._first_result = len(flat.nodes)
        self._out: list[int | None] = [None] * len(entry.program.outcomes)
        self._places = _places(entry)
        self.given: dict[int, int] = {}
        self.puts: list[tuple[int, int]] = []
        self.are_apart = True
        self.reads_registers = False

    def use(self, out: Out, registers: Sequence[int], are_apart: bool) -> None:
        """Have results in the arrays of ``out``, which lie in these registers; beside, and put there in the end, where these are
        not apart from all others."""
        self.are_apart = are_apart
        rest = iter(registers)
        for position, array in enumerate(out):
            if array is None:
                continue
            register = self._out[position] = next(rest)
            if self._flat.values[register] is not array:
                raise NotNative("out gives other arrays at each look")
            outcome = self._entry.program.outcomes[position]
            place = self._place(outcome) if outcome.source == "result" else None
            is_dense = array.flags.c_contiguous and array.flags.aligned
            if place is not None and place >= self._first_result and is_dense and are_apart:
                self.given.setdefault(place - self._first_result, register)

    def rows(self) -> list[Row]:
        """The rows; none if Python has to put the result together."""
        written = [self._everything[k] for k in written_inputs(self._entry.trace)]
        leaves: list[Row | None] = []
        count = len(self._entry.program.outcomes) - len(written)
        for position in range(count):
            leaves.append(self._leaf(position))
        found: list[Row] = []
        if None in leaves or not _put_together(self._entry.trace.out_tree, iter(leaves), found):
            return []
        for position, target in enumerate(written, count):
            source = self._source(position)
            if source is None:
                return []
            if source != target:
                self.puts.append((target, source))
        targets = {target for target, _ in self.puts} if self.are_apart else set(range(self._first_result))
        if any(source in targets for _, source in self.puts):
            return []
        if not self.are_apart and any(kind in (Build.REGISTER, Build.COPY) and k not in self._out for kind, k, _ in found):
            return []  # an argument is a result, and what is put into the caller's arrays may change it
        if self.puts or any(kind is Build.AGAIN for kind, _, _ in found):
            found = [(Build.SHARED if kind is Build.RESULT else kind, a, b) for kind, a, b in found]
        self.reads_registers |= bool(self.puts) or any(kind in (Build.REGISTER, Build.COPY, Build.CALL) for kind, _, _ in found)
        return found

    def _leaf(self, position: int) -> Row | None:
        """What puts a leaf of the result on the stack; None if only Python can."""
        target = self._out[position]
        if target is not None:
            source = self._source(position)
            if source is None:
                return None
            if self.given.get(source - self._first_result) != target and source != target:
                self.puts.append((target, source))
            return Build.REGISTER, target, None
        outcome = self._entry.program.outcomes[position]
        match outcome.source:
            case "leaf" if isinstance(self._leaves[outcome.index], np.ndarray | np.generic):
                return Build.REGISTER, self._everything[outcome.index], None
            case "result" | "repeat":
                place = self._place(outcome)
                if place is None:
                    return self._copied(outcome)
                if place < self._first_result:
                    return Build.REGISTER if outcome.source == "result" else Build.COPY, place, None
                is_again = outcome.source == "repeat" or place - self._first_result in self.given
                return Build.AGAIN if is_again else Build.RESULT, place - self._first_result, None
            case "parameter":
                return self._copy(outcome.index)
        return None

    def _copied(self, outcome: Outcome) -> Row | None:
        """The row of a result that turned out to be an argument."""
        instance = self._entry.program.instance
        assert instance is not None
        given = instance.gives[outcome.index]
        return self._copy(given.position) if given.from_arguments and given.is_whole else None

    def _copy(self, position: int) -> Row | None:
        """The row that copies an argument of the program."""
        if position >= len(self._everything):
            return None
        x = self._flat.values[self._everything[position]]
        return (Build.COPY, self._everything[position], None) if type(x) is np.ndarray and x.ndim else None

    def _source(self, position: int) -> int | None:
        """The register that holds what goes to a caller's array."""
        outcome = self._entry.program.outcomes[position]
        if outcome.source in ("result", "repeat"):
            return self._place(outcome)
        return self._everything[outcome.index] if outcome.index < len(self._everything) else None

    def _place(self, outcome: Outcome) -> int | None:
        """The register of a result of the program: one of its own, or that of an argument whose memory it takes."""
        place = self._places[outcome.index]
        if place is None:
            return None
        from_arguments, position = place
        return self._everything[position] if from_arguments else self._first_result + position


def _places(entry: Entry) -> list[tuple[bool, int] | None]:
    """Where each result of the program is, if it is a whole array of its own: (whether in an argument, its position)."""
    template, instance = entry.program.template, entry.program.instance
    if template is None or instance is None:
        return []
    if template.executable.plan.gives_all:
        return [(False, k) for k in range(len(instance.results))]
    homes = template.home
    found: list[tuple[bool, int] | None] = []
    for k, given in enumerate(instance.gives):
        is_own = given.is_whole and not given.is_again and (not given.from_arguments or homes.get(k) == given.position)
        found.append((given.from_arguments, given.position) if is_own else None)
    return found


def _put_together(tree: TreeDef, leaves: Iterator[Any], found: list[Row]) -> bool:
    """Append the rows that make a tree; whether they can."""
    if tree.kind == "leaf":
        found.append(next(leaves))
        return True
    if tree.kind in ("static", "named"):
        found.append((Build.OBJECT, tree.data, None))
        return True
    before = [tree.data[1]] if tree.kind == "registered" or tree.type is defaultdict else []
    found += [(Build.OBJECT, x, None) for x in before]
    pairs = tree.kind == "dict" and tree.type is not dict
    for k, child in enumerate(tree.children):
        if pairs:
            found.append((Build.OBJECT, tree.data[0][k], None))
        if not _put_together(child, leaves, found):
            return False
        if pairs:
            found.append((Build.TUPLE, 2, None))
    return _close(tree, found, len(before))


def _close(tree: TreeDef, found: list[Row], before: int) -> bool:
    """Append what makes a container of its children, which are on the stack."""
    count = len(tree.children)
    match tree.kind:
        case "tuple" | "list":
            found.append((Build.TUPLE if tree.type is tuple else Build.LIST, count, None))
        case "dict" if tree.type is dict:
            found.append((Build.DICT, count, tuple(tree.data[0])))
        case "dict":
            found += [(Build.LIST, count, None), (Build.CALL, before + 1, tree.type)]
        case "namedtuple":
            found.append((Build.CALL, count, tree.type))
        case "registered":
            found += [(Build.TUPLE, count, None), (Build.CALL, before + 1, tree.data[0].unflatten)]
        case "dataclass" if all(k.__flags__ & _HEAP_TYPE for k in tree.type.__mro__[:-1]):
            found.append((Build.FIELDS, count, (tree.type, *tree.data)))
        case _:
            return False
    return True


def demands(
    entry: Entry, flat: Flat, everything: Sequence[int], outs: Sequence[int], are_apart: bool
) -> list[tuple[Demand, int, Any]]:
    """What a native call asks of the memory of its arrays, which lie in these registers, those of its out in ``outs``: these are
    apart from all others, or only from each other and what is written. Raises NotNative."""
    trace, template = entry.trace, entry.program.template
    lent = [] if template is None else [everything[k] for k in template.home.values()]
    if any(type(flat.values[k]) is not np.ndarray for k in lent):
        raise NotNative("an array that is donated or written is of a subclass of NumPy's; pass np.asarray of it")
    found: list[tuple[Demand, int, Any]] = []
    written = list(dict.fromkeys([*lent, *(everything[k] for k in written_inputs(trace)), *outs]))
    for k in written:
        x = flat.values[k]
        found.append((Demand.WRITEABLE, k, None))
        if not (flat.nodes[k].first or x.flags.forc):
            found.append((Demand.SINGLE, k, x.itemsize))
    found += [(Demand.READONLY, everything[k], None) for k in trace.kept_readonly]
    for k, strides in trace.strides:
        x = flat.values[everything[k]]
        if strides is None or strides_in(x) != strides:
            raise NotNative("the elements of an array lie at no multiples of their size; pass a copy")
        found.append((Demand.STRIDES, everything[k], x.strides))
    arrays = [k for k in dict.fromkeys([*everything, *outs]) if flat.nodes[k].kind is Node.ARRAY]
    alone = written if are_apart else [k for k in written if k not in outs]
    for several, single in ((arrays, alone), ((), ()) if are_apart else (outs, outs)):
        if single and len(several) > 1:
            found.append((Demand.APART, 0, [(k, flat.values[k].itemsize, int(k in single)) for k in several]))
    return found


def first_unmet(asked: Sequence[tuple[Demand, int, Any]], flat: Flat, names: Mapping[int, str]) -> str:
    """The first demand that does not hold for the arrays of a call, in words; empty if all do."""
    for kind, k, a in asked:
        x, name = flat.values[k], names.get(k, "an array from outside")
        match kind:
            case Demand.WRITEABLE if not x.flags.writeable:
                return f"{name} is read-only, so that a copy is donated"
            case Demand.SINGLE if overlaps_itself(x):
                return f"the elements of {name} share memory with each other; pass a copy"
            case Demand.APART:
                found = overlapping({register: flat.values[register] for register, _, _ in a})
                shared = [names.get(register, "an array from outside") for register in sorted(found)]
                if any(register in found for register, _, is_written in a if is_written):
                    return f"{' and '.join(shared)} may share memory, and one of them is written or donated; pass copies"
    return ""


def written_beside(trace: Trace) -> list[Captured]:
    """The arrays from outside that a trace writes and of which it reads nothing."""
    known = set(map(id, trace.inputs))
    return [given for given in trace.outside_writes if id(given) not in known]


def written_inputs(trace: Trace) -> list[int]:
    """Which of a trace's inputs it writes, in the order of its results; after the inputs come those of ``written_beside``."""
    places = {id(given): k for k, given in enumerate((*trace.inputs, *written_beside(trace)))}
    return [*trace.writes, *(places[id(given)] for given in trace.outside_writes)]
