"""The documentation site for tests: its build, its links, and a browser that opens its pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from docs.build_site import LINKED
from tests.support.paths import ROOT

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
"""The size of a common phone's screen, in CSS pixels."""
PART = ("index.md", "quickstart.md", "transforms.md", "tutorial/index.md", "how-to/install.md", "reference/tree.rst", "gallery")
"""The pages of the small site: one of each kind."""


def build_part(folder: Path) -> Path:
    """Build the pages of PART, which takes some seconds, and return the folder of HTML."""
    source, html = folder / "docs", folder / "html"
    for name in ("conf.py", "_static", "_templates", "inventories", *PART):
        path, copy = ROOT / "docs" / name, source / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copy(path, copy)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", str(source), str(html)]
    environment = os.environ | {"PULLBACK_DOCS_ROOT": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return html


class Page(HTMLParser):
    """The links of a page, the names that links may end in, and what the page loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.names |= {name for name in (values.get("id"), values.get("name")) if name}
        if tag == "a" and (target := values.get("href")):
            self.links.append(target)
        if tag in ("script", "img", "source", "iframe") and (target := values.get("src")):
            self.loads.append(target)
        if tag == "link" and (target := values.get("href")) and values.get("rel") not in ("canonical", "next", "prev"):
            self.loads.append(target)


def pages(html: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(html.rglob("*.html")) if "_static" not in path.parts}


def dead_links(site: dict[Path, Page]) -> list[str]:
    """Return the links and resources of a site that lead to no file or no heading of it."""
    dead = []
    for path, page in site.items():
        for link in (*page.links, *page.loads):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in site and anchor not in site[target].names):
                dead.append(f"{path.name}: {link}")
    return dead


def outside_resources(site: dict[Path, Page]) -> list[str]:
    """Return what pages load from a network."""
    return [f"{path.name}: {link}" for path, page in site.items() for link in page.loads if urlsplit(link).netloc]


@contextmanager
def served(html: Path) -> Iterator[str]:
    """A server of the folder on this machine, by its address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
