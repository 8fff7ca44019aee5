"""Functions of objects of plain classes: ``PROGRAMS`` has each with a function that makes its arguments of a number, the position of
the argument to differentiate or None, and the number of programs that its calls need at most."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np


class Params:
    def __init__(self, a: float, b: Any, name: str | None = None) -> None:
        self.a, self.b, self.name = a, b, name

    def scale(self) -> float:
        return self.a * 2

    @property
    def double(self) -> Any:
        return self.b * 2

    @staticmethod
    def shift(x: Any) -> Any:
        return x + 1.0

    @classmethod
    def made(cls, a: float) -> Params:
        return cls(a, np.ones(3), "made")


def vector(k: int) -> Any:
    return np.array([0.5, 1.25, -0.75]) * (k + 1) + 0.25


def params(k: int) -> Params:
    return Params(1.0 + k, vector(k), "u")


def least_squares(p: Any, x: Any) -> Any:
    return ((p.scale() * x + p.b) ** 2).sum()


def by_property(p: Any, x: Any) -> Any:
    return np.sum(p.double * p.shift(x)) * p.a


class Slotted:
    __slots__ = ("w", "x")

    def __init__(self, w: Any, x: float) -> None:
        self.w, self.x = w, x

    def energy(self) -> Any:
        return 0.5 * self.x * np.sum(self.w**2)


class Mixed(Slotted):
    """Has slots and a dict."""

    def __init__(self, w: Any, x: float, extra: float) -> None:
        super().__init__(w, x)
        self.extra = extra

    def energy(self) -> Any:
        return super().energy() * self.extra


def energy(s: Any, y: float) -> Any:
    return s.energy() * y


def slot_store(s: Any, y: float) -> Any:
    s.x = s.x * y
    s.w = s.w + y
    return s.x


class Node:
    def __init__(self, value: float, children: list[Node]) -> None:
        self.value, self.children = value, children

    def total(self) -> float:
        return self.value**2 + sum(child.total() for child in self.children)


def tree(k: int) -> Node:
    return Node(0.5 + k, [Node(1.5 - k, []), Node(2.25, [Node(0.75 * k + 1, [])])])


def tree_sum(n: Any, x: float) -> Any:
    return n.total() * x


class Link:
    def __init__(self, value: float) -> None:
        self.value, self.next = value, self

    def ring(self, others: list[Link]) -> Link:
        for a, b in zip([self, *others], [*others, self]):
            a.next = b
        return self


def ring_sum(link: Any, x: float) -> Any:
    total, at = 0.0, link
    while True:
        total += at.value * x
        at = at.next
        if at is link:
            return total


def ring_store(link: Any, x: float) -> Any:
    link.next.value = link.value * x
    return link.next.next.value


class Parent:
    def __init__(self, a: float) -> None:
        self.a = a
        self.child = Child(self, a + 1)


class Child:
    def __init__(self, parent: Parent, b: float) -> None:
        self.parent, self.b = parent, b


def through_parent(p: Any, x: float) -> Any:
    return p.child.b * p.child.parent.a * x


def two(p: Any, q: Any, x: Any) -> Any:
    return np.sum((p.a * x + q.b) ** 2) - q.scale()


def same_or_not(p: Any, q: Any, x: float) -> Any:
    p.a = p.a + x
    return q.a * 2.0, p is q, p == q


def shared(k: int) -> Any:
    p = params(k)
    return (p, p, 1.5) if k % 2 else (p, params(k + 1), 1.5)


class Pair:
    def __init__(self, left: Params, right: Params) -> None:
        self.left, self.right = left, right


def shared_inside(k: int) -> Pair:
    p = params(k)
    return Pair(p, p)


def pair_sum(pair: Any, x: Any) -> Any:
    return least_squares(pair.left, x) + pair.right.a * 3.0


def pair_swap(pair: Any, x: float) -> Any:
    pair.left, pair.right = pair.right, pair.left
    pair.left.a *= x
    return pair.right.a


class State:
    def __init__(self, x: float, v: float) -> None:
        self.x, self.v, self.steps = x, v, 0
        self.history: list[float] = []

    def step(self, dt: float) -> None:
        self.v -= self.x * dt
        self.x += self.v * dt
        self.steps += 1
        self.history.append(self.x)


def simulate(s: Any, dt: float) -> Any:
    for _ in range(3):
        s.step(dt)
    return s.x**2 + s.v**2


def simulate_long(s: Any, dt: float) -> Any:
    for _ in range(200):
        s.v = s.v - s.x * dt
        s.x = s.x + s.v * dt
    return s.x


def store_on_branch(s: Any, x: float) -> Any:
    if x * s.x > 1.0:
        s.x = x
        s.steps += 1
    return s.x * s.v


def returns_it(p: Any, x: float) -> Any:
    p.a = p.a * x
    return p


def returns_both(p: Any, q: Any, x: float) -> Any:
    return [p, q], {"first": p}, p.a * x


def keeps_it(s: Any, p: Any, x: float) -> Any:
    s.last = p
    p.owner = s
    return s.last.a * x


class Checked:
    """Its attributes are set by its own code."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self.log: list[str] = []

    @property
    def rate(self) -> float:
        return self._rate * 2

    @rate.setter
    def rate(self, value: float) -> None:
        if value < 0:
            raise ValueError("a rate below 0")
        self._rate = value / 2
        self.log.append("set")


