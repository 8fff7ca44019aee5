"""Forms of a kernel: what no sizes reach is written when a call needs it, what only drives others is compiled quickly."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.codegen.cpu.llvm.kernel import emit
from pullback.codegen.cpu.llvm.text import LazyText, is_tiered
from pullback.codegen.cpu.llvm.variants import own_vector_loops
from pullback.codegen.cpu.loops.reachability import is_reached
from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.targets import Target
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import Function, Instruction
from pullback.ir.core.types import F64, scalar
from pullback.ir.core.value import Value
from pullback.ir.text import parse_module
from pullback.runtime.program.executable import is_unwritten
from tests.codegen.cpu.test_reachability import FUNCTIONS, SHAPES, arguments, texts


def product(name: str, x: Any, w: Any, b: Any) -> Any:
    return (0.5 * x) @ w if name == "scaled" else FUNCTIONS[name](x, w, b)


def scheduled(name: str, width: int) -> Function:
    """The kernel of a batch of products."""
    module = parse_module(pb.jit(lambda x, w, b: product(name, x, w, b)).stages(*arguments((3, 40, 30, 50), "f8"))["lower"])
    (kernel,) = (f for f in module.functions if f.kind == "kernel")
    return schedule(kernel, "", Target(width, True))


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("name", ["biased", "squares"])
def test_forms_that_no_sizes_reach_are_not_written(name: str, width: int) -> None:
    """Variants that are emitted later have the same text as if they had been emitted at first."""
    kernel, target = scheduled(name, width), Target(width, True)
    result, waiting = [], []
    none, some = ({f"s{k}": extent for k in range(9)} for extent in (0, 30))
    for reached in (lambda steps: True, lambda steps: is_reached(steps, none), lambda steps: is_reached(steps, some)):
        emitted = emit(kernel, "", target, reached=reached)
        forms = [slot for slot in emitted.slots if slot[0] == "shared" and str(slot[1]).startswith("form")]
        waiting.append(sum(map(is_unwritten, forms)))
        result.append(texts(forms))
    assert waiting[0] == 0 < waiting[2] < waiting[1] == len(forms)
    assert result[0] == result[1] == result[2]


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("name", ["scaled", "squares"])
def test_long_forms_leave_their_own_work_to_modules(name: str, width: int) -> None:
    """These are compiled well, and the form, which moves and computes no numbers, quickly at first."""
    emitted = emit(scheduled(name, width), "", Target(width, True))
    texts = {str(slot[1]): str(slot[2]) for slot in emitted.slots if slot[0] == "shared"}
    driving = [form for form in texts if f"{form}_0" in texts]
    assert driving
    for form in driving:
        parts = [texts[part] for part in texts if part.startswith(f"{form}_")]
        assert is_tiered(texts[form]) and not any(map(is_tiered, parts))
        assert not re.search(r" (fmul|fadd) |load (double|<)", texts[form])
        assert any(re.search(r" fmul ", part) for part in parts)


def test_forms_that_compute_beside_their_loops_are_compiled_well() -> None:
    (body, *_) = [
        i.regions[0]
        for i in scheduled("squares", 64).instructions
        if i.params.get("map") == "core" and own_vector_loops(i.regions[0])
    ]
    x, y = Value(scalar("f64"), "x"), Value(scalar("f64"), "y")
    built = Instruction(OPS["const"], (), (x,), {"value": 2.0, "dtype": F64}), Instruction(OPS["sqrt"], (x,), (y,))
    assert not own_vector_loops(replace(body, instructions=(*body.instructions, *built)))
    assert not own_vector_loops(replace(body, instructions=tuple(i for i in body.instructions if not i.regions)))


def test_threads_that_ask_at_once_have_a_text_written_once() -> None:
    built = []

    def write() -> str:
        built.append(len(built))
        time.sleep(0.02)
        return f"text {len(built)}"

    text = LazyText(write)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(str, [text] * 8)) == {"text 1"}


def test_threads_reach_forms_at_once() -> None:
    """Concurrent calls of other sizes need functions of one kernel that no earlier call has compiled."""
    function = pb.jit(lambda x, w, b: np.sum(np.square(np.abs(x @ w) - b), axis=-1) - b[0])  # no other test has this kernel
    function(*arguments(SHAPES[0], "f8"))
    inputs = [arguments((z + k, m, n, c), "f8") for z, m, n, c in SHAPES[1:4] for k in range(3)]
    with ThreadPoolExecutor(len(inputs)) as pool:
        actual = list(pool.map(lambda each: function(*each), inputs))
    for (x, w, b), result in zip(inputs, actual, strict=True):
        np.testing.assert_allclose(result, np.sum(np.square(np.abs(x @ w) - b), axis=-1) - b[0], rtol=1e-12)
