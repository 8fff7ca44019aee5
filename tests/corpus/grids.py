"""Loops over cells and pixels: automata, fractals, percolation, sandpiles, spins, random growth with given draws."""

import numpy as np

from tests.corpus.case import Case


def elementary_automaton(row, rule, steps):
    """Wolfram's elementary automaton with periodic borders; all generations."""
    n = len(row)
    history = np.zeros((steps + 1, n), dtype=int)
    history[0] = row
    for t in range(steps):
        for i in range(n):
            left, centre, right = history[t, i - 1], history[t, i], history[t, (i + 1) % n]
            pattern = 4 * left + 2 * centre + right
            history[t + 1, i] = (rule >> pattern) & 1
    return history


def game_of_life(grid, steps):
    """Conway's rules on a torus, element by element."""
    rows, cols = grid.shape
    for _ in range(steps):
        new = np.zeros_like(grid)
        for i in range(rows):
            for j in range(cols):
                neighbours = 0
                for di in (-1, 0, 1):
                    for dj in (-1, 0, 1):
                        if di == 0 and dj == 0:
                            continue
                        neighbours += grid[(i + di) % rows, (j + dj) % cols]
                if grid[i, j] == 1 and neighbours in (2, 3):
                    new[i, j] = 1
                elif grid[i, j] == 0 and neighbours == 3:
                    new[i, j] = 1
        grid = new
    return grid


def mandelbrot(re, im, max_iter):
    """Escape times in real arithmetic."""
    image = np.zeros((len(im), len(re)), dtype=np.int64)
    for i, cy in enumerate(im):
        for j, cx in enumerate(re):
            x = y = 0.0
            n = 0
            while x * x + y * y <= 4.0 and n < max_iter:
                x, y = x * x - y * y + cx, 2 * x * y + cy
                n += 1
            image[i, j] = n
    return image


def julia(z0, c, max_iter):
    """Escape times in complex arithmetic, for one row of points."""
    counts = []
    for z in z0:
        for k in range(max_iter):
            if abs(z) > 2:
                counts.append(k)
                break
            z = z * z + c
        else:
            counts.append(max_iter)
    return np.array(counts)


def smooth_escape(cx, cy, max_iter):
    """Continuous escape time of one point."""
    x = y = 0.0
    for n in range(max_iter):
        x, y = x * x - y * y + cx, 2 * x * y + cy
        r2 = x * x + y * y
        if r2 > 1e4:
            return n + 1 - np.log(np.log(r2) / 2) / np.log(2)
    return float(max_iter)


def newton_fractal(points, max_iter):
    """The root of z**3 = 1 that Newton's method reaches from each point."""
    roots = [1.0 + 0j, complex(-0.5, 3**0.5 / 2), complex(-0.5, -(3**0.5) / 2)]
    labels = np.full(points.shape, -1)
    for index, z in enumerate(points):
        for _ in range(max_iter):
            z = z - (z**3 - 1) / (3 * z**2)
            done = False
            for k, root in enumerate(roots):
                if abs(z - root) < 1e-8:
                    labels[index] = k
                    done = True
            if done:
                break
    return labels


def flood_fill(grid, start):
    """Size of the region of open cells around a start, with a stack."""
    n, m = grid.shape
    seen = np.zeros((n, m), dtype=bool)
    stack = [start]
    size = 0
    while stack:
        i, j = stack.pop()
        if i < 0 or j < 0 or i >= n or j >= m:
            continue
        if seen[i, j] or grid[i, j] == 0:
            continue
        seen[i, j] = True
        size += 1
        stack.extend([(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)])
    return size


def distance_map(walls, start, sweeps):
    """Steps from a start around walls by repeated relaxation."""
    n, m = walls.shape
    dist = np.full((n, m), 999)
    dist[start] = 0
    for sweep in range(sweeps):
        changed = False
        for i in range(n):
            for j in range(m):
                if walls[i, j]:
                    continue
                best = dist[i, j]
                if i > 0:
                    best = min(best, dist[i - 1, j] + 1)
                if i < n - 1:
                    best = min(best, dist[i + 1, j] + 1)
                if j > 0:
                    best = min(best, dist[i, j - 1] + 1)
                if j < m - 1:
                    best = min(best, dist[i, j + 1] + 1)
                if best != dist[i, j]:
                    dist[i, j] = best
                    changed = True
        if not changed:
            return dist, sweep
    return dist, sweeps


def ising(spins, sites, uniforms, beta, h):
    """Metropolis with given sites and draws, in place; energy change and acceptances."""
    n = spins.shape[0]
    accepted = 0
    energy = 0.0
    for k in range(len(uniforms)):
        i, j = sites[k]
        nb = spins[(i + 1) % n, j] + spins[i - 1, j] + spins[i, (j + 1) % n] + spins[i, j - 1]
        dE = 2 * spins[i, j] * (nb + h)
        if dE <= 0 or uniforms[k] < np.exp(-beta * dE):
            spins[i, j] *= -1
            energy += dE
            accepted += 1
    return energy, accepted


def sandpile(heights, drops):
    """Abelian sandpile: drop grains, topple while a cell has four or more."""
    n, m = heights.shape
    z = heights.copy()
    topplings = 0
    for r, c in drops:
        z[r, c] += 1
        unstable = True
        while unstable:
            unstable = False
            for i in range(n):
                for j in range(m):
                    if z[i, j] >= 4:
                        unstable = True
                        topplings += 1
                        z[i, j] -= 4
                        if i > 0:
                            z[i - 1, j] += 1
                        if i + 1 < n:
                            z[i + 1, j] += 1
                        if j > 0:
                            z[i, j - 1] += 1
                        if j + 1 < m:
                            z[i, j + 1] += 1
    return z, topplings


