"""Support for threadpoolctl: ``threadpool_info`` lists the worker pool, and ``threadpool_limits`` limits it like the threads
of BLAS.

threadpoolctl identifies libraries by the names of loaded files. The worker pool has no file, so it is listed under NumPy's,
which is always loaded. threadpoolctl is never imported here: the controller is registered after any other code imports it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pullback.runtime.threads.state import MOST_THREADS
from pullback.runtime.threads.threads import get_num_threads, set_num_threads

MODULE = "threadpoolctl"
API = "pullback"
PREFIXES = ("_multiarray_umath",)


def register(module: Any) -> None:
    """Register a controller of the worker pool's size with threadpoolctl. Old versions without controllers are left alone."""
    if not hasattr(module, "register") or not hasattr(module, "LibController"):
        return

    class PullbackController(module.LibController):
        user_api = internal_api = API
        filename_prefixes = PREFIXES

        def get_num_threads(self) -> int:
            return get_num_threads()

        def set_num_threads(self, num_threads: int) -> None:
            set_num_threads(min(max(int(num_threads), 1), MOST_THREADS))

        def get_version(self) -> None:
            return None

    module.register(PullbackController)


class _Finder:
    """An import finder that loads threadpoolctl as usual, and calls ``register`` after its import."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if not hasattr(loader, "exec_module"):
            return spec
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            register(module)

        loader.exec_module = exec_module
        return spec


def announce() -> None:
    """Register with threadpoolctl, now or when it is imported."""
    if MODULE in sys.modules:
        register(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, _Finder())
