"""The Dask cluster within this process, for ``client="local"``: started at the first call, closed at the exit of the process."""

from __future__ import annotations

import atexit
import threading
from typing import Any

import distributed

_lock = threading.Lock()
_clients: list[Any] = []


def client() -> Any:
    """Return the client of the cluster, which is started if there is none.

    It has one worker, a thread of this process, that computes one block after another: the threads of each kernel use the
    processors there are.
    """
    with _lock:
        if _clients and _clients[0].status == "running":
            return _clients[0]
        cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0")
        _clients[:] = [distributed.Client(cluster, set_as_default=False)]
        atexit.register(close)
        return _clients[0]


def close() -> None:
    """Close the cluster, if there is one."""
    with _lock:
        for each in _clients:
            cluster = each.cluster
            each.close()
            cluster.close()
        _clients.clear()
