"""Programs that workers have, get from others, or lack: restarted workers, two clients at once, functions of one name."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import distributed
import numpy as np
import pytest

import pullback as pb
from pullback.distributed import cluster, tasks
from tests.distributed.losses import arguments, rmse, squares

OVER = {"x": 0, "y": 0}
BLOCKS = 8
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@contextmanager
def processes(count: int) -> Iterator[Any]:
    """The client of a cluster of processes, which are restarted when they are killed."""
    with (
        distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as started,
        distributed.Client(started, set_as_default=False) as client,
    ):
        yield client


def pids(client: Any) -> set[int]:
    return set(client.run(os.getpid, on_error="ignore").values())


def restart(client: Any, *killed: str) -> None:
    """Kill the workers at some addresses, and return when others have come in their place."""
    before = client.run(os.getpid)
    for address in killed:
        os.kill(before[address], signal.SIGKILL)
    until = time.monotonic() + 60
    while len(now := pids(client)) < len(before) or now & {before[address] for address in killed}:
        assert time.monotonic() < until, "the workers did not come back"
        time.sleep(0.1)


def kept_programs(client: Any) -> list[Any]:
    """The programs that a client keeps."""
    return [kept for by_sources in cluster._tasks[client].values() for kept in by_sources.values()]


def keys(client: Any) -> dict[str, set[str]]:
    """The keys of the programs that each worker has."""
    return dict(client.run(lambda: set(tasks._tasks)))


def same(result: Any, expected: Any) -> bool:
    return bool(result[0] == expected[0] and np.array_equal(result[1], expected[1]))


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with processes(2) as client:
        yield client


def test_a_restarted_worker_gets_the_program_from_another(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    w, x, y = arguments()
    expected = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=BLOCKS)(w, x, y)
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=BLOCKS, client=client)
    assert same(fit(w, x, y), expected)
    (kept,) = kept_programs(client)
    (key,) = (task.key for task in kept.objects)
    assert all(key in each for each in keys(client).values())
    holders = [address for each in client.who_has(kept.futures).values() for address in each]
    others = set(keys(client)) - set(holders)
    assert len(holders) == len(others) == 1
    restart(client, *others)
    assert sorted(key in each for each in keys(client).values()) == [False, True]
    with caplog.at_level(logging.WARNING, "pullback.distributed"):
        for _ in range(5):
            assert same(fit(w, x, y), expected)
    assert all(key in each for each in keys(client).values())
    assert not [r for r in caplog.records if r.name == "pullback.distributed"]  # no task has failed


def test_workers_that_are_all_restarted_get_the_program_again(client: Any, caplog: pytest.LogCaptureFixture) -> None:
    w, x, y = arguments()
    expected = pb.distribute(pb.value_and_grad(rmse), over=OVER, blocks=BLOCKS)(w, x, y)
    fit = pb.distribute(pb.value_and_grad(rmse), over=OVER, blocks=BLOCKS, client=client)
    assert same(fit(w, x, y), expected)
    restart(client, *keys(client))
    assert not any(keys(client).values())
    with caplog.at_level(logging.WARNING, "pullback.distributed"):
        assert same(fit(w, x, y), expected)
    messages = [r.getMessage() for r in caplog.records if r.name == "pullback.distributed"]
    assert messages and all("sent again" in each for each in messages)  # before the tasks, of which none has failed


def test_a_program_that_is_lost_during_a_step_is_sent_again(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not know yet that no worker has it: the tasks say so, and the step runs again."""
    w, x, y = arguments()
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=BLOCKS, client=client)
    expected = fit(w, x, y)
    monkeypatch.setattr(cluster.Kept, "is_lost", False)
    client.cancel([future for kept in kept_programs(client) for future in kept.futures], force=True)
    client.run(lambda: tasks._tasks.clear())
    with caplog.at_level(logging.WARNING, "pullback.distributed"):
        assert same(fit(w, x, y), expected)
    assert any("no worker has the program" in r.getMessage() for r in caplog.records)


def test_functions_of_one_name_have_programs_of_their_own(client: Any) -> None:
    w, x, y = arguments()

    def loss_of(power: int) -> Any:
        def loss(w: Any, x: Any, y: Any) -> Any:
            return np.mean((x @ w - y) ** power)

        return loss

    for power in (2, 4, 2):
        fit = pb.distribute(pb.value_and_grad(loss_of(power)), over=OVER, blocks=BLOCKS, client=client)
        assert same(fit(w, x, y), pb.distribute(pb.value_and_grad(loss_of(power)), over=OVER, blocks=BLOCKS)(w, x, y))


def test_two_clients_at_once(client: Any) -> None:
    """They have the same program. One is closed, and the other keeps it."""
    w, x, y = arguments()
    expected = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=BLOCKS)(w, x, y)
    results: list[bool] = []

    def fit_with(each: Any, steps: int) -> None:
        fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=BLOCKS, client=each).bind(x=x, y=y)
        results.extend(same(fit(w), expected) for _ in range(steps))

    with distributed.Client(client.scheduler.address, set_as_default=False) as other:
        threads = [threading.Thread(target=fit_with, args=(each, 10)) for each in (client, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    fit_with(client, 3)
    assert results == [True] * 23


def test_a_worker_keeps_the_last_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MOST_PROGRAMS", 2)
    monkeypatch.setattr(tasks, "_tasks", {})
    (plan,) = _plans(squares)
    (program,) = (plan.program(part) for _, part in plan.split.rounds if part is not None)
    sent = [tasks.BlockTask(program, [("bound", k)], 1) for k in range(3)]
    arrived = [pickle.loads(pickle.dumps(task)) for task in (*sent, sent[2])]
    assert [task.key for task in arrived] == [task.key for task in (*sent, sent[2])] and arrived[2] is arrived[3]
    assert list(tasks._tasks) == [task.key for task in sent[1:]]


def _plans(loss: Any) -> list[Any]:
    """The plans of a function after a call."""
    fit = pb.distribute(loss, over=OVER, blocks=2)
    fit(*arguments())
    return [plan for plans in fit._plans.values() for plan in plans]
