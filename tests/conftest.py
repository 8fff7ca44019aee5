"""The environment of every test: a kernel cache of its own, the verifier after every pass, errors of the tracer raised,
`--bless` and `--schedules`."""

import functools
import gc
import os
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from typing import Any
from zlib import crc32

import pytest

from pullback.codegen.cpu.loops import distribute_loops
from pullback.codegen.fuse import matmul_fusion
from pullback.codegen.kernels.groups import registry
from pullback.programs import pipeline
from pullback.runtime.choices import matmul as choices_matmul
from pullback.runtime.program import serialize as program_serialize
from tests import cuda_host
from tests.support.cuda.gpu import missing
from tests.support.forced_strategies import at_random
from tests.support.paths import TESTS

CACHE = None if "PYTEST_XDIST_WORKER" in os.environ else tempfile.TemporaryDirectory(prefix="pullback-tests-")
"""One for all workers, which are started with the environment of the first process."""
if CACHE is not None:
    os.environ["PULLBACK_CACHE_DIR"] = CACHE.name
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # workers inherit it: threads of several processes would spin for the cores
os.environ["PULLBACK_VERIFY"] = "1"
os.environ["PULLBACK_STRICT"] = "1"

DEMANDS = ("", "host", "gpu", "any")
"""The values of PULLBACK_CUDA: no demand, the tests over the stand-in for a GPU, the tests on a GPU, one of both."""

