"""Build the documentation site: ``python docs/build_site.py [--full]``, which ``make docs`` and ``make docs-full`` run.

The pages are copied to build/site/docs, next to links to the other folders, so that generated pages do not mix with sources.
By default the gallery and the notebooks show their stored output. With ``--full`` all programs run, and their output is stored
anew in docs/gallery and docs/tutorial.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "build" / "site"
HTML = SITE / "html"
LINKED = (
    "README.md", "CHANGELOG.md", "LICENSE", "benchmarks", "codegen", "examples", "ir", "pullback", "runtime", "tests", "tracer"
)  # fmt: skip
"""What pages link to outside docs/."""
STORED = ROOT / "docs" / "gallery"
NOTEBOOKS = ROOT / "docs" / "tutorial"


def prepare(source: Path, is_full: bool) -> None:
    """Copy the pages, without the stored gallery if it is made anew."""
    generated = source / "reference" / "generated"
    shutil.rmtree(source, ignore_errors=True)
    source.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("__pycache__", "*.inv", "generated"))
    generated.mkdir(exist_ok=True)
    if is_full:
        shutil.rmtree(source / "gallery", ignore_errors=True)
    for name in LINKED:
        link = source.parent / name
        if not link.exists():
            link.symlink_to(ROOT / name)


def cleaned(page: str) -> str:
    """Return a page of the gallery without what changes from run to run: times, links to downloads that are not stored, and the
    folders of this machine."""
    page = page.replace(f"{SITE}/", "").replace(f"{ROOT}/", "")
    page = re.sub(r"^\.\. only:: html\n\n(?: +[^\n]*\n|\n)+", "", page, count=1, flags=re.MULTILINE)
    page = re.sub(r"^\.\. rst-class:: sphx-glr-timing\n\n(?: +[^\n]*\n)+", "", page, flags=re.MULTILINE)
    return re.split(r"^\.\. _sphx_glr_download_", page, flags=re.MULTILINE)[0].rstrip() + "\n"


def store(source: Path) -> None:
    """Store the pages and pictures of the gallery, and the notebooks with their output."""
    shutil.rmtree(STORED, ignore_errors=True)
    (STORED / "images" / "thumb").mkdir(parents=True)
    for path in sorted((source / "gallery").glob("plot_*")):
        if path.suffix == ".rst":
            (STORED / path.name).write_text(cleaned(path.read_text()))
        elif path.suffix == ".md5" and ".py" in path.name:
            shutil.copy(path, STORED)
    for path in sorted((source / "gallery" / "images").rglob("*.png")):
        shutil.copy(path, STORED / path.relative_to(source / "gallery"))
    for path in sorted((HTML.parent / "jupyter_execute" / "tutorial").glob("*.ipynb")):
        (NOTEBOOKS / path.name).write_text(path.read_text().rstrip() + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="run the gallery and the notebooks, and store their output")
    is_full = parser.parse_args().full
    source = SITE / "docs"
    prepare(source, is_full)
    environment = os.environ | {"PULLBACK_DOCS_ROOT": str(ROOT)}
    if is_full:  # an empty kernel cache: a program of the gallery shows what a first call costs
        shutil.rmtree(SITE / "kernels", ignore_errors=True)
        environment |= {"PULLBACK_DOCS_FULL": "1", "PULLBACK_CACHE_DIR": str(SITE / "kernels")}
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-E", "-d", str(SITE / "doctrees")]
    done = subprocess.run([*command, str(source), str(HTML)], env=environment, check=False)
    if done.returncode == 0 and is_full:
        store(source)
    print(f"{HTML}/index.html" if done.returncode == 0 else "the site was not built")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
