"""Programs on a CUDA device as graphs: dependencies, loops and checks, and transfers concurrent with the work, in any order."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.runtime.cuda.device import device as cuda_device
from pullback.runtime.cuda.device import memory as cuda_memory
from pullback.runtime.cuda.device.memory import CHUNK, Staging
from pullback.runtime.cuda.program import (
    call as cuda_call,
)
from pullback.runtime.cuda.program import (
    layout as cuda_layout,
)
from pullback.runtime.cuda.program import (
    plan_control_flow as cuda_plan_control_flow,
)
from pullback.runtime.cuda.program import (
    planned as cuda_planned,
)
from pullback.runtime.cuda.program import (
    steps as cuda_steps,
)
from pullback.runtime.cuda.program.call import Call
from pullback.runtime.cuda.program.plan import CountedLoop
from pullback.runtime.cuda.program.planned import PlannedProgram
from pullback.runtime.cuda.program.steps import Access, Segment, direct_dependencies
from pullback.tracer import flatten, unflatten
from tests import cuda_host
from tests.runtime.cuda.test_user_programs import close
from tests.support.cuda.driver_stand_in import device
from tests.tables.control_programs import PROGRAMS

__all__ = ["device"]
ORDERS = (1, 5, 6, 7)


@pytest.fixture
def tapes(monkeypatch: pytest.MonkeyPatch) -> list[PlannedProgram]:
    """Record the planned programs that are created during a test."""
    built: list[PlannedProgram] = []
    real = PlannedProgram.__init__

    def init(self: PlannedProgram, *args: Any) -> None:
        real(self, *args)
        built.append(self)

    monkeypatch.setattr(PlannedProgram, "__init__", init)
    return built


@pytest.fixture
def turned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent loops from being unrolled completely."""
    monkeypatch.setattr(cuda_plan_control_flow, "MAX_UNROLLED_STEPS", 0)
    monkeypatch.setattr(cuda_plan_control_flow, "MAX_GRAPH_STEPS", 8)


@pytest.fixture(autouse=True)
def in_order_again() -> Iterator[None]:
    yield
    cuda_host.order(0)


def placed(args: Any) -> Any:
    """Arguments with their arrays on the device."""
    result, tree = flatten(args)
    return unflatten(tree, [pb.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf for leaf in result])


def leaves_of(result: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in flatten(result)[0]]


def again_and_again(call: Callable[..., Any], *args: Any) -> Any:
    """Calls with the same arrays, in several orders, give what the CPU does; returns the compiled function and its arguments."""
    wanted = [leaf.astype(leaf.dtype.newbyteorder("=")) for leaf in leaves_of(pb.jit(call)(*args))]
    arguments, f = placed(args), pb.jit(call, device="cuda")
    for seed in (0, 0, 0, *ORDERS):
        cuda_host.order(seed)
        close(leaves_of(f(*arguments)), wanted)
    cuda_host.order(0)
    return f, arguments


# what depends on what


def test_steps_come_after_what_they_need() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        steps = []
        for _ in range(rng.integers(1, 30)):
            spans = [(int(rng.integers(2)), *sorted(rng.integers(0, 12, 2).tolist())) for _ in range(rng.integers(1, 4))]
            steps.append([Access(row, first, last, bool(rng.integers(2))) for row, first, last in spans])
        wanted = [
            {
                k
                for k in range(n)
                for a in steps[k]
                for b in steps[n]
                if a.row == b.row and max(a.first, b.first) < min(a.last, b.last) and (a.writes or b.writes)
            }
            for n in range(len(steps))
        ]
        result = direct_dependencies(steps)
        assert [closed(result, n) for n in range(len(steps))] == [closed(wanted, n) for n in range(len(steps))]
        for n, needs in enumerate(result):
            assert set(needs) <= wanted[n]
            assert all(k not in closed(result, other) for k in needs for other in needs), "an edge that others imply"


