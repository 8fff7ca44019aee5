"""Trees, Monte Carlo over given draws, yields, taxes and trading rules."""

import math

import numpy as np

from tests.corpus.case import Case


def binomial_european(S, K, T, r, sigma, n):
    """Cox-Ross-Rubinstein tree of a European call."""
    dt = T / n
    u = np.exp(sigma * np.sqrt(dt))
    d = 1 / u
    p = (np.exp(r * dt) - d) / (u - d)
    values = np.zeros(n + 1)
    for j in range(n + 1):
        values[j] = max(S * u**j * d ** (n - j) - K, 0.0)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1):
            values[j] = np.exp(-r * dt) * (p * values[j + 1] + (1 - p) * values[j])
    return values[0]


def binomial_american(S, K, T, r, sigma, n):
    """American put with rows of shrinking length, and the first step of early exercise at the lowest node."""
    dt = T / n
    u = np.exp(sigma * np.sqrt(dt))
    p = (np.exp(r * dt) - 1 / u) / (u - 1 / u)
    disc = np.exp(-r * dt)
    if not (0 < p < 1):
        raise ValueError("no arbitrage-free probability")
    prices = S * u ** np.arange(-n, n + 1, 2)
    V = np.maximum(K - prices, 0)
    first = None
    for i in range(n, 0, -1):
        V = disc * (p * V[1:] + (1 - p) * V[:-1])
        prices = prices[:-1] * u
        exercise = K - prices
        if exercise[0] > V[0]:
            first = i - 1
        V = np.maximum(V, exercise)
    return V[0], first


def barrier_monte_carlo(S0, K, barrier, r, sigma, T, z):
    """Down-and-out call by paths over given normal draws."""
    n_paths, n_steps = z.shape
    dt = T / n_steps
    drift = (r - 0.5 * sigma**2) * dt
    total = 0.0
    knocked = 0
    for i in range(n_paths):
        S = S0
        alive = True
        for j in range(n_steps):
            S *= math.exp(drift + sigma * math.sqrt(dt) * z[i, j])
            if S < barrier:
                alive = False
                knocked += 1
                break
        if alive and S > K:
            total += S - K
    return math.exp(-r * T) * total / n_paths, knocked


def asian_paths(S0, r, sigma, dt, z):
    """Average price along each path, collected in a list of lists."""
    averages = []
    for row in z:
        path = [S0]
        for draw in row:
            path.append(path[-1] * np.exp((r - sigma**2 / 2) * dt + sigma * np.sqrt(dt) * draw))
        averages.append(sum(path[1:]) / (len(path) - 1))
    return np.array(averages)


def irr(cashflows, guess=0.1):
    """Internal rate of return by Newton on the discount factor."""
    rate = guess
    for _ in range(100):
        npv = 0.0
        d_npv = 0.0
        for t, cf in enumerate(cashflows):
            npv += cf / (1 + rate) ** t
            d_npv -= t * cf / (1 + rate) ** (t + 1)
        step = npv / d_npv
        rate -= step
        if abs(step) < 1e-13:
            return rate
    return np.nan


def norm_cdf(x):
    return 0.5 * (1 + math.erf(x / math.sqrt(2)))


def implied_volatility(prices, S, strikes, T, r):
    """Implied volatilities of calls by Newton, safeguarded by bisection; -1 where the price is below the intrinsic value."""
    out = np.zeros(len(prices))
    for i, (price, K) in enumerate(zip(prices, strikes)):
        if price <= max(S - K * np.exp(-r * T), 0.0):
            out[i] = -1.0
            continue
        lo, hi = 1e-4, 5.0
        sigma = 0.2
        for _ in range(60):
            d1 = (np.log(S / K) + (r + sigma**2 / 2) * T) / (sigma * np.sqrt(T))
            d2 = d1 - sigma * np.sqrt(T)
            diff = S * norm_cdf(d1) - K * np.exp(-r * T) * norm_cdf(d2) - price
            vega = S * np.exp(-(d1**2) / 2) / np.sqrt(2 * np.pi) * np.sqrt(T)
            if diff > 0:
                hi = sigma
            else:
                lo = sigma
            new = sigma - diff / vega if vega > 1e-8 else 0.5 * (lo + hi)
            if new <= lo or new >= hi:
                new = 0.5 * (lo + hi)
            if abs(new - sigma) < 1e-12:
                sigma = new
                break
            sigma = new
        out[i] = sigma
    return out


def income_tax(incomes, brackets, rates):
    """Progressive tax of many incomes."""
    taxes = []
    for income in incomes:
        tax = 0.0
        lower = 0.0
        for upper, rate in zip(brackets, rates):
            if income > upper:
                tax += (upper - lower) * rate
                lower = upper
            else:
                tax += (income - lower) * rate
                break
        else:
            tax += (income - lower) * rates[-1]
        taxes.append(tax)
    return np.array(taxes)


