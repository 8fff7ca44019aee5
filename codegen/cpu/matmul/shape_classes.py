"""Classify the shapes of plain matrix products, and choose the library or generated code for each class where nothing was
measured.

The choice for all classes is a bit mask, 1 for generated code, which a kernel reads at run time (``tuned``), so that one
kernel serves all shapes and all choices. Classes depend on extents alone, because the order of additions must not depend on
the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pullback.codegen.targets import Target
from pullback.ir.core.records import dataclass

SUBJECT = "gemm"
OURS, LIBRARY = "ours", "library"
Shape = tuple[int, int, int]
"""Extents M, K, N."""


@dataclass(frozen=True, kw_only=True)
class ShapeClass:
    """Products within upper bounds on rows, K (``terms``), multiplications (``products``) and bytes in a row of the result
    (``width``; of each part, for complex numbers), and within lower bounds on elements of the right operand (``right``), K
    (``deep``) and results. A bound of 0 is none.

    ``examples``: shapes that represent the class in a measurement.
    """

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
        """Return whether a product with ``itemsize`` bytes per element (per part, for complex numbers) is within the bounds.
        The first class of ``CLASSES`` that fits is a product's class."""
        rows, terms, columns = shape
        measures = {"rows": rows, "terms": terms, "products": rows * terms * columns, "width": columns * itemsize}
        is_within = all(not getattr(self, k) or measure <= getattr(self, k) for k, measure in measures.items())
        return is_within and terms * columns >= self.right and terms >= self.deep and rows * columns >= self.results

    def __str__(self) -> str:
        """Return the bounds in words."""
        words = [f"at most {getattr(self, k):,} {word}" for k, word in LIMITS.items() if getattr(self, k)]
        words += [f"at least {self.right:,} elements on the right"] if self.right else []
        words += [f"at least {self.deep:,} terms"] if self.deep else []
        words += [f"at least {self.results:,} results"] if self.results else []
        return ", ".join(words) or "all others"


LIMITS = {"rows": "rows", "terms": "terms", "products": "multiplications", "width": "bytes of columns"}
"""The upper bounds and their names in words."""
LOW, WIDTH, DEEP = 64, 512, 2048
"""Bounds of tall products: at most this many rows, at most this many bytes in a row of the result (64-byte vectors), at least
this K."""
CLASSES = (
    ShapeClass(name="small", products=1 << 18, examples=((48, 48, 48), (64, 64, 64), (8, 128, 128), (128, 16, 64))),
    ShapeClass(
        name="tall",
        rows=LOW,
        width=WIDTH,
        deep=DEEP,
        results=6,
        examples=((4, 100_000, 4), (20, 10_000, 20), (12, 9_000, 7)),
    ),
    ShapeClass(name="middle", products=1 << 21, examples=((128, 128, 128), (32, 256, 256), (256, 32, 256), (96, 96, 96))),
    ShapeClass(name="few", rows=8, examples=((8, 1024, 1024), (4, 2048, 1024))),
    ShapeClass(name="far", rows=64, right=1 << 21, examples=((16, 2048, 1024), (32, 1024, 2048))),
    ShapeClass(name="flat", rows=64, examples=((16, 1024, 1024), (32, 512, 512))),
    ShapeClass(name="narrow", width=64, examples=((1024, 1024, 4), (1024, 1024, 8))),
    ShapeClass(name="thin", terms=32, examples=((1024, 8, 1024), (1024, 32, 1024))),
    ShapeClass(name="large", examples=((256, 256, 256), (400, 400, 400))),
)
"""Classes in order of precedence."""
ALL = (1 << len(CLASSES)) - 1
"""The bit mask that selects generated code for every class."""

REGISTER = 32
"""Smallest vector width in bytes for which generated products are worth their code size."""
WIDE = frozenset({"SkylakeX", "Cooperlake", "SapphireRapids", ""})
"""OpenBLAS names of processors for which it has 64-byte kernels. A library without a name may have them too."""
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
"""The classes that use generated code where nothing was measured, by vector bytes of the generated code, whether the library's
kernels are ``WIDE``, and dtype; none where the library's vectors are wider. OpenBLAS selects kernels by processor family
and falls back to narrower vectors for a family it does not recognise."""


def class_of(shape: Shape, itemsize: int) -> int:
    """Return the position in ``CLASSES`` of a product's class; ``itemsize`` as in ``ShapeClass.fits``."""
    return next(k for k, c in enumerate(CLASSES) if c.fits(shape, itemsize))


NO_CHOICE = f"all are the library's: kernels of our own are for vector registers of {REGISTER} bytes and more"
"""The reason printed on machines without generated products."""


def has_choice(machine: Target) -> bool:
    """Return whether kernels for a machine contain both the library call and generated code. Without FMA or with narrow
    vectors the library is used alone: the gain would not pay for the code."""
    return machine.has_fma and machine.vector_bytes >= REGISTER


def static_choice(dtype: str, position: int, library: str, register: int) -> str:
    """Return "ours" or "library" for a class where nothing was measured. ``library``: the OpenBLAS processor name;
    ``register``: vector bytes."""
    return OURS if CLASSES[position].name in STATIC.get((register, library in WIDE, dtype), ()) else LIBRARY