def closed(needs: Any, n: int) -> set[int]:
    """All that a step comes after."""
    result: set[int] = set()
    waiting = [*needs[n]]
    while waiting:
        k = waiting.pop()
        if k not in result:
            result.add(k)
            waiting += needs[k]
    return result


def two_chains(a: Any, b: Any) -> Any:
    for _ in range(3):
        a, b = np.cumsum(np.sin(a)), np.cumsum(np.cos(b))
    return a, b, np.cumsum(a) + np.cumsum(b[::-1])


def test_what_is_independent_may_run_side_by_side(tapes: list[PlannedProgram]) -> None:
    rng = np.random.default_rng(1)
    again_and_again(two_chains, rng.normal(size=50), rng.normal(size=50))
    (piece,) = tapes[-1].parts
    assert isinstance(piece, Segment)
    chains = [n for n, needs in enumerate(piece.dependencies) if not needs]
    assert len(chains) >= 2
    count = len(piece.steps)
    beside = [(a, b) for a in range(count) for b in range(a) if b not in closed(piece.dependencies, a)]
    assert len(beside) >= count


def test_edges_that_are_missing_show_as_wrong_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of this file would thus detect missing edges."""
    monkeypatch.setattr(cuda_steps, "direct_dependencies", lambda steps: [()] * len(steps))
    with pytest.raises(AssertionError):
        again_and_again(lambda a, b: two_chains(a * 3, b), *np.random.default_rng(2).normal(size=(2, 60)))


def test_memory_that_is_used_again_is_waited_for(monkeypatch: pytest.MonkeyPatch, tapes: list[PlannedProgram]) -> None:
    """Steps without a common value depend on each other if the buffer of one reuses memory of the other."""

    def call(x: Any) -> Any:
        return [np.cumsum(np.sin(np.cumsum(np.cumsum(x * k) * 1e-3)[::-1])) for k in range(1, 6)]

    x = np.random.default_rng(3).normal(size=3000)
    again_and_again(call, x)
    (piece,) = tapes[-1].parts
    assert isinstance(piece, Segment)
    assert tapes[-1].plan.placement(tapes[-1].sizes).arena_bytes < 5 * x.nbytes

    def without_reuse(steps: Any) -> Any:
        """Return only the dependencies of reads on earlier writes."""
        return [
            tuple(k for k in range(n) if any(overlap(a, b) and a.writes and not b.writes for a in steps[k] for b in steps[n]))
            for n in range(len(steps))
        ]

    monkeypatch.setattr(cuda_steps, "direct_dependencies", without_reuse)
    with pytest.raises(AssertionError):
        again_and_again(lambda x: call(x * 2), x)


def overlap(a: Access, b: Access) -> bool:
    return a.row == b.row and max(a.first, b.first) < min(a.last, b.last)


# loops, branches, checks


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_control_flow_again(name: str) -> None:
    again_and_again(PROGRAMS[name][0], *PROGRAMS[name][1])


@pytest.mark.filterwarnings("ignore::pullback.DeviceWarning")
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_control_flow_turned_by_the_host(name: str, turned: None) -> None:
    again_and_again(PROGRAMS[name][0], *PROGRAMS[name][1])


def recurrent(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(w @ h + x)
        return h, np.cumsum(h)

    return pb.scan(step, np.zeros(w.shape[0]), xs)


def graphs_of(f: Callable[..., Any], args: Any) -> int:
    before = cuda_host.counts()["graph_launches"]
    f(*args)
    return int(cuda_host.counts()["graph_launches"] - before)


def test_a_loop_is_one_graph(tapes: list[PlannedProgram]) -> None:
    rng = np.random.default_rng(0)
    w, xs = rng.normal(size=(4, 4)), rng.normal(size=(30, 4))
    f, arguments = again_and_again(pb.value_and_grad(lambda w, xs: np.sum(recurrent(w, xs)[1] ** 2)), w, xs)
    assert [type(part) for part in tapes[-1].parts] == [Segment]
    assert graphs_of(f, arguments) == 1


@pytest.mark.long
def test_a_loop_of_many_turns_is_graphs_of_several(tapes: list[PlannedProgram], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_plan_control_flow, "MAX_UNROLLED_STEPS", 64)
    monkeypatch.setattr(cuda_plan_control_flow, "MAX_GRAPH_STEPS", 64)
    rng = np.random.default_rng(0)
    w, xs = rng.normal(size=(4, 4)), rng.normal(size=(101, 4))
    f, arguments = again_and_again(pb.value_and_grad(lambda w, xs: np.sum(recurrent(w, xs)[1] ** 2)), w, xs)
    loops = [part for part in tapes[-1].parts if isinstance(part, CountedLoop)]
    assert len(loops) == 2 and all(loop.unrolled is not None for loop in loops)
    launches = sum(101 // loop.unrolled[0] + 101 % loop.unrolled[0] for loop in loops if loop.unrolled)
    assert graphs_of(f, arguments) <= launches + 3 < 101


def test_a_while_is_a_graph_each_turn(tapes: list[PlannedProgram]) -> None:
    def call(x: Any) -> Any:
        def body(s: Any) -> Any:
            return np.cumsum(s[0]) * 0.2 + np.sum(np.sort(s[0])), s[1] + 1

        return pb.while_loop(lambda s: s[1] < 9, body, (x, 0))

    f, arguments = again_and_again(call, np.arange(6.0))
    assert len(tapes[-1].parts) == 2
    assert graphs_of(f, arguments) <= 1 + 1 + 9


def checks(x: Any, y: Any, at: Any, also: Any) -> Any:
    """A check before a loop, two in it, one behind."""
    first = np.cumsum(x[at[0]] + y)

    def body(k: Any, s: Any) -> Any:
        inner = pb.fori_loop(0, 2, lambda j, t: t + y[also[2 * k + j]], s)
        return inner * 0.5 + x[at[k]]

    result = pb.fori_loop(0, 6, body, first[0])
    return result + y[also[0]] + first


@pytest.mark.parametrize("is_turned", [False, True])
def test_the_first_check_that_fails_is_raised(is_turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_turned:
        monkeypatch.setattr(cuda_plan_control_flow, "MAX_UNROLLED_STEPS", 0)
        monkeypatch.setattr(cuda_plan_control_flow, "MAX_GRAPH_STEPS", 8)
    x, y = np.arange(5.0), np.arange(7.0)
    host, f = pb.jit(lambda *a: checks(*a)), pb.jit(lambda *a: checks(*a), device="cuda")
    rng = np.random.default_rng(0)
    for trial in range(24):
        at, also = rng.integers(0, 5, 6), rng.integers(0, 7, 12)
        for _ in range(trial % 4):
            (at if rng.integers(2) else also)[rng.integers(0, 6)] = rng.integers(7, 100)
        arguments = placed((x, y, at, also))
        cuda_host.order(ORDERS[trial % len(ORDERS)])
        for _ in range(3):
            try:
                wanted: Any = host(x, y, at, also)
            except IndexError as error:
                with pytest.raises(IndexError) as result:
                    f(*arguments)
                assert str(result.value) == str(error)
            else:
                np.testing.assert_allclose(np.asarray(f(*arguments)), wanted)


def test_checks_are_one_graph_and_one_read(tapes: list[PlannedProgram], monkeypatch: pytest.MonkeyPatch) -> None:
    def call(x: Any, at: Any) -> Any:
        return pb.fori_loop(0, 8, lambda k, s: np.cumsum(s) * 0.1 + x[at[k]], np.zeros(5))

    f, arguments = again_and_again(call, np.arange(5.0), np.arange(8) % 5)
    assert len(tapes[-1].parts) == 1 and tapes[-1].failing
    reads = []
    real = Staging.download
    monkeypatch.setattr(Staging, "download", lambda self, pairs: (reads.append(len(pairs)), real(self, pairs))[1])
    assert graphs_of(f, arguments) == 1
    assert reads == [1]


def test_calls_at_once_read_their_own_checks() -> None:
    f = pb.jit(lambda x, at: np.cumsum(x[at] * 2)[-1] + x[at[::-1]], device="cuda")
    x = pb.device_put(np.arange(5.0))
    right, wrong = pb.device_put(np.array([1, 2, 3])), pb.device_put(np.array([1, 9, 3]))
    wanted = np.asarray(f(x, right))
    failed: list[BaseException] = []

    def work(at: Any, fails: bool) -> None:
        try:
            for _ in range(25):
                if fails:
                    with pytest.raises(IndexError):
                        f(x, at)
                else:
                    np.testing.assert_array_equal(np.asarray(f(x, at)), wanted)
        except BaseException as error:
            failed.append(error)

    cuda_host.order(5)
    threads = [threading.Thread(target=work, args=(at, at is wrong)) for at in (right, wrong, right)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_capture_that_fails_leaves_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise pb.DeviceError("no graph")

    monkeypatch.setattr(cuda_call, "captured", refuse)
    f, arguments = again_and_again(lambda a, b: two_chains(a * 2, b + 1), *np.random.default_rng(1).normal(size=(2, 40)))
    assert graphs_of(f, arguments) == 0


def test_no_memory_is_asked_for_beside_a_capture(device: cuda_device.Device) -> None:
    """No other thread allocates during a capture either, since a driver may refuse it."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            np.testing.assert_array_equal(np.asarray(pb.device_put(np.ones(12_347))), 1)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    with device, device.capturing as stream:
        graph, handle = ctypes.c_void_p(), ctypes.c_void_p(stream.handle)
        assert device.driver.cuStreamBeginCapture_v2(handle, 1) == 0
        thread.start()
        thread.join(0.3)
        assert device.driver.cuStreamEndCapture(handle, ctypes.byref(graph)) == 0
    thread.join()
    assert not failed


