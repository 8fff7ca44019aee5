"""Emit the functions of an exported object that C calls, as LLVM IR text.

``NAME_call(extents, arguments, results)`` computes the program's sizes from the extents, takes memory for its temporaries,
fills in the argument slots of its kernels one after another, calls them, and frees the memory. ``NAME`` is the same with a C
parameter for each extent, argument and result. Both may be called from several threads at once. The arguments of ``NAME_init``
are stored in the object's own memory; some of them in the table that kernels receive as ("threads",). Functions that C calls
are compiled for any processor of the architecture, and first test whether this one has the required features.
"""

from __future__ import annotations

from pullback.codegen.cpu.llvm.text import THREADS
from pullback.codegen.export import cpuid, fallback_gemm
from pullback.codegen.export.entry_body import ALIGNMENT, Body, Sizes
from pullback.codegen.export.interface import CODES, HOOKS, Interface
from pullback.ir.core.types import DType

PUBLIC = ("{}", "{}_call", "{}_init", "{}_error", "{}_result_shape", "{}_manifest", "pullback_exported")
"""The symbols of an object, by the function's name; the last contains that name, and may be in several objects of a program."""
EXTERNAL_SYMBOLS = ("realloc", "free")
"""The C library functions that the text needs, besides those that LLVM calls by itself."""


def public_symbols(name: str) -> list[str]:
    """Return the symbols that an object defines for others."""
    return [pattern.format(name) for pattern in PUBLIC]


def needs_gemm(interface: Interface) -> bool:
    """Return whether the text calls ``@pullback_crew_gemm``, which is in a module of its own."""
    return any(slot[0] == "gemm" for need in interface.needs for slot in need.slots)


def emit_entry(interface: Interface) -> str:
    """Return the module that is linked with the kernels."""
    parts = [_globals(interface), _threads(interface), _tables(interface)]
    body = Body(interface)
    parts += [body.run(), _preparation(interface), _init(interface), _call(interface), _typed(interface), _shapes(interface)]
    parts += [fallback_gemm.source(name) for need in interface.needs if need.own for name in [need.describe]]
    parts += sorted(body.declared)
    kernels = dict.fromkeys(f"declare i64 @{step.symbol}(ptr)" for step in interface.steps)
    attributes = '"target-cpu"="x86-64" "target-features"=""' if interface.is_x86 else ""
    return "\n".join([*parts, *kernels, f"attributes #0 = {{ nounwind {attributes} }}", ""])


def _text(payload: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in payload)


def _string(name: str, text: str, kind: str = "private unnamed_addr constant") -> str:
    payload = text.encode() + b"\0"
    return f'@{name} = {kind} [{len(payload)} x i8] c"{_text(payload)}"'


def _globals(interface: Interface) -> str:
    gemm = "ptr @pullback_crew_gemm" if needs_gemm(interface) else "ptr null"
    functions = {"run": "ptr @run", "enter": "ptr @pullback_crew_enter", "leave": "ptr @pullback_crew_leave", "gemm": gemm}
    lines = [
        f"@crew = internal global {{ {', '.join('ptr' for _ in THREADS)}, i64 }} "
        f"{{ {', '.join(functions[name] for name in THREADS)}, i64 1 }}",
        f"@hooks = internal global [{len(HOOKS)} x ptr] zeroinitializer",
        f"@needs = internal global [{max(len(interface.needs), 1)} x ptr] [{_default_needs(interface)}]",
        "@state = internal global i64 0",
        _string(f"{interface.name}_manifest", interface.manifest, "constant"),
        _string("pullback_exported", interface.name, "weak constant"),
    ]
    for k, data in enumerate(interface.data):
        payload = data.payload or b"\0"
        text = "\\" + payload.hex("\\")
        lines.append(f'@data{k} = private constant [{len(payload)} x i8] c"{text}", align {ALIGNMENT}')
    return "\n".join([*lines, "declare ptr @realloc(ptr, i64)", "declare void @free(ptr)", ""])


def _default_needs(interface: Interface) -> str:
    """Return the initial address of each needed function."""
    return ", ".join(f"ptr @{need.own}" if need.own else "ptr null" for need in interface.needs) or "ptr null"