def traffic(road, v_max, brakes, steps):
    """Nagel-Schreckenberg on a ring; -1 is an empty cell; the flow through the ring."""
    n = len(road)
    flow = 0
    for t in range(steps):
        new = np.full(n, -1)
        for i in range(n):
            v = road[i]
            if v < 0:
                continue
            gap = 1
            while road[(i + gap) % n] < 0 and gap <= v_max:
                gap += 1
            v = min(v + 1, v_max, gap - 1)
            if brakes[t, i] and v > 0:
                v -= 1
            if i + v >= n:
                flow += 1
            new[(i + v) % n] = v
        road = new
    return road, flow


def dither(image, levels):
    """Floyd-Steinberg error diffusion in place; returns the sum of the absolute errors."""
    h, w = image.shape
    total = 0.0
    for y in range(h):
        for x in range(w):
            old = image[y, x]
            new = np.round(old * (levels - 1)) / (levels - 1)
            err = old - new
            image[y, x] = new
            total += abs(err)
            if x + 1 < w:
                image[y, x + 1] += err * 7 / 16
            if y + 1 < h:
                if x > 0:
                    image[y + 1, x - 1] += err * 3 / 16
                image[y + 1, x] += err * 5 / 16
                if x + 1 < w:
                    image[y + 1, x + 1] += err / 16
    return total


def bilinear(image, rows, cols):
    """Samples of an image at fractional positions; zero outside."""
    out = np.zeros(len(rows))
    h, w = image.shape
    for k in range(len(rows)):
        y, x = rows[k], cols[k]
        if y < 0 or x < 0 or y > h - 1 or x > w - 1:
            continue
        i, j = int(np.floor(y)), int(np.floor(x))
        i1 = i + 1 if i + 1 < h else i
        j1 = j + 1 if j + 1 < w else j
        fy, fx = y - i, x - j
        top = (1 - fx) * image[i, j] + fx * image[i, j1]
        bottom = (1 - fx) * image[i1, j] + fx * image[i1, j1]
        out[k] = (1 - fy) * top + fy * bottom
    return out


def histogram(values, edges):
    """Counts by a linear search over the edges; values outside are dropped."""
    counts = np.zeros(len(edges) - 1, dtype=int)
    for v in values:
        for b in range(len(edges) - 1):
            if edges[b] <= v < edges[b + 1]:
                counts[b] += 1
                break
    return counts


def cells(rng, n, m, p):
    return (rng.uniform(size=(n, m)) < p).astype(int)


def road(rng, n):
    cars = np.where(rng.uniform(size=8) < 0.5, rng.integers(0, 3, 8), -1)
    return cars, 3, rng.uniform(size=(n, 8)) < 0.3, n


CASES = [
    Case(function=elementary_automaton, size=4, turns=300,
         arguments=lambda rng, n: (rng.integers(0, 2, 9), int(rng.choice([30, 110])), n)),
    Case(function=game_of_life, size=2, turns=30, arguments=lambda rng, n: (cells(rng, 4, 5, 0.4), n)),
    Case(function=mandelbrot, size=10, turns=500,
         arguments=lambda rng, n: (np.linspace(-2, 0.5, 4), np.linspace(0.1, 1, 3) + rng.uniform(0, 0.1), n)),
    Case(function=julia, size=10, turns=1000,
         arguments=lambda rng, n: (rng.uniform(-1.5, 1.5, 4) + 1j * rng.uniform(-1.5, 1.5, 4), complex(-0.7, 0.27), n)),
    Case(function=smooth_escape, seeds=6, argnums=(0, 1), size=20,
         arguments=lambda rng, n: (rng.uniform(0.3, 0.5), rng.uniform(0.6, 0.9), n)),
    Case(function=newton_fractal, size=20, turns=100,
         arguments=lambda rng, n: (rng.uniform(0.5, 1.5, 3) * np.exp(1j * rng.uniform(0, 6, 3)), n)),
    Case(function=flood_fill, size=3, turns=30, arguments=lambda rng, n: (cells(rng, n, n, 0.7), (1, 1))),
    Case(function=distance_map, size=3, turns=12, arguments=lambda rng, n: (cells(rng, n, n, 0.3), (0, n - 1), 20)),
    Case(function=ising, writes=True, argnums=(3, 4), size=8, kinks="the rates decide and do not enter",
         arguments=lambda rng, n: (rng.choice([-1, 1], (3, 3)), rng.integers(0, 3, (n, 2)), rng.uniform(size=n), 0.4, 0.1)),
    Case(function=sandpile, size=3, turns=100, arguments=lambda rng, n: (rng.integers(2, 4, (3, 3)), rng.integers(0, 3, (n, 2)))),
    Case(function=traffic, size=3, turns=100, arguments=road),
    Case(function=dither, writes=True, size=3, turns=30, arguments=lambda rng, n: (rng.uniform(size=(n, n + 1)), 3)),
    Case(function=bilinear, argnums=(0, 1, 2), size=6,
         arguments=lambda rng, n: (rng.normal(size=(3, 4)), rng.uniform(-0.5, 2.5, n), rng.uniform(-0.5, 3.5, n))),
    Case(function=histogram, size=8, arguments=lambda rng, n: (rng.normal(size=n), np.linspace(-1.5, 1.5, 5))),
]  # fmt: skip
