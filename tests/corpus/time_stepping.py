"""Time stepping: Euler, Runge-Kutta with step control, leapfrog, Verlet, implicit Euler, walls and events."""

import numpy as np

from tests.corpus.case import Case


def euler_decay(y0, rates, dt, steps):
    """A chain of decays by Euler's method, all steps kept."""
    y = np.zeros((steps + 1, len(y0)))
    y[0] = y0
    for n in range(steps):
        for i in range(len(y0)):
            y[n + 1, i] = y[n, i] - dt * rates[i] * y[n, i]
            if i > 0:
                y[n + 1, i] += dt * rates[i - 1] * y[n, i - 1]
    return y


def rk4(f, t, y, h):
    k1 = f(t, y)
    k2 = f(t + h / 2, y + h / 2 * k1)
    k3 = f(t + h / 2, y + h / 2 * k2)
    k4 = f(t + h, y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pendulum(theta0, length, t_end, h):
    """Damped pendulum until t_end, the last step shortened; the number of turns of the sign."""
    g = 9.81

    def rhs(t, y):
        return np.array([y[1], -g / length * np.sin(y[0]) - 0.1 * y[1]])

    t = 0.0
    y = np.array([theta0, 0.0])
    swings = 0
    while t < t_end - 1e-12:
        step = min(h, t_end - t)
        new = rk4(rhs, t, y, step)
        if new[0] * y[0] < 0:
            swings += 1
        t, y = t + step, new
    return y, swings


def rk45(y0, mu, t_end, rtol):
    """Van der Pol by Bogacki-Shampine with step control."""
    def f(y):
        return np.array([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])

    t, h = 0.0, 0.1
    y = np.array(y0)
    k1 = f(y)
    accepted = rejected = 0
    while t < t_end:
        if t + h > t_end:
            h = t_end - t
        k2 = f(y + h / 2 * k1)
        k3 = f(y + 3 * h / 4 * k2)
        y_new = y + h * (2 / 9 * k1 + 1 / 3 * k2 + 4 / 9 * k3)
        k4 = f(y_new)
        err = np.max(np.abs(h * (-5 / 72 * k1 + 1 / 12 * k2 + 1 / 9 * k3 - 1 / 8 * k4)) / (1e-6 + rtol * np.abs(y_new)))
        if err <= 1:
            t += h
            y, k1 = y_new, k4
            accepted += 1
        else:
            rejected += 1
        h *= min(5.0, max(0.2, 0.9 * (1 / err) ** (1 / 3)))
        if accepted + rejected > 5000:
            raise RuntimeError("too many steps")
    return y, accepted, rejected


def leapfrog(x, v, dt, nsteps):
    """Kick-drift-kick for a softened two-body problem; energies of every fifth step."""
    energies = []
    for i in range(nsteps):
        r2 = x[0] ** 2 + x[1] ** 2 + 0.01
        v = v - 0.5 * dt * x / r2**1.5
        x = x + dt * v
        r2 = x[0] ** 2 + x[1] ** 2 + 0.01
        v = v - 0.5 * dt * x / r2**1.5
        if i % 5 == 0:
            energies.append(0.5 * np.dot(v, v) - 1 / np.sqrt(r2))
    return x, v, np.array(energies)


def pair_forces(pos, cutoff):
    n = pos.shape[0]
    forces = np.zeros_like(pos)
    energy = 0.0
    for i in range(n):
        for j in range(i + 1, n):
            d = pos[i] - pos[j]
            r2 = d @ d
            if r2 >= cutoff**2:
                continue
            s6 = 1.0 / r2**3
            energy += 4 * (s6 * s6 - s6)
            fij = 24 * (2 * s6 * s6 - s6) / r2 * d
            forces[i] += fij
            forces[j] -= fij
    return forces, energy


def verlet(pos, vel, dt, n):
    """Velocity Verlet of a few Lennard-Jones particles with a cutoff."""
    f, e = pair_forces(pos, 2.0)
    for _ in range(n):
        vel = vel + 0.5 * dt * f
        pos = pos + dt * vel
        f, e = pair_forces(pos, 2.0)
        vel = vel + 0.5 * dt * f
    return pos, vel, e


def bouncing_balls(x, v, dt, steps, restitution):
    """Balls under gravity over a floor and between walls; bounces and kinetic energy. Writes into x and v."""
    bounces = np.zeros(len(x), dtype=int)
    for step in range(steps):
        for i in range(len(x)):
            v[i, 1] -= 9.81 * dt
            x[i] += v[i] * dt
            if x[i, 1] < 0:
                x[i, 1] = -x[i, 1]
                v[i, 1] = -restitution * v[i, 1]
                bounces[i] += 1
            if x[i, 0] < 0 or x[i, 0] > 1:
                x[i, 0] = -x[i, 0] if x[i, 0] < 0 else 2 - x[i, 0]
                v[i, 0] *= -1
    return bounces, 0.5 * np.sum(v**2) + np.sum(x[:, 0])


def heat_explicit(u0, alpha, dx, dt, nt):
    """Heat equation with a fixed left end and an insulated right end."""
    u = u0.copy()
    r = alpha * dt / dx**2
    if not 0 < r <= 0.5:
        raise ValueError(f"unstable: r = {r:.3f}")
    for _ in range(nt):
        un = u.copy()
        for i in range(1, len(u) - 1):
            u[i] = un[i] + r * (un[i + 1] - 2 * un[i] + un[i - 1])
        u[-1] = u[-2]
    return u


def implicit_euler(y0, k, dt, n, tol=1e-12):
    """Stiff cubic decay, each step by Newton's method."""
    ys = [y0]
    total = 0
    for _ in range(n):
        y_old = ys[-1]
        y = y_old
        for it in range(1, 21):
            g = y - y_old + dt * k * y**3
            dg = 1 + 3 * dt * k * y**2
            dy = -g / dg
            y += dy
            if abs(dy) < tol:
                break
        else:
            raise RuntimeError("Newton did not converge")
        total += it
        ys.append(y)
    return np.asarray(ys), total


def projectile(speed, angle, drag, dt):
    """Range of a projectile with quadratic drag, by the step that crosses the ground, interpolated."""
    x, y = 0.0, 0.0
    vx, vy = speed * np.cos(angle), speed * np.sin(angle)
    apex = 0.0
    while True:
        x_old, y_old = x, y
        v = np.hypot(vx, vy)
        vx += -drag * v * vx * dt
        vy += (-9.81 - drag * v * vy) * dt
        x += vx * dt
        y += vy * dt
        apex = max(apex, y)
        if y < 0:
            break
    s = y_old / (y_old - y)
    return x_old + s * (x - x_old), apex


def adams_bashforth(y0, lam, h, n):
    """Two-step method with a first Euler step."""
    y = y0
    f_prev = None
    for i in range(n):
        f = -lam * y + np.sin(i * h)
        if f_prev is None:
            y = y + h * f
        else:
            y = y + h * (1.5 * f - 0.5 * f_prev)
        f_prev = f
    return y


def random_walk(steps, lower, upper):
    """First exit of a walk from an interval: side and time, or the final position."""
    position = 0.0
    for t, s in enumerate(steps):
        position += s
        if position <= lower:
            return "lower", t, position
        if position >= upper:
            return "upper", t, position
    return "inside", len(steps), position


def exit_position(steps, lower, upper):
    """The same for all rows, without the names."""
    out = np.zeros(steps.shape[0])
    exit_time = np.full(steps.shape[0], -1)
    for i, row in enumerate(steps):
        position = 0.0
        for t in range(row.shape[0]):
            position += row[t]
            if not lower < position < upper:
                exit_time[i] = t
                break
        out[i] = position
    return out, exit_time


def balls(rng, n):
    return rng.uniform(0.2, 0.8, (2, 2)), rng.normal(size=(2, 2)), 0.05, n, 0.9


def lattice(rng, n):
    pos = 1.2 * np.array([[0.0, 0], [1, 0], [0, 1]]) + 0.1 * rng.uniform(-1, 1, (3, 2))
    return pos, 0.1 * rng.normal(size=(3, 2)), 0.005, n


CASES = [
    Case(function=euler_decay, argnums=(0, 1), size=8,
         arguments=lambda rng, n: (rng.uniform(1, 2, 3), rng.uniform(0.5, 1.5, 3), 0.05, n)),
    Case(function=pendulum, argnums=(0, 1),
         arguments=lambda rng, n: (rng.uniform(0.5, 1.5), rng.uniform(0.3, 0.6), 0.07 * n, 0.1)),
    Case(function=rk45, argnums=(0, 1), size=10, turns=100,
         arguments=lambda rng, n: (rng.uniform(1, 2, 2), rng.uniform(0.5, 2.0), 0.15 * n, 1e-3)),
    Case(function=leapfrog, argnums=(0, 1, 2), arguments=lambda rng, n: (rng.uniform(0.8, 1.2, 2), rng.normal(size=2), 0.02, n)),
    Case(function=verlet, argnums=(0, 1), size=3, turns=300, arguments=lattice),
    Case(function=bouncing_balls, writes=True, size=8, turns=500, argnums=(0, 1), arguments=balls),
    Case(function=heat_explicit, argnums=(0, 1), size=5, turns=300,
         arguments=lambda rng, n: (rng.uniform(size=8), rng.uniform(0.5, 1.0), 0.1, 0.004, n),
         failing=lambda rng: (rng.uniform(size=8), 2.0, 0.1, 0.004, 3)),
    Case(function=implicit_euler, argnums=(0, 1), size=4,
         arguments=lambda rng, n: (rng.uniform(0.5, 1.5), rng.uniform(5, 50), 0.1, n)),
    Case(function=projectile, argnums=(0, 1, 2), size=20,
         arguments=lambda rng, n: (rng.uniform(8, 12), rng.uniform(0.5, 1.0), 0.02, 1.5 / n)),
    Case(function=adams_bashforth, argnums=(0, 1), arguments=lambda rng, n: (rng.uniform(0.5, 1.5), 1.5, 0.1, n)),
    Case(function=random_walk, seeds=6, argnums=(0,), size=20, arguments=lambda rng, n: (rng.normal(size=n), -2.5, 2.5)),
    Case(function=exit_position, argnums=(0,), size=5, turns=100, arguments=lambda rng, n: (rng.normal(size=(3, n)), -2.5, 2.5)),
]  # fmt: skip