def max_drawdown(prices):
    """The largest relative fall from a running peak, with the days of peak and trough."""
    peak, peak_day = prices[0], 0
    worst, days = 0.0, (0, 0)
    for day, price in enumerate(prices):
        if price > peak:
            peak, peak_day = price, day
        fall = (peak - price) / peak
        if fall > worst:
            worst, days = fall, (peak_day, day)
    return worst, days


def amortisation(principal, rate, payment, extra):
    """Balances of a loan until it is paid, at most 600 months; an extra payment every twelfth month."""
    balance = principal
    balances = []
    interest_paid = 0.0
    month = 0
    while balance > 0 and month < 600:
        interest = balance * rate / 12
        month += 1
        pay = payment + (extra if month % 12 == 0 else 0)
        if pay <= interest:
            raise ValueError("the payment does not cover the interest")
        if pay > balance + interest:
            pay = balance + interest
        balance = balance + interest - pay
        interest_paid += interest
        balances.append(balance)
    return interest_paid, month, balances[0]


def moving_average_cross(prices, fast, slow, fee):
    """A long-only rule: buy when the fast mean crosses above the slow one, sell when below."""
    cash, shares = 1.0, 0.0
    trades = []
    for t in range(slow, len(prices)):
        f = prices[t - fast:t].mean()
        s = prices[t - slow:t].mean()
        if f > s and shares == 0:
            shares = cash * (1 - fee) / prices[t]
            cash = 0.0
            trades.append(t)
        elif f < s and shares > 0:
            cash = shares * prices[t] * (1 - fee)
            shares = 0.0
            trades.append(-t)
    return cash + shares * prices[-1], np.array(trades, dtype=int)


def bond_price(face, coupon, yields, settle):
    """Price from a curve of yields; coupons before the settlement date do not count."""
    price = 0.0
    n = len(yields)
    for k in range(n):
        t = k + 1
        if t <= settle:
            continue
        cf = face * coupon
        if k == n - 1:
            cf += face
        price += cf * np.exp(-yields[k] * (t - settle))
    return price


def wealth(rng, n):
    return 100 * np.exp(np.cumsum(0.1 * rng.normal(size=n)))


def option(rng, n):
    return rng.uniform(90, 110), 100.0, 1.0, 0.05, rng.uniform(0.2, 0.4), n


def quotes(rng, n):
    return rng.uniform(4, 20, n), 100.0, rng.uniform(80, 120, n), 1.0, 0.02


CASES = [
    Case(function=binomial_european, argnums=(0, 1, 2, 3, 4), size=7, turns=60, arguments=option),
    Case(function=binomial_american, argnums=(0, 1, 4), size=8, turns=400, arguments=option,
         failing=lambda rng: (100.0, 100.0, 1.0, 0.9, 0.05, 4)),
    Case(function=barrier_monte_carlo, argnums=(0, 1, 3, 4), size=6, turns=200,
         arguments=lambda rng, n: (100.0, 101.0, 90.0, 0.03, 0.2, 0.5, rng.normal(size=(5, n)))),
    Case(function=asian_paths, argnums=(0, 1, 2, 4), size=5, turns=200,
         arguments=lambda rng, n: (100.0, 0.03, 0.2, 0.05, rng.normal(size=(3, n)))),
    Case(function=irr, argnums=(0,), size=5, turns=300,
         arguments=lambda rng, n: (np.append(-0.6 * n, rng.uniform(0.6, 1.2, n)),)),
    Case(function=implied_volatility, argnums=(0,), size=2, turns=100, arguments=quotes),
    Case(function=income_tax, argnums=(0, 1, 2), size=6,
         arguments=lambda rng, n: (rng.uniform(1, 100, n), np.array([10.0, 30.0, 70.0]), np.array([0.0, 0.2, 0.3]))),
    Case(function=max_drawdown, argnums=(0,), arguments=lambda rng, n: (wealth(rng, n),)),
    Case(function=amortisation, argnums=(0, 1, 2, 3), size=15, turns=590,
         arguments=lambda rng, n: (100.0, rng.uniform(0.02, 0.06), 110.0 / n + 0.6, 3.0),
         failing=lambda rng: (100.0, 0.5, 1.0, 0.0)),
    Case(function=moving_average_cross, argnums=(0,), size=16, arguments=lambda rng, n: (wealth(rng, n), 2, 4, 0.01)),
    Case(function=bond_price, seeds=6, argnums=(0, 1, 2), size=6,
         arguments=lambda rng, n: (100.0, 0.05, rng.uniform(0.01, 0.05, n), rng.uniform(0.2, 2.7))),
]  # fmt: skip