def set_rate(c: Any, x: float) -> Any:
    c.rate = c.rate + x
    return c.rate * x


def set_negative(c: Any, x: float) -> Any:
    c.rate = -x
    return c.rate


class Guarded:
    def __init__(self, v: float) -> None:
        object.__setattr__(self, "v", v)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value * 10)


def set_guarded(g: Any, x: float) -> Any:
    g.v = g.v + x
    return g.v


class Dynamic:
    def __init__(self, base: float) -> None:
        self.base = base

    def __getattr__(self, name: str) -> Any:
        if name.startswith("times_"):
            return self.base * int(name[6:])
        raise AttributeError(name)


def dynamic(d: Any, x: float) -> Any:
    return d.times_3 * x + d.base + (1.0 if hasattr(d, "other") else 2.0)


class Cached:
    def __init__(self, w: Any) -> None:
        self.w = w

    @functools.cached_property
    def norm(self) -> Any:
        return np.sqrt(np.sum(self.w**2))


def by_cached(c: Any, x: float) -> Any:
    return c.norm * x + np.sum(c.w)


class Unit:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return getattr(instance, self.name) * 100.0

    def __set__(self, instance: Any, value: Any) -> None:
        setattr(instance, self.name, value / 100.0)


class Measured:
    length = Unit()

    def __init__(self, length: float) -> None:
        self.length = length


def measured(m: Any, x: float) -> Any:
    return m.length * x


def measured_store(m: Any, x: float) -> Any:
    m.length = m.length * x
    return m.length


class Vector:
    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def __add__(self, other: Vector) -> Vector:
        return Vector(self.x + other.x, self.y + other.y)

    def __mul__(self, k: float) -> Vector:
        return Vector(self.x * k, self.y * k)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vector) and self.x == other.x and self.y == other.y

    def __hash__(self) -> int:
        return hash((self.x, self.y))

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[float]:
        return iter((self.x, self.y))

    def __call__(self, t: float) -> float:
        return self.x + self.y * t

    def norm2(self) -> float:
        return self.x * self.x + self.y * self.y


def operators(v: Any, w: Any) -> Any:
    u = v + w * 2.0
    return u.norm2() + v(0.5) + sum(w) + len(v)


def new_objects(v: Any, k: float) -> Any:
    return [v * k, v + v], v


