"""Random programs with matrix products: the operands, their computation, the ops on the product, and the memory layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tests.tables.bad_input import LAYOUTS, laid_out

Array = Any
Pick = Callable[[int], int]
Shape = tuple[int, ...]
EXTENTS = (0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 40, 47, 48, 49, 63, 64, 65, 96, 100, 127, 128,
           129, 160, 200, 255, 256, 257, 300)  # fmt: skip
MOST_WORK = 1 << 18
"""Multiplications of a product; one in ``ONE_IN`` is larger."""
LARGE_WORK = 1 << 23
ONE_IN = 6

# forms


@dataclass(frozen=True)
class Form:
    """A product: the extents of its operands by letters ("1": one), and the function."""

    name: str
    letters: tuple[str, ...]
    function: Callable[..., Any]


def einsum(spec: str) -> Form:
    """An einsum whose subscripts, without dots, are the letters of its operands."""
    return Form(spec, tuple(spec.partition("->")[0].split(",")), lambda *given: np.einsum(spec, *given))


def dotted(spec: str, *letters: str) -> Form:
    return Form(spec, letters, lambda *given: np.einsum(spec, *given))


FORMS = [
    Form("@", ("ij", "jk"), lambda a, b: a @ b),
    Form("@ turned left", ("ji", "jk"), lambda a, b: a.T @ b),
    Form("@ turned right", ("ij", "kj"), lambda a, b: a @ b.T),
    Form("@ turned both", ("ji", "kj"), lambda a, b: a.T @ b.T),
    Form("@ turned result", ("ij", "jk"), lambda a, b: (a @ b).T),
    Form("@ vector left", ("j", "jk"), lambda a, b: a @ b),
    Form("@ vector right", ("ij", "j"), lambda a, b: a @ b),
    Form("@ vectors", ("j", "j"), lambda a, b: a @ b),
    Form("@ of three", ("ij", "jk", "kl"), lambda a, b, c: a @ b @ c),
    Form("@ with itself", ("ij", "j"), lambda a, b: a.T @ (a @ b)),
    Form("gram", ("ij", "ij"), lambda a, b: a @ a.T + a @ b.T),
    Form("gram of columns", ("ij", "ij"), lambda a, b: (a.T @ a, a.T @ b)),
    Form("square", ("ii", "ii"), lambda a, b: a @ a - a.T @ b),
    Form("matmul", ("ij", "jk"), np.matmul),
    Form("matmul batch", ("bij", "bjk"), np.matmul),
    Form("matmul batch left", ("bij", "jk"), np.matmul),
    Form("matmul batch right", ("ij", "bjk"), np.matmul),
    Form("matmul batch spread", ("1bij", "a1jk"), np.matmul),
    Form("matmul two batches", ("abij", "bjk"), np.matmul),
    Form("matmul batch turned", ("bji", "bjk"), lambda a, b: np.swapaxes(a, 1, 2) @ b),
    Form("matmul batch of vectors", ("bij", "j"), np.matmul),
    Form("matmul vector by batch", ("j", "bjk"), np.matmul),
    Form("dot", ("ij", "jk"), np.dot),
    Form("dot method", ("ij", "jk"), lambda a, b: a.dot(b)),
    Form("dot of vectors", ("j", "j"), np.dot),
    Form("dot with a vector", ("aij", "j"), np.dot),
    Form("dot of stacks", ("aij", "bjk"), np.dot),
    Form("inner", ("ij", "kj"), np.inner),
    Form("inner of stacks", ("aij", "kj"), np.inner),
    Form("outer", ("i", "k"), np.outer),
    Form("vdot", ("ij", "ij"), np.vdot),
    Form("vecdot", ("ij", "ij"), lambda a, b: np.sum(np.conj(a) * b, axis=-1)),
    Form("tensordot", ("aij", "jk"), lambda a, b: np.tensordot(a, b, 1)),
    Form("tensordot of two axes", ("aij", "ijk"), lambda a, b: np.tensordot(a, b, 2)),
    Form("tensordot of none", ("ij", "kl"), lambda a, b: np.tensordot(a, b, 0)),
    Form("tensordot of firsts", ("ji", "jk"), lambda a, b: np.tensordot(a, b, (0, 0))),
    Form("tensordot crossed", ("iaj", "jki"), lambda a, b: np.tensordot(a, b, ((2, 0), (0, 2)))),
    *map(
        einsum,
        (
            "ij,jk->ik", "ij,jk->ki", "ji,jk->ik", "ji,kj->ki", "bij,bjk->bik", "ibj,bjk->bik", "ijb,jkb->ikb", "bij,bjk->ikb",
            "ijb,bjk->kib", "bij,bkj->kbi", "bij,jk->ibk", "ii,ij->ij", "iij,jk->ik", "ii,ik->k", "ij,ij->", "ij,ij->i",
            "ij,ij->j", "ij,kl->il", "ij,jk->k", "ij,j->i", "i,i->", "i,k->ki", "ij,jk,kl->il", "bi,ij,bj->b", "i,k,l->lik",
            "ij,ik,il->jkl", "iqhd,ikhd->ihqk", "ihqk,ikhd->iqhd", "ij,ij,ij->i", "ij,jk->", "abij,abjk->baik", "ij,jk", "ij,ji",
        ),
    ),
    dotted("...ij,...jk->...ik", "bij", "jk"),
    dotted("...j,kj->k...", "abj", "kj"),
    dotted("ij...,jk...->ik...", "ijb", "jkb"),
]  # fmt: skip


OF_ITSELF = ("gram", "gram of columns", "square")
"""Forms that multiply one operand by itself, and thus have products of several dtypes if the operands do."""


def random_einsum(pick: Pick) -> Form:
    """Two or three operands whose subscripts are drawn letter by letter."""
    names = "ijkbl"[: 2 + pick(4)]
    words = ["".join(names[pick(len(names))] for _ in range(1 + pick(3))) for _ in range(2 + (pick(4) == 0))]
    met = sorted(sorted(set("".join(words))), key=lambda c: pick(97))
    out = "".join(met[: pick(min(len(met), 4) + 1)])
    return einsum(",".join(words) + "->" + out)


# what operands are made of, and what is made of results


@dataclass(frozen=True)
class Part:
    """``shapes(shape)``: of the arrays it takes; a shape before which stands "i" is of indices, "?" of bools. ``function``: of
    these, or of the product and these. ``kinds`` of dtypes that it is for; ``least``: axes that a shape must have."""

    name: str
    shapes: Callable[[Shape], Sequence[Any]]
    function: Callable[..., Any]
    kinds: str = "fc"
    least: int = 0
    is_smooth: bool = True
    needs: int = 0
    """Elements that the last axis must have."""


def gelu(z: Array) -> Array:
    return 0.5 * z * (1.0 + np.tanh(0.75 * (z + 0.0625 * z * z * z)))


def softmax(z: Array) -> Array:
    e = np.exp(z - np.max(z, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def own(shape: Shape) -> list[Any]:
    return [shape]


def nothing(shape: Shape) -> list[Any]:
    return []


PLAIN = Part("plain", own, lambda x: x, "fcb")
PROLOGUES = [
    PLAIN,
    PLAIN,
    Part("doubled", own, lambda x: 2.0 * x),
    Part("by a number", lambda s: [s, ()], lambda x, c: x * c),
    Part("by a row", lambda s: [s, s[-1:]], lambda x, c: x * c, least=1),
    Part("by a column", lambda s: [s, s[:1]], lambda x, c: c.reshape(-1, *[1] * (x.ndim - 1)) * x, least=1),
    Part("shifted", lambda s: [s, s[-1:]], lambda x, c: x - c),
    Part("sum", lambda s: [s, s], lambda x, y: x + y),
    Part("sum of turned", lambda s: [s, s[::-1]], lambda x, y: x + y.T),
    Part("product", lambda s: [s, s], lambda x, y: x * y),
    Part("narrowed", own, lambda x: x.astype(np.float32), "f", is_smooth=False),
    Part("widened", own, lambda x: x.astype(np.float64), "f", is_smooth=False),
    Part("made complex", own, lambda x: x.astype(np.complex128), "f", is_smooth=False),
    Part("relu", own, lambda x: np.maximum(x, 0.0), "f"),
    Part("leaky", own, lambda x: np.where(x > 0.0, x, 0.125 * x), "f"),
    Part("absolute", own, np.abs, "f"),
    Part("squared", own, lambda x: x * x),
    Part("tanh", own, np.tanh, "f"),
    Part("exp", own, lambda x: np.exp(-x), "f"),
    Part("conjugate", own, np.conj),
    Part("real part", own, np.real, "c"),
    Part("turned", lambda s: [s[::-1]], lambda x: x.T),
    Part("turned and scaled", lambda s: [s[::-1]], lambda x: (x * 0.5).T),
    Part("backwards", own, lambda x: x[::-1] if x.ndim else x),
    Part("columns backwards", own, lambda x: x[..., ::-1], least=1),
    Part("every second", lambda s: [(*s[:-1], 2 * s[-1])], lambda x: x[..., ::2], least=1),
    Part("every third row", lambda s: [(3 * s[0], *s[1:])], lambda x: x[1::3], least=1),
    Part("inner part", lambda s: [tuple(e + 3 for e in s)], lambda x: x[tuple([slice(2, -1)] * x.ndim)]),
    Part("picked rows", lambda s: [(9, *s[1:]), ("i", s[0])], lambda x, at: x[at], least=1),
    Part("picked columns", lambda s: [(*s[:-1], 9), ("i", s[-1])], lambda x, at: x[..., at], least=1),
    Part("taken", lambda s: [(9, *s[1:]), ("i", s[0])], lambda x, at: np.take(x, at, axis=0), least=1),
    Part("masked", lambda s: [s, ("?", *s)], lambda x, m: np.where(m, x, 0.0)),
    Part("upper", own, np.triu, least=2),
    Part("lower", own, lambda x: np.tril(x, -1), least=2),
    Part("windows", lambda s: [(*s[:-2], s[-2] + s[-1] - 1)], lambda x, n=0: sliding_window_view(x, n, -1), least=2, needs=1),
    Part("joined", lambda s: [(s[0] // 2, *s[1:]), (s[0] - s[0] // 2, *s[1:])], lambda x, y: np.concatenate([x, y]), least=1),
    Part("spread", lambda s: [s[1:], s], lambda x, y: np.broadcast_to(x, y.shape), least=1),
    Part("mean taken off", own, lambda x: x - np.mean(x, axis=-1, keepdims=True), "f", least=1, needs=1),
]  # fmt: skip
DONE = Part("plain", nothing, lambda z: z, "fcb")
EPILOGUES = [
    DONE,
    DONE,
    Part("doubled", nothing, lambda z: z * 2.0),
    Part("by a number", lambda s: [()], lambda z, c: c * z),
    Part("bias", lambda s: [s[-1:]], lambda z, b: z + b),
    Part("bias of rows", lambda s: [s[:-1]], lambda z, b: z + b[..., None], least=1),
    Part("relu", lambda s: [s[-1:]], lambda z, b: np.maximum(z + b, 0.0), "f"),
    Part("mask", nothing, lambda z: np.where(z > 0.25, z, -1.0), "f"),
    Part("gelu", lambda s: [s[-1:]], lambda z, b: gelu(z + b), "f"),
    Part("derivative of tanh", lambda s: [s], lambda z, g: g * (1.0 - np.tanh(z) * np.tanh(z)), "f"),
    Part("residual", lambda s: [s], lambda z, r: r + z),
    Part("residual turned", lambda s: [s[::-1]], lambda z, r: r.T - z),
    Part("sum of rows", nothing, lambda z: np.sum(z, axis=-1), least=1),
    Part("sum of columns", nothing, lambda z: np.sum(z, axis=0), least=1),
    Part("sums", nothing, lambda z: (np.sum(z), np.sum(z * z, axis=0), z * 0.5), least=1),
    Part("mean square", lambda s: [s], lambda z, y: np.sum((z - y) * (z - y)) * 0.25),
    Part("softmax", nothing, softmax, "f", least=1, needs=1),
    Part("largest", nothing, lambda z: np.max(z, axis=-1), "f", least=1, needs=1),
    Part("two results", lambda s: [s[-1:]], lambda z, b: (z, np.tanh(z + b)), "f"),
    Part("turned", nothing, lambda z: z.T * 2.0),
    Part("narrowed", nothing, lambda z: z.astype(np.float32), "f", is_smooth=False),
    Part("halved", nothing, lambda z: (z * 0.5).astype(np.float16), "f", is_smooth=False),
    Part("cumulated", nothing, lambda z: np.cumsum(z, axis=-1), "f", least=1),
    Part("picked", lambda s: [("i", s[0])] if s[0] else [], lambda z, *at: z[at[0] % z.shape[0]] if at else z, least=1),
    Part("part", nothing, lambda z: z[..., 1:], least=1),
    Part("multiplied again", lambda s: [(s[-1], 3)], lambda z, w: np.tanh(z) @ w, "f", least=1),
    Part("by its conjugate", nothing, lambda z: z * np.conj(z)),
]  # fmt: skip


# programs


@dataclass(frozen=True, kw_only=True)
class Program:
    """Each operand of ``form`` is made by a prologue of a tuple of arrays; the epilogue takes the product and more of them."""

    form: Form
    prologues: tuple[Part, ...]
    epilogue: Part
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]

    def __str__(self) -> str:
        befores = " and ".join(f"{p.name} {d}" for p, d in zip(self.prologues, self.dtypes, strict=True))
        return f"{self.form.name} of {befores}, {self.epilogue.name}; {', '.join(self.layouts)}"

    @property
    def has_windows(self) -> bool:
        return any(p.name == "windows" for p in self.prologues)

    def product(self, windows: Sequence[int]) -> Callable[[Any], Any]:
        """Return the program without the epilogue. ``windows``: the last extents of operands, the lengths of windows."""
        form = self.form.function
        parts = [
            (lambda x, f=p.function, n=n: f(x, n)) if p.name == "windows" else p.function
            for p, n in zip(self.prologues, windows, strict=True)
        ]
        return lambda operands: form(*[part(*arguments) for part, arguments in zip(parts, operands)])

    def function(self, windows: Sequence[int]) -> Callable[[Any, Any], Any]:
        """Return the function of the operands and the epilogue's arguments."""
        product, epilogue = self.product(windows), self.epilogue.function

        def program(operands: Any, rest: Any) -> Any:
            return epilogue(product(operands), *rest)

        return program

    def operands(self, extents: dict[str, int], rng: np.random.Generator) -> tuple[tuple[tuple[Array, ...], ...], list[int]]:
        """Random ones, and the lengths of windows."""
        shapes = [tuple(extents[k] for k in word) for word in self.form.letters]
        result = []
        for shape, part, dtype, layout in zip(shapes, self.prologues, self.dtypes, self.layouts, strict=True):
            built = [numbers(s, dtype, rng) for s in part.shapes(shape)]
            result.append(tuple(laid_out(x, layout) if x.ndim else x for x in built))
        return tuple(result), [shape[-1] if shape else 0 for shape in shapes]

    def fits(self, extents: dict[str, int]) -> bool:
        """Whether the operands have the elements that their parts need."""
        shapes = [tuple(extents[k] for k in word) for word in self.form.letters]
        return all(not p.needs or min(s[-2:], default=1) >= 1 for p, s in zip(self.prologues, shapes, strict=True))