def _hook(name: str, into: str) -> str:
    at = HOOKS.index(name)
    return f"  %{into} = load ptr, ptr getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {at})"


def _threads(interface: Interface) -> str:
    """Return the functions for parallel loops, calls around the library, and memory, which use the caller's functions if
    provided."""
    gemm = "declare void @pullback_crew_gemm(ptr, ptr, i64, ptr)" if needs_gemm(interface) else ""
    return f"""
define internal i64 @run(ptr %state, ptr %function, ptr %context, i64 %chunks) nounwind {{
  %status = call i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 0)
  ret i64 %status
}}

; One chunk of a loop that the caller's threads share. The lowest chunk that fails is the one that counts.
define internal i64 @chunk(ptr %shared, i64 %k) nounwind {{
  %function = load ptr, ptr %shared
  %context.at = getelementptr ptr, ptr %shared, i64 1
  %context = load ptr, ptr %context.at
  %status = call i64 %function(ptr %context, i64 %k)
  %failed = icmp ne i64 %status, 0
  br i1 %failed, label %note, label %done
note:
  %failure = getelementptr ptr, ptr %shared, i64 2
  %high = shl i64 %k, 32
  %both = or i64 %high, %status
  %before = atomicrmw umin ptr %failure, i64 %both monotonic, align 8
  br label %done
done:
  ret i64 0
}}

define hidden i64 @share_out(ptr %state, ptr %function, ptr %context, i64 %chunks, i64 %most) nounwind {{
entry:
{_hook("parallel_for", "parallel")}
  %is.given = icmp ne ptr %parallel, null
  %several = icmp sgt i64 %chunks, 1
  %shared.out = and i1 %is.given, %several
  br i1 %shared.out, label %share, label %head
share:
  %shared = alloca [3 x i64]
  store ptr %function, ptr %shared
  %context.at = getelementptr i64, ptr %shared, i64 1
  store ptr %context, ptr %context.at
  %failure = getelementptr i64, ptr %shared, i64 2
  store atomic i64 -1, ptr %failure monotonic, align 8
{_hook("user", "user")}
  call void %parallel(ptr %user, ptr @chunk, ptr %shared, i64 %chunks)
  %found = load atomic i64, ptr %failure acquire, align 8
  %fine = icmp eq i64 %found, -1
  %code = and i64 %found, {0xFFFFFFFF}
  %result = select i1 %fine, i64 0, i64 %code
  ret i64 %result
head:
  %k = phi i64 [ 0, %entry ], [ %k.next, %body ]
  %first = phi i64 [ 0, %entry ], [ %first.next, %body ]
  %more = icmp slt i64 %k, %chunks
  br i1 %more, label %body, label %done
body:
  %status = call i64 %function(ptr %context, i64 %k)
  %none = icmp eq i64 %first, 0
  %first.next = select i1 %none, i64 %status, i64 %first
  %k.next = add i64 %k, 1
  br label %head
done:
  ret i64 %first
}}
{_around("pullback_crew_enter", "before_library")}{_around("pullback_crew_leave", "after_library")}
define internal ptr @reallocate(ptr %block, i64 %bytes) nounwind {{
{_hook("reallocate", "own")}
  %is.given = icmp ne ptr %own, null
  %function = select i1 %is.given, ptr %own, ptr @realloc
  %found = call ptr %function(ptr %block, i64 %bytes)
  ret ptr %found
}}

define internal void @release(ptr %block) nounwind {{
{_hook("release", "own")}
  %is.given = icmp ne ptr %own, null
  %function = select i1 %is.given, ptr %own, ptr @free
  call void %function(ptr %block)
  ret void
}}

define internal ptr @take_room(ptr %state, i64 %bytes) nounwind {{
  %found = call ptr @reallocate(ptr null, i64 %bytes)
  ret ptr %found
}}

define internal void @give_room(ptr %state, ptr %block, i64 %bytes) nounwind {{
  call void @release(ptr %block)
  ret void
}}

; The clock of loops that nobody interrupts: it stands still.
define internal i64 @clock() nounwind {{
  ret i64 0
}}
@poll = internal constant {{ ptr, [7 x i64] }} {{ ptr @clock, [7 x i64] zeroinitializer }}
{gemm}
"""