class Base:
    factor = 3.0

    def __init__(self, a: float) -> None:
        self.a = a

    def value(self, x: float) -> float:
        return self.a * x * self.factor


class Derived(Base):
    def __init__(self, a: float, b: float) -> None:
        super().__init__(a)
        self.b = b

    def value(self, x: float) -> float:
        return super().value(x) + self.b


def inherited(d: Any, x: float) -> Any:
    return d.value(x) ** 2


class Network:
    def __init__(self, k: int) -> None:
        rng = np.random.default_rng(k)
        self.layers = [Dense(rng.normal(size=(3, 4)), np.zeros(4)), Dense(rng.normal(size=(4, 1)), np.ones(1))]
        self.settings = {"activation": "tanh", "dropout": None, "gain": 0.5 + k}

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
            if self.settings["activation"] == "tanh":
                x = np.tanh(x)
        return x * self.settings["gain"]


class Dense:
    def __init__(self, w: Any, b: Any) -> None:
        self.w, self.b = w, b

    def __call__(self, x: Any) -> Any:
        return x @ self.w + self.b


def network_loss(net: Any, x: Any) -> Any:
    return np.mean(net(x) ** 2)


def network_step(net: Any, x: Any) -> Any:
    for layer in net.layers:
        layer.w = layer.w * 0.5
        layer.b += 1.0
    return network_loss(net, x)


class Containers:
    def __init__(self, k: int) -> None:
        self.pair = (1.5 + k, vector(k))
        self.table = {"x": 0.5 + k, "inner": {"y": 2.0}}
        self.items = [1.0, 2.0 + k]
        self.queue = deque([0.5, k + 0.5])
        self.nothing, self.word = None, "w"


def containers(c: Any, x: float) -> Any:
    first, second = c.pair
    return first * np.sum(second) * c.table["x"] + c.items[1] * x + c.table["inner"]["y"] * c.queue[-1] + len(c.word)


def change_containers(c: Any, x: float) -> Any:
    c.items.append(c.items[0] * x)
    c.table["new"] = x
    c.queue.append(x)
    c.pair = (x, c.pair[1])
    return sum(c.items)


def variables(p: Any, x: float) -> Any:
    return sum(np.sum(value) * x for name, value in vars(p).items() if name != "name")


def deleted(p: Any, x: float) -> Any:
    del p.name
    p.other = x
    return p.a * x


def int_fields(s: Any, x: float) -> Any:
    return s.n * x + s.flag * 2.0


class Ints:
    def __init__(self, n: int, flag: bool) -> None:
        self.n, self.flag = n, flag


def counted(s: Any, x: float) -> Any:
    s.n += 1
    return s.n * x


def in_containers(objects: Any, x: Any) -> Any:
    (p, q), named = objects["pair"], objects["named"]
    p.a = q.a + x
    return p.a * named.b.sum() + q.scale()


def in_place(p: Any, x: float) -> Any:
    p.b[0] = x
    p.b *= 2.0
    return p.b.sum() * p.a


def raises(p: Any, x: float) -> Any:
    p.a = x
    if x > 0:
        raise ValueError(f"x is {x}")
    return p.a


def math_functions(p: Any, x: float) -> float:
    return math.exp(-p.a * x) + math.sin(p.a) ** 2


def loops(p: Any, x: float) -> float:
    total = 0.0
    for k in range(50):
        if total < 10.0 * p.a:
            total += p.a * x * k
    return total