SHARES = {
    "acceptance": 10,
    "acceptance/test_blocks.py": 6,
    "codegen": 6,
    "codegen/cpu/matmul/test_batched.py": 12,
    "codegen/cpu/matmul/test_complex.py": 6,
    "codegen/cpu/matmul/test_few_panels.py": 12,
    "codegen/cpu/matmul/test_handwritten.py": 6,
    "codegen/cpu/matmul/test_in_loops.py": 6,
    "codegen/cpu/matmul/test_prepack.py": 4,
    "codegen/cpu/matmul/test_random.py": 6,
    "codegen/cpu/matmul/test_special_values.py": 6,
    "codegen/cpu/matmul/test_split_k.py": 10,
    "codegen/cpu/matmul/test_strided_operands.py": 12,
    "codegen/cpu/matmul/test_subnormals.py": 4,
    "codegen/cpu/test_bad_input.py": 18,
    "codegen/cpu/test_interleaved_accesses.py": 6,
    "codegen/cpu/test_large_bodies.py": 12,
    "codegen/cpu/test_loop_distribution.py": 6,
    "codegen/cpu/test_math.py": 24,
    "codegen/cpu/test_reachability.py": 12,
    "codegen/cpu/test_step_dependencies.py": 12,
    "codegen/cpu/test_table_lookup.py": 4,
    "codegen/cpu/test_transposes.py": 6,
    "codegen/cpu/test_vector_loops.py": 6,
    "codegen/cuda/test_emit.py": 12,
    "codegen/cuda/test_loops_into_kernels.py": 6,
    "codegen/cuda/test_matmul.py": 36,
    "codegen/cuda/test_radix_sort.py": 6,
    "codegen/cuda/test_resources.py": 18,
    "codegen/cuda/test_scan.py": 24,
    "codegen/cuda/test_transposed_tiles.py": 6,
    "codegen/cuda/test_vector_accesses.py": 6,
    "codegen/fuse/test_convolutions.py": 6,
    "codegen/fuse/test_interleave.py": 6,
    "codegen/fuse/test_matmul_fusion.py": 54,
    "codegen/fuse/test_recurrent_steps.py": 48,
    "codegen/fuse/test_rematerialize.py": 6,
    "codegen/fuse/test_scatter_to_select.py": 6,
    "codegen/fuse/test_stencils.py": 28,
    "codegen/kernels/test_every_op.py": 96,
    "codegen/kernels/test_joined.py": 4,
    "codegen/kernels/test_pairs.py": 18,
    "codegen/kernels/test_scans.py": 8,
    "codegen/kernels/test_segment_sums.py": 4,
    "codegen/kernels/test_small_matrices.py": 6,
    "codegen/kernels/test_tiled_rows.py": 6,
    "corpus/test_corpus.py": 10,
    "corpus/test_second_derivatives.py": 24,
    "cuda_host/test_acceptance.py": 48,
    "cuda_host/test_faults.py": 6,
    "cuda_host/test_op_table.py": 384,
    "cuda_host/test_planted.py": 6,
    "cuda_host/test_tiles.py": 6,
    "distributed/test_cluster.py": 3,
    "distributed/test_in_process.py": 3,
    "fuzz/test_cuda_fuzz.py": 6,
    "ir": 6,
    "ir/passes/test_batching.py": 8,
    "ir/passes/test_dead_branches.py": 10,
    "ir/passes/test_final_elements.py": 8,
    "ir/passes/test_forward_mode.py": 8,
    "ir/passes/test_linear_work.py": 6,
    "ir/passes/test_loop_gradients.py": 24,
    "ir/passes/test_removable_singularities.py": 6,
    "ir/passes/test_short_axes.py": 10,
    "ir/passes/test_simplify.py": 6,
    "ir/passes/test_undone_writes.py": 8,
    "ir/test_derivative_tails.py": 8,
    "ir/test_derivatives.py": 8,
    "ir/test_op_table.py": 32,
    "ir/test_semantics.py": 6,
    "peers/test_others_defects.py": 18,
    "peers/test_peers.py": 6,
    "pullback": 6,
    "pullback/debugging/test_check_grad.py": 6,
    "pullback/exporting/test_device_export.py": 6,
    "pullback/exporting/test_export.py": 12,
    "pullback/inspection/test_inspection.py": 6,
    "pullback/test_api.py": 6,
    "pullback/test_arguments.py": 6,
    "pullback/test_array_types.py": 4,
    "pullback/test_device_eager.py": 8,
    "pullback/test_device_out.py": 4,
    "pullback/test_donation.py": 4,
    "pullback/test_dynamic_shapes.py": 6,
    "pullback/test_lifetimes.py": 6,
    "pullback/test_loop_programs.py": 6,
    "pullback/test_pickling.py": 4,
    "pullback/test_programs.py": 10,
    "pullback/test_random.py": 24,
    "pullback/test_shared_memory.py": 12,
    "pullback/test_updates_in_place.py": 8,
    "pullback/transforms/test_control_flow.py": 4,
    "pullback/transforms/test_custom.py": 4,
    "pullback/transforms/test_extents_by_value.py": 6,
    "pullback/transforms/test_higher_orders.py": 10,
    "pullback/transforms/test_ragged_carries.py": 4,
    "pullback/transforms/test_transform_pairs.py": 48,
    "pullback/transforms/test_transforms.py": 12,
    "repository/test_benchmarks.py": 12,
    "repository/test_first_week.py": 36,
    "repository/test_gpu_benchmarks.py": 6,
    "repository/test_math_page.py": 6,
    "repository/test_platforms.py": 10,
    "repository/test_policy.py": 192,
    "repository/test_surface.py": 12,
    "runtime": 6,
    "runtime/cache/test_replaced_sources.py": 8,
    "runtime/cache/test_stored_programs.py": 6,
    "runtime/cuda/test_cublas.py": 24,
    "runtime/cuda/test_device_array.py": 6,
    "runtime/cuda/test_foreign_arrays.py": 6,
    "runtime/cuda/test_graphs.py": 24,
    "runtime/cuda/test_linalg.py": 120,
    "runtime/cuda/test_processes.py": 6,
    "runtime/cuda/test_programs.py": 24,
    "runtime/cuda/test_stored_programs.py": 4,
    "runtime/cuda/test_user_programs.py": 72,
    "runtime/fastcall/test_changed_meanwhile.py": 12,
    "runtime/fastcall/test_native_calls.py": 48,
    "runtime/fastcall/test_specialized_entry.py": 10,
    "runtime/test_interrupts.py": 12,
    "runtime/test_threads.py": 12,
    "tracer": 6,
    "tracer/functions/test_beyond.py": 36,
    "tracer/functions/test_complex.py": 12,
    "tracer/functions/test_dtype_views.py": 10,
    "tracer/functions/test_edge_cases.py": 4,
    "tracer/functions/test_fft.py": 24,
    "tracer/functions/test_floor.py": 36,
    "tracer/functions/test_function_gradients.py": 8,
    "tracer/functions/test_function_transforms.py": 8,
    "tracer/functions/test_functions.py": 32,
    "tracer/functions/test_histograms.py": 4,
    "tracer/functions/test_inplace.py": 96,
    "tracer/functions/test_linalg.py": 48,
    "tracer/functions/test_linalg_complex.py": 24,
    "tracer/functions/test_scipy_arrays.py": 24,
    "tracer/functions/test_scipy_compositions.py": 12,
    "tracer/functions/test_signal.py": 24,
    "tracer/functions/test_signal_spectral.py": 12,
    "tracer/functions/test_sorting.py": 12,
    "tracer/functions/test_special.py": 12,
    "tracer/functions/test_stats.py": 36,
    "tracer/functions/test_value_extents.py": 16,
    "tracer/programs": 6,
    "tracer/state/test_lists_that_change.py": 8,
    "tracer/state/test_minimised_models.py": 4,
    "tracer/state/test_rolled_stores.py": 6,
    "tracer/statements": 6,
    "tracer/test_builtins.py": 4,
    "tracer/test_captured_state.py": 8,
    "tracer/test_labelled_arrays.py": 6,
    "tracer/test_lengths_by_paths.py": 12,
    "tracer/test_python_ints.py": 6,
    "tracer/test_staleness.py": 8,
    "tracer/test_tracer.py": 4,
    "tracer/test_unroll_warning.py": 6,
}
"""By file or folder, relative to tests/: the number of neighbours in a table of cases of which one is run by default (a smaller
table runs one case); ``-m long`` runs the others."""
CUDA = {"cuda", "cuda_host"}
"""Folders of CUDA tests; elsewhere, CUDA tests are in files whose name starts with ``test_cuda`` or ``test_device``."""


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
        monkeypatch.setattr(registry, "pick", at_random(int(seed)))
        for name, value in (("LONG", 8), ("WINDOW", 1 + int(seed) % 5), ("L1_BYTES", 64), ("PHASE", 0.0), ("KEPT", 0.0)):
            monkeypatch.setattr(distribute_loops, name, value)


