"""Describe how a native call builds its result, and what it writes into the caller's arrays, as rows for
``runtime.fastcall.records``."""

from __future__ import annotations

import functools
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
from pullback.tracer.arrays.tree import NAMESPACES, TreeDef

Row = tuple[Build, Any, Any]

_HEAP_TYPE = 1 << 9


class Built:
    """The result of an entry's calls: ``rows`` build it; there are none if Python has to build it.

    ``caller_arrays`` are the caller's arrays in which results are computed, ``puts`` pairs of a register to write and its
    source, ``numbers`` the types of the native call's results that are Python numbers, by register from the first result's on.
    """

    def __init__(self, entry: Entry, flat: Flat, everything: Sequence[int], leaves: Sequence[Any]) -> None:
        self._entry = entry
        self._leaves = leaves
        self._everything = everything
        self._flat = flat
        self._first_result = len(flat.nodes)
        self._out: list[int | None] = [None] * len(entry.program.outcomes)
        self._result_slots = _result_slots(entry)
        self.caller_arrays: dict[int, int] = {}
        self.puts: list[tuple[int, int]] = []
        self.are_separate = True
        self.reads_registers = False
        kinds = {o.index: o.kind for o in entry.program.outcomes if o.source == "result"}
        self._kinds: dict[int, type] = {k: kind for k, kind in kinds.items() if kind is not None}
        slots = {k: self._result_slots[k] for k in self._kinds}
        self.numbers = {slot[1]: self._kinds[k] for k, slot in slots.items() if slot is not None and not slot[0]}

    def use(self, out: Out, registers: Sequence[int], are_separate: bool) -> None:
        """Write results into the arrays of ``out``, which are in these registers.

        If these arrays are not separate from all others, the results are computed elsewhere and copied at the end. Raises
        NotNative.
        """
        self.are_separate = are_separate
        remaining = iter(registers)
        for position, array in enumerate(out):
            if array is None:
                continue
            register = self._out[position] = next(remaining)
            if self._flat.values[register] is not array:
                raise NotNative("out gives other arrays at each look")
            outcome = self._entry.program.outcomes[position]
            result_register = self._register_of(outcome) if outcome.source == "result" else None
            is_dense = array.flags.c_contiguous and array.flags.aligned
            if result_register is not None and result_register >= self._first_result and is_dense and are_separate:
                self.caller_arrays.setdefault(result_register - self._first_result, register)

    def rows(self) -> list[Row]:
        """Return the rows; none if Python has to build the result."""
        written = [self._everything[k] for k in written_inputs(self._entry.trace)]
        leaves: list[Row | None] = []
        count = len(self._entry.program.outcomes) - len(written)
        for position in range(count):
            leaves.append(self._leaf(position))
        built: list[Row] = []
        if None in leaves or not _append_tree(self._entry.trace.out_tree, iter(leaves), built):
            return []
        for position, target in enumerate(written, count):
            source = self._source(position)
            if source is None:
                return []
            if source != target:
                self.puts.append((target, source))
        targets = {target for target, _ in self.puts} if self.are_separate else set(range(self._first_result))
        if any(source in targets for _, source in self.puts):
            return []
        if not self.are_separate and any(kind in (Build.REGISTER, Build.COPY) and k not in self._out for kind, k, _ in built):
            return []  # an argument is a result, and writes into the caller's arrays may change it
        if self.puts or any(kind is Build.AGAIN for kind, _, _ in built):
            built = [(Build.SHARED if kind is Build.RESULT else kind, a, b) for kind, a, b in built]
        self.reads_registers |= bool(self.puts) or any(kind in (Build.REGISTER, Build.COPY, Build.CALL) for kind, _, _ in built)
        return built

    def _leaf(self, position: int) -> Row | None:
        """Return the row that pushes a leaf of the result on the stack; None if only Python can."""
        target = self._out[position]
        if target is not None:
            source = self._source(position)
            if source is None:
                return None
            if self.caller_arrays.get(source - self._first_result) != target and source != target:
                self.puts.append((target, source))
            return Build.REGISTER, target, None
        outcome = self._entry.program.outcomes[position]
        match outcome.source:
            case "leaf":
                return Build.REGISTER, self._everything[outcome.index], None
            case "repeat" if outcome.kind is not self._kinds.get(outcome.index):
                return None
            case "result" | "repeat":
                register = self._register_of(outcome)
                if register is None:
                    return self._copied(outcome)
                if register < self._first_result:
                    return Build.REGISTER if outcome.source == "result" else Build.COPY, register, None
                is_again = outcome.source == "repeat" or register - self._first_result in self.caller_arrays
                return Build.AGAIN if is_again else Build.RESULT, register - self._first_result, None
            case "parameter":
                return self._copy(outcome.index, outcome.kind)
        return None

    def _copied(self, outcome: Outcome) -> Row | None:
        """Return the row of a result that turned out to be an argument or an earlier result; None if only Python can copy it."""
        instance = self._entry.program.instance
        assert instance is not None
        source = instance.gives[outcome.index]
        if not source.from_arguments:
            is_same = source.is_whole and self.numbers.get(source.position) is outcome.kind
            return (Build.AGAIN, source.position, None) if is_same else None
        return self._copy(source.position, outcome.kind) if source.is_whole else None

    def _copy(self, position: int, kind: type | None) -> Row | None:
        """Return the row that copies an argument of the program, for a result that is a Python number of this type if it is not
        None; None if only Python can."""
        if position >= len(self._everything):
            return None
        register = self._everything[position]
        x = self._flat.values[register]
        if type(x) is kind or (kind is None and isinstance(x, np.generic)):
            return Build.REGISTER, register, None
        return (Build.COPY, register, None) if type(x) is np.ndarray and x.ndim else None

    def _source(self, position: int) -> int | None:
        """Return the register of the value that is written into a caller's array; None if it has none."""
        outcome = self._entry.program.outcomes[position]
        if outcome.source in ("result", "repeat"):
            return self._register_of(outcome)
        return self._everything[outcome.index] if outcome.index < len(self._everything) else None

    def _register_of(self, outcome: Outcome) -> int | None:
        """Return the register of a result of the program: its own, or that of the argument whose memory it reuses; None if it
        has none."""
        slot = self._result_slots[outcome.index]
        if slot is None:
            return None
        from_arguments, position = slot
        return self._everything[position] if from_arguments else self._first_result + position