PROGRAMS: list[tuple[Any, Any, int | None, int]] = [
    (least_squares, lambda k: (params(k), np.arange(3.0)), 0, 1),
    (by_property, lambda k: (params(k), np.arange(3.0)), 0, 1),
    (energy, lambda k: (Slotted(vector(k), 1.5 + k), 2.0), 0, 1),
    (energy, lambda k: (Mixed(vector(k), 1.5 + k, 0.5), 2.0), 0, 1),
    (slot_store, lambda k: (Slotted(vector(k), 1.5 + k), 2.0), None, 1),
    (slot_store, lambda k: (Mixed(vector(k), 1.5 + k, 0.5), 2.0), None, 1),
    (tree_sum, lambda k: (tree(k), 2.0), 0, 1),
    (ring_sum, lambda k: (Link(1.5 + k).ring([Link(2.5), Link(0.5 * k)]), 2.0), None, 1),
    (ring_store, lambda k: (Link(1.5 + k).ring([Link(2.5), Link(0.5 * k)]), 2.0), None, 1),
    (ring_store, lambda k: (Link(1.5 + k), 2.0), None, 1),
    (through_parent, lambda k: (Parent(0.5 + k), 2.0), None, 1),
    (two, lambda k: (params(k), params(k + 2), np.arange(3.0)), 0, 1),
    (two, lambda k: (params(k), params(k + 2), np.arange(3.0)), 1, 1),
    (same_or_not, shared, None, 2),
    (pair_sum, lambda k: (shared_inside(k), np.arange(3.0)), None, 1),
    (pair_sum, lambda k: (Pair(params(k), params(k + 1)), np.arange(3.0)), 0, 1),
    (pair_swap, lambda k: (Pair(params(k), params(k + 1)), 2.0), None, 1),
    (simulate, lambda k: (State(0.5 + k, 1.0), 0.125), None, 1),
    (simulate_long, lambda k: (State(0.5 + k, 1.0), 0.125), None, 1),
    (store_on_branch, lambda k: (State(0.5 + k, 1.0), 0.75), None, 2),
    (returns_it, lambda k: (params(k), 2.5), None, 1),
    (returns_both, lambda k: (params(k), params(k + 1), 2.5), None, 1),
    (keeps_it, lambda k: (State(0.5 + k, 1.0), params(k), 2.5), None, 1),
    (set_rate, lambda k: (Checked(0.5 + k), 1.5), None, 1),
    (set_negative, lambda k: (Checked(0.5 + k), 1.5), None, 4),
    (set_guarded, lambda k: (Guarded(0.5 + k), 1.5), None, 1),
    (dynamic, lambda k: (Dynamic(0.5 + k), 1.5), None, 1),
    (by_cached, lambda k: (Cached(vector(k)), 1.5), 0, 1),
    (measured, lambda k: (Measured(0.5 + k), 1.5), 0, 1),
    (measured_store, lambda k: (Measured(0.5 + k), 1.5), None, 1),
    (operators, lambda k: (Vector(0.5 + k, 1.5), Vector(2.5, -0.5 * k)), 0, 1),
    (new_objects, lambda k: (Vector(0.5 + k, 1.5), 2.5), None, 1),
    (inherited, lambda k: (Derived(0.5 + k, 1.5), 2.5), 0, 1),
    (network_loss, lambda k: (Network(k), np.arange(6.0).reshape(2, 3) / 5), 0, 1),
    (network_step, lambda k: (Network(k), np.arange(6.0).reshape(2, 3) / 5), None, 1),
    (containers, lambda k: (Containers(k), 2.5), 0, 1),
    (change_containers, lambda k: (Containers(k), 2.5), None, 1),
    (variables, lambda k: (params(k), 2.5), 0, 1),
    (deleted, lambda k: (params(k), 2.5), None, 1),
    (int_fields, lambda k: (Ints(k + 1, k % 2 == 0), 2.5), None, 1),
    (counted, lambda k: (Ints(k + 1, True), 2.5), None, 1),
    (in_containers, lambda k: ({"pair": [params(k), params(k + 1)], "named": params(2 * k)}, 2.5), None, 1),
    (in_place, lambda k: (params(k), 2.5), None, 1),
    (raises, lambda k: (params(k), k - 1.5), None, 4),
    (math_functions, lambda k: (params(k), 0.5), 0, 1),
    (loops, lambda k: (params(k), 0.5), None, 2),
]
