"""The view of a call: a page that shows what the compiler made of it."""

from __future__ import annotations

import html
import os
import tempfile
import warnings
import webbrowser
from pathlib import Path

from pullback.programs.call import Call
from pullback.programs.report import Report
from pullback.view.contents import Contents
from pullback.view.gather import contents_of
from pullback.view.page import page_of

HEIGHT = 720
"""The height in pixels of the page in a notebook."""


class View(Report):
    """A page on one call: source and stages with linked lines, kernels, memory, time, the gradient, loops.

    The page is one HTML file that needs no server and no network. ``contents`` has all that it shows as values; if the call
    could not be traced or compiled, ``contents.error`` says why, and the page shows it at its line. A notebook shows the page
    as the last value of a cell.
    """

    __slots__ = ("_html", "contents")

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self._html = ""

    @property
    def html(self) -> str:
        """The page."""
        if not self._html:
            self._html = page_of(self.contents)
        return self._html

    def save(self, path: str | os.PathLike[str], stage: str = "") -> Path:
        """Write the page to a file and return its path. ``stage``: the stage shown first, by default the trace.

        Raises ValueError for a stage that the call does not have, OSError if the file cannot be written.

        >>> f.view(x).save("f.html", stage="llvm")  # doctest: +SKIP
        """
        target = Path(path)
        target.write_text(page_of(self.contents, stage) if stage else self.html, encoding="utf-8")
        return target

    def open(self) -> Path:
        """Write the page to a temporary file, show it in the user's browser, and return the file's path.

        Warns if there is no browser; the file is written all the same.
        """
        folder = Path(tempfile.mkdtemp(prefix="pullback-view-"))
        path = self.save(folder / "page.html")
        if not webbrowser.open(path.as_uri()):
            warnings.warn(f"no browser could be started; the page is in {path}", stacklevel=2)
        return path

    @property
    def headline(self) -> str:
        """The function, and what the page shows of it or why it could not be compiled."""
        contents = self.contents
        if contents.error is not None:
            return f"{contents.title}: {contents.error.text}"
        kernels = sum(node.kind == "kernel" for node in contents.nodes)
        stages = ", ".join(stage.name for stage in contents.stages)
        return f"{contents.title}: {contents.operations:,} operations, {kernels:,} kernels; stages {stages}"

    def __str__(self) -> str:
        return self.headline

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #8884;border-radius:6px"
        return f'<iframe title="pullback" sandbox="allow-scripts" style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def view(call: Call, times: bool = True) -> View:
    """Return the view of a call. ``times``: whether to make and time calls, unless they have effects."""
    return View(contents_of(call, times))
