"""Progress bars of ``tqdm`` in a traced function, which would show the trace and not the turns of a compiled loop: refused."""

from __future__ import annotations

from typing import Any

from pullback.tracer.arrays.frame import current
from pullback.tracer.arrays.replacements import twin
from pullback.tracer.user_code.errors import TraceError

MODULES = ("tqdm", "tqdm.std", "tqdm.auto", "tqdm.autonotebook", "tqdm.notebook")


def _register(module: str, name: str) -> None:
    @twin(f"{module}.{name}")
    def bar(*args: Any, **kwargs: Any) -> Any:
        frame = current()
        if frame is None or frame.root.has_effects_of_trace:
            return getattr(__import__(module, fromlist=[name]), name)(*args, **kwargs)
        raise TraceError(
            f"{name} in a traced function, whose bar would show the trace; loop over the range or array itself, and print in "
            "some of its turns (if i % 100 == 0: print(i)), which is done at each call"
        )


for _module in MODULES:
    for _name in ("tqdm", "trange"):
        _register(_module, _name)
