"""Report that the process has run out of file descriptors during the first call of a function.

A first call imports modules, loads libraries and reads the cache folder. The operating system's error names a file of the
package or of Python, which does not tell the user that the program holds too many files open.
"""

from __future__ import annotations

import errno
import os
from types import TracebackType

from pullback.tracer.user_code.ownership import is_hidden_file, is_library_file

_NONE_LEFT = (errno.EMFILE, errno.ENFILE)


class ReportsExhaustion:
    """A context that replaces an error caused by missing file descriptors, in an import or a file of the package, by one that
    says so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError | ImportError) and _is_exhaustion(error) and not _is_of_users(traceback):
            text = (
                "the process has no file descriptors left, and the first call of a function needs some: close files, or allow "
                f"more (ulimit -n); met by {getattr(error, 'filename', None) or error}"
            )
            raise OSError(errno.EMFILE, text) from error


def _is_exhaustion(error: OSError | ImportError) -> bool:
    """Return whether an error was caused by a lack of file descriptors."""
    if isinstance(error, OSError):
        return error.errno in _NONE_LEFT
    try:  # the dynamic loader gives only a message
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as another:
        return another.errno in _NONE_LEFT
    return False


def _is_of_users(traceback: TracebackType | None) -> bool:
    """Return whether the user's own code opened the file: whether the innermost frame that is not Python's own is the user's."""
    files = []
    while traceback is not None:
        files.append(traceback.tb_frame.f_code.co_filename)
        traceback = traceback.tb_next
    inner = [file for file in files if not file.startswith("<frozen") and not is_library_file(file)]
    return bool(inner) and not is_hidden_file(inner[-1])
