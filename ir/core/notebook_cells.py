"""Names for code that is in no file: the cells of a notebook or an IPython shell."""

from __future__ import annotations

import re
import sys
from typing import Any

_SHELL = re.compile(r"<ipython-input-(\d+)-\w+>")


def cell_name(file: str) -> str:
    """The name of the cell that IPython compiled under a file's name, as in ``In[3]``; empty if it is none.

    A notebook's kernel compiles cells under the names of files that do not exist, and knows which cell was last run under one.
    """
    shell: Any = sys.modules.get("IPython")
    get = getattr(shell, "get_ipython", None)
    running = get() if get is not None else None
    named = getattr(getattr(running, "compile", None), "format_code_name", None)
    found = named(file) if named is not None else None
    if found is not None:
        return str(found[1])
    match = _SHELL.fullmatch(file)
    return f"In[{match[1]}]" if match else ""