# transfers


def large(x: Any, y: Any) -> Any:
    """Steps of one argument alone, then of both; one result is complete early."""
    a = np.cumsum(np.sin(x))
    return a, np.cumsum(a + np.cumsum(y)[: len(a)]), np.sum(y)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays are large, and pieces of pinned memory soon full."""
    monkeypatch.setattr(cuda_memory, "CHUNK", 1 << 12)
    monkeypatch.setattr(cuda_memory, "PART", 1 << 10)
    monkeypatch.setattr(cuda_call, "CONCURRENT_COPY_BYTES", 1 << 11)
    monkeypatch.setattr(cuda_layout, "CONCURRENT_COPY_BYTES", 1 << 11)
    monkeypatch.setattr(cuda_planned, "CONCURRENT_COPY_BYTES", 1 << 11)


def two(count: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=count), rng.normal(size=count + 8)


@pytest.mark.parametrize("seed", (0, *ORDERS))
@pytest.mark.parametrize("count", [300, 2900])
def test_large_arrays_travel_beside_the_work(seed: int, count: int, small: None) -> None:
    # The size is one of the test's own, so that its tape is made meanwhile.
    f, (x, y) = pb.jit(large, device="cuda"), two(count + seed)
    cuda_host.order(seed)
    for k in range(3):
        for result, right in zip(f(x + k, y), pb.jit(large)(x + k, y), strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-9, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("seed", (0, *ORDERS))
def test_arrays_larger_than_pinned_memory(seed: int) -> None:
    f, (x, y) = pb.jit(lambda x, y: (x * 2, x + y[: len(x)]), device="cuda"), two(CHUNK // 4 + 1000)
    cuda_host.order(seed)
    for result, right in zip(f(x, y), (x * 2, x + y[: len(x)]), strict=True):
        np.testing.assert_array_equal(result, right)


def test_an_array_goes_up_when_the_first_step_needs_it(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    for owner, name in ((Staging, "upload_concurrently"), (Staging, "download_concurrently"), (Call, "start")):
        real = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, real=real, name=name: (events.append(name), real(*a))[1])
    pb.jit(large, device="cuda")(*two(1500))
    first, second = (k for k, name in enumerate(events) if name == "upload_concurrently")
    assert first < events.index("start") < second < len(events) - 1 - events[::-1].index("start")
    assert events[-1] == "download_concurrently"


@pytest.mark.parametrize("forgotten", ["begin", "landed", "reached"])
def test_a_wait_that_is_missing_shows_as_wrong_numbers(forgotten: str, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above would thus detect a missing wait."""

    def begin(self: Staging) -> None:
        pass

    def upload_concurrently(self: Staging, array: Any, address: int) -> None:
        with self._lock:
            self._send(array.reshape(-1).view(np.uint8), address, self._up)

    def download_concurrently(self: Staging, those: Any) -> None:
        with self._lock:
            self._fetch([(address, array, None) for address, array, _ in those], self._down)

    wrong = {"begin": begin, "landed": upload_concurrently, "reached": download_concurrently}[forgotten]
    monkeypatch.setattr(
        Staging, {"landed": "upload_concurrently", "reached": "download_concurrently"}.get(forgotten, forgotten), wrong
    )
    x, y = two(1000)
    f, there = pb.jit(large, device="cuda"), pb.device_put(x)
    with pytest.raises(AssertionError):
        for seed in range(1, 40):
            cuda_host.order(seed)
            # What was given back is still read by what waits.
            before = [there * (k + 2.0) for k in range(3)]
            kept = [each + 1 for each in before]
            del before
            result = f(x + seed, y)
            for one, right in zip(result, pb.jit(large)(x + seed, y), strict=True):
                np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-9)
            for k, each in enumerate(kept):
                np.testing.assert_array_equal(np.asarray(each), x * (k + 2) + 1)