def _result_slots(entry: Entry) -> list[tuple[bool, int] | None]:
    """Return for each result of the program, if it is an entire array of its own, whether it is in an argument, and its
    position."""
    template, instance = entry.program.template, entry.program.instance
    if template is None or instance is None:
        return []
    if template.executable.plan.gives_all:
        return [(False, k) for k in range(len(instance.results))]
    homes = template.home
    slots: list[tuple[bool, int] | None] = []
    for k, source in enumerate(instance.gives):
        is_own = source.is_whole and not source.is_again and (not source.from_arguments or homes.get(k) == source.position)
        slots.append((source.from_arguments, source.position) if is_own else None)
    return slots


def _append_tree(tree: TreeDef, leaves: Iterator[Any], rows: list[Row]) -> bool:
    """Append the rows that build a tree; return whether rows can build it."""
    if tree.kind == "leaf":
        rows.append(next(leaves))
        return True
    if tree.kind in ("static", "named"):
        rows.append((Build.OBJECT, tree.data, None))
        return True
    is_called = tree.kind == "registered" and not _is_selected(tree)
    before = [tree.data[1]] if is_called or tree.type is defaultdict else []
    rows += [(Build.OBJECT, x, None) for x in before]
    pairs = tree.kind == "dict" and tree.type is not dict
    for k, child in enumerate(tree.children):
        if pairs:
            rows.append((Build.OBJECT, tree.data[0][k], None))
        if not _append_tree(child, leaves, rows):
            return False
        if pairs:
            rows.append((Build.TUPLE, 2, None))
    return _append_container(tree, rows, len(before))


def _is_selected(tree: TreeDef) -> bool:
    """Return whether the container is one of its children, whose position is the first child."""
    container = tree.data[0]
    return container.is_selected and not any(c.kind == "static" and isinstance(c.data, container.refused) for c in tree.children)


def _namespace(kind: Any, attributes: dict[str, Any]) -> Any:
    return kind(**attributes)


