"""Write the C header of an exported function."""

from __future__ import annotations

from pullback.codegen.export.interface import FIRST_CHECK, STATUSES, Bounds, Interface, Leaf
from pullback.ir.core.types import DType

_SCALARS = {
    "f64": "double", "f32": "float", "f16": "uint16_t", "bf16": "uint16_t", "bool": "uint8_t", "c128": "double", "c64": "float",
}  # fmt: skip
_NOTES = {
    "f16": "bits of float16", "bf16": "bits of bfloat16", "bool": "0 or 1", "c128": "pairs: real, imaginary",
    "c64": "pairs: real, imaginary",
}  # fmt: skip


def c_type(dtype: DType) -> str:
    """Return the C type of an element, or of the parts of a complex one."""
    if dtype.name in _SCALARS:
        return _SCALARS[dtype.name]
    return f"{'u' if dtype.kind == 'u' else ''}int{dtype.bits}_t"


def header(interface: Interface, title: str, doc: str, made_by: str, target: str) -> str:
    """Return the text of the header. ``title``: the function in Python; ``doc``: its docstring."""
    name = interface.name
    guard = f"{name.upper()}_H"
    parts = [
        _opening(interface, title, doc, made_by, target),
        f"#ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n#include <stdint.h>\n",
        '#ifdef __cplusplus\nextern "C" {\n#endif\n',
        _statuses(interface),
        _runtime(interface),
        _function(interface),
        _other_functions(interface),
        f"#ifdef __cplusplus\n}}\n#endif\n\n#endif /* {guard} */\n",
    ]
    return "\n".join(parts)


def _comment(lines: list[str]) -> str:
    safe = [line.replace("*/", "* /").replace("/*", "/ *").rstrip() for line in lines]
    return "\n".join(["/*", *(f" * {line}".rstrip() for line in safe), " */", ""])


def _opening(interface: Interface, title: str, doc: str, made_by: str, target: str) -> str:
    lines = [f"{title}, compiled by {made_by} for {target}.", ""]
    if doc:
        lines += [*doc.strip().splitlines(), ""]
    if interface.data:
        lines += ["Values of these are in the object, as they were when it was exported:"]
        lines += [f"  {data.describe} ({len(data.payload):,} bytes)" for data in interface.data] + [""]
    lines += [
        "Arrays are dense and row-major. The caller owns all memory: arguments are read, results are written to memory of the",
        "caller's, which overlaps nothing else. Calls may come from several threads at once.",
    ]
    return _comment(lines)


def _statuses(interface: Interface) -> str:
    upper = interface.name.upper()
    lines = ["/* What calls return. Larger statuses are checks of the function that failed: see the end of this file. */"]
    lines.append("enum {")
    lines.append(f"    {upper}_OK = 0,")
    for k, (word, text) in enumerate(STATUSES, 1):
        comma = "," if k < len(STATUSES) else ""
        lines.append(f"    {upper}_{word} = {k}{comma} /* {text.format(name=interface.name)} */")
    return "\n".join([*lines, "};", ""])