def _around(name: str, hook: str) -> str:
    return f"""
define hidden void @{name}(ptr %state) nounwind {{
{_hook(hook, "own")}
  %is.given = icmp ne ptr %own, null
  br i1 %is.given, label %call, label %done
call:
{_hook("user", "user")}
  call void %own(ptr %user)
  br label %done
done:
  ret void
}}
"""


def _tables(interface: Interface) -> str:
    """Return the table of status messages and the function that reads it."""
    messages = interface.messages
    lines = [_string(f"message{k}", text) for k, text in enumerate(messages)]
    lines.append(_string("unknown", "unknown status"))
    names = ", ".join(f"ptr @message{k}" for k in range(len(messages)))
    return (
        "\n".join(lines)
        + f"""
@messages = internal constant [{len(messages)} x ptr] [{names}]

define ptr @{interface.name}_error(i64 %status) #0 {{
  %known = icmp ult i64 %status, {len(messages)}
  %index = select i1 %known, i64 %status, i64 0
  %at = getelementptr ptr, ptr @messages, i64 %index
  %text = load ptr, ptr %at
  %result = select i1 %known, ptr %text, ptr @unknown
  ret ptr %result
}}
"""
    )


def _preparation(interface: Interface) -> str:
    """Return the function that tests whether calls may run: 0, or the status of the reason. It is called until it returns 0."""
    lines = []
    if interface.features:
        lines += ["  %will.do = call i1 @suits()", "  br i1 %will.do, label %need0, label %wrong"]
    else:
        lines += ["  br label %need0"]
    for k, need in enumerate(interface.needs):
        if need.may_be_null:
            lines += [f"need{k}:", f"  br label %need{k + 1}"]
            continue
        lines += [
            f"need{k}:",
            f"  %address{k} = load ptr, ptr getelementptr ([{len(interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})",
            f"  %given{k} = icmp ne ptr %address{k}, null",
            f"  br i1 %given{k}, label %need{k + 1}, label %missing",
        ]
    lines += [f"need{len(interface.needs)}:", "  store atomic i64 1, ptr @state release, align 8", "  ret i64 0"]
    if not all(need.may_be_null for need in interface.needs):
        lines += ["missing:", f"  ret i64 {CODES['NOT_READY']}"]
    if interface.features:
        lines += ["wrong:", f"  ret i64 {CODES['WRONG_CPU']}"]
    check = cpuid.check("suits", interface.features) if interface.features else ""
    return "\n".join([check, "define internal i64 @prepare() noinline #0 {", "entry:", *lines, "}", ""])


def _init(interface: Interface) -> str:
    fields = 2 + len(HOOKS) + len(interface.needs)
    lines = []
    for k in range(len(HOOKS)):
        lines += _copy_field(2 + k, f"getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {k})")
    for k in range(len(interface.needs)):
        address = f"getelementptr ([{len(interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})"
        lines += _copy_field(2 + len(HOOKS) + k, address, interface.needs[k].own)
    count = f"getelementptr (i8, ptr @crew, i64 {8 * len(THREADS)})"
    return f"""
define i64 @{interface.name}_init(ptr %runtime) #0 {{
  %is.null = icmp eq ptr %runtime, null
  br i1 %is.null, label %small, label %look
look:
  %size = load i64, ptr %runtime
  %whole = icmp eq i64 %size, {8 * fields}
  br i1 %whole, label %take, label %small
take:
  store atomic i64 0, ptr @state release, align 8
  %threads.at = getelementptr i64, ptr %runtime, i64 1
  %threads = load i64, ptr %threads.at
  %is.less = icmp slt i64 %threads, 1
  %some = select i1 %is.less, i64 1, i64 %threads
  store atomic i64 %some, ptr {count} monotonic, align 8
{chr(10).join(lines)}
  %status = call i64 @prepare()
  ret i64 %status
small:
  ret i64 {CODES["NOT_READY"]}
}}
"""


