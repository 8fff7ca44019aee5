"""Outside values that a trace refuses, and why; replacements of builtins that would read them."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np

from pullback.ir.core.device_arrays import Remote
from pullback.ir.core.types import dtype_of
from pullback.tracer.arrays.frame import NO_THREADS
from pullback.tracer.arrays.make import is_special_array
from pullback.tracer.arrays.mixed_numbers import has_attribute, is_instance
from pullback.tracer.arrays.traced import Tagged, TracedArray
from pullback.tracer.arrays.tree import real_class
from pullback.tracer.names.proxies import CLOCK, RANDOM, is_clock
from pullback.tracer.user_code.errors import TraceError
from pullback.tracer.user_code.ownership import is_users_object, is_users_value


def capturable(value: Any) -> bool:
    """Return whether an outside number or array can be an input: of a dtype that can be compiled, and no subclass."""
    if is_special_array(value):
        return False
    try:
        dtype_of(value.dtype if isinstance(value, Remote) else np.asarray(value).dtype)
    except TypeError:
        return False
    return True


def why_refused(value: Any, describe: str) -> str:
    """Return why an outside value cannot be used in a trace; empty if it can."""
    if isinstance(value, np.random.Generator | np.random.RandomState | random.Random) or _is_random(value):
        return f"a random draw ({describe}): {RANDOM}"
    if is_clock(value):
        return f"the clock ({describe}): {CLOCK}"
    if is_users_value(value):
        base = next(k.__name__ for k in type(value).__mro__ if k.__module__ == "builtins")
        return f"{describe} is a {type(value).__name__}, a subclass of {base}, which is not read through; use a plain {base}"
    if isinstance(value, Iterator) and not isinstance(value, io.IOBase) and not is_users_object(value):
        return f"{describe} is an iterator from outside, used up by the trace alone; make a list of it outside"
    if isinstance(value, type) and _is_worker(value):
        return f"a {value.__name__} in a traced function: its work would run once, while the function is traced; {NO_THREADS}"
    if isinstance(value, memoryview):
        return f"{describe} is a memoryview; use np.asarray of it"
    return ""


def _is_worker(kind: type) -> bool:
    """Return whether a class is one of Python's whose objects start threads or processes."""
    return kind.__module__.startswith(("threading", "concurrent.futures.", "multiprocessing.")) and kind.__name__ in _WORKERS


_WORKERS = ("Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Process", "Pool", "ThreadPool")


def _is_random(value: Any) -> bool:
    if is_users_object(value):
        return False
    owner = getattr(value, "__self__", None)
    module = getattr(value, "__module__", None) or ""
    if isinstance(owner, np.random.RandomState | np.random.Generator | random.Random):
        return True
    is_code = isinstance(value, BuiltinFunctionType | FunctionType | MethodType)
    return is_code and (module in ("random", "secrets") or getattr(value, "__name__", "") in ("urandom", "uuid1", "uuid4"))


def is_cached(value: Any) -> bool:
    return type(value).__module__ == "functools" and hasattr(value, "__wrapped__")


# replacements of builtins


def no_eval(*args: Any, **kwargs: Any) -> Any:
    raise TraceError("eval and exec cannot be traced; write the code as a function")


def no_file(*args: Any, **kwargs: Any) -> Any:
    raise TraceError("a file or input is read once, when the function is traced; read it outside and pass the data")


def traced_isinstance(value: Any, kinds: Any) -> bool | TracedArray:
    """Implement ``isinstance``, with the type of the value for which a traced array stands."""
    if isinstance(value, Tagged):
        return traced_isinstance(value.proved(), kinds)
    stands_for = getattr(type(value), "stands_for", None) if real_class(type(value)) is type(value) else None
    if stands_for is not None:
        return issubclass(stands_for, kinds)
    if not isinstance(value, TracedArray):
        return isinstance(value, kinds)
    try:
        return is_instance(value, kinds)
    except TypeError:  # a protocol with attributes that are no methods
        return isinstance(value, kinds)


def traced_hasattr(value: Any, name: str, /) -> Any:
    """Implement ``hasattr``: a traced number has the attributes of the number for which it stands."""
    value = value.proved() if isinstance(value, Tagged) else value
    return has_attribute(value, name) if isinstance(value, TracedArray) else hasattr(value, name)


def traced_getattr(value: Any, name: str, /, *default: Any) -> Any:
    """Implement ``getattr``, which returns the default for what the number for which a traced one stands does not have."""
    value = value.proved() if isinstance(value, Tagged) else value
    if default and isinstance(value, TracedArray):
        is_there = has_attribute(value, name)
        if isinstance(is_there, TracedArray):
            raise TraceError("getattr of a number that is Python's or NumPy's, as values decide; test it by isinstance")
        if not is_there:
            return default[0]
    return getattr(value, name, *default)
