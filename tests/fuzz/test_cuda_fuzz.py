"""Random programs on a device, by the runtime that users have: values, gradients, control flow, writes, calls in every layout.

Each program meets an order of threads, blocks and streams of its own. The fuzzers are those of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.ir import Function
from pullback.ir.interpret import interpret
from pullback.ir.passes.transforms.expand import grad
from tests.fuzz import test_fuzz, test_fuzz_calls, test_fuzz_control, test_fuzz_gradients, test_fuzz_source
from tests.support.cuda.places import calls_of, compiled_there, laid_out, on_each_place, opened
from tests.tables.inplace import Program
from tests.tracer.functions import test_inplace

pytestmark = pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
MOST, AT_ONCE = 4, 50
CANCELLING = {187}
"""Seeds of gradients that are differences of numbers 1e17 times as large: their last digits are anyone's."""
SHARE = 16
"""One program in this many of a table is run by default."""


def seeds(count: int) -> Any:
    """Parametrise a test over the first MOST seeds and, with ``-m long``, over ``count`` seeds in lots of AT_ONCE."""
    lots = [pytest.param(range(k, k + AT_ONCE), marks=pytest.mark.long, id=f"from{k}") for k in range(MOST, count, AT_ONCE)]
    return pytest.mark.parametrize("seeds", [*(pytest.param([k], id=f"seed{k}") for k in range(MOST)), *lots])


def each(seeds: Sequence[int], check: Callable[[int], None]) -> None:
    """Check every seed; raise one error with the messages of all that failed."""
    failed = []
    for seed in seeds:
        try:
            check(seed)
        except (Exception, pytest.fail.Exception) as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}\n" + "\n".join(getattr(error, "__notes__", ())))
    assert not failed, "\n\n".join(failed)


def some(table: Sequence[Any]) -> list[Any]:
    """Parameters of which most are long."""
    return [p if k % SHARE == 0 else pytest.param(*p.values, id=p.id, marks=pytest.mark.long) for k, p in enumerate(table)]


@on_each_place
@seeds(400)
@pytest.mark.parametrize("check", [test_fuzz.check_program, test_fuzz.check_gradient])
def test_programs_of_the_ir(runs_on: str, seeds: Sequence[int], check: Callable[..., None]) -> None:
    """Called with arrays of the host, then of the device in layouts of chance, until calls are launches of graphs."""

    def run_one(seed: int) -> None:
        def run(function: Function, arguments: Sequence[Any]) -> dict[str, Any]:
            with np.errstate(all="ignore"):
                wanted = tuple(np.asarray(r) for r in interpret(grad(function), *arguments))
            result = calls_of(function, arguments, np.random.default_rng(seed))
            return {"interpreter": wanted, **{f"call {k}": results for k, results in enumerate(result)}}

        with opened(runs_on, seed):
            check(test_fuzz.picker(seed, 7), run)

    each([s for s in seeds if check is test_fuzz.check_program or s not in CANCELLING], run_one)


def on_the_device(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    return pb.jit(function, device="cuda")(*arguments)


@on_each_place
@seeds(1000)
def test_calls(runs_on: str, seeds: Sequence[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments are NumPy's arrays, in any layout, or for every third program the device's."""

    def run_one(seed: int) -> None:
        def laid(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
            rng = np.random.default_rng(seed)
            try:
                return on_the_device(function, [laid_out(a, rng) if isinstance(a, np.ndarray) else a for a in arguments])
            except (pb.TraceError, TypeError) as error:
                if not any(words in str(error) for words in ("does not change", "does not support item assignment")):
                    raise
                return on_the_device(function, arguments)

        monkeypatch.setattr(test_fuzz_calls, "TARGETS", {"cuda": on_the_device if seed % 3 else laid})
        with opened(runs_on, seed):
            test_fuzz_calls.run_program(seed)

    each(seeds, run_one)


@on_each_place
@seeds(300)
def test_gradients_of_calls(runs_on: str, seeds: Sequence[int]) -> None:
    def run_one(seed: int) -> None:
        with opened(runs_on, seed):
            test_fuzz_gradients.run_program(seed, on_the_device)

    each(seeds, run_one)


@on_each_place
@seeds(300)
@pytest.mark.parametrize("run", [test_fuzz_source.run_values, test_fuzz_source.run_gradients])
def test_functions(runs_on: str, seeds: Sequence[int], run: Callable[..., None]) -> None:
    """Functions are also called with other data and other shapes."""

    def run_one(seed: int) -> None:
        with compiled_there(runs_on, seed):
            run(test_fuzz_source.Seeded(seed))

    each(seeds, run_one)


@on_each_place
@seeds(150)
def test_control_flow(runs_on: str, seeds: Sequence[int]) -> None:
    def run_one(seed: int) -> None:
        with compiled_there(runs_on, seed):
            test_fuzz_control.check(seed, 1 + seed % 2)

    each(seeds, run_one)


@on_each_place
@pytest.mark.parametrize("program", some(test_inplace.BY_NAME))
def test_writes(runs_on: str, program: Program) -> None:
    with compiled_there(runs_on, len(program.name)):
        test_inplace.test_values(program)


@on_each_place
@pytest.mark.parametrize("program", some(test_inplace.SMOOTH))
def test_gradients_of_writes(runs_on: str, program: Program) -> None:
    with compiled_there(runs_on, len(program.name)):
        test_inplace.test_gradients(program)