def drawn_program(pick: Pick, dtypes: Sequence[Sequence[str]], smooth: bool = False) -> Program:
    """One of random parts, for operands of one of the lists of ``dtypes``: of the first one and of the others."""
    form = random_einsum(pick) if pick(5) == 0 else FORMS[pick(len(FORMS))]
    chosen = dtypes[pick(len(dtypes))]
    if chosen[0] != chosen[1] and form.name in OF_ITSELF:
        form = FORMS[0]
    kinds = tuple(chosen[min(k, 1)] for k in range(len(form.letters)))
    prologues = tuple(_one(pick, PROLOGUES, [d], len(word), smooth) for d, word in zip(kinds, form.letters, strict=True))
    rank = _rank(form)
    with_complex = [*kinds, *["D" for p in prologues if p.name == "made complex"]]
    return Program(
        form=form,
        prologues=prologues,
        epilogue=DONE if rank is None else _one(pick, EPILOGUES, with_complex, rank, smooth),
        dtypes=kinds,
        layouts=tuple(_layout(pick, d) for d in kinds),
    )


def _layout(pick: Pick, dtype: str) -> str:
    layout = LAYOUTS[pick(len(LAYOUTS))] if pick(2) else "dense"
    return "dense" if layout == "swapped" and np.dtype(dtype).kind == "V" else layout


