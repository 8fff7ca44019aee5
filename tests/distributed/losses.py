"""Functions of rows that the tests distribute, in a module that workers can import, and their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np


def squares(w: Any, x: Any, y: Any) -> Any:
    return np.mean((x @ w - y) ** 2) + 0.1 * np.sum(w**2)


def rmse(w: Any, x: Any, y: Any) -> Any:
    return np.sqrt(np.mean((x @ w - y) ** 2))


def centred(w: Any, x: Any, y: Any) -> Any:
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    return np.mean((z @ w - y) ** 2)


def log_sum_exp(w: Any, x: Any, y: Any) -> Any:
    z = x @ w * y
    top = np.max(z)
    return top + np.log(np.sum(np.exp(z - top)))


def tiered(w: Any, x: Any, y: Any) -> Any:
    level = np.where(y > 0, 1, 0)
    return np.mean((w[level] - x[:, 0]) ** 2)


LOSSES = [squares, rmse, centred, log_sum_exp, tiered]


def arguments(rows: int = 1000, columns: int = 5, seed: int = 0) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=columns), rng.normal(size=(rows, columns)), rng.normal(size=rows)
