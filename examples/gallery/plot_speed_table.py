"""
Other systems
=============

The stored table of ``make bench``: how many times as long as pullback each system takes for a value
and its gradient, on two threads of a server. Left of the line the other system is faster.
"""

import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

folder = next(p for p in (Path.cwd(), *Path.cwd().parents) if (p / "benchmarks/results/table.json").exists())
results = json.loads((folder / "benchmarks/results/table.json").read_text())["results"]
rows = [r for key, r in results.items() if key.endswith("@2") and "grad" in r["case"] and "pullback" in r["seconds"]]
systems = ("jax", "torch", "tcompile_fn", "drjit", "autograd", "numba", "numpy")

fig, ax = plt.subplots(figsize=(6.4, 3.8))
for k, system in enumerate(systems):
    ratios = [r["seconds"][system] / r["seconds"]["pullback"] for r in rows if r["seconds"].get(system)]
    ax.plot(ratios, np.full(len(ratios), k) + np.linspace(-0.2, 0.2, len(ratios)), "o", ms=4, alpha=0.6)
    ax.plot(np.exp(np.mean(np.log(ratios))), k, "k|", ms=22, mew=2)
ax.axvline(1, color="0.5", lw=1)
ax.set(xscale="log", xlabel="time / time of pullback (bars: geometric means)", yticks=range(len(systems)))
ax.set_yticklabels(systems)
ax.invert_yaxis()
fig.tight_layout()