def _append_container(tree: TreeDef, rows: list[Row], before: int) -> bool:
    """Append the rows that build a container of its children, which are on the stack; return whether rows can."""
    count = len(tree.children)
    match tree.kind:
        case "tuple" | "list":
            rows.append((Build.TUPLE if tree.type is tuple else Build.LIST, count, None))
        case "dict" if tree.type is dict:
            rows.append((Build.DICT, count, tuple(tree.data[0])))
        case "dict":
            rows += [(Build.LIST, count, None), (Build.CALL, before + 1, tree.type)]
        case "namedtuple":
            rows.append((Build.CALL, count, tree.type))
        case "registered" if _is_selected(tree):
            rows.append((Build.SELECTED, count, None))
        case "registered":
            rows += [(Build.TUPLE, count, None), (Build.CALL, before + 1, tree.data[0].unflatten)]
        case "dataclass" if tree.type in NAMESPACES:
            rows += [(Build.DICT, count, tree.data), (Build.CALL, 1, functools.partial(_namespace, tree.type))]
        case "dataclass" if all(k.__flags__ & _HEAP_TYPE for k in tree.type.__mro__[:-1]):
            rows.append((Build.FIELDS, count, (tree.type, *tree.data)))
        case _:
            return False
    return True


def demands(
    entry: Entry, flat: Flat, everything: Sequence[int], outs: Sequence[int], are_separate: bool
) -> list[tuple[Demand, int, Any]]:
    """Return the demands of a native call on the memory of its arrays, which are in the registers ``everything``.

    The arrays of the caller's ``out`` are in the registers ``outs``: they must be separate from all others or, without
    ``are_separate``, only from each other and from what is written. Raises NotNative.
    """
    trace, template = entry.trace, entry.program.template
    lent = [] if template is None else [everything[k] for k in template.home.values()]
    if any(type(flat.values[k]) is not np.ndarray for k in lent):
        raise NotNative("an array that is donated or written is of a subclass of NumPy's; pass np.asarray of it")
    required: list[tuple[Demand, int, Any]] = []
    written = list(dict.fromkeys([*lent, *(everything[k] for k in written_inputs(trace)), *outs]))
    for k in written:
        x = flat.values[k]
        required.append((Demand.WRITEABLE, k, None))
        if not (flat.nodes[k].first or x.flags.forc):
            required.append((Demand.SINGLE, k, x.itemsize))
    required += [(Demand.READONLY, everything[k], None) for k in trace.kept_readonly]
    for k, strides in trace.strides:
        x = flat.values[everything[k]]
        if strides is None or strides_in(x) != strides:
            raise NotNative("the elements of an array lie at no multiples of their size; pass a copy")
        required.append((Demand.STRIDES, everything[k], x.strides))
    arrays = [k for k in dict.fromkeys([*everything, *outs]) if flat.nodes[k].kind is Node.ARRAY]
    alone = written if are_separate else [k for k in written if k not in outs]
    for registers, exclusive in ((arrays, alone), ((), ()) if are_separate else (outs, outs)):
        if exclusive and len(registers) > 1:
            required.append((Demand.APART, 0, [(k, flat.values[k].itemsize, int(k in exclusive)) for k in registers]))
    return required


def first_unmet(required: Sequence[tuple[Demand, int, Any]], flat: Flat, names: Mapping[int, str]) -> str:
    """Return a description of the first demand that the arrays of a call do not meet; empty if all are met."""
    for kind, k, a in required:
        x, name = flat.values[k], names.get(k, "an array from outside")
        match kind:
            case Demand.WRITEABLE if not x.flags.writeable:
                return f"{name} is read-only, so that a copy is donated"
            case Demand.SINGLE if overlaps_itself(x):
                return f"the elements of {name} share memory with each other; pass a copy"
            case Demand.APART:
                overlaps = overlapping({register: flat.values[register] for register, _, _ in a})
                shared = [names.get(register, "an array from outside") for register in sorted(overlaps)]
                if any(register in overlaps for register, _, is_written in a if is_written):
                    return f"{' and '.join(shared)} may share memory, and one of them is written or donated; pass copies"
    return ""


def written_only(trace: Trace) -> list[Captured]:
    """Return the outside arrays that a trace writes but does not read."""
    inputs = set(map(id, trace.inputs))
    return [target for target in trace.outside_writes if id(target) not in inputs]


def written_inputs(trace: Trace) -> list[int]:
    """Return the inputs that a trace writes, in the order of its results; after the inputs come the arrays of
    ``written_only``."""
    positions = {id(target): k for k, target in enumerate((*trace.inputs, *written_only(trace)))}
    return [*trace.writes, *(positions[id(target)] for target in trace.outside_writes)]
