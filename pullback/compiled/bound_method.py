"""A compiled function bound to an instance."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, TypeVar

from pullback.compiled.reports import Inspected
from pullback.fastcall.describe import method_address
from pullback.programs.cache_info import CacheInfo
from pullback.programs.call import Call
from pullback.runtime.fastcall import abi
from pullback.tracer.user_code.tracebacks import keep_users_frames

P = ParamSpec("P")
R = TypeVar("R", covariant=True)

if TYPE_CHECKING:

    class Called:
        pass
else:
    Called = abi.Called


class CompiledFunction(Protocol[R]):
    """The interface of a compiled function that a bound method uses."""

    __name__: str

    def __call__(self, /, *args: Any, **kwargs: Any) -> R:
        """Return the function's result."""

    def into(self, out: Any, /, *args: Any, **kwargs: Any) -> R:
        """Write the function's result into the caller's arrays and return it."""

    def cache_info(self) -> CacheInfo:
        """Return the counts of the function's programs."""

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """Return the call with these arguments, as used by the reports."""


class Method(Called, Inspected[P], Generic[P, R]):
    """A compiled function bound to an instance of the class whose method it is."""

    __slots__ = ("__func__", "__self__", "__weakref__")

    def __init__(self, function: CompiledFunction[R], instance: Any) -> None:
        self.__func__ = function
        self.__self__ = instance

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if address := method_address():
            abi.set_vectorcall(self, address)
        try:
            return self.__func__(self.__self__, *args, **kwargs)
        except Exception as error:
            keep_users_frames(error)
            raise

    def into(self, out: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call ``into`` of the function with the instance as first argument."""
        return self.__func__.into(out, self.__self__, *args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Method[P, R]:
        return self

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.__func__.__doc__

    def cache_info(self) -> CacheInfo:
        """Return the counts of the method's programs, over all instances."""
        return self.__func__.cache_info()

    def __getattr__(self, name: str) -> Any:
        if name == "__signature__":
            signature = inspect.signature(self.__func__)
            return signature.replace(parameters=list(signature.parameters.values())[1:])
        return getattr(self.__func__, name)

    def __repr__(self) -> str:
        return f"<bound {self.__func__!r} of {self.__self__!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and other.__self__ is self.__self__ and other.__func__ == self.__func__

    def __hash__(self) -> int:
        return hash((id(self.__self__), self.__func__))

    def __reduce__(self) -> tuple[Any, ...]:
        name = self.__func__.__name__
        is_found = getattr(self.__self__, name, None) == self
        return (getattr, (self.__self__, name)) if is_found else (Method, (self.__func__, self.__self__))

    def __copy__(self) -> Method[P, R]:
        return self

    def __deepcopy__(self, memo: Any) -> Method[P, R]:
        return Method(self.__func__, copy.deepcopy(self.__self__, memo))

    def examine(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        return self.__func__.examine((self.__self__, *args), kwargs)


abi.enable_vectorcall(Method)
