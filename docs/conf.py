"""Configuration of Sphinx for the site. It is read from build/site/docs, where docs/build_site.py copies the pages."""

from __future__ import annotations

import os
import re
import sys
import zlib
from pathlib import Path
from typing import Any

import pullback

DOCS = Path(__file__).resolve().parent
ROOT = Path(os.environ.get("PULLBACK_DOCS_ROOT", DOCS.parent))
"""The root of the repository, to which links may lead."""
IS_FULL = "PULLBACK_DOCS_FULL" in os.environ
"""Whether the programs of the gallery and the notebooks run; otherwise their stored output is shown."""
SCRAPERS: tuple[Any, ...] = ("matplotlib",)
if IS_FULL:
    sys.path.insert(0, str(DOCS))
    from view_pictures import pictures_of_views

    SCRAPERS = (*SCRAPERS, pictures_of_views)

project = "pullback"
copyright = "the pullback developers"
version = release = pullback.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_nb",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", "inventories", "gallery/*.ipynb"]
default_role = "autolink"
highlight_language = "none"
pygments_style = "default"
nitpicky = False

autosummary_generate = True
autodoc_mock_imports = ["torch"]
autodoc_typehints = "none"
numpydoc_show_class_members = False

myst_heading_anchors = 4
nb_execution_mode = "force" if IS_FULL else "off"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "plot_gallery": IS_FULL,
    "download_all_examples": False,
    "capture_repr": (),
    "image_scrapers": SCRAPERS,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "image_srcset": [],
    "abort_on_example_error": True,
    "write_computation_times": False,
    "show_api_usage": False,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_context = {"default_mode": "auto"}
html_title = "pullback"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}

intersphinx_mapping = {
    "python": ("https://docs.python.org/3", "inventories/python.inv"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.inv"),
    "scipy": ("https://docs.scipy.org/doc/scipy", "inventories/scipy.inv"),
}
intersphinx_timeout = 1

LINK = re.compile(r"(?<!!)\[([^\]\n]*(?:\n[^\]\n]*)?)\]\((?!https?:|#|<)([^)\s#]+)(#[^)\s]*)?\)")


def linked(docname: str, text: str) -> str:
    """Return a page in which links to files outside the site are downloads, and links to folders are text."""
    here = DOCS.joinpath(docname).parent

    def changed(link: re.Match[str]) -> str:
        words, target = link[1], link[2]
        path = Path(os.path.normpath(here / target))
        if path.is_relative_to(DOCS) and not (path.is_dir() and not (path / "index.md").exists()):
            return link[0]
        file = ROOT / path.relative_to(DOCS.parent) if path.is_relative_to(DOCS.parent) else path
        plain = " ".join(words.replace("`", "").split())
        return f"{{download}}`{plain} <{target}>`" if file.is_file() else words

    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if k % 2 else LINK.sub(changed, part) for k, part in enumerate(parts))


def read_source(app: Any, docname: str, source: list[str]) -> None:
    if (DOCS / f"{docname}.md").exists():
        source[0] = linked(docname, source[0])


def write_inventories() -> None:
    """Write the inventories of intersphinx from the lists ``inventories/*.txt``, which name what the site links to.

    The inventories of the projects themselves are on their sites alone, in no package; a build needs no network.
    """
    for path in (DOCS / "inventories").glob("*.txt"):
        head = f"# Sphinx inventory version 2\n# Project: {path.stem}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        rows = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
        path.with_suffix(".inv").write_bytes(head.encode() + zlib.compress("".join(f"{row}\n" for row in rows).encode()))


write_inventories()


def setup(app: Any) -> None:
    app.connect("source-read", read_source)
