"""Programs of functions of a block: compiled once for all numbers of rows, and pickled as text.

A worker gets the text of a function, and finds its program as every other call does: in memory, in the kernel cache, or compiled.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from pullback.ir.core.structure import Function, Module
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.rows.rules import ROWS
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.extents import rename
from pullback.ir.text import parse_module, print_module
from pullback.programs.pipeline import template_of_key, typed_constants
from pullback.tracer.failures import ErrorTemplate, raise_failure

MOST_PROGRAMS = 256
"""Number of the most recently used programs that a process keeps for the tasks that follow."""


class BlockProgram:
    """The program of a function whose extent ``ROWS`` is the number of rows of a block. Called with that number and the
    arguments, it returns the results as arrays. ``text``: its IR, with locations; equal texts are one object in a process."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.text = print_module(Module((function,)), locations=True)
        self.errors: tuple[ErrorTemplate, ...] = ()
        self._lock = threading.Lock()
        self._by_rows: dict[int, _Sized] = {}

    @property
    def key(self) -> str:
        """The name of the program among all."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def __reduce__(self) -> Any:
        return loaded, (self.text,)

    def __call__(self, rows: int, arguments: Sequence[Any]) -> list[Any]:
        return self.prepare(rows)(arguments, self.errors)

    def prepare(self, rows: int) -> _Sized:
        """Return the program for a number of rows, compiled if it is not yet."""
        sized = self._by_rows.get(rows)
        if sized is None:
            with self._lock:
                sized = self._by_rows.get(rows)
                if sized is None:
                    while len(self._by_rows) >= MOST_PROGRAMS:
                        self._by_rows.pop(next(iter(self._by_rows)))
                    sized = self._by_rows[rows] = _Sized(rename(self.function, {ROWS: rows}))
        return sized


@functools.lru_cache(maxsize=MOST_PROGRAMS)
def loaded(text: str) -> BlockProgram:
    """Return the program of a text."""
    (function,) = parse_module(text).functions
    return BlockProgram(function)


class _Sized:
    """The program of a function of concrete shapes."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.types = [(p.type.dtype.numpy, p.type.shape) for p in function.parameters]
        computed = dict.fromkeys(v for v in function.results if v not in function.parameters)
        positions = {v: k for k, v in enumerate(computed)}
        parameters = {v: k for k, v in enumerate(function.parameters)}
        self.sources = [(v in computed, positions[v] if v in computed else parameters[v]) for v in function.results]
        body = function.body
        self.template: Any = None
        if computed or body.instructions:
            abstract = templated(Function(function.name, type(body)(body.parameters, body.instructions, tuple(computed))))
            layouts = ("c",) * len(abstract.function.parameters)
            self.template = template_of_key(abstract, layouts, "cpu", ())
            self.instance = self.template.executable.instance(abstract.sizes)
            self.constants = list(typed_constants(abstract))
            self.passed_through = self.template.passed_through

    def __call__(self, arguments: Sequence[Any], errors: Sequence[ErrorTemplate]) -> list[Any]:
        typed = [self._typed(a, *t) for a, t in zip(arguments, self.types, strict=True)]
        results: list[Any] = []
        if self.template is not None:
            try:
                results = self.template.executable.call(self.instance, [*typed, *self.constants])
            except CheckFailed as failed:
                raise_failure(self.function, failed, typed, errors)
            for k in self.passed_through:
                results[k] = np.array(results[k])
        return [np.asarray(results[k] if is_computed else typed[k]) for is_computed, k in self.sources]

    def _typed(self, argument: Any, dtype: np.dtype[Any], shape: tuple[Any, ...]) -> Any:
        """Return an argument as programs take it: a scalar, or a dense row-major array in native byte order."""
        if type(argument) is np.ndarray and shape and argument.shape == shape and argument.dtype == dtype:
            flags = argument.flags
            if flags.c_contiguous and flags.aligned:
                return argument
        if np.shape(argument) != shape:
            raise ValueError(f"{self.function.name} has arrays of shape {shape} in a block, and got {np.shape(argument)}")
        if not shape:
            return argument if type(argument) is dtype.type else dtype.type(argument)
        return np.require(argument, dtype, ("C", "A"))
