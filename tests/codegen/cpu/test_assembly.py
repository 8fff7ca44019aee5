"""The loops that layer norm and Black-Scholes spend their time in: vectors of the full width, no calls, spills counted."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pullback.runtime.compile.machine import find_host
from tests.support.assembly_listing import Loop, loops
from tests.support.paths import ROOT

ROWS, ELEMENTS = "benchmarks/cases/rows.py", "benchmarks/cases/elementwise.py"
LAYER_NORM = ("f64[64,100]", "f64[100]", "f64[100]", "f64[64,100]")
FIVE = ("f64[1000]",) * 5
DUMPS = {
    "layer_norm": (f"{ROWS}:layer_norm", *LAYER_NORM),
    "layer_norm gradient": (f"{ROWS}:layer_norm_loss", *LAYER_NORM, "--grad", "--argnums", "0,1,2"),
    "black_scholes": (f"{ELEMENTS}:black_scholes", *FIVE),
    "black_scholes gradient": (f"{ELEMENTS}:black_scholes", *FIVE, "--grad", "--argnums", "0,1,2,3,4"),
}
WIDE = pytest.mark.skipif("+avx512f" not in find_host().features, reason="needs AVX-512")
ARITHMETIC = ("vadd", "vsub", "vmul", "vdiv", "vfmadd", "vfnmadd", "vfmsub", "vsqrt")


def hot_loops(name: str) -> list[Loop]:
    """Return the innermost loops that compute, but for those that combine the results of chunks, which are on the stack and
    mostly one."""
    environment = {**os.environ, "PULLBACK_CPU": "avx512", "PULLBACK_CACHE_DIR": "off"}
    command = [sys.executable, "-m", "pullback", "dump", *DUMPS[name], "--stage", "asm"]
    text = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    computing = [loop for loop in loops(text) if any(line.lstrip().startswith(ARITHMETIC) for line in loop.lines)]
    return [loop for loop in computing if {*re.findall(r"\((%\w+)", "".join(loop.lines))} != {"%rsp"}]


@WIDE
@pytest.mark.parametrize("name", ["layer_norm", "layer_norm gradient"])
def test_loops_of_layer_norm_are_of_full_vectors_without_calls_or_spills(name: str) -> None:
    result = hot_loops(name)
    assert len(result) >= 5
    for loop in result:
        assert (loop.calls, loop.spills, loop.vectors("y")) == (0, 0, 0), loop
        assert loop.vectors("z") > 1, loop


@WIDE
@pytest.mark.parametrize("name", ["black_scholes", "black_scholes gradient"])
def test_loops_of_black_scholes_are_of_full_vectors_without_calls(name: str) -> None:
    """They run in phases, which leave what later ones read in strips on the stack."""
    result = hot_loops(name)
    assert len(result) >= 5
    for loop in result:
        assert (loop.calls, loop.vectors("y")) == (0, 0), loop
        assert loop.vectors("z") > 0.5 * len(loop.lines) or len(loop.lines) < 10, loop


def test_loops_are_found_with_their_calls_and_spills() -> None:
    text = "outer:\n\tnop\n.L1:\n\tvmovups\t%zmm0, 64(%rsp)\n\tcallq\t*(%rdi)\n\tjne\t.L1\n\tjmp\touter\n"
    (loop,) = loops(text)
    assert (loop.label, loop.calls, loop.spills, loop.vectors("z"), len(loop.lines)) == (".L1", 1, 1, 1, 3)