def _copy_field(field: int, address: str, own: str = "") -> list[str]:
    """Return lines that copy a field of a runtime to ``address``; if it is null, a function of the object instead."""
    lines = [f"  %at{field} = getelementptr i64, ptr %runtime, i64 {field}", f"  %given{field} = load ptr, ptr %at{field}"]
    lines.append(f"  %null{field} = icmp eq ptr %given{field}, null")
    lines.append(f"  %field{field} = select i1 %null{field}, ptr {f'@{own}' if own else 'null'}, ptr %given{field}")
    return [*lines, f"  store ptr %field{field}, ptr {address}"]


def _call(interface: Interface) -> str:
    return f"""
define i64 @{interface.name}_call(ptr %extents, ptr %arguments, ptr %results) #0 {{
  %state = load atomic i64, ptr @state acquire, align 8
  %ready = icmp ne i64 %state, 0
  br i1 %ready, label %go, label %ask
ask:
  %problem = call i64 @prepare()
  %fine = icmp eq i64 %problem, 0
  br i1 %fine, label %go, label %out
out:
  ret i64 %problem
go:
  %status = call i64 @program(ptr %extents, ptr %arguments, ptr %results)
  ret i64 %status
}}
"""


def _by_value(dtype: DType) -> str:
    return {"f64": "double", "f32": "float"}.get(dtype.name, f"i{dtype.bits}")


def _typed(interface: Interface) -> str:
    """Return the function with a parameter for each extent, argument and result."""
    parameters = [f"i64 %e{k}" for k in range(len(interface.extents))]
    lines = [f"  %extents = alloca [{max(len(interface.extents), 1)} x i64]"]
    lines += [f"  %arguments = alloca [{max(len(interface.arguments), 1)} x ptr]"]
    lines += [f"  %results = alloca [{max(len(interface.results), 1)} x ptr]"]
    for k in range(len(interface.extents)):
        lines += [f"  %e{k}.at = getelementptr i64, ptr %extents, i64 {k}", f"  store i64 %e{k}, ptr %e{k}.at"]
    for k, leaf in enumerate(interface.arguments):
        address = f"%a{k}"
        t = "ptr"
        if leaf.by_value:
            t, address = _by_value(leaf.dtype), f"%a{k}.slot"
            lines += [f"  {address} = alloca {t}", f"  store {t} %a{k}, ptr {address}"]
        parameters.append(f"{t} %a{k}")
        lines += [f"  %a{k}.at = getelementptr ptr, ptr %arguments, i64 {k}", f"  store ptr {address}, ptr %a{k}.at"]
    for k in range(len(interface.results)):
        parameters.append(f"ptr %r{k}")
        lines += [f"  %r{k}.at = getelementptr ptr, ptr %results, i64 {k}", f"  store ptr %r{k}, ptr %r{k}.at"]
    lines += [
        f"  %status = call i64 @{interface.name}_call(ptr %extents, ptr %arguments, ptr %results)",
        "  ret i64 %status",
    ]
    return "\n".join([f"define i64 @{interface.name}({', '.join(parameters)}) #0 {{", *lines, "}", ""])


def _shapes(interface: Interface) -> str:
    """Return the function that writes the shape of a result and returns its rank, or -1."""
    writer = Sizes(interface)
    cases = " ".join(f"i64 {k}, label %case{k}" for k in range(len(interface.results)))
    writer.line(f"switch i64 %result, label %none [ {cases} ]")
    for k, leaf in enumerate(interface.results):
        writer.label(f"case{k}")
        for axis, formula in enumerate(leaf.shape):
            value = writer.formula(formula)
            writer.line(f"store i64 {value}, ptr {writer.let(f'getelementptr i64, ptr %shape, i64 {axis}')}")
        writer.line(f"ret i64 {len(leaf.shape)}")
    writer.label("none")
    writer.line("ret i64 -1")
    heading = f"define i64 @{interface.name}_result_shape(i64 %result, ptr %extents, ptr %shape) #0 {{"
    return "\n".join([heading, "entry:", *writer.entry, *writer.lines, "}", ""])
