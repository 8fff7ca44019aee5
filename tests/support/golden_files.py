"""Golden tests of passes: a file holds the passes, a module, and what the passes make of it; both are also executed.

# passes: simplify,dce          which passes, in order
# compare: close                unless the two must agree bit by bit
# sizes: k=2,m=3                sizes that no parameter's shape gives
pullback-ir 2
func ...
# =>
pullback-ir 2
func ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pullback.ir import ArrayType, Function, Module
from pullback.ir.core.structure import walk
from pullback.ir.interpret import interpret
from pullback.ir.passes.pipeline import PASSES, run
from pullback.ir.text import parse_module, print_module
from tests.support.op_cases import sample, specials

SEPARATOR = "# =>\n"
SIZES = (3, 4, 5, 2, 6)
Results = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Golden:
    path: Path
    passes: tuple[str, ...]
    bitwise: bool
    sizes: dict[str, int]
    given: str
    expected: str

    def found(self) -> Module:
        """What the passes make of the module."""
        steps = [PASSES[name] for name in self.passes]
        return Module(tuple(run(function, steps) for function in parse_module(self.given).functions))

    def bless(self) -> None:
        self.path.write_text(f"{self.given.rstrip()}\n{SEPARATOR}{print_module(self.found())}")


def read_golden(path: Path) -> Golden:
    """A golden file; the expected part may be missing before it is blessed."""
    arguments, _, expected = path.read_text().partition(SEPARATOR)
    header = dict(re.findall(r"^# (passes|compare|sizes): *(.*)$", arguments, re.MULTILINE))
    sizes = {k: int(v) for k, v in (pair.split("=") for pair in header.get("sizes", "").split(",") if pair)}
    return Golden(
        path=path,
        passes=tuple(header["passes"].split(",")),
        bitwise=header.get("compare") != "close",
        sizes=sizes,
        given=arguments,
        expected=expected,
    )


def run_targets(function: Function, arguments: Sequence[Any], sizes: Mapping[str, int] | None = None) -> dict[str, Results]:
    """The results of a func on every target there is, by the target's name; "interpret" is the oracle."""
    return {"interpret": interpret(function, *arguments, sizes=sizes)}


def bind_sizes(function: Function, values: Sequence[int] = SIZES) -> dict[str, int]:
    """A number for each named extent of the parameters."""
    names = dict.fromkeys(e for v in function.parameters for e in v.type.shape if isinstance(e, str))
    return {name: values[k % len(values)] for k, name in enumerate(names)}


def concrete_type(t: Any, sizes: Mapping[str, int]) -> ArrayType:
    """A type with its named extents replaced by numbers."""
    return ArrayType(t.dtype, tuple(sizes[e] if isinstance(e, str) else e for e in t.shape))


INDEXED = {"gather", "scatter_add", "scatter_set", "scatter_add_part", "scatter_set_part"}
"""The ops with indices, which must be in range."""


def argument_sets(function: Function, seed: int = 0) -> list[list[Any]]:
    """Arguments worth trying: random ones, special values, and every named size 0, where the function's ops allow it."""
    rng = np.random.default_rng(seed)
    names = {instruction.op.name for instruction in walk(function.body)}
    indexed = bool(names & INDEXED)
    sizes = bind_sizes(function)
    types = [concrete_type(v.type, sizes) for v in function.parameters]
    sets = [[_index(rng, t) if indexed and t.dtype.name == "i64" else sample(rng, t) for t in types] for _ in range(3)]
    if not indexed:
        wide = [concrete_type(v.type, bind_sizes(function, (24, 25, 26))) for v in function.parameters]
        sets.extend([_special(rng, t) for t in wide] for _ in range(6))
    if sizes and not names & {"argmax", "argmin", *INDEXED}:
        empty = bind_sizes(function, (0,))
        sets.append([sample(rng, concrete_type(v.type, empty)) for v in function.parameters])
    return sets


def _special(rng: np.random.Generator, t: ArrayType) -> Any:
    """Special values in a random order, each of them if there is room."""
    return rng.permutation(np.resize(specials(t.dtype), int(np.prod(t.shape)))).reshape(t.shape)


def _index(rng: np.random.Generator, t: ArrayType) -> Any:
    return rng.integers(-2, 2, t.shape)


def assert_same(result: Sequence[Any], expected: Sequence[Any], bitwise: bool = True, rtol: float = 1e-12) -> None:
    """Results agree in dtype, shape and value: bit by bit but for the bits of a NaN, or closely."""
    assert len(result) == len(expected)
    for a, b in zip(map(np.asarray, result), map(np.asarray, expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if bitwise:
            np.testing.assert_array_equal(a, b)
            if a.dtype.kind in "fc":
                parts = [(a, b)] if a.dtype.kind == "f" else [(a.real, b.real), (a.imag, b.imag)]
                for p, q in parts:
                    np.testing.assert_array_equal(np.signbit(p) | np.isnan(p), np.signbit(q) | np.isnan(q))
        else:
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-300)
