"""What is called in each program of examples/first_week: the function, its arguments, and what changes before a second call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = Any
Module = Any


@dataclass(frozen=True, kw_only=True)
class Case:
    """``start(module)`` gives the function and its arguments, by the first of which it is differentiated.

    ``change(module, function)`` changes what the function reads from outside, and gives the new arguments, or None for the
    old ones. ``step``: of the differences.
    """

    start: Callable[[Module], tuple[Callable[..., Any], tuple[Any, ...]]]
    change: Callable[[Module, Any], tuple[Any, ...] | None]
    step: float = 1e-4


def near(center: Any, seed: int = 0, scale: float = 0.05) -> Array:
    """Return an array that differs a little from ``center``."""
    center = np.asarray(center, float)
    return center + scale * np.random.default_rng(seed).uniform(-1, 1, center.shape)


def _closure(m: Module) -> Any:
    t, observed = m.video()
    return m.make_loss(t, observed), (np.array([0.8, 0.1, 1.0]),)


def _lower_gravity(m: Module, _: Any) -> None:
    m.g = 1.62


def _set(**values: Any) -> Callable[[Module, Any], None]:
    """Changes globals of the module."""
    return lambda m, f: vars(m).update(values)


def _set_self(**values: Any) -> Callable[[Module, Any], None]:
    """Changes attributes of the object whose method is called."""
    return lambda m, f: vars(f.__self__).update(values)


def _other_notebook_data(m: Module, _: Any) -> None:
    m.lam, m.y = 0.3, 1 - m.y


def _scene(m: Module, seed: int) -> tuple[Any, ...]:
    camera, poses, board, images = m.scene(seed=seed)
    return m.Camera(830.0, camera.centre + 1, camera.distortion), poses + 0.01, board, images


def _net(m: Module, rows: int, columns: int, sag: float) -> tuple[Any, ...]:
    springs, nodes, fixed = m.grid(rows, columns)
    free = np.setdiff1d(np.arange(len(nodes)), fixed)
    return near(nodes[free] - [0, 0, sag]).ravel(), nodes, springs, free, fixed


def _network(m: Module, sizes: list[int], seed: int, *activation: str) -> tuple[Any, ...]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (30, sizes[0]))
    return m.init(sizes, rng), x, np.sin(x.sum(axis=1)), *activation


def _truss(m: Module, bays: int) -> tuple[Any, ...]:
    nodes, bars = m.bridge(bays)
    load = np.zeros(nodes.size)
    load[2 * bays + 1] = -1.0
    return near(np.ones(len(bars))), nodes, bars, load, np.setdiff1d(np.arange(nodes.size), [0, 1, 4 * bays + 1])


def _paths(m: Module, seed: int, strike: float) -> tuple[Any, ...]:
    z1, z2 = np.random.default_rng(seed).standard_normal((2, 12, 500))
    return m.Heston(), strike, z1, z2


def _assay(m: Module, seed: int) -> tuple[Any, ...]:
    return np.array([1.0, 95.0, -0.3, 1.2]), *m.assay(seed=seed)


def _ratings(m: Module, seed: int, n: int) -> tuple[Any, ...]:
    u, i, r = m.ratings(n=n, seed=seed)
    return m.initial(seed=seed), u, i, r


CASES = {
    "bayesian_regression": Case(
        start=lambda m: (m.log_evidence, (np.array([0.1, 1.0, -0.2]), *m.data(), np.linspace(0, 5, 12))),
        change=lambda m, f: (np.array([0.0, 0.5, 0.1]), *m.data(n=50, seed=1), np.linspace(0, 5, 9)),
    ),
    "black_scholes": Case(
        start=lambda m: (m.BlackScholes(r=0.03).book_value, (101.0, np.arange(80.0, 121.0, 10.0), 0.2, 0.5, np.arange(-2, 3))),
        change=_set_self(r=0.06, q=0.01),
    ),
    "camera_calibration": Case(start=lambda m: (m.reprojection_error, _scene(m, 0)), change=lambda m, f: _scene(m, 1)),
    "deblur": Case(
        start=lambda m: (m.misfit, (near(m.scene()[1]).ravel(), m.scene()[1], m.kernel(1.4), 0.01)),
        change=lambda m, f: (near(m.scene(30)[1]).ravel(), m.scene(30)[1], m.kernel(1.1), 0.1),
    ),
    "dose_response": Case(start=lambda m: (m.weighted_sse, _assay(m, 0)), change=lambda m, f: _assay(m, 1)),
    "embedding": Case(
        start=lambda m: (m.kl, (near(np.zeros((90, 2))), m.affinities(m.clusters()[0]))),
        change=lambda m, f: (near(np.zeros((60, 2)), scale=1.0), m.affinities(m.clusters(60, seed=1)[0])),
    ),
    "enzyme_kinetics": Case(
        start=lambda m: (m.aic, (near(np.ones(3)), m.competitive, m.experiments())),
        change=lambda m, f: (near(np.ones(4)), m.mixed, m.experiments(seed=1)),
    ),
    "garch": Case(
        start=lambda m: (m.negative_log_likelihood, (np.array([0.1, 0.1, 0.7]), m.simulate())),
        change=lambda m, f: (np.array([0.05, 0.2, 0.6]), m.simulate(seed=1)),
    ),
    "gaussian_mixture": Case(
        start=lambda m: (m.loss, (near(np.zeros(18), scale=1.0), m.points()[0])),
        change=lambda m, f: (near(np.zeros(18), 1, scale=1.0), m.points(n=100, seed=2)[0]),
    ),
    "gaussian_process": Case(
        start=lambda m: (m.negative_log_marginal, (np.array([0.2, 0.1, -1.0]), *m.observations())),
        change=lambda m, f: (np.array([0.0, 0.3, -1.5]), *m.observations(n=25, seed=1)),
    ),
    "heat_inverse": Case(
        start=lambda m: (m.misfit, (np.array([11.0, 13.0, 1.2]), m.measured())),
        change=lambda m, f: (np.array([9.0, 14.0, 1.5]), m.measured(truth=(12.0, 10.0, 1.0), seed=1)),
    ),
    "heston_paths": Case(
        start=lambda m: (m.call_price, _paths(m, 0, 100.0)), change=lambda m, f: _paths(m, 1, 95.0), step=1e-7
    ),
    "hidden_markov": Case(
        start=lambda m: (m.loss, (near(np.zeros(8), scale=0.5), m.returns())),
        change=lambda m, f: (near(np.ones(8), scale=0.5), m.returns(seed=3)),
    ),
    "hmc_posterior": Case(
        start=lambda m: (m.log_posterior, (np.array([0.9, 2.2, -1.0]), *m.line())),
        change=lambda m, f: (np.array([0.5, 2.0, -0.5]), *m.line(n=31, seed=1)),
    ),
    "holt_winters": Case(
        start=lambda m: (m.HoltWinters().sse, (np.array([-1.0, -2.0, -1.0]), m.passengers())),
        change=_set_self(damping=0.9),
    ),
    "image_registration": Case(
        start=lambda m: (m.mismatch, (np.array([0.31, 0.22, 0.013, 1.01]), m.blobs(), m.blobs(seed=3))),
        change=lambda m, f: (np.array([0.4, -0.3, 0.02, 0.99]), m.blobs(seed=4), m.blobs(seed=5)),
        step=1e-7,
    ),
    "implied_vol": Case(
        start=lambda m: (m.call, (0.25, 100.0, 110.0, 0.75, 0.01)), change=lambda m, f: (0.4, 90.0, 80, 1, 0.02)
    ),
    "inverse_kinematics": Case(
        start=lambda m: (m.cost, (near(np.full(5, 0.2)), np.array([1.6, 1.5]))),
        change=_set(LENGTHS=[1.1, 0.9, 0.6, 0.4, 0.3], OBSTACLE=np.array([1.5, 0.9]), RADIUS=0.5),
    ),
    "item_response": Case(
        start=lambda m: (m.negative_log_posterior, ([near(np.zeros(n)) for n in (150, 20, 20)], m.school()[0])),
        change=lambda m, f: ([near(np.zeros(n)) for n in (40, 10, 10)], m.school(40, 10, seed=1)[0]),
    ),
    "kalman_filter": Case(
        start=lambda m: (m.objective, (np.array([-1.0, -2.0, 0.2]), m.series(n=30))),
        change=lambda m, f: (np.array([-2.0, -1.0, 0.1]), m.series(n=30, seed=1)),
    ),
    "lennard_jones": Case(
        start=lambda m: (m.LennardJones().energy, (near(1.2 * np.mgrid[:2, :2, :3].reshape(3, 12).T).ravel(),)),
        change=_set_self(epsilon=0.7, cutoff=2.5),
    ),
    "logistic_notebook": Case(start=lambda m: (m.loss, (near(np.zeros(9)),)), change=_other_notebook_data),
    "mlp_dict": Case(
        start=lambda m: (m.mse, _network(m, [2, 8, 8, 1], 0)),
        change=lambda m, f: _network(m, [3, 5, 1], 1, "softplus"),
    ),
    "nbody": Case(start=lambda m: (m.potential, (m.cluster()[0], m.cluster()[2])), change=_set(G=2.0, softening=0.2)),
    "nelson_siegel": Case(
        start=lambda m: (m.loss, (np.array([0.03, -0.01, 0.005, 0.01, 1.8, 6.5]), m.quotes())),
        change=lambda m, f: (m.BONDS.append(m.Bond(0.04, 4)) or np.array([0.03, 0, 0, 0, 1.5, 5.0]), m.quotes()),
    ),
    "orbit_determination": Case(
        start=lambda m: (m.misfit, (m.observed()[0] + 0.01, m.DAY, *m.observed()[1:])),
        change=lambda m, f: (m.observed()[0] - 0.01, m.DAY[::2], *[a[::2] for a in m.observed(1)[1:]]),
    ),
    "peak_fit": Case(
        start=lambda m: (m.chi2, (near(m.measured()[3]), *m.measured()[:3])),
        change=lambda m, f: (near(m.measured()[3][:8]), *m.measured(2)[:3]),
    ),
    "pendulum_fit": Case(start=_closure, change=_lower_gravity),
    "poisson_glm": Case(
        start=lambda m: (m.penalised_loss, (near(np.zeros(6)), *m.simulate()[:3])),
        change=lambda m, f: (near(np.zeros(6)), *m.simulate(n=100, seed=1)[:3]),
    ),
    "portfolio": Case(
        start=lambda m: (m.Portfolio(m.market()).shortfall, (near(np.append(np.full(6, 1 / 6), 0.01)),)),
        change=lambda m, f: vars(f.__self__).update(returns=m.market(seed=6)),
        step=1e-7,
    ),
    "probabilistic_pca": Case(
        start=lambda m: (m.objective, (near(np.ones(17)), *m.sample(), 2)),
        change=lambda m, f: (near(np.ones(25)), *m.sample(seed=1), 3),
    ),
    "psychometric": Case(
        start=lambda m: (m.negative_log_posterior, (np.array([0.1, 0.6, 0.04]), *m.subject())),
        change=lambda m, f: (np.array([0.2, 0.4, 0.05]), *m.subject(seed=1)),
    ),
    "reactor": Case(
        start=lambda m: (m.smooth_peak, ({**m.operating_point(), "k0": 1.0, "E": 30.0},)),
        change=_set(R_GAS=8.0),
    ),
    "recommender": Case(start=lambda m: (m.loss, _ratings(m, 0, 500)), change=lambda m, f: _ratings(m, 1, 300)),
    "sir_epidemic": Case(
        start=lambda m: (m.negative_binomial_nll, (np.log([0.5, 0.5, 20.0, 4.0, 6.0]), m.reported())),
        change=lambda m, f: (np.log([0.6, 0.4, 30.0, 3.0, 5.0]), m.reported(seed=1), 25),
    ),
    "softmax_classifier": Case(
        start=lambda m: (m.softmax_cross_entropy, (near(np.zeros((10, 3))), np.zeros(3), *m.spiral(), 1e-3)),
        change=lambda m, f: (near(np.zeros((10, 4))), near(np.zeros(4)), *m.spiral(10, 4), 0.1),
    ),
    "spring_network": Case(start=lambda m: (m.energy, _net(m, 6, 7, 0.1)), change=lambda m, f: _net(m, 3, 5, 0.5)),
    "survival": Case(
        start=lambda m: (m.cox_loss, (np.array([0.3, -0.2]), *m.cohort())),
        change=lambda m, f: (np.array([0.1, 0.2]), *m.cohort(n=90, seed=1)),
    ),
    "trajectory": Case(
        start=lambda m: (m.cost, (np.sin(np.arange(40.0)), m.CartPole(), np.zeros(4), np.array([0, np.pi, 0, 0]))),
        change=lambda m, f: setattr(m.CartPole, "gravity", 1.62),
    ),
    "truss": Case(start=lambda m: (m.compliance, _truss(m, 4)), change=lambda m, f: _truss(m, 2)),
    "tv_denoise": Case(
        start=lambda m: (m.objective, (*m.picture()[::-1], np.float32(0.15))),
        change=lambda m, f: (*m.picture(n=20)[::-1], np.float32(0.3)),
    ),
    "voigt_lines": Case(
        start=lambda m: (m.loss, (m.observation()[2], *m.observation()[:2], 0.1)),
        change=lambda m, f: (m.observation()[2], *m.observation(1)[:2], 0.2),
        step=1e-7,
    ),
    "yield_bootstrap": Case(
        start=lambda m: (m.swap_value, (near(np.full(10, 0.025), scale=0.005), 0.03, 8)),
        change=lambda m, f: (near(np.full(10, 0.03), scale=0.005), 0.02, 5, 1e5),
    ),
}