def _runtime(interface: Interface) -> str:
    name = interface.name
    lines = [
        "/*",
        f" * What the object may use of its host's. {name}_init copies it; call it before the first call, not during one.",
        " * All zero but for the first field is a runtime too: one thread, and memory of the C library's.",
        " */",
        f"typedef struct {name}_runtime {{",
        f"    int64_t size;                /* sizeof({name}_runtime) */",
        "    int64_t threads;             /* how many threads parallel_for uses; results do not depend on it */",
        "    void *user;                  /* passed to the functions that take it */",
        "    /* Calls body(data, k) once for each k from 0 to count - 1, in any order, on any threads; returns after all. */",
        "    void (*parallel_for)(void *user, void (*body)(void *data, int64_t k), void *data, int64_t count);",
        "    /* Around each call of BLAS and LAPACK, which are to run on the calling thread alone; from any thread. */",
        "    void (*before_library)(void *user);",
        "    void (*after_library)(void *user);",
        "    void *(*reallocate)(void *block, size_t bytes); /* as realloc */",
        "    void (*release)(void *block);                   /* as free */",
        "    const void *poll;            /* of pullback's own; NULL */",
    ]
    if interface.needs:
        lines.append("    /* Functions that the program calls. Those that must be given say so. */")
    for need in interface.needs:
        description = f"{need.describe}; NULL: a plain one of the object's" if need.own else f"{need.describe}; must be given"
        result, _, arguments = need.prototype.partition(" (")
        if not arguments:
            lines.append(f"    void *{need.name}; /* {description} */")
        else:
            lines += [f"    /* {description} */", f"    {_plain(result)} (*{need.name})({_plain(arguments[:-1])});"]
    required = "It must be called before the function." if interface.must_begin else "It need not be called."
    lines += [f"}} {name}_runtime;", "", f"/* Returns 0, or why calls will not run. {required} */"]
    return "\n".join([*lines, f"int64_t {name}_init(const {name}_runtime *runtime);", ""])


def _plain(text: str) -> str:
    """Return types that are valid in both C and C++: pointers to complex numbers without their type."""
    for word in ("float complex", "double complex"):
        text = text.replace(f"{word} *", "void *")
    return text.replace("npy_intp", "ptrdiff_t")


def _shape(leaf: Leaf) -> str:
    return f"{leaf.dtype.name}[{', '.join(map(str, leaf.shape))}]"


def _describe(leaf: Leaf) -> str:
    note = _NOTES.get(leaf.dtype.name, "")
    text = f"{leaf.name}: {_shape(leaf)}" + (f" ({note})" if note else "")
    return text if leaf.path == leaf.name else f"{text}, {leaf.path}"


def _range(bounds: Bounds) -> str:
    return (
        f"{bounds.name}: an extent, from {bounds.low} on"
        if bounds.high is None
        else (f"{bounds.name}: an extent, from {bounds.low} to {bounds.high:,}")
    )


def _function(interface: Interface) -> str:
    parameters = [f"int64_t {bounds.name}" for bounds in interface.extents]
    for leaf in interface.arguments:
        t = c_type(leaf.dtype)
        parameters.append(f"{t} {leaf.name}" if leaf.by_value else f"const {t} *{leaf.name}")
    parameters += [f"{c_type(leaf.dtype)} *{leaf.name}" for leaf in interface.results]
    lines = ["The function. Extents, arguments, results:", ""]
    lines += [f"  {_range(bounds)}" for bounds in interface.extents]
    lines += [f"  {_describe(leaf)}" for leaf in interface.arguments]
    lines += [f"  {_describe(leaf)}, written" for leaf in interface.results]
    text = f"int64_t {interface.name}({', '.join(parameters) or 'void'});"
    if len(text) > 120:
        text = f"int64_t {interface.name}(\n    " + ",\n    ".join(parameters) + ");"
    return _comment(lines) + text + "\n"


def _other_functions(interface: Interface) -> str:
    name = interface.name
    order = ", ".join(leaf.name for leaf in interface.results)
    checks = [f"  {k}  {text}" for k, text in enumerate(interface.messages) if k >= FIRST_CHECK]
    lines = [
        "/* The same with the addresses of extents, arguments and results in arrays; numbers by their addresses too. */",
        f"int64_t {name}_call(const int64_t *extents, const void *const *arguments, void *const *results);",
        "",
        f"/* Writes the shape of a result, by its number from 0 on ({order}), and returns its rank; -1 for another number. */",
        f"int64_t {name}_result_shape(int64_t result, const int64_t *extents, int64_t *shape);",
        "",
        "/* What a status means; memory of the object's. */",
        f"const char *{name}_error(int64_t status);",
        "",
        "/* What pb.load reads. */",
        f"extern const char {name}_manifest[];",
        "",
    ]
    return "\n".join(lines) + ("\n" + _comment(["Checks that may fail:", *checks]) if checks else "")
