"""Simulations with state in classes, dicts, tuples and closures: tanks, queues, epidemics, inventories, thermostats."""

from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np

from tests.corpus.case import Case


class Tank:
    """A tank with an overflow."""

    def __init__(self, area, height, level):
        self.area = area
        self.height = height
        self.level = level
        self.spilled = 0.0

    def step(self, inflow, opening, dt):
        outflow = opening * np.sqrt(2 * 9.81 * self.level) if self.level > 0 else 0.0
        self.level += dt * (inflow - outflow) / self.area
        if self.level > self.height:
            self.spilled += (self.level - self.height) * self.area
            self.level = self.height
        elif self.level < 0:
            self.level = 0.0
        return outflow


def cascade(inflows, opening, dt):
    """Two tanks in a row."""
    upper, lower = Tank(1.0, 0.8, 0.3), Tank(2.0, 1.0, 0.2)
    out = []
    for q in inflows:
        q1 = upper.step(q, opening, dt)
        out.append(lower.step(q1, 0.8 * opening, dt))
    return np.array(out), upper.spilled + lower.spilled


def thermostat(outside, setpoint, power, loss):
    """A heater with hysteresis and a minimum time between switches; temperature and switches."""
    T = 18.0
    state = {"on": False, "since": 10, "switches": 0}
    temps = np.zeros(len(outside))
    for k, ambient in enumerate(outside):
        if state["since"] >= 3:
            if not state["on"] and T < setpoint - 0.5:
                state["on"], state["since"] = True, 0
                state["switches"] += 1
            elif state["on"] and T > setpoint + 0.5:
                state["on"], state["since"] = False, 0
                state["switches"] += 1
        state["since"] += 1
        T += loss * (ambient - T) + (power if state["on"] else 0.0)
        temps[k] = T
    return temps, state["switches"]


Epidemic = namedtuple("Epidemic", "S I R")


def sir_lockdown(beta, gamma, threshold, days):
    """SIR with a lockdown while many are infected; the peak and its day."""
    s = Epidemic(0.99, 0.01, 0.0)
    peak, peak_day = 0.0, 0
    locked_days = 0
    for day in range(days):
        b = beta
        if s.I > threshold:
            b = 0.3 * beta
            locked_days += 1
        new = b * s.S * s.I
        recovered = gamma * s.I
        s = Epidemic(s.S - new, s.I + new - recovered, s.R + recovered)
        if s.I > peak:
            peak, peak_day = s.I, day
    return s, peak, peak_day, locked_days


def inventory(demands, reorder, up_to, lead):
    """An (s, S) policy with orders in transit; the cost and the lost sales."""
    stock = up_to
    pending = []
    cost = lost = 0.0
    for day, demand in enumerate(demands):
        arrived = [q for t, q in pending if t == day]
        pending = [(t, q) for t, q in pending if t != day]
        stock += sum(arrived)
        sold = min(stock, demand)
        lost += demand - sold
        stock -= sold
        if stock < reorder and not pending:
            quantity = up_to - stock
            pending.append((day + lead, quantity))
            cost += 2.0 + 0.5 * quantity
        cost += 0.1 * stock
    return cost, lost


def single_server_queue(arrivals, services, capacity):
    """Waiting times in a queue with limited room, by a deque of departure times."""
    departures = deque()
    waits = []
    rejected = 0
    for a, s in zip(arrivals, services):
        while departures and departures[0] <= a:
            departures.popleft()
        if len(departures) >= capacity:
            rejected += 1
            continue
        start = departures[-1] if departures else a
        waits.append(start - a)
        departures.append(start + s)
    return sum(waits) / len(waits), rejected


def multi_server(arrivals, services, n_servers):
    """Each customer goes to the server that is free first."""
    free = np.zeros(n_servers)
    total_wait = 0.0
    for a, s in zip(arrivals, services):
        k = int(np.argmin(free))
        start = max(a, free[k])
        total_wait += start - a
        free[k] = start + s
    return total_wait, free


@dataclass
class Battery:
    """A store with limits and efficiencies."""

    capacity: float
    charge: float
    efficiency: float

    def apply(self, surplus):
        if surplus >= 0:
            stored = min(surplus * self.efficiency, self.capacity - self.charge)
            self.charge += stored
            return surplus - stored / self.efficiency
        drawn = min(-surplus, self.charge)
        self.charge -= drawn
        return surplus + drawn


def energy_balance(generation, load, capacity):
    """Exported and imported energy of a house with a battery."""
    battery = Battery(capacity, 0.5 * capacity, 0.9)
    exported = imported = 0.0
    for g, l in zip(generation, load):
        rest = battery.apply(g - l)
        if rest > 0:
            exported += rest
        else:
            imported -= rest
    return exported, imported, battery.charge


def make_counter(limit):
    count = 0

    def tick(x):
        nonlocal count
        if x > limit:
            count += 1
        return count

    return tick


def closure_counts(x, limit):
    """A counter in a closure."""
    tick = make_counter(limit)
    return np.array([tick(v) for v in x])


