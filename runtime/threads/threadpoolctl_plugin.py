"""threadpoolctl sees our threads: ``threadpool_info`` lists them, and ``threadpool_limits`` limits them like those of BLAS.

It knows libraries by the names of the files that are loaded. Our threads have none, so they go by NumPy's, which is always there.
It is never imported here: where it is imported, by whomever and whenever, it is told.
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
    """Have threadpoolctl control how many threads our loops run on. Old versions that take no controllers are left alone."""
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
    """Finds threadpoolctl as others do, and has it told after its import."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        found = importlib.util.find_spec(name)
        loader: Any = None if found is None else found.loader
        if not hasattr(loader, "exec_module"):
            return found
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            register(module)

        loader.exec_module = exec_module
        return found


def announce() -> None:
    """Register with threadpoolctl, at once or when it is imported."""
    if MODULE in sys.modules:
        register(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, _Finder())
