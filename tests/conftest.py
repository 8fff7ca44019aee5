"""What every test stands on: a kernel cache of its own, the verifier after every pass, `--bless` and `--schedules`."""

import functools
import gc
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import cuda_host
import pytest
from cuda_device import missing
from forced import at_random

from pullback.codegen.cpu.loops import distribute_loops as phases
from pullback.codegen.fuse import matmul_fusion as carrying
from pullback.codegen.kernels.groups import registry as schedules
from pullback.programs import pipeline
from pullback.runtime.choices import matmul as product_choices
from pullback.runtime.program import serialize as stored

CACHE = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.TemporaryDirectory(prefix="pullback-tests-")
"""One for all workers, which are started with the environment of the first process."""
if CACHE is not None:
    os.environ["PULLBACK_CACHE_DIR"] = CACHE.name
os.environ["PULLBACK_VERIFY"] = "1"

DEMANDS = ("", "host", "gpu", "any")
"""What PULLBACK_CUDA may demand: nothing, the tests over the stand-in for a GPU, those on a GPU, either of both."""

SHARES = {
    "acceptance": 4,
    "test_acceptance.py": 24,
    "test_aliasing.py": 6,
    "test_arguments.py": 3,
    "test_array_types.py": 2,
    "test_bad_input.py": 9,
    "test_batched_products.py": 6,
    "test_batching.py": 4,
    "test_benchmarks.py": 6,
    "test_beside.py": 3,
    "test_beyond.py": 18,
    "test_blocks.py": 3,
    "test_builtins.py": 2,
    "test_call_path.py": 24,
    "test_carried_products.py": 27,
    "test_changed_meanwhile.py": 6,
    "test_check_grad.py": 3,
    "test_compiled.py": 5,
    "test_complex.py": 6,
    "test_complex_products.py": 3,
    "test_control.py": 2,
    "test_counting.py": 2,
    "test_cuda.py": 6,
    "test_cuda_arrays.py": 3,
    "test_cuda_blas.py": 4,
    "test_cuda_eager.py": 4,
    "test_cuda_export.py": 3,
    "test_cuda_fuzz.py": 6,
    "test_cuda_graphs.py": 12,
    "test_cuda_into.py": 2,
    "test_cuda_linalg.py": 60,
    "test_cuda_packs.py": 3,
    "test_cuda_processes.py": 3,
    "test_cuda_products.py": 18,
    "test_cuda_programs.py": 36,
    "test_cuda_resources.py": 9,
    "test_cuda_runtime.py": 12,
    "test_cuda_scans.py": 12,
    "test_cuda_sorts.py": 3,
    "test_cuda_stored.py": 2,
    "test_cuda_tiles.py": 3,
    "test_cuda_turns.py": 3,
    "test_cuda_views.py": 3,
    "test_custom.py": 2,
    "test_dead_branches.py": 5,
    "test_dependencies.py": 6,
    "test_donation.py": 2,
    "test_dynamic.py": 3,
    "test_export.py": 6,
    "test_faults.py": 3,
    "test_first_week.py": 18,
    "test_floor.py": 18,
    "test_forward.py": 4,
    "test_fourier.py": 12,
    "test_function_gradients.py": 4,
    "test_function_transforms.py": 4,
    "test_functions.py": 8,
    "test_fused.py": 5,
    "test_gpu_benchmarks.py": 3,
    "test_inplace.py": 48,
    "test_inspection.py": 3,
    "test_interrupts.py": 6,
    "test_kernels.py": 48,
    "test_large_bodies.py": 6,
    "test_lifetimes.py": 3,
    "test_linalg.py": 24,
    "test_linalg_complex.py": 12,
    "test_lookup.py": 2,
    "test_loop_gradients.py": 12,
    "test_loop_programs.py": 3,
    "test_lying.py": 6,
    "test_math.py": 12,
    "test_math_page.py": 3,
    "test_numpys_answers.py": 2,
    "test_op_table.py": 192,
    "test_ops.py": 16,
    "test_orders.py": 5,
    "test_others_defects.py": 9,
    "test_outside.py": 4,
    "test_pairs.py": 9,
    "test_peers.py": 3,
    "test_phases.py": 3,
    "test_pickling.py": 2,
    "test_planted.py": 3,
    "test_platforms.py": 5,
    "test_policy.py": 96,
    "test_prepacked.py": 2,
    "test_product_kernels.py": 3,
    "test_product_rows.py": 6,
    "test_product_specials.py": 3,
    "test_python_ints.py": 3,
    "test_random.py": 12,
    "test_random_products.py": 3,
    "test_reach.py": 6,
    "test_recurrent_steps.py": 24,
    "test_reinterpreting.py": 5,
    "test_removable.py": 3,
    "test_scipy_compositions.py": 6,
    "test_row_updates.py": 3,
    "test_saving.py": 3,
    "test_scans.py": 4,
    "test_scatters.py": 2,
    "test_scipy_arrays.py": 12,
    "test_semantics.py": 3,
    "test_signal.py": 12,
    "test_simplify.py": 3,
    "test_small_matrices.py": 3,
    "test_sorting.py": 6,
    "test_special.py": 6,
    "test_spectra.py": 6,
    "test_staleness.py": 4,
    "test_stats.py": 18,
    "test_stencils.py": 14,
    "test_subnormal_products.py": 2,
    "test_surface.py": 6,
    "test_tails.py": 4,
    "test_tall_products.py": 5,
    "test_thin_products.py": 3,
    "test_threads.py": 6,
    "test_tiles.py": 3,
    "test_tracer.py": 2,
    "test_transform_pairs.py": 24,
    "test_transforms.py": 6,
    "test_transposes.py": 3,
    "test_unrolled.py": 3,
    "test_vector_loops.py": 3,
}
"""By file or folder: of how many neighbours in a table of cases one is run by default, of smaller tables one of all; ``-m long``
runs the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stored", action="store_true", help="programs run as read back from a cache entry")
    parser.addoption("--bless", action="store_true", help="write the expected texts of golden tests anew")
    parser.addoption(
        "--schedules", default="cheapest", metavar="random:SEED", help="groups get a random schedule of those that fit"
    )
    parser.addoption("--products", choices=("alone", "carrying"), help="whether contractions share kernels with their neighbours")


@pytest.fixture(autouse=True)
def chosen_schedules(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--schedules=random:SEED`, groups get a schedule that depends on the seed and the group, and short bodies
    of loops are cut into phases."""
    rule, _, seed = str(request.config.getoption("--schedules")).partition(":")
    if rule == "random":
        monkeypatch.setattr(schedules, "pick", at_random(int(seed)))
        for name, value in (("LONG", 8), ("WINDOW", 1 + int(seed) % 5), ("NEAR", 64), ("PHASE", 0.0), ("KEPT", 0.0)):
            monkeypatch.setattr(phases, name, value)


