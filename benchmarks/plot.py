"""The plot of a run: for each case the times of the others divided by pullback's."""

import importlib
from pathlib import Path
from typing import Any

from benchmarks.report import Row, rows

MARKS = {
    "limit of the machine": ("|", "#202020", 90),
    "best by hand (C, Numba, NumPy)": ("s", "#1b9e77", 26),
    "best AD system": ("o", "#d95f02", 30),
    "NumPy": ("x", "#7570b3", 26),
}


def times(row: Row) -> dict[str, float | None]:
    result = (row.limit or None, row.hand and row.hand[1], row.ad and row.ad[1], row.numpy)
    return dict(zip(MARKS, result))


def draw(chosen: list[Row], title: str, path: Path) -> None:
    """Writes path.svg and path.png.

    Raises: ModuleNotFoundError without matplotlib.
    """
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "pullback"
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(8.5, 1.2 + 0.19 * len(chosen)))
    for name, (mark, colour, size) in MARKS.items():
        points = [(t / row.ours, y) for y, row in enumerate(chosen) if (t := times(row)[name])]
        axes.scatter(*zip(*points, strict=True), marker=mark, c=colour, s=size, label=name, zorder=3) if points else None
    axes.axvline(1.0, color="#202020", linewidth=1.0)
    axes.set_xscale("log")
    axes.set_yticks(range(len(chosen)), [row.label for row in chosen], fontsize=7)
    axes.set_ylim(len(chosen) - 0.4, -0.6)
    axes.grid(axis="both", color="#dddddd", linewidth=0.6)
    axes.set_xlabel("time / pullback's (right of the line: slower than pullback)")
    axes.set_title(title, fontsize=10)
    axes.legend(
        loc="upper center", bbox_to_anchor=(0.4, -0.75 / (0.19 * len(chosen) + 1.2) - 0.005), ncols=4, fontsize=7, frameon=False
    )
    figure.tight_layout()
    figure.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    figure.savefig(path.with_suffix(".png"), dpi=110)


def draw_all(report: dict[str, Any], path: Path) -> list[Path]:
    """Draw one plot for each number of threads, in files next to ``path``, and return their paths."""
    drawn = []
    for threads in sorted({result["threads"] for result in report["results"].values()}):
        chosen = list(rows(report["results"], threads))
        position = path.with_name(f"{path.stem}-{threads}")
        if chosen:
            draw(chosen, f"{threads} thread{'s' if threads > 1 else ''}", position)
            drawn.append(position.with_suffix(".svg"))
    return drawn
