"""A process that has no file descriptors left: what a first call says then.

A first call imports modules, loads libraries and looks into the cache folder. The error that the system gives for a file of ours,
or of Python's, says nothing to a person whose program holds too many files.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from pullback.tracer.user_code.ownership import is_hidden_file, is_library_file

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)


class NamesExhaustion:
    """A context in which an error of an import or a file of ours, for want of file descriptors, becomes one that says so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError | ImportError) and _is_for_want(error) and not _is_of_users(traceback):
            text = (
                "the process has no file descriptors left, and the first call of a function needs some: close files, or allow "
                f"more (ulimit -n); met by {getattr(error, 'filename', None) or error}"
            )
            raise OSError(errno.EMFILE, text) from error


def _is_for_want(error: OSError | ImportError) -> bool:
    if isinstance(error, OSError):
        return error.errno in _NONE_LEFT
    try:  # the loader of libraries gives a text
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as another:
        return another.errno in _NONE_LEFT
    return False


def _is_of_users(traceback: TracebackType | None) -> bool:
    """Whether the user's own code opened the file: the innermost function that is not Python's."""
    files = []
    while traceback is not None:
        files.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    inner = [file for file in files if not file.startswith("<frozen") and not is_library_file(file)]
    return bool(inner) and not is_hidden_file(inner[-1])