@pytest.fixture(autouse=True)
def chosen_products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--products`, contractions share kernels with their neighbours on all targets, or on none."""
    how = request.config.getoption("--products")
    if how is not None:
        monkeypatch.setattr(carrying, "TARGETS", frozenset({"cpu", "cuda", carrying.ALONE} if how == "carrying" else ()))
        monkeypatch.setattr(carrying, "BATCHES", frozenset({"cpu"} if how == "carrying" else ()))


@pytest.fixture(autouse=True)
def read_back(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--stored`, what the passes made is written as an entry of the cache is, and read."""
    if request.config.getoption("--stored"):
        build, schedule = pipeline.build, functools.partial(pipeline.scheduled_kernel, device="cpu")

        def built(*arguments: Any) -> pipeline.Template:
            payload = stored.encoded(build(*arguments).executable)
            assert payload is not None
            return pipeline.template_of(stored.decoded(payload, "memory", schedule))

        monkeypatch.setattr(pipeline, "build", built)


@pytest.fixture
def our_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Functions do their matrix products themselves, as exports of them do."""
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=ours")
    product_choices.forget()
    yield
    product_choices.forget()


def pytest_collection_finish() -> None:
    """What was collected stays; the collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """True if expected texts are to be written instead of compared."""
    return bool(request.config.getoption("--bless"))


def pytest_configure(config: pytest.Config) -> None:
    """No run passes by not running what it was told to run: where CUDA is demanded and can be tested by nothing, it ends here."""
    demand = os.environ.get("PULLBACK_CUDA", "")
    if demand not in DEMANDS:
        raise pytest.UsageError(f"PULLBACK_CUDA={demand}: {', '.join(DEMANDS[1:-1])} or {DEMANDS[-1]} is expected")
    if demand == "any" and not hasattr(config, "workerinput") and (reason := cuda_host.unavailable()) and (other := missing()):
        raise pytest.UsageError(
            f"CUDA cannot be tested here, and PULLBACK_CUDA=any demands it: {reason}; a GPU {other}. "
            "`make cuda-host` builds the stand-in and says what it needs; PULLBACK_CUDA= (empty) runs the other tests alone"
        )


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say at the end of a run that tests of CUDA were skipped for want of the stand-in, however green it is."""
    reason = cuda_host.unavailable()
    reports = terminalreporter.stats.get("skipped", ())
    skipped = [r for r in reports if reason and isinstance(r.longrepr, tuple) and reason in r.longrepr[2]]
    if skipped:
        terminalreporter.write_sep("=", "CUDA WAS NOT TESTED", red=True, bold=True)
        text = f"{len(skipped)} tests were skipped: {reason} (or `make cuda-host`). PULLBACK_CUDA=any makes that a failure."
        terminalreporter.write_line(text, red=True)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    leave_for_long(items)
    for item in items:
        if _is_cuda(item):
            item.add_marker(pytest.mark.cuda)
        if item.get_closest_marker("gpu") and os.environ.get("PULLBACK_CUDA") != "gpu" and (reason := missing()):
            item.add_marker(pytest.mark.skip(reason=reason))


def _machine(item: pytest.Item) -> str:
    """Which machine a case is for."""
    return next((name for name in ("host", "gpu") if f"-{name}]" in item.nodeid or f"[{name}" in item.nodeid), "")


def _is_cuda(item: pytest.Item) -> bool:
    """Whether a test is of CUDA without a GPU: over the stand-in, or of what is emitted."""
    is_there = item.path.name.startswith("test_cuda") or item.path.parent.name == "cuda_host"
    return (is_there and not item.get_closest_marker("gpu")) or _machine(item) == "host"


def leave_for_long(items: list[pytest.Item]) -> None:
    """Mark the cases that ``SHARES`` leaves out of the default run: all but one of so many neighbours, anyone of them. The
    cases of each machine are a table."""
    tables = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        tables[item.nodeid.partition("[")[0], _machine(item)].append(item)
    for (name, _), cases in tables.items():
        share = min(SHARES.get(cases[0].path.name) or SHARES.get(cases[0].path.parent.name, 1), len(cases))
        for k, item in enumerate(cases):
            if crc32(f"{name} {k // share}".encode()) % share != k % share:
                item.add_marker(pytest.mark.long)