def _rank(form: Form) -> int | None:
    """Return the rank of the result; None if there are several results."""
    result = form.function(*(np.ones((1,) * len(word)) for word in form.letters))
    return None if isinstance(result, tuple) else int(np.ndim(result))


def _one(pick: Pick, parts: Sequence[Part], dtypes: Sequence[str], rank: int, smooth: bool) -> Part:
    kinds = {np.dtype(d).kind for d in dtypes}
    kind = "c" if "c" in kinds else "f" if kinds & set("fV") else "b"
    fitting = [p for p in parts if kind in p.kinds and rank >= p.least and (p.is_smooth or not smooth)]
    return fitting[pick(len(fitting))]


def drawn_extents(pick: Pick, form: Form, most: int) -> dict[str, int]:
    """Draw an extent for each letter, so that the work is at most ``most``."""
    letters = sorted(set("".join(form.letters)) - {"1"})
    result = {k: EXTENTS[pick(len(EXTENTS))] for k in letters}
    while np.prod([float(max(e, 1)) for e in result.values()]) > most:
        greatest = max(letters, key=lambda k: result[k])
        result[greatest] //= 2
    return {**result, "1": 1}


def tupled(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def numbers(shape: Any, dtype: Any, rng: np.random.Generator) -> Array:
    """Return numbers of moderate size and both signs."""
    if shape[:1] == ("i",):
        return rng.integers(0, 9, shape[1:])
    if shape[:1] == ("?",):
        return np.asarray(rng.random(shape[1:]) < 0.6)
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype.kind in "iu":
        ends = np.iinfo(dtype)
        return np.asarray(rng.integers(ends.min, ends.max, shape, dtype, endpoint=True))
    result = rng.normal(size=shape)
    return np.asarray(result + 1j * rng.normal(size=shape) if dtype.kind == "c" else result).astype(dtype)
