"""The second tier of the fast call: an entry point specialised for one small program that is called often, with the contents
of its tables folded into the code, and its kernels inlined.

It is the text of ``run.attempt``, reduced to what the record's tables require. Addresses are read from the record, so the text
contains none, and the code is the same for all processes. Unexpected calls are left to Python, as by the generic entry. A
record counts its calls down: after ``LOOK_AFTER`` a thread looks for such code in the kernel cache, after ``MAKE_AFTER`` more
it compiles it. No call waits for either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.ir.ops.control.host import Host
from pullback.runtime.compile.background import BackgroundTask
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.fastcall import abi
from pullback.runtime.fastcall.common import Entrance, Part
from pullback.runtime.fastcall.llvm_builder import Known, Operand, Parted, Word, constant_of, function_at
from pullback.runtime.fastcall.record_layout import NUMBERS, RECORD, TABLES, Build, Node, Result, size
from pullback.runtime.fastcall.records import Record
from pullback.runtime.fastcall.run import attempt
from pullback.runtime.process import counters
from pullback.runtime.process.fork import work
from pullback.runtime.program.executable import Executable, Instance

SYMBOL = "pullback_call_fused"
LOOK_AFTER, MAKE_AFTER = 2_000, 20_000
"""The number of calls before the cache is searched, and the further number before the code is compiled."""
MAX_NS = 2_000
"""The largest run time in nanoseconds of a program that is specialised; longer runs gain little."""
MOST_FRAME, MOST_STEPS, MOST_REGISTERS = 1 << 12, 8, 32
"""The largest frame in bytes, number of steps and number of registers of a program that is specialised."""

_NUMBERS = (
    "positional", "keywords", "registers", "node_count", "has_inside", "guard_count", "read_count", "watch", "watched",
    "frame_bytes", "filled_bytes", "arena_bytes", "fill_count", "frame_fill_count", "steps", "result_count", "first_result",
    "build_count",
    "finish", "leaf_count", "demand_count", "put_count", "creation",
)  # fmt: skip
_FIELDS = {
    "nodes": ("kind", "b", "first", "count"), "guards": ("kind", "by_value"), "reads": ("kind", "index"), "fills": TABLES["fill"],
    "frame_fills": TABLES["fill"], "results": ("kind", "rank", "offset"), "build": ("kind", "place"),
}  # fmt: skip
_TABLE = {"nodes": "node", "guards": "guard", "reads": "read", "fills": "fill", "frame_fills": "fill", "results": "result"}
_NODES = frozenset((
    Node.ARRAY, Node.EXACT, Node.SAME, Node.EQUAL, Node.WEAK, Node.SEQUENCE, Node.LIST, Node.DICT, Node.NUMBER,
    Node.ANY, Node.RANGE, Node.OBJECT, Node.METHOD,
))  # fmt: skip
_RESULTS = frozenset((Result.SMALL, Result.LARGE, *NUMBERS))
_BUILDS = frozenset((Build.RESULT, Build.REGISTER, Build.OBJECT, Build.COPY, Build.TUPLE, Build.LIST, Build.DICT, Build.SELECTED))
"""The kinds that such an entry supports; records with other kinds keep the generic one."""
_OWN_THREADS = f"""
@threads = internal constant {{ {", ".join("ptr" for _ in THREADS)}, i64 }} {{ ptr @run, ptr null, ptr null, ptr null, i64 1 }}

define internal i64 @run(ptr %state, ptr %function, ptr %context, i64 %chunks) alwaysinline nounwind {{
entry:
  %none = icmp slt i64 %chunks, 1
  br i1 %none, label %done, label %body
body:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %first = phi i64 [ 0, %entry ], [ %first.next, %body ]
  %status = call i64 %function(ptr %context, i64 %k)
  %fine = icmp eq i64 %first, 0
  %first.next = select i1 %fine, i64 %status, i64 %first
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %chunks
  br i1 %more, label %body, label %done
done:
  %result = phi i64 [ 0, %entry ], [ %first.next, %body ]
  ret i64 %result
}}
"""
"""Loops over chunks on the caller's thread, as in all small programs."""


