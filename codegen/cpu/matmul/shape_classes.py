"""product_classes: the classes of shapes of plain matrix products, and who does each where that was not measured.

Who does a class is a bit of a number, 1 for a product of our own: a kernel gets the number when it runs (``tuned``), so one
kernel serves all shapes and all choices. Classes go by extents alone: the order of additions must not go by threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pullback.codegen.targets import Target

SUBJECT = "gemm"
OURS, LIBRARY = "ours", "library"
Shape = tuple[int, int, int]
"""Rows, terms, columns."""


@dataclass(frozen=True, kw_only=True)
class ShapeClass:
    """The products with at most so many rows, terms and multiplications, rows of results of at most so many bytes (``width``;
    of complex numbers, of each part), and at least so many elements of the right operand, so many terms (``deep``) and so many
    results (0: any number). ``examples`` stand for them where they are measured."""

    name: str
    examples: Sequence[Shape]
    rows: int = 0
    terms: int = 0
    products: int = 0
    width: int = 0
    right: int = 0
    deep: int = 0
    results: int = 0

    def fits(self, shape: Shape, itemsize: int) -> bool:
        """Whether a product of elements of so many bytes, or of complex ones of such parts, is one of these, if it is none of the
        classes in front."""
        rows, terms, columns = shape
        numbers = {"rows": rows, "terms": terms, "products": rows * terms * columns, "width": columns * itemsize}
        is_within = all(not getattr(self, k) or number <= getattr(self, k) for k, number in numbers.items())
        return is_within and terms * columns >= self.right and terms >= self.deep and rows * columns >= self.results

    def __str__(self) -> str:
        """What is in it, for a person."""
        words = [f"at most {getattr(self, k):,} {word}" for k, word in LIMITS.items() if getattr(self, k)]
        words += [f"at least {self.right:,} elements on the right"] if self.right else []
        words += [f"at least {self.deep:,} terms"] if self.deep else []
        words += [f"at least {self.results:,} results"] if self.results else []
        return ", ".join(words) or "all others"


LIMITS = {"rows": "rows", "terms": "terms", "products": "multiplications", "width": "bytes of columns"}
LOW, WIDTH, DEEP = 64, 512, 2048
"""Products of at most so many rows, so many bytes in a row of results (with vectors of 64 bytes) and at least so many terms are
tall."""
CLASSES = (
    ShapeClass(name="small", products=1 << 18, examples=((48, 48, 48), (64, 64, 64), (8, 128, 128), (128, 16, 64))),
    ShapeClass(
        name="tall", rows=LOW, width=WIDTH, deep=DEEP, results=6, examples=((4, 100_000, 4), (20, 10_000, 20), (12, 9_000, 7)),
    ),
    ShapeClass(name="middle", products=1 << 21, examples=((128, 128, 128), (32, 256, 256), (256, 32, 256), (96, 96, 96))),
    ShapeClass(name="few", rows=8, examples=((8, 1024, 1024), (4, 2048, 1024))),
    ShapeClass(name="far", rows=64, right=1 << 21, examples=((16, 2048, 1024), (32, 1024, 2048))),
    ShapeClass(name="flat", rows=64, examples=((16, 1024, 1024), (32, 512, 512))),
    ShapeClass(name="narrow", width=64, examples=((1024, 1024, 4), (1024, 1024, 8))),
    ShapeClass(name="thin", terms=32, examples=((1024, 8, 1024), (1024, 32, 1024))),
    ShapeClass(name="large", examples=((256, 256, 256), (400, 400, 400))),
)
"""The first that fits is a product's class."""
ALL = (1 << len(CLASSES)) - 1
"""The number by which all are our own."""

REGISTER = 32
"""The least bytes of vector registers of machines on which kernels of our own are worth their code."""
WIDE = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids", ""})
"""The names by which OpenBLAS has kernels for registers of 64 bytes. A library that has no name may have them, too."""
_ALL = frozenset(c.name for c in CLASSES)
STATIC: Mapping[tuple[int, bool, str], frozenset[str]] = {
    (64, True, "f32"): frozenset({"tall", "few", "far", "flat", "thin", "large"}),
    (64, True, "f64"): frozenset({"tall", "few", "far", "flat", "thin", "large"}),
    (64, False, "f32"): _ALL - {"narrow"},
    (64, False, "f64"): _ALL - {"narrow"},
    (64, True, "c64"): _ALL - {"small", "narrow"},
    (64, True, "c128"): _ALL - {"narrow"},
    (64, False, "c64"): _ALL - {"narrow"},
    (64, False, "c128"): _ALL - {"narrow"},
    (32, False, "f32"): _ALL - {"narrow"},
    (32, False, "f64"): frozenset({"tall", "middle", "few", "thin", "large"}),
    (32, False, "c64"): _ALL - {"tall", "narrow"},
    (32, False, "c128"): frozenset({"middle", "thin"}),
}
"""By the bytes of vector registers that our code is for, whether the library's kernels are ``WIDE``, and dtype: the classes that
are ours where nothing was measured; none where the library's registers are the wider ones. OpenBLAS goes by the processor's
family, and takes kernels for narrower registers where it does not know that."""


def class_of(shape: Shape, itemsize: int) -> int:
    """The position of the class of a product of elements, or parts of complex ones, of so many bytes."""
    return next(k for k, c in enumerate(CLASSES) if c.fits(shape, itemsize))


NO_CHOICE = f"all are the library's: kernels of our own are for vector registers of {REGISTER} bytes and more"
"""What is said of other machines."""


def has_choice(machine: Target) -> bool:
    """Whether kernels for a machine have both ways to do a plain product. Elsewhere all are the library's: what could be gained
    does not make up for the code."""
    return machine.has_fma and machine.vector_bytes >= REGISTER


def static_choice(dtype: str, position: int, library: str, register: int) -> str:
    """Who does a class where nothing was measured. ``library``: whose processor's kernels it has; ``register``: the bytes of
    vector registers."""
    return OURS if CLASSES[position].name in STATIC.get((register, library in WIDE, dtype), ()) else LIBRARY
