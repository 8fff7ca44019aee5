"""Export one function: trace it at many sizes, check that one program serves them, and describe it for callers without Python."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from pullback.codegen.export.entry import public_symbols
from pullback.codegen.export.interface import Data, Fill, Interface, Leaf, Location, c_names
from pullback.compiled.reports import Inspected
from pullback.exporting import argument_specs
from pullback.exporting.file_format import FORMAT
from pullback.exporting.shape_sampling import Differs, Sampled, sampled
from pullback.exporting.tree_data import NotData, tree_data
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import Module
from pullback.ir.core.types import ArrayType, DType, dtype_of
from pullback.ir.shapes.formulas import Formula, Scaled
from pullback.ir.shapes.formulas import as_data as formula_data
from pullback.programs.pipeline import layouts_of, lowered, scheduled
from pullback.runtime.compile.machine import Host
from pullback.runtime.program.export import HostStepMet, Source, described, features_of
from pullback.tracer import Argument, Captured, Trace
from pullback.tracer.arrays.frame import Constant
from pullback.tracer.arrays.python_ints import allow_long_arguments
from pullback.tracer.arrays.tree import NAMESPACES, paths
from pullback.transforms import api
from pullback.transforms.callback import ShapeDtypeStruct
from pullback.version import __version__

_SPEC = re.compile(r"\s*(?:np\.|numpy\.)?(\w+)\s*\[([^\[\]]*)\]\s*")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class ExportError(Exception):
    """Report a function that cannot be exported as requested; the message names an alternative.

    See Also
    --------
    export : Raises it.

    Examples
    --------
    >>> def f(x):
    ...     pb.print(x)
    ...     return x + 1
    >>> try:
    ...     pb.export(f, "f64[3]", path="f")
    ... except pb.ExportError:
    ...     print("a print needs Python")
    a print needs Python
    """


@dataclass(frozen=True, kw_only=True)
class _Array:
    """The type of an argument array; extents are numbers or names."""

    dtype: DType
    shape: tuple[int | str, ...]

    def elements(self, point: Mapping[str, int]) -> int:
        return prod(point[e] if isinstance(e, str) else e for e in self.shape)

    def example(self, point: Mapping[str, int]) -> Any:
        array = np.zeros([point[e] if isinstance(e, str) else e for e in self.shape], self.dtype.numpy)
        return array if self.shape else array[()]


def _typed(value: Any) -> Any:
    """Replace the arrays in an argument by their types. Raises ValueError for a text that is not a type."""
    match value:
        case str() if (parsed_spec := _SPEC.fullmatch(value)) is not None:
            if parsed_spec[1] not in argument_specs.NAMES:
                raise ValueError(f"{value!r}: there is no dtype {parsed_spec[1]}")
            extents = [word.strip() for word in parsed_spec[2].split(",")] if parsed_spec[2].strip() else []
            if extents and not extents[-1]:
                extents.pop()
            bad = [word for word in extents if not word.isdecimal() and not _NAME.fullmatch(word)]
            if bad:
                raise ValueError(f"{value!r}: an extent is a number or a name, {bad[0]!r} is none")
            return _Array(
                dtype=argument_specs.NAMES[parsed_spec[1]], shape=tuple(int(w) if w.isdecimal() else w for w in extents)
            )
        case ShapeDtypeStruct():
            return _Array(dtype=dtype_of(value.dtype), shape=value.shape)
        case np.ndarray() if value.dtype.isnative and value.dtype.names is None and value.dtype.kind in "biufcV":
            try:
                return _Array(dtype=dtype_of(value.dtype), shape=value.shape)
            except TypeError:
                return value
    return _mapped(_typed, value)


def _mapped(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the parts of a container; anything else is returned unchanged."""
    if isinstance(value, dict):
        copied = copy.copy(value)
        copied.update((k, change(v)) for k, v in value.items())
        return copied
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change, value))
    if isinstance(value, tuple | list):
        return type(value)(map(change, value))
    if type(value) in NAMESPACES:
        return type(value)(**{k: change(v) for k, v in vars(value).items()})
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and not isinstance(value, _Array):
        changed = {f.name: change(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changed)
    return value


def _arrays(value: Any) -> Iterator[_Array]:
    arrays: list[_Array] = []

    def visit(part: Any) -> Any:
        if isinstance(part, _Array):
            arrays.append(part)
            return part
        return _mapped(visit, part)

    visit(value)
    yield from arrays


class Export:
    """One export, from a function and argument types to the interface and the texts of its kernels."""

    def __init__(
        self, function: Callable[..., Any], types: Sequence[Any], kwargs: Mapping[str, Any], name: str, host: Host
    ) -> None:
        self.function: Any = function if isinstance(function, Inspected) else api.jit(function)
        self.args = [_typed(v) for v in types]
        self.kwargs = {k: _typed(v) for k, v in kwargs.items()}
        self.arrays = list(_arrays((self.args, self.kwargs)))
        self.name = name
        self.host = host
        self.title = ""

    def run(self) -> tuple[Interface, list[str], dict[str, str]]:
        extents = list(dict.fromkeys(e for array in self.arrays for e in array.shape if isinstance(e, str)))
        try:
            sizes = sampled(extents, self.trace_at, self.elements)
        except Differs as differs:
            raise ExportError(self.dependent(differs)) from differs.__cause__
        trace = sizes.base.trace
        self.refuse(trace)
        parameters, arguments, data, fills = self.parameters(sizes)
        numbers = self.numbers(sizes, parameters, data)
        results = self.results(sizes)
        wanted = [*(b.name for b in sizes.bounds), *(path for _, path in arguments), *(path for path, _, _ in results)]
        names = c_names(wanted, public_symbols(self.name))
        if names[: len(sizes.bounds)] != wanted[: len(sizes.bounds)]:
            raise ValueError(f"C cannot take {', '.join(extents)} as names of extents beside {self.name}")
        remaining = iter(names[len(sizes.bounds) :])
        leaves = sizes.base.leaves
        interface = Interface(
            name=self.name,
            extents=sizes.bounds,
            arguments=tuple(
                Leaf(name=next(remaining), path=path, dtype=trace.function.parameters[k].type.dtype, shape=sizes.arguments[k])
                for k, path in arguments
            ),
            results=tuple(Leaf(name=next(remaining), path=path, dtype=dtype, shape=shape) for path, dtype, shape in results),
            sizes=sizes.sizes, data=tuple(data), numbers=tuple(numbers), fills=tuple(fills), steps=(), temporaries=(), copies=(),
            needs=(), failures=(), features=features_of(self.host), is_x86=self.host.triple.startswith("x86_64"),
        )  # fmt: skip
        assert len(leaves) == len(sizes.arguments)
        interface, texts = self.program(sizes, parameters, interface)
        doc = inspect.getdoc(getattr(self.function, "__wrapped__", self.function)) or ""
        description = {"title": self.title, "doc": doc}
        manifest = self.manifest(sizes, interface, description, [k for k, _ in arguments])
        hashed = [repr(dataclasses.replace(interface, manifest="")), *texts, json.dumps(manifest)]
        manifest["id"] = hashlib.sha256("\0".join(hashed).encode()).hexdigest()
        return dataclasses.replace(interface, manifest=json.dumps(manifest)), texts, description

    # traces

    def trace_at(self, point: Mapping[str, int]) -> tuple[Trace, list[Any]]:
        def example(value: Any) -> Any:
            return value.example(point) if isinstance(value, _Array) else _mapped(example, value)

        call = self.function.examine([example(v) for v in self.args], {k: example(v) for k, v in self.kwargs.items()})
        self.title = call.title
        self.call = call
        with allow_long_arguments():
            return call.trace, call.leaves

    def elements(self, point: Mapping[str, int]) -> int:
        return max((array.elements(point) for array in self.arrays), default=0)

    def dependent(self, differs: Differs) -> str:
        """Return the error text for a function whose program depends on an extent."""
        shown = ", ".join(f"{name}={n}" for name, n in differs.point.items())
        return (
            f"{self.title} is not one program for all sizes: {differs.reason} at {shown}. Python code that asks for a size "
            "(a loop over it, a branch, a size that it picks) does something else there: write it with array functions or "
            "pb.scan, give extents that must be equal one name, or write numbers in place of the names"
        )

    def refuse(self, trace: Trace) -> None:
        """Raise ExportError for a function that needs Python at run time: writes into arguments, or branches on values."""
        if trace.stores is not None:
            what = f"changes {', '.join(trace.changes)}" if trace.changes else "returns a list or dict among its arguments"
            raise ExportError(f"{self.title} {what}: return new ones instead")
        if trace.writes_count:
            names = [trace.labels[k] for k in trace.writes] + [write.describe for write in trace.outside_writes]
            raise ExportError(f"{self.title} writes into {', '.join(names)}: return what it writes instead")
        if trace.branches:
            reason = trace.followed or "guards=True"
            raise ExportError(
                f"{self.title} follows branches on values ({reason}): an exported function has one program; use np.where, "
                "pb.cond or pb.while_loop"
            )

    # inputs of the program

    def parameters(self, sampling: Sampled) -> tuple[list[Location], list[tuple[int, str]], list[Data], list[Fill]]:
        """Return the slot of each parameter of the trace, the leaves that C passes with their Python paths, the arrays stored
        in the object, and those that a call fills."""
        trace, leaves = sampling.base.trace, sampling.base.leaves
        pinned = {p.index for p in trace.pinned}
        slots: list[Location] = []
        arguments: list[tuple[int, str]] = []
        data: list[Data] = []
        fills: list[Fill] = []
        outside = 0
        for k, (value, source) in enumerate(zip(trace.function.parameters, trace.inputs, strict=True)):
            outside += not isinstance(source, Argument)
            if not isinstance(source, Argument) and outside - 1 in sampling.fills:
                kind, start, step = sampling.fills[outside - 1]
                t = sampling.base.abstract.function.parameters[k].type
                slots.append(("fill", len(fills)))
                fills.append(Fill(kind=kind, dtype=t.dtype, start=start, step=step, shape=t.shape, location=("fill", len(fills))))
                continue
            match source:
                case Argument(index=k) if k not in pinned:
                    slots.append(("argument", len(arguments)))
                    arguments.append((k, trace.labels[k]))
                    continue
                case Argument(index=k):
                    contents, label = leaves[k], trace.labels[k]
                case Captured():
                    contents, label = source.read(), source.describe
                case Constant():
                    contents, label = source.array, "an array made in the function"
                case _:
                    raise ExportError(self.needs_python("a function"))
            slots.append(("data", len(data)))
            array = np.ascontiguousarray(contents, value.type.dtype.numpy)
            data.append(Data(payload=array.tobytes(), describe=f"{label}: {ArrayType(value.type.dtype, np.shape(contents))}"))
        return slots, arguments, data, fills

    def numbers(self, sampling: Sampled, parameters: list[Location], data: list[Data]) -> list[tuple[DType, Any]]:
        """Return the constants of the template; their slots are appended to ``parameters``."""
        constants: list[tuple[DType, Any]] = []
        count = len(sampling.constants)
        values = sampling.base.abstract.function.parameters[len(sampling.base.abstract.function.parameters) - count :]
        for parameter, constant in zip(values, sampling.constants, strict=True):
            dtype = parameter.type.dtype
            if isinstance(constant, Formula | Scaled) or not dtype.is_complex:
                parameters.append(("number", len(constants)))
                constants.append((dtype, constant))
            else:
                parameters.append(("data", len(data)))
                data.append(Data(payload=dtype.numpy.type(constant).tobytes(), describe=f"a constant: {constant}"))
        return constants

    def results(self, sampling: Sampled) -> list[tuple[str, DType, tuple[Formula, ...]]]:
        trace = sampling.base.trace
        prefixes = self.result_names(trace)
        return [(p, v.type.dtype, s) for p, v, s in zip(prefixes, trace.function.results, sampling.results, strict=True)]

    def result_names(self, trace: Trace) -> list[str]:
        """Return the Python path of each result."""
        tree = trace.out_tree
        transform = getattr(getattr(self.function, "_transform", None), "name", "")
        if transform == "grad":
            return paths(tree, "gradient")
        if transform == "value_and_grad" and tree.kind == "tuple" and len(tree.children) == 2:
            return [p for child, prefix in zip(tree.children, ("value", "gradient"), strict=True) for p in paths(child, prefix)]
        return paths(tree, "result")

    # the program

    def program(self, sampling: Sampled, parameters: list[Location], interface: Interface) -> tuple[Interface, list[str]]:
        base = sampling.base
        sources = []
        for outcome in base.outcomes:
            if outcome.source in ("result", "repeat"):
                sources.append(Source(index=outcome.index))
                continue
            value = base.abstract.function.parameters[outcome.index]
            size = (*value.type.shape, value.type.dtype.bytes)
            sources.append(Source(location=parameters[outcome.index], bytes=size))
        layouts = ("c",) * len(layouts_of(base.trace, base.leaves, len(sampling.constants)))
        module = scheduled(lowered(base.abstract, layouts, "cpu", lambda *seen: None), "cpu", self.host.target, alone=True)
        try:
            return described(Module(module.functions), self.host, parameters, sources, interface)
        except HostStepMet as step:
            location = f"{step.loc.file}:{step.loc.line}: " if step.loc and step.loc.file else ""
            raise ExportError(location + self.needs_python(f"a step in Python ({step.name})")) from None
        except NotImplementedError as error:
            raise ExportError(f"{self.title} cannot be exported: {error}") from None

    def needs_python(self, step: str) -> str:
        """Return the error text for a function that needs Python at run time."""
        return (
            f"{self.title} runs {step}, which an object without Python cannot: leave out pb.print and callbacks, and pass what "
            "they would compute as an argument"
        )

    def manifest(self, sizes: Sampled, interface: Interface, about: Mapping[str, str], arguments: list[int]) -> dict[str, Any]:
        """Return the data about the function that ``pb.load`` reads."""
        trace = sizes.base.trace
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
        kinds = [_kind(leaf) for leaf in sizes.base.leaves]
        pinned = {p.index: np.asarray(p.value).item() for p in trace.pinned}
        leaves = [
            {"pinned": pinned[k], "kind": kinds[k]} if k in pinned
            else {"dtype": trace.function.parameters[k].type.dtype.name, "kind": kinds[k],
                  "shape": list(map(formula_data, sizes.arguments[k]))}
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
            "results": [[leaf.path, leaf.dtype.name, list(map(formula_data, leaf.shape))] for leaf in interface.results],
            "python_numbers": ["" if kind is None else kind.__name__ for kind in trace.numbers],
            "needs": [list(need.slots[0]) for need in interface.needs],
            "failures": [None if f is None else list(f) for f in interface.failures],
        }


def _kind(leaf: Any) -> str:
    return (
        "array"
        if isinstance(leaf, np.ndarray) and leaf.ndim
        else "scalar"
        if isinstance(leaf, np.generic | np.ndarray)
        else (type(leaf).__name__)
    )