def test_many_large_arrays_at_once(small: None) -> None:
    rng = np.random.default_rng(0)
    xs = [rng.normal(size=500 + 70 * k) for k in range(6)]
    f = pb.jit(lambda *xs: [np.cumsum(x) for x in xs], device="cuda")
    wanted = [np.cumsum(x) for x in xs]
    failed: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(2):
                for result, right in zip(f(*xs), wanted, strict=True):
                    np.testing.assert_allclose(result, right, rtol=1e-9, atol=1e-9)
        except BaseException as error:
            failed.append(error)

    for seed in (1, 5):
        cuda_host.order(seed)
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failed


# the warm call


def test_a_warm_call_is_one_look_up_and_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    f, arguments = again_and_again(lambda a, b: two_chains(a * 2, b)[2], *np.random.default_rng(1).normal(size=(2, 40)))
    held = [f(*arguments) for _ in range(3)]
    del held
    called: list[str] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    before = cuda_host.counts()
    sys.setprofile(profile)
    result = f(*arguments)
    sys.setprofile(None)
    counts = cuda_host.counts()
    assert counts["graph_launches"] - before["graph_launches"] == 1
    assert "run" not in called and "replay" in called
    assert len(called) <= 40, called
    assert isinstance(result, pb.DeviceArray)


def test_films_that_are_used_are_kept(tapes: list[PlannedProgram]) -> None:
    """Other arrays that occur once in between do not evict graphs that are used repeatedly."""
    f, arguments = again_and_again(lambda a, b: two_chains(a * 4, b)[2], *np.random.default_rng(1).normal(size=(2, 40)))
    others = [pb.device_put(np.ones(40) * k) for k in range(30)]
    f(*arguments)
    for other in others:
        assert graphs_of(f, arguments) == 1
        f(other, other)