class _SpecializedBuilder(Entrance):
    """The builder of a specialised entry."""

    state_at: Word
    starts: list[int]
    """The start of each step's arguments in a frame, in words, and the end of all."""

    def use(self, called: Part, *operands: Operand) -> Word:
        if self._has_left:
            return Word("poison", called.result)
        with self.inlined(called.result) as result:
            called.write(self, *(Word(str(x)) if isinstance(x, int) else x for x in operands))
        return result()

    def _state(self, index: int) -> Word:
        return self.at(self.state_at, 8 * index)

    def on_stack(self, frame: Word, bytes: Word, filled: Word) -> Word | None:
        words, blocks = constant_of(filled), constant_of(bytes)
        assert words is not None and blocks is not None
        parts = [(8 * first, 8 * end, self.words(end - first)) for first, end in zip(self.starts, self.starts[1:]) if end > first]
        first = 8 * self.starts[-1]
        # The memory after the blocks is aligned as in a frame, which begins at a multiple of 64.
        memory = self.words(blocks // 8 + 1, 64)
        parts.append((first, blocks + 1, self.at(memory, first)))
        split = Parted(parts[0][2].text, parts=tuple(parts))
        for at in range(0, words, 8):
            self.store(self.load(frame, at), split, at)
        return split


def text_of(record: Record) -> str:
    """Return the specialised entry of a record, without its kernels, which it calls by their symbols."""
    f = _SpecializedBuilder(SYMBOL, attempt.parameters, attempt.result, internal=False)
    instance, executable = record.instance, record.executable
    assert instance is not None and executable is not None
    f.starts = [*instance.tables[1].tolist(), len(instance.block)]
    first, *others = f.parameters
    record_pointer = Known(first.text, contents=_contents(record))
    f.state_at = f.field("record", record_pointer, "state")
    attempt.write(f, record_pointer, *others)
    declared = [f"declare i64 @{kernel.symbol}(ptr)" for kernel in executable.kernels.values()]
    memcpy = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    return "\n".join([memcpy, *dict.fromkeys(declared), _OWN_THREADS if _calls_no_library(record) else "", f.text])


def _contents(record: Record) -> Mapping[int, Any]:
    """Return the known contents of a record's tables: everything except addresses."""
    contents_: dict[int, Any] = {8 * RECORD.index(name): record.words[name] for name in _NUMBERS}
    contents_[8 * RECORD.index("mode")] = 0
    for name in ("nodes", "guards", "reads", "fills", "frame_fills", "results", "build"):
        contents_[8 * RECORD.index(name)] = _rows(record, name)
    for name, contents in _program(record).items():
        contents_[8 * RECORD.index(name)] = contents
    return contents_


def _rows(record: Record, name: str) -> Mapping[int, Any]:
    fields = TABLES[_TABLE.get(name, name)]
    contents: dict[int, Any] = {}
    for k, row in enumerate(record.rows.get(name, ())):
        at = {field: size(fields) * k + 8 * n for n, field in enumerate(fields)}
        values = dict(zip(fields, row, strict=True))
        contents |= {at[field]: int(values[field]) for field in _FIELDS[name]}
        if name == "nodes" and values["kind"] == Node.ARRAY:
            contents[at["c"]] = dict(_words(record.description.nodes[k].shape))
        elif name == "nodes" and values["kind"] == Node.NUMBER:
            contents[at["a"]] = int(values["a"])
        elif name == "results" and values["kind"] not in NUMBERS and record.instance is not None:
            contents[at["shape"]] = dict(_words(record.instance.results[k][0]))
        elif name == "build" and values["kind"] != Build.OBJECT:
            contents[at["a"]] = int(values["a"])
    return contents


def _words(values: Any) -> Any:
    return ((8 * k, int(x)) for k, x in enumerate(values))


def _program(record: Record) -> dict[str, Mapping[int, Any]]:
    """Return the steps, the offsets of their arguments, and those arguments that are sizes."""
    executable, instance = record.executable, record.instance
    assert executable is not None and instance is not None
    functions: dict[int, Any] = {}
    frame: dict[int, Any] = {}
    starts = instance.tables[1].tolist()
    for k, step in enumerate(executable.plan.steps):
        kernel = executable.kernels[step.params["kernel"]]
        functions[8 * k] = function_at(kernel.symbol)
        for n, slot in enumerate(kernel.slots):
            at = starts[k] + n
            if slot[0] == "size":
                frame[8 * at] = int(instance.block[at])
            elif slot[0] == "threads" and _calls_no_library(record):
                frame[8 * at] = Word("ptrtoint (ptr @threads to i64)")
    return {"functions": functions, "offsets": dict(_words(starts)), "frame": frame}


def _calls_no_library(record: Record) -> bool:
    """Return whether the program calls no library, which would need the real worker pool."""
    assert record.executable is not None
    slots = [slot for kernel in record.executable.kernels.values() for slot in kernel.slots]
    return not any(slot[0] in ("library", "gemm") for slot in slots)


def _is_supported(record: Record) -> bool:
    """Return whether the record needs only what such an entry supports."""
    if record.words["demand_count"] or record.words["put_count"]:
        return False
    supported = (("nodes", _NODES), ("results", _RESULTS), ("build", _BUILDS))
    return all(row[0] in kinds for name, kinds in supported for row in record.rows.get(name, ()))


def _is_small(record: Record) -> bool:
    """Return whether a record can be specialised."""
    if not _is_supported(record):
        return False
    executable, instance, words = record.executable, record.instance, record.words
    if executable is None or instance is None or executable.polls or instance.hosts or words["watch"] or words["finish"]:
        return False
    if words["arena_bytes"] or words["context"] or len(executable.plan.steps) > MOST_STEPS or words["registers"] > MOST_REGISTERS:
        return False
    if words["frame_bytes"] > MOST_FRAME or any(isinstance(step.op, Host) for step in executable.plan.steps):
        return False
    return _has_only_kernels(executable, instance) and all(kernel.text for kernel in executable.kernels.values())


def _has_only_kernels(executable: Executable, instance: Instance) -> bool:
    """Return whether each step is a kernel function with exactly that kernel's arguments, with nothing between or before them."""
    functions, starts = (table.tolist() for table in instance.tables[:2])
    kernels = [executable.kernels[step.params["kernel"]] for step in executable.plan.steps]
    ends = [*starts, len(instance.block)][1:]
    actual = [(function, end - start) for function, start, end in zip(functions, starts, ends, strict=True)]
    return actual == [(kernel.address, len(kernel.slots)) for kernel in kernels]


def prepare(record: Record) -> None:
    """Make a record of a small program count its calls, or specialise it immediately if the setting is "fused"."""
    wanted = abi.wanted()
    if wanted == "native" or not _is_small(record):
        return
    if wanted == "fused":
        _join(record, *_named(record))
        return
    record["warm"] = id(_warm)
    record["countdown"] = LOOK_AFTER


def _warm(record: Record) -> None:
    """Start specialising a record in a background thread; called after many calls."""
    if record["mode"]:
        record["countdown"] = LOOK_AFTER
    elif record["took"] <= MAX_NS:
        with work.underway():
            BackgroundTask(lambda _: _find(record), "")


def _find(record: Record) -> bytes:
    """Specialise a record if its code is cached, or if it was searched for before."""
    name, text = _named(record)
    if record.was_searched or default_engine().is_joined(name):
        _join(record, name, text)
    else:
        record.was_searched = True
        record["countdown"] = MAKE_AFTER
    return b""


def _named(record: Record) -> tuple[str, str]:
    """Return the cache key of a record's specialised entry, and its text."""
    assert record.executable is not None
    text = text_of(record)
    return default_engine().joined_key(text, [kernel.key for kernel in record.executable.kernels.values()]), text


def _join(record: Record, name: str, text: str) -> None:
    assert record.executable is not None
    parts = list(dict.fromkeys(kernel.text for kernel in record.executable.kernels.values()))
    with counters.own():
        code = default_engine().joined(name, text, parts, SYMBOL)
    record.keep(code)
    record["attempt"] = code.addresses[SYMBOL]