def predator_prey(prey, predators, steps, dt):
    """Lotka-Volterra that ends when a population dies out."""
    for k in range(steps):
        d_prey = prey * (1.0 - 0.5 * predators)
        d_pred = predators * (0.4 * prey - 0.9)
        prey, predators = prey + dt * d_prey, predators + dt * d_pred
        if prey < 0.05 or predators < 0.05:
            return prey, predators, k, True
    return prey, predators, steps, False


def neuron(current, threshold, dt):
    """Leaky integrate-and-fire with a refractory time; spike times and the last voltage."""
    v, refractory = 0.0, 0
    spikes = []
    for t in range(len(current)):
        if refractory > 0:
            refractory -= 1
            continue
        v += dt * (-v + current[t])
        if v >= threshold:
            spikes.append(t * dt)
            v = 0.0
            refractory = 2
    return np.array(spikes), v


def snow_model(temperature, precipitation, melt_rate, t_snow):
    """Degree-day snow with a bucket of soil water; runoff per day."""
    snow, soil = 0.0, 5.0
    runoff = np.empty(len(temperature))
    for i, (T, P) in enumerate(zip(temperature, precipitation)):
        rain = 0.0
        if T <= t_snow:
            snow += P
        else:
            rain = P
        melt = min(snow, melt_rate * (T - t_snow)) if T > t_snow else 0
        snow -= melt
        soil += rain + melt
        if soil > 10:
            runoff[i] = soil - 10
            soil = 10.0
        else:
            runoff[i] = 0.05 * soil
            soil -= runoff[i]
    return runoff, snow, soil


def elevator(requests, position):
    """A state machine with names of states; distance travelled and stops."""
    state, target = "idle", None
    distance = 0
    stops = []
    queue = list(requests)
    while True:
        if state == "idle":
            if not queue:
                break
            target = queue.pop(0)
            state = "moving"
        elif state == "moving":
            if position == target:
                state = "open"
            else:
                position += 1 if target > position else -1
                distance += 1
        else:
            stops.append(position)
            state = "idle"
    return distance, stops


def gas_in_box(x, v, radius, dt, steps):
    """Discs in a box with elastic collisions of pairs; the energy and the number of collisions."""
    x, v = x.copy(), v.copy()
    n = len(x)
    hits = 0
    for _ in range(steps):
        x += dt * v
        for i in range(n):
            for d in range(2):
                if (x[i, d] < radius and v[i, d] < 0) or (x[i, d] > 1 - radius and v[i, d] > 0):
                    v[i, d] = -v[i, d]
            for j in range(i):
                dx = x[i] - x[j]
                dist2 = dx @ dx
                dv = v[i] - v[j]
                if dist2 < 4 * radius**2 and dx @ dv < 0:
                    k = (dx @ dv) / dist2
                    v[i] -= k * dx
                    v[j] += k * dx
                    hits += 1
    return x, v, hits


def arrivals(rng, n):
    return np.cumsum(rng.exponential(1.0, n)), rng.exponential(1.2, n)


def weather(rng, n):
    return rng.normal(1, 4, n), rng.exponential(4.0, n), 1.5, 0.5


CASES = [
    Case(function=cascade, argnums=(0, 1), arguments=lambda rng, n: (rng.uniform(0.2, 2.5, n), 0.4, 0.2)),
    Case(function=thermostat, argnums=(0, 2, 3), size=15, arguments=lambda rng, n: (rng.uniform(-5, 10, n), 20.0, 1.8, 0.08)),
    Case(function=sir_lockdown, argnums=(0, 1), size=15,
         arguments=lambda rng, n: (rng.uniform(0.6, 1.2), 0.2, rng.uniform(0.03, 0.1), n)),
    Case(function=inventory, argnums=(0, 2), size=10, turns=300, arguments=lambda rng, n: (rng.uniform(1, 5, n), 6.0, 12.0, 2)),
    Case(function=single_server_queue, argnums=(0, 1), arguments=lambda rng, n: (*arrivals(rng, n), 2)),
    Case(function=multi_server, argnums=(0, 1), arguments=lambda rng, n: (*arrivals(rng, n), 2)),
    Case(function=energy_balance, argnums=(0, 1, 2), arguments=lambda rng, n: (rng.uniform(0, 3, n), rng.uniform(0, 3, n), 2.5)),
    Case(function=closure_counts, arguments=lambda rng, n: (rng.normal(size=n), 0.3)),
    Case(function=predator_prey, seeds=6, argnums=(0, 1), size=15,
         arguments=lambda rng, n: (rng.uniform(1, 3), rng.choice([1.0, 6.0]) * rng.uniform(0.9, 1.1), n, 0.1)),
    Case(function=neuron, argnums=(0,), size=15, arguments=lambda rng, n: (rng.uniform(1, 5, n), 1.0, 0.2)),
    Case(function=snow_model, argnums=(0, 1, 2), arguments=weather),
    Case(function=elevator, size=3, turns=200, arguments=lambda rng, n: (rng.integers(0, 9, n), 3)),
    Case(function=gas_in_box, argnums=(0, 1), size=6, turns=30,
         arguments=lambda rng, n: (rng.uniform(0.2, 0.8, (3, 2)), rng.normal(size=(3, 2)), 0.12, 0.05, n)),
]  # fmt: skip
