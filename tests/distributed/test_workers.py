"""Workers as compilers: kernels compiled once on a cold cluster, with one folder or one for each, and mixed processors."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import distributed
import numpy as np
import pytest

import pullback as pb
from tests.distributed.losses import arguments, rmse, squares
from tests.support.paths import ROOT

OVER = {"x": 0, "y": 0}
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@contextmanager
def cluster_of(*environments: dict[str, str]) -> Iterator[Any]:
    """The client of a cluster with a worker process for each of these environments."""
    with distributed.LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        command = [sys.executable, "-m", "distributed.cli.dask_worker", cluster.scheduler_address, "--nthreads", "1"]
        command += ["--no-dashboard", "--no-nanny"]
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        started = [
            subprocess.Popen(
                command, env=os.environ | {"PYTHONPATH": path, "PULLBACK_VERIFY": ""} | each, stderr=subprocess.DEVNULL
            )
            for each in environments
        ]
        try:
            with distributed.Client(cluster, set_as_default=False) as client:
                client.wait_for_workers(len(environments), timeout=60)
                yield client
        finally:
            for process in started:
                process.kill()
                process.wait()


def compiles(client: Any) -> dict[str, int]:
    return dict(client.run(lambda: __import__("pullback").cache_info().compiles))


@pytest.mark.parametrize("is_shared", [True, False], ids=["one folder", "folders of their own"])
def test_a_cold_cluster_compiles_each_kernel_once(tmp_path: Path, is_shared: bool) -> None:
    folders = [tmp_path / ("all" if is_shared else str(k)) for k in range(2)]
    w, x, y = arguments(300)
    with cluster_of(*({"PULLBACK_CACHE_DIR": str(folder)} for folder in folders)) as client:
        counts = pb.warm(client, pb.value_and_grad(squares), "f64[5]", x="f64[30,5]", y=np.ones(30))
        assert sorted(counts.values())[0] == 0 < sorted(counts.values())[1]
        before = compiles(client)
        fit = pb.distribute(pb.value_and_grad(rmse), over=OVER, blocks=[100, 120, 80], client=client)
        value, _ = fit(w, x, y)
        after = compiles(client)
        news = sorted(after[address] - before[address] for address in after)
        assert news[0] == 0 < news[1]
    assert value == pb.distribute(pb.value_and_grad(rmse), over=OVER, blocks=[100, 120, 80])(w, x, y)[0]


def test_workers_of_two_kinds(tmp_path: Path) -> None:
    """Each kind compiles its own kernels, and the bits are compared once: a warning says that they differ."""
    w, x, y = arguments(300)
    environment = {"PULLBACK_CACHE_DIR": str(tmp_path)}
    mixed = environment, environment | {"PULLBACK_CPU": "baseline"}
    with cluster_of(*mixed) as client, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", pb.MixedWorkersWarning)
        fit = pb.distribute(pb.value_and_grad(squares), over=OVER, blocks=3, client=client)
        value, slope = fit(w, x, y)
        fit(w, x, y)
    expected, expected_slope = pb.value_and_grad(squares)(w, x, y)
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-12)
    messages = [str(w.message) for w in seen if issubclass(w.category, pb.MixedWorkersWarning)]
    assert len(messages) <= 2 and all("squares has other last bits" in text for text in messages)
