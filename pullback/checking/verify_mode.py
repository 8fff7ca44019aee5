"""Implement ``pb.jit(verify=n)``: compare the first n calls of each program with plain Python.

A function with programs still to be verified is ``Verifying``; its calls go through Python. When all of its programs have had
their n calls it becomes ``Verified``, which differs from ``Jitted`` only in the first call of a further program: warm calls
are those of any compiled function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pullback.compiled.function import Jitted
from pullback.ir.core.lazy_imports import later
from pullback.tracer import Signature, current, signature
from pullback.tracer.names.call_objects import serving
from pullback.tracer.user_code.tracebacks import keep_users_frames

if TYPE_CHECKING:
    from pullback.checking import verification
    from pullback.programs.branch_paths import Paths
    from pullback.programs.entry import Entry
else:
    verification = later("pullback.checking.verification")

P = ParamSpec("P")
R = TypeVar("R", covariant=True)


class Verified(Jitted[P, R]):
    """A transformed function whose programs have been compared with plain Python; programs of further signatures will be too.

    Further transforms of it are verified too.
    """

    is_inherited = True

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        self._left: dict[int, int] = {}
        """By the hashes of signatures: how many calls are still to be compared."""

    @property
    def _kind(self) -> type[Jitted[..., Any]]:
        return Verified

    def _first_call(
        self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any],
        serve: Callable[[Entry | Paths], Any] | None = None, out: Any = None,
    ) -> Any:  # fmt: skip
        if self._is_method_of(args):
            return self._for_methods()(*args, **kwargs)
        self._left[hash(call.key)] = self._transform.verify
        self.__class__ = Verifying
        if serve is None:
            return self._compared(call, args, kwargs)
        verification.compare(self, args, kwargs, self._run_compiled)
        self._count(call)
        return super()._first_call(call, args, kwargs, serve, out)

    def _compared(self, call: Signature, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call that is compared. Raises VerificationError, and what the call raises."""
        try:
            return verification.compare(self, args, kwargs, self._run_compiled, reuse=True)
        finally:
            self._count(call)

    def _run_compiled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a call without making further calls native."""
        call = signature(self._parameters, args, kwargs)
        with serving(call.objects):
            for entry in self._entries.of(call):
                result = entry(call.leaves)
                if result is not verification.MISS:
                    return result
            return Jitted._first_call(self, call, args, kwargs)

    def _count(self, call: Signature) -> None:
        """Record one compared call; after the last one the function becomes ``Verified``."""
        key = hash(call.key)
        left = self._left.get(key, 0) - 1
        if left > 0:
            self._left[key] = left
            return
        self._left.pop(key, None)
        if not self._left:
            self.__class__ = Verified


class Verifying(Verified[P, R]):
    """A transformed function with calls still to be compared with plain Python."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        if current() is not None or self._is_method_of(args):
            return super().__call__(*args, **kwargs)
        try:
            call = signature(self._parameters, args, kwargs)
            if hash(call.key) in self._left:
                result: R = self._compared(call, args, kwargs)
                return result
        except Exception as error:
            keep_users_frames(error)
            raise
        return super().__call__(*args, **kwargs)

    def into(self, out: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compare the call if it is still to be compared, then run it as ``Jitted.into`` does."""
        if current() is None:
            call = signature(self._parameters, args, kwargs)
            if hash(call.key) in self._left:
                verification.compare(self, args, kwargs, self._run_compiled)
                self._count(call)
        return super().into(out, *args, **kwargs)

    def _path(self, call: Signature, entry: Entry) -> str:
        return "Python, since verify= compares the next calls with plain Python" if self._left else super()._path(call, entry)
