"""One export: a function at many sizes, traced to one program with what a caller without Python knows of it."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pullback.codegen.export.entry import public_symbols
from pullback.codegen.export.interface import Data, Fill, Interface, Leaf, Place, c_names
from pullback.compiled.reports import Inspected
from pullback.exporting import argument_specs as specs
from pullback.exporting.file_format import FORMAT
from pullback.exporting.shape_sampling import Differs, Sampled, sampled
from pullback.exporting.tree_data import NotData, tree_data
from pullback.ir.core.structure import Module
from pullback.ir.core.types import ArrayType, DType, dtype_of
from pullback.ir.shapes.formulas import Formula, Scaled
from pullback.ir.shapes.formulas import as_data as formula_data
from pullback.programs.pipeline import layouts_of, lowered, scheduled
from pullback.runtime.compile.machine import Host
from pullback.runtime.program.export import HostStepMet, Source, described, features_of
from pullback.tracer import Argument, Captured, Trace
from pullback.tracer.arrays.frame import Constant
from pullback.tracer.arrays.python_ints import any_length
from pullback.tracer.arrays.tree import paths
from pullback.transforms import api
from pullback.transforms.callback import ShapeDtypeStruct
from pullback.version import __version__

_SPEC = re.compile(r"\s*(?:np\.|numpy\.)?(\w+)\s*\[([^\[\]]*)\]\s*")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class ExportError(Exception):
    """A function that cannot be exported as asked; the message says what to write instead."""


@dataclass(frozen=True, kw_only=True)
class _Array:
    """An argument by its type; extents are numbers or names."""

    dtype: DType
    shape: tuple[int | str, ...]

    def elements(self, point: Mapping[str, int]) -> int:
        return prod(point[e] if isinstance(e, str) else e for e in self.shape)

    def example(self, point: Mapping[str, int]) -> Any:
        made = np.zeros([point[e] if isinstance(e, str) else e for e in self.shape], self.dtype.numpy)
        return made if self.shape else made[()]


def _typed(value: Any) -> Any:
    """An argument with types in place of its arrays. Raises ValueError for a text that is no type."""
    match value:
        case str() if (found := _SPEC.fullmatch(value)) is not None:
            if found[1] not in specs.NAMES:
                raise ValueError(f"{value!r}: there is no dtype {found[1]}")
            extents = [word.strip() for word in found[2].split(",")] if found[2].strip() else []
            if extents and not extents[-1]:
                extents.pop()
            bad = [word for word in extents if not word.isdecimal() and not _NAME.fullmatch(word)]
            if bad:
                raise ValueError(f"{value!r}: an extent is a number or a name, {bad[0]!r} is none")
            return _Array(dtype=specs.NAMES[found[1]], shape=tuple(int(w) if w.isdecimal() else w for w in extents))
        case ShapeDtypeStruct():
            return _Array(dtype=dtype_of(value.dtype), shape=value.shape)
        case np.ndarray() if value.dtype.isnative and value.dtype.names is None and value.dtype.kind in "biufcV":
            try:
                return _Array(dtype=dtype_of(value.dtype), shape=value.shape)
            except TypeError:
                return value
    return _mapped(_typed, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """A container with its parts changed; anything else as it is."""
    if isinstance(value, dict):
        made = copy.copy(value)
        made.update((k, change(v)) for k, v in value.items())
        return made
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    if isinstance(value, tuple | list):
        return type(value)(map(change, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, _Array):
        changed = {f.name: change(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changed)
    return value


def _arrays(value: Any) -> Iterator[_Array]:
    found: list[_Array] = []

    def look(part: Any) -> Any:
        if isinstance(part, _Array):
            found.append(part)
            return part
        return _mapped(look, part)

    look(value)
    yield from found


class Export:
    """One export, from a function and types to the interface and the texts of its kernels."""

    def __init__(
        self, function: Callable[..., Any], given: Sequence[Any], kwargs: Mapping[str, Any], name: str, host: Host
    ) -> None:
        self.function: Any = function if isinstance(function, Inspected) else api.jit(function)
        self.args = [_typed(v) for v in given]
        self.kwargs = {k: _typed(v) for k, v in kwargs.items()}
        self.arrays = list(_arrays((self.args, self.kwargs)))
        self.name = name
        self.host = host
        self.title = ""

    def run(self) -> tuple[Interface, list[str], dict[str, str]]:
        extents = list(dict.fromkeys(e for array in self.arrays for e in array.shape if isinstance(e, str)))
        try:
            found = sampled(extents, self.trace_at, self.elements)
        except Differs as differs:
            raise ExportError(self.dependent(differs)) from differs.__cause__
        trace = found.base.trace
        self.refuse(trace)
        parameters, arguments, data, fills = self.parameters(found)
        numbers = self.numbers(found, parameters, data)
        results = self.results(found)
        wanted = [*(b.name for b in found.bounds), *(place for _, place in arguments), *(place for place, _, _ in results)]
        names = c_names(wanted, public_symbols(self.name))
        if names[: len(found.bounds)] != wanted[: len(found.bounds)]:
            raise ValueError(f"C cannot take {', '.join(extents)} as names of extents beside {self.name}")
        rest = iter(names[len(found.bounds) :])
        leaves = found.base.leaves
        interface = Interface(
            name=self.name,
            extents=found.bounds,
            arguments=tuple(
                Leaf(name=next(rest), place=place, dtype=trace.function.parameters[k].type.dtype, shape=found.arguments[k])
                for k, place in arguments
            ),
            results=tuple(Leaf(name=next(rest), place=place, dtype=dtype, shape=shape) for place, dtype, shape in results),
            sizes=found.sizes, data=tuple(data), numbers=tuple(numbers), fills=tuple(fills), steps=(), temporaries=(), copies=(),
            needs=(), failures=(), features=features_of(self.host), is_x86=self.host.triple.startswith("x86_64"),
        )  # fmt: skip
        assert len(leaves) == len(found.arguments)
        interface, texts = self.program(found, parameters, interface)
        doc = inspect.getdoc(getattr(self.function, "__wrapped__", self.function)) or ""
        about = {"title": self.title, "doc": doc}
        manifest = self.manifest(found, interface, about, [k for k, _ in arguments])
        made_of = [repr(dataclasses.replace(interface, manifest="")), *texts, json.dumps(manifest)]
        manifest["id"] = hashlib.sha256("\0".join(made_of).encode()).hexdigest()
        return dataclasses.replace(interface, manifest=json.dumps(manifest)), texts, about

    # traces

    def trace_at(self, point: Mapping[str, int]) -> tuple[Trace, list[Any]]:
        def example(value: Any) -> Any:
            return value.example(point) if isinstance(value, _Array) else _mapped(example, value)

        call = self.function.examine([example(v) for v in self.args], {k: example(v) for k, v in self.kwargs.items()})
        self.title = call.title
        self.call = call
        with any_length():
            return call.trace, call.leaves

    def elements(self, point: Mapping[str, int]) -> int:
        return max((array.elements(point) for array in self.arrays), default=0)

    def dependent(self, differs: Differs) -> str:
        shown = ", ".join(f"{name}={n}" for name, n in differs.point.items())
        return (
            f"{self.title} is not one program for all sizes: {differs.reason} at {shown}. Python code that asks for a size "
            "(a loop over it, a branch, a size that it picks) does something else there: write it with array functions or "
            "pb.scan, give extents that must be equal one name, or write numbers in place of the names"
        )

    def refuse(self, trace: Trace) -> None:
        """Raises ExportError for what an object without Python cannot do."""
        if trace.writes_count:
            names = [trace.labels[k] for k in trace.writes] + [given.describe for given in trace.outside_writes]
            raise ExportError(f"{self.title} writes into {', '.join(names)}: return what it writes instead")
        if trace.branches:
            raise ExportError(
                f"{self.title} follows branches on values (guards=True): an exported function has one program; use np.where, "
                "pb.cond or pb.while_loop"
            )

    # what the program is given

    def parameters(self, found: Sampled) -> tuple[list[Place], list[tuple[int, str]], list[Data], list[Fill]]:
        """The place of each parameter of the trace, the leaves that C passes with how Python writes them, arrays in the object,
        and those that a call makes."""
        trace, leaves = found.base.trace, found.base.leaves
        pinned = {p.index for p in trace.pinned}
        places: list[Place] = []
        arguments: list[tuple[int, str]] = []
        data: list[Data] = []
        fills: list[Fill] = []
        outside = 0
        for k, (value, given) in enumerate(zip(trace.function.parameters, trace.inputs, strict=True)):
            outside += not isinstance(given, Argument)
            if not isinstance(given, Argument) and outside - 1 in found.fills:
                kind, start, step = found.fills[outside - 1]
                t = found.base.found.function.parameters[k].type
                places.append(("fill", len(fills)))
                fills.append(Fill(kind=kind, dtype=t.dtype, start=start, step=step, shape=t.shape, place=("fill", len(fills))))
                continue
            match given:
                case Argument(index=k) if k not in pinned:
                    places.append(("argument", len(arguments)))
                    arguments.append((k, trace.labels[k]))
                    continue
                case Argument(index=k):
                    held, what = leaves[k], trace.labels[k]
                case Captured():
                    held, what = given.read(), given.describe
                case Constant():
                    held, what = given.array, "an array made in the function"
                case _:
                    raise ExportError(self.needs_python("a function"))
            places.append(("data", len(data)))
            array = np.ascontiguousarray(held, value.type.dtype.numpy)
            data.append(Data(payload=array.tobytes(), describe=f"{what}: {ArrayType(value.type.dtype, np.shape(held))}"))
        return places, arguments, data, fills

    def numbers(self, found: Sampled, parameters: list[Place], data: list[Data]) -> list[tuple[DType, Any]]:
        """The constants of the template, whose places are added."""
        made: list[tuple[DType, Any]] = []
        count = len(found.constants)
        values = found.base.found.function.parameters[len(found.base.found.function.parameters) - count :]
        for parameter, number in zip(values, found.constants, strict=True):
            dtype = parameter.type.dtype
            if isinstance(number, Formula | Scaled) or not dtype.is_complex:
                parameters.append(("number", len(made)))
                made.append((dtype, number))
            else:
                parameters.append(("data", len(data)))
                data.append(Data(payload=dtype.numpy.type(number).tobytes(), describe=f"a constant: {number}"))
        return made

    def results(self, found: Sampled) -> list[tuple[str, DType, tuple[Formula, ...]]]:
        trace = found.base.trace
        prefixes = self.result_names(trace)
        return [(p, v.type.dtype, s) for p, v, s in zip(prefixes, trace.function.results, found.results, strict=True)]

    def result_names(self, trace: Trace) -> list[str]:
        """How Python would write each result."""
        tree = trace.out_tree
        transform = getattr(getattr(self.function, "_transform", None), "name", "")
        if transform == "grad":
            return paths(tree, "gradient")
        if transform == "value_and_grad" and tree.kind == "tuple" and len(tree.children) == 2:
            return [p for child, prefix in zip(tree.children, ("value", "gradient"), strict=True) for p in paths(child, prefix)]
        return paths(tree, "result")

    # the program

    def program(self, found: Sampled, parameters: list[Place], interface: Interface) -> tuple[Interface, list[str]]:
        base = found.base
        sources = []
        for outcome in base.outcomes:
            if outcome.source in ("result", "repeat"):
                sources.append(Source(index=outcome.index))
                continue
            value = base.found.function.parameters[outcome.index]
            size = (*value.type.shape, value.type.dtype.bytes)
            sources.append(Source(place=parameters[outcome.index], bytes=size))
        layouts = ("c",) * len(layouts_of(base.trace, base.leaves, len(found.constants)))
        module = scheduled(lowered(base.found, layouts, "cpu", lambda *seen: None), "cpu", self.host.target, alone=True)
        try:
            return described(Module(module.functions), self.host, parameters, sources, interface)
        except HostStepMet as met:
            place = f"{met.loc.file}:{met.loc.line}: " if met.loc and met.loc.file else ""
            raise ExportError(place + self.needs_python(f"a step in Python ({met.name})")) from None
        except NotImplementedError as error:
            raise ExportError(f"{self.title} cannot be exported: {error}") from None

    def needs_python(self, what: str) -> str:
        return (
            f"{self.title} runs {what}, which an object without Python cannot: leave out pb.print and callbacks, and pass what "
            "they would compute as an argument"
        )

    def manifest(self, found: Sampled, interface: Interface, about: Mapping[str, str], arguments: list[int]) -> dict[str, Any]:
        """What ``pb.load`` knows."""
        trace = found.base.trace
        positional, keyed = self.call.signature.tree.children
        trees: Any
        try:
            trees = [
                [[self.call.parameters.name(k), tree_data(c)] for k, c in enumerate(positional.children)],
                [[name, tree_data(c)] for name, c in zip(keyed.data[0], keyed.children, strict=True)],
                tree_data(trace.out_tree),
            ]
        except NotData as error:
            trees = str(error)
        kinds = [_kind(leaf) for leaf in found.base.leaves]
        pinned = {p.index: np.asarray(p.value).item() for p in trace.pinned}
        leaves = [
            {"pinned": pinned[k], "kind": kinds[k]} if k in pinned
            else {"dtype": trace.function.parameters[k].type.dtype.name, "kind": kinds[k],
                  "shape": list(map(formula_data, found.arguments[k]))}
            for k in range(len(kinds))
        ]  # fmt: skip
        return {
            "format": FORMAT,
            "pullback": __version__,
            "name": interface.name,
            **about,
            "target": [self.host.triple, self.host.cpu, list(interface.features)],
            "extents": [[b.name, b.low, b.high] for b in interface.extents],
            "trees": trees,
            "leaves": leaves,
            "passed": arguments,
            "results": [[leaf.place, leaf.dtype.name, list(map(formula_data, leaf.shape))] for leaf in interface.results],
            "needs": [list(need.slots[0]) for need in interface.needs],
            "failures": [None if f is None else list(f) for f in interface.failures],
        }


def _kind(leaf: Any) -> str:
    return "array" if isinstance(leaf, np.ndarray) and leaf.ndim else "scalar" if isinstance(leaf, np.generic | np.ndarray) else (
        type(leaf).__name__
    )
