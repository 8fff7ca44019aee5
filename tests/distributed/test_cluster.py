"""Blocks of rows on a Dask cluster of processes on this machine: the bits of this process, lost workers, results, errors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import dask.array as da
import distributed
import numpy as np
import pytest
import scipy.optimize

import pullback as pb
from pullback.distributed import embedded
from tests.distributed.losses import LOSSES, arguments, centred, squares

OVER = {"x": 0, "y": 0}
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """The client of a cluster of four processes, which is not Dask's current client."""
    cluster = distributed.LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster, set_as_default=False)
    yield client
    client.close()
    cluster.close()


@pytest.mark.parametrize("blocks", [[0, 300, 0, 699, 1], 1, 70], ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_bits_are_those_of_this_process(client: Any, loss: Any, blocks: Any) -> None:
    """Uneven and empty blocks, one block, more blocks than one task combines; bound and sent with each call."""
    w, x, y = arguments()
    alone = pb.distribute(pb.value_and_grad(loss), over=OVER, blocks=blocks)(w, x, y)
    fit = pb.distribute(pb.value_and_grad(loss), over=OVER, blocks=blocks, client=client)
    for value, slope in (fit(w, x, y), fit.bind(x=x, y=y)(w), fit.bind(y=y)(w, x)):
        assert type(value) is np.float64 and value == alone[0]
        np.testing.assert_array_equal(slope, alone[1])


def fitted(client: Any, loss: Any, at: int = -1, action: Any = None) -> list[Any]:
    """The values and the point of 50 steps of a fit, in which ``action`` runs before a step."""
    w, x, y = arguments(3000)
    fit = pb.distribute(pb.value_and_grad(loss), over=OVER, blocks=[500, 0, 1000, 700, 800], client=client).bind(x=x, y=y)
    values: list[Any] = []
    for step in range(50):
        if step == at:
            action()
        value, slope = fit(w)
        w = w - 0.05 * slope
        values.append(value)
    return [*values, *w]


def test_fits_with_any_number_of_workers(client: Any) -> None:
    expected = fitted(None, centred)
    assert fitted(client, centred) == expected
    for count in (1, 2):
        with (
            distributed.LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster, set_as_default=False) as other,
        ):
            assert fitted(other, centred) == expected


def test_a_killed_worker_changes_nothing(client: Any) -> None:
    def kill() -> None:
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)

    assert fitted(client, squares, 20, kill) == fitted(None, squares)


def test_optimisers_and_the_current_client(client: Any) -> None:
    _, x, y = arguments()
    alone = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=4).bind(x=x, y=y)
    expected = scipy.optimize.minimize(alone, np.zeros(5), jac=True)
    with client.as_current():
        seen = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=4).bind(x=x, y=y)
        result = scipy.optimize.minimize(seen, np.zeros(5), jac=True)
    assert np.array_equal(result.x, expected.x) and result.nfev == expected.nfev


def test_results_by_rows_are_lazy(client: Any) -> None:
    _, x, _ = arguments(900)
    softmax = pb.distribute(lambda x: (np.exp(x) / np.exp(x).sum(axis=0), x.sum()), over={"x": 0}, blocks=3, client=client)
    rows, total = softmax(x)
    assert isinstance(rows, da.Array) and rows.shape == x.shape and rows.chunks[0] == (300, 300, 300)
    assert isinstance(total, np.float64)
    np.testing.assert_allclose(client.compute(rows, sync=True), np.exp(x) / np.exp(x).sum(axis=0), rtol=1e-12)
    mapped = pb.distribute(pb.vmap(lambda a, b: a * b.sum()), blocks=[400, 500], client=client)(x[:, 0], x)
    np.testing.assert_allclose(client.compute(mapped, sync=True), x[:, 0] * x.sum(axis=1), rtol=1e-12)


def test_large_arguments_and_large_results(client: Any) -> None:
    """What is larger than a message is sent separately, and reduced by the workers."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(700, 300)), rng.normal(size=(300, 40))
    f = pb.value_and_grad(lambda w, x: np.sum(np.tanh(x @ w)))
    value, slope = pb.distribute(f, over={"x": 0}, blocks=130, client=client)(w, x)
    alone = pb.distribute(f, over={"x": 0}, blocks=130)(w, x)
    assert value == alone[0] and np.array_equal(slope, alone[1])


def test_errors_of_workers_are_those_of_the_function(client: Any) -> None:
    fit = pb.distribute(lambda t, k: t[k].sum(), over={"k": 0}, blocks=3, client=client)
    with pytest.raises(IndexError, match="index 7 is out of bounds") as raised:
        fit(np.ones(4), np.array([0, 1, 7]))
    assert any("test_cluster.py" in note for note in raised.value.__notes__)


def test_a_closed_client_is_an_error() -> None:
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster:
        client = distributed.Client(cluster, set_as_default=False)
        fit = pb.distribute(squares, over=OVER, client=client)
        expected = fit(*arguments())
        client.close()
        with pytest.raises(RuntimeError, match="the Dask client is closed"):
            fit(*arguments())
    assert pb.distribute(squares, over=OVER)(*arguments()) == expected


def test_local_cluster_of_this_process() -> None:
    w, x, y = arguments()
    fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=4, client="local")
    alone = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=4)(w, x, y)
    value, slope = fit(w, x, y)
    assert value == alone[0] and np.array_equal(slope, alone[1])
    embedded.close()
    assert fit(w, x, y)[0] == value
    embedded.close()