@pytest.fixture(autouse=True)
def chosen_products(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--products`, contractions share kernels with their neighbours on all targets, or on none."""
    how = request.config.getoption("--products")
    if how is not None:
        monkeypatch.setattr(
            matmul_fusion, "FUSING_TARGETS", frozenset({"cpu", "cuda", matmul_fusion.ALONE} if how == "carrying" else ())
        )
        monkeypatch.setattr(matmul_fusion, "BATCH_TARGETS", frozenset({"cpu"} if how == "carrying" else ()))


@pytest.fixture(autouse=True)
def read_back(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under `--stored`, what the passes made is written as an entry of the cache is, and read."""
    if request.config.getoption("--stored"):
        build, schedule = pipeline.build, functools.partial(pipeline.scheduled_kernel, device="cpu")

        def built(*arguments: Any) -> pipeline.Template:
            payload = program_serialize.encoded(build(*arguments).executable)
            assert payload is not None
            return pipeline.template_of(program_serialize.decoded(payload, "memory", schedule))

        monkeypatch.setattr(pipeline, "build", built)


@pytest.fixture
def our_products(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Functions do their matrix products themselves, as exports of them do."""
    monkeypatch.setenv("PULLBACK_CHOICES", "gemm=ours")
    choices_matmul.forget()
    yield
    choices_matmul.forget()


def pytest_collection_finish() -> None:
    """Freeze the collected tests, so that the garbage collector does not traverse them repeatedly."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """True if expected texts are to be written instead of compared."""
    return bool(request.config.getoption("--bless"))


def pytest_configure(config: pytest.Config) -> None:
    """Stop a run that would pass without the tests it demands: CUDA is demanded, and no GPU or stand-in is available."""
    if absent := [name for name in SHARES if not (TESTS / name).exists()]:
        raise pytest.UsageError(f"tests/conftest.py: SHARES names {', '.join(absent)}, and tests/ has no such file or folder")
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
    """Return the machine that a case is for."""
    return next((name for name in ("host", "gpu") if f"-{name}]" in item.nodeid or f"[{name}" in item.nodeid), "")


def _is_cuda(item: pytest.Item) -> bool:
    """Whether a test is of CUDA without a GPU: over the stand-in, or of what is emitted."""
    is_there = item.path.name.startswith(("test_cuda", "test_device")) or item.path.parent.name in CUDA
    return (is_there and not item.get_closest_marker("gpu")) or _machine(item) == "host"


def leave_for_long(items: list[pytest.Item]) -> None:
    """Mark the cases that ``SHARES`` leaves out of the default run: all but one of each ``share`` neighbours, chosen by a
    hash. The cases of each machine are a table."""
    tables = defaultdict[tuple[str, str], list[pytest.Item]](list)
    for item in items:
        tables[item.nodeid.partition("[")[0], _machine(item)].append(item)
    for (name, _), cases in tables.items():
        path = cases[0].path.relative_to(TESTS)
        share = min(next((SHARES[name] for p in (path, *path.parents) if (name := p.as_posix()) in SHARES), 1), len(cases))
        for k, item in enumerate(cases):
            if crc32(f"{name} {k // share}".encode()) % share != k % share:
                item.add_marker(pytest.mark.long)
