"""The part of the package's metadata that depends on the project's address and contact, which are in pullback/version.py. The
rest is in pyproject.toml.

A package page shows README.md without the files that it links to. So relative links become absolute ones; while there is no
address, they are plain text there.
"""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
RELATIVE = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!\w+:|#)([^)\s]+)\)")
"""A Markdown link or picture whose target is a path."""


def constant(name: str) -> str:
    """Return a text of pullback/version.py, which is read and not imported: a build need not have the dependencies."""
    match = re.search(rf'^{name} = "(.*)"$', (ROOT / "pullback" / "version.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def page(text: str, address: str) -> str:
    """Return a README for a package page: its relative links and pictures go to the files at ``address``, and without one links
    are plain text and pictures are left out."""

    def absolute(match: re.Match[str]) -> str:
        is_picture, label, target = match.groups()
        if not address:
            return "" if is_picture else label
        return f"{is_picture}[{label}]({address}/{'raw' if is_picture else 'blob'}/main/{target})"

    return RELATIVE.sub(absolute, text)


def links(address: str) -> dict[str, str]:
    """Return the links that a package page shows."""
    if not address:
        return {}
    paths = {"Source": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}
    return {name: address + path for name, path in paths.items()}


if __name__ == "__main__":
    ADDRESS = constant("ADDRESS").rstrip("/")
    setup(
        author="The pullback developers",
        author_email=constant("CONTACT") or None,
        long_description=page((ROOT / "README.md").read_text(encoding="utf-8"), ADDRESS),
        long_description_content_type="text/markdown",
        project_urls=links(ADDRESS),
    )
