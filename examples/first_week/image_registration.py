"""Two pictures are brought together: shift, turn and zoom by bilinear interpolation."""

import numpy as np
from scipy.optimize import minimize

import pullback as pb


def bilinear(image, y, x):
    """Values between pixels; places outside take the edge's value."""
    h, w = image.shape
    y = np.clip(y, 0, h - 1.001)
    x = np.clip(x, 0, w - 1.001)
    y0 = np.floor(y).astype(int)
    x0 = np.floor(x).astype(int)
    fy, fx = y - y0, x - x0
    top = image[y0, x0] * (1 - fx) + image[y0, x0 + 1] * fx
    bottom = image[y0 + 1, x0] * (1 - fx) + image[y0 + 1, x0 + 1] * fx
    return top * (1 - fy) + bottom * fy


def warp(image, dy, dx, angle=0.0, zoom=1.0):
    h, w = image.shape
    yy, xx = np.mgrid[0:h, 0:w]
    cy, cx = (h - 1) / 2, (w - 1) / 2
    u, v = (yy - cy) * zoom, (xx - cx) * zoom
    y = np.cos(angle) * u - np.sin(angle) * v + cy + dy
    x = np.sin(angle) * u + np.cos(angle) * v + cx + dx
    return bilinear(image, y, x)


def mismatch(p, moving, fixed, margin=6):
    inside = np.s_[margin:-margin, margin:-margin]
    return np.mean((warp(moving, *p) - fixed)[inside] ** 2)


def blobs(size=48, seed=2):
    rng = np.random.default_rng(seed)
    y, x = np.ogrid[:size, :size]
    image = np.zeros((size, size))
    for cy, cx, s in rng.uniform([8, 8, 4], [40, 40, 9], (6, 3)):
        image += np.exp(-((y - cy) ** 2 + (x - cx) ** 2) / (2 * s * s))
    return image


def main():
    moving = blobs()
    truth = np.array([1.7, -2.2, 0.08, 1.05])
    fixed = warp(moving, *truth)
    objective = pb.value_and_grad(mismatch)
    fit = minimize(objective, np.array([0.0, 0.0, 0.0, 1.0]), args=(moving, fixed), jac=True, method="BFGS")
    for name, result, true in zip(["dy", "dx", "angle", "zoom"], fit.x, truth):
        print(f"{name:5s} {result:7.4f}  (true {true:5.2f})")
    print(f"mismatch {mismatch(np.array([0, 0, 0, 1.0]), moving, fixed):.2e} -> {fit.fun:.2e}")


if __name__ == "__main__":
    main()
