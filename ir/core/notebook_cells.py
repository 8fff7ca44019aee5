"""Names for code without a file: the cells of a notebook or an IPython shell."""

from __future__ import annotations

import re
import sys
from typing import Any

_SHELL = re.compile(r"<ipython-input-(\d+)-\w+>")


def cell_name(file: str) -> str:
    """Return the name of the cell that IPython compiled under the file name ``file``, as in ``In[3]``; empty if it is no cell.

    A notebook kernel compiles each cell under the name of a file that does not exist, and records which cell last ran under
    it.
    """
    shell: Any = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    running = get() if get is not None else None
    named = getattr(getattr(running, "compile", None), "format_code_name", None)
    cell = named(file) if named is not None else None
    if cell is not None:
        return str(cell[1])
    match = _SHELL.fullmatch(file)
    return f"In[{match[1]}]" if match else ""
