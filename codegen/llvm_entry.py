"""emit, for callers without Python: the functions of an exported object that C sees, as LLVM IR text.

``NAME_call(extents, arguments, results)`` computes the program's sizes from the extents, takes memory for its temporaries, fills
in the argument slots of its kernels one after another, calls them, and gives the memory back. ``NAME`` is the same with an
argument of C for each. Both may be called from several threads at once. What ``NAME_init`` was given lies in the object's own
memory, in the table that kernels know as ("threads",) too. Functions that C calls are made for any processor of the architecture,
and look first whether this one will do.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from pullback.codegen import cpuid
from pullback.codegen.interface import HOOKS, STATUSES, Interface, Place, Step
from pullback.codegen.llvm_text import THREADS, Extents
from pullback.ir.extents import product
from pullback.ir.formulas import Formula, Scaled
from pullback.ir.types import DTYPES, DType, Extent

ALIGNMENT = 64
MOST_ON_STACK = 1 << 14
"""So many bytes of temporaries, if they are as many in all calls, are on the stack."""
MOST_BYTES = 1 << 47
"""No machine has more memory than that."""
MOST_OF_LIBRARY = 2**31 - 1
CODES = {name: k for k, (name, _) in enumerate(STATUSES, 1)}

PUBLIC = ("{}", "{}_call", "{}_init", "{}_error", "{}_result_shape", "{}_manifest", "pullback_exported")
"""The symbols of an object, by the function's name; the last says that name, and may be in several objects of a program."""
OUTSIDE = ("realloc", "free")
"""What the text needs from the C library, besides what LLVM calls by itself."""


def public_symbols(name: str) -> list[str]:
    """The symbols that an object defines for others."""
    return [pattern.format(name) for pattern in PUBLIC]


def needs_gemm(interface: Interface) -> bool:
    """Whether the text calls ``@pullback_crew_gemm``, which is in a module of its own."""
    return any(slot[0] == "gemm" for need in interface.needs for slot in need.slots)


def emit_entry(interface: Interface) -> str:
    """The module that is linked with the kernels."""
    parts = [_globals(interface), _threads(interface), _tables(interface)]
    body = _Body(interface)
    parts += [body.run(), _preparation(interface), _init(interface), _call(interface), _typed(interface), _shapes(interface)]
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
        f"@needs = internal global [{max(len(interface.needs), 1)} x ptr] zeroinitializer",
        "@state = internal global i64 0",
        _string(f"{interface.name}_manifest", interface.manifest, "constant"),
        _string("pullback_exported", interface.name, "weak constant"),
    ]
    for k, data in enumerate(interface.data):
        payload = data.payload or b"\0"
        lines.append(f'@data{k} = private constant [{len(payload)} x i8] c"{_text(payload)}", align {ALIGNMENT}')
    return "\n".join([*lines, "declare ptr @realloc(ptr, i64)", "declare void @free(ptr)", ""])


def _hook(name: str, into: str) -> str:
    at = HOOKS.index(name)
    return f"  %{into} = load ptr, ptr getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {at})"


def _threads(interface: Interface) -> str:
    """Loops over chunks, calls around the library, and memory, by the caller's functions or without."""
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

; The clock of loops that nobody interrupts: it stands still.
define internal i64 @clock() nounwind {{
  ret i64 0
}}
@poll = internal constant {{ ptr, [5 x i64] }} {{ ptr @clock, [5 x i64] zeroinitializer }}
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
    """What statuses mean."""
    messages = interface.messages
    lines = [_string(f"message{k}", text) for k, text in enumerate(messages)]
    lines.append(_string("unknown", "unknown status"))
    names = ", ".join(f"ptr @message{k}" for k in range(len(messages)))
    return "\n".join(lines) + f"""
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


def _preparation(interface: Interface) -> str:
    """Whether calls may run: 0, or the status that says why not. Asked until it is so."""
    lines = []
    if interface.features:
        lines += ["  %will.do = call i1 @suits()", "  br i1 %will.do, label %need0, label %wrong"]
    else:
        lines += ["  br label %need0"]
    for k in range(len(interface.needs)):
        lines += [
            f"need{k}:",
            f"  %address{k} = load ptr, ptr getelementptr ([{len(interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})",
            f"  %given{k} = icmp ne ptr %address{k}, null",
            f"  br i1 %given{k}, label %need{k + 1}, label %missing",
        ]
    lines += [f"need{len(interface.needs)}:", "  store atomic i64 1, ptr @state release, align 8", "  ret i64 0"]
    if interface.needs:
        lines += ["missing:", f"  ret i64 {CODES['NOT_READY']}"]
    if interface.features:
        lines += ["wrong:", f"  ret i64 {CODES['WRONG_CPU']}"]
    check = cpuid.check("suits", interface.features) if interface.features else ""
    return "\n".join([check, "define internal i64 @prepare() noinline #0 {", "entry:", *lines, "}", ""])


def _init(interface: Interface) -> str:
    fields = 2 + len(HOOKS) + len(interface.needs)
    lines = []
    for k, name in enumerate(HOOKS):
        lines += _moved(2 + k, f"getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {k})")
    for k in range(len(interface.needs)):
        place = f"getelementptr ([{len(interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})"
        lines += _moved(2 + len(HOOKS) + k, place)
    count = f"getelementptr (i8, ptr @crew, i64 {8 * len(THREADS)})"
    return f"""
define i64 @{interface.name}_init(ptr %runtime) #0 {{
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


def _moved(field: int, place: str) -> list[str]:
    return [
        f"  %at{field} = getelementptr i64, ptr %runtime, i64 {field}",
        f"  %field{field} = load ptr, ptr %at{field}",
        f"  store ptr %field{field}, ptr {place}",
    ]


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
    """The function with an argument for each extent, argument and result."""
    given = [f"i64 %e{k}" for k in range(len(interface.extents))]
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
        given.append(f"{t} %a{k}")
        lines += [f"  %a{k}.at = getelementptr ptr, ptr %arguments, i64 {k}", f"  store ptr {address}, ptr %a{k}.at"]
    for k in range(len(interface.results)):
        given.append(f"ptr %r{k}")
        lines += [f"  %r{k}.at = getelementptr ptr, ptr %results, i64 {k}", f"  store ptr %r{k}, ptr %r{k}.at"]
    lines += [
        f"  %status = call i64 @{interface.name}_call(ptr %extents, ptr %arguments, ptr %results)",
        "  ret i64 %status",
    ]
    return "\n".join([f"define i64 @{interface.name}({', '.join(given)}) #0 {{", *lines, "}", ""])


def _shapes(interface: Interface) -> str:
    """A function that writes the shape of a result and returns its rank, or -1."""
    found = _Sizes(interface)
    cases = " ".join(f"i64 {k}, label %case{k}" for k in range(len(interface.results)))
    found.line(f"switch i64 %result, label %none [ {cases} ]")
    for k, leaf in enumerate(interface.results):
        found.label(f"case{k}")
        for axis, formula in enumerate(leaf.shape):
            value = found.formula(formula)
            found.line(f"store i64 {value}, ptr {found.let(f'getelementptr i64, ptr %shape, i64 {axis}')}")
        found.line(f"ret i64 {len(leaf.shape)}")
    found.label("none")
    found.line("ret i64 -1")
    heading = f"define i64 @{interface.name}_result_shape(i64 %result, ptr %extents, ptr %shape) #0 {{"
    return "\n".join([heading, "entry:", *found.entry, *found.lines, "}", ""])


class _Sizes(Extents):
    """A function in the making that has ``%extents``, and the program's sizes from them."""

    def __init__(self, interface: Interface) -> None:
        super().__init__()
        self.interface = interface
        self.named: dict[str, str] = {}
        self.formulas = dict(interface.sizes)
        self.positions = {bounds.name: k for k, bounds in enumerate(interface.extents)}

    def size(self, name: str) -> str:
        """A size of the program as an i64."""
        if name not in self.named:
            self.named[name] = self.formula(self.formulas[name])
        return self.named[name]

    def extent_of(self, name: str) -> str:
        """A named extent as an i64."""
        key = f"extent {name}"
        if key not in self.named:
            at = self.at_entry(f"getelementptr i64, ptr %extents, i64 {self.positions[name]}")
            self.named[key] = self.at_entry(f"load i64, ptr {at}")
        return self.named[key]

    def formula(self, formula: Formula) -> str:
        """A formula of extents as an i64."""
        if formula.number is not None:
            return str(formula.number)
        total = ""
        for coefficient, names in formula.terms:
            term = str(coefficient)
            for name in names:
                value = self.extent_of(name)
                term = value if term == "1" else self.at_entry(f"mul i64 {term}, {value}")
            total = self.at_entry(f"add i64 {total}, {term}") if total else term
        if formula.divisor == 1:
            return total
        quotient = self.at_entry(f"sdiv i64 {total}, {formula.divisor}")
        rest = self.at_entry(f"srem i64 {total}, {formula.divisor}")
        below = self.at_entry(f"sext i1 {self.at_entry(f'icmp slt i64 {rest}, 0')} to i64")
        return self.at_entry(f"add i64 {quotient}, {below}")


class _Body(_Sizes):
    """The function that runs the program."""

    def run(self) -> str:
        """The function's text."""
        self.status = self.slot("i64")
        self.arena = self.slot("ptr")
        most = max((len(step.slots) for step in self.interface.steps), default=0)
        self.block = self.slot(f"[{max(most, 1)} x i64]")
        self.line(f"store ptr null, ptr {self.arena}")
        self.bounds()
        self.places()
        for step in self.interface.steps:
            self.step(step)
        for copied in self.interface.copies:
            self.copy(("result", copied.result), copied.source, copied.bytes)
        self.leave(0)
        self.label("end")
        block = self.let(f"load ptr, ptr {self.arena}")
        kept, free = self.labels("kept", "free")
        self.line(f"br i1 {self.let(f'icmp eq ptr {block}, null')}, label %{kept}, label %{free}")
        self.label(free)
        self.line(f"call void @release(ptr {block})")
        self.line(f"br label %{kept}")
        self.label(kept)
        self.line(f"ret i64 {self.let(f'load i64, ptr {self.status}')}")
        heading = "define internal i64 @program(ptr %extents, ptr %arguments, ptr %results) noinline nounwind {"
        return "\n".join([heading, "entry:", *self.entry, *self.lines, "}", ""])

    def labels(self, *words: str) -> list[str]:
        self.count += 1
        return [f"{word}{self.count}" for word in words]

    def leave(self, status: int | str) -> None:
        self.line(f"store i64 {status}, ptr {self.status}")
        self.line("br label %end")

    def refuse(self, test: str, status: str) -> None:
        """Leave if an i1 is true."""
        out, on = self.labels("refused", "on")
        self.line(f"br i1 {test}, label %{out}, label %{on}")
        self.label(out)
        self.leave(CODES[status])
        self.label(on)

    def bounds(self) -> None:
        """Leave where an extent is none that the program serves."""
        for bounds in self.interface.extents:
            value = self.extent_of(bounds.name)
            self.refuse(self.let(f"icmp slt i64 {value}, {bounds.low}"), "BAD_EXTENT")
            if bounds.high is not None:
                self.refuse(self.let(f"icmp sgt i64 {value}, {bounds.high}"), "BAD_EXTENT")
        limited = dict.fromkeys(e for step in self.interface.steps for e in step.limited if isinstance(e, str))
        for extent in limited:
            self.refuse(self.let(f"icmp sgt i64 {self.extent(extent)}, {MOST_OF_LIBRARY}"), "BAD_EXTENT")

    # memory

    def places(self) -> None:
        """Take the arena: where each temporary begins in it."""
        self.temporaries: list[str] = []
        total = "0"
        for choices in self.interface.temporaries:
            size = "1"
            for choice in choices:
                self.possible(choice)
                value = self.extent(product(choice))
                size = self.most(size, value)
            self.temporaries.append(total)
            total = self.sum(total, self.rounded(size))
        if total == "0":
            return
        if total.isdigit() and int(total) <= MOST_ON_STACK:
            self.base = self.at_entry(f"alloca [{total} x i8], align {ALIGNMENT}")
            return
        whole = self.sum(total, str(ALIGNMENT))
        block = self.let(f"call ptr @reallocate(ptr null, i64 {whole})")
        self.refuse(self.let(f"icmp eq ptr {block}, null"), "NO_MEMORY")
        self.line(f"store ptr {block}, ptr {self.arena}")
        address = self.let(f"ptrtoint ptr {block} to i64")
        after = self.let(f"add i64 {address}, {ALIGNMENT - 1}")
        aligned = self.let(f"and i64 {after}, {-ALIGNMENT}")
        shift = self.let(f"sub i64 {aligned}, {address}")
        self.base = self.let(f"getelementptr i8, ptr {block}, i64 {shift}")

    def possible(self, choice: Sequence[Extent]) -> None:
        """Leave where a buffer would be larger than memory can be, before its size wraps around."""
        flat = product(choice)
        if isinstance(flat, int):
            return
        total = ""
        for factor in flat.split("*"):
            value = self.let(f"sitofp i64 {self.factor(factor)} to double")
            total = self.let(f"fmul double {total}, {value}") if total else value
        self.refuse(self.let(f"fcmp ogt double {total}, {float(MOST_BYTES):.1f}"), "NO_MEMORY")

    def most(self, a: str, b: str) -> str:
        if a.isdigit() and b.isdigit():
            return str(max(int(a), int(b)))
        return self.intrinsic("i64", "llvm.smax.i64", [("i64", a), ("i64", b)])

    def rounded(self, size: str) -> str:
        if size.isdigit():
            return str(-(-int(size) // ALIGNMENT) * ALIGNMENT)
        return self.let(f"and i64 {self.let(f'add i64 {size}, {ALIGNMENT - 1}')}, {-ALIGNMENT}")

    def sum(self, a: str, b: str) -> str:
        return str(int(a) + int(b)) if a.isdigit() and b.isdigit() else self.let(f"add i64 {a}, {b}")

    def pointer(self, place: Place) -> str:
        """The address of a buffer."""
        kind, k = place
        match kind:
            case "argument" | "result":
                return self.let(f"load ptr, ptr {self.let(f'getelementptr ptr, ptr %{kind}s, i64 {k}')}")
            case "data":
                return f"@data{k}"
            case "temporary":
                return self.let(f"getelementptr i8, ptr {self.base}, i64 {self.temporaries[k]}")
        dtype = self.interface.numbers[k][0]
        t = f"i{dtype.bytes * 8}"
        slot = self.slot(t)
        self.line(f"store {t} {self.bits(place, dtype)}, ptr {slot}")
        return slot

    def bits(self, place: Place, dtype: DType) -> str:
        """A number as an integer of as many bits."""
        t = f"i{dtype.bytes * 8}"
        if place[0] != "number":
            return self.let(f"load {t}, ptr {self.pointer(place)}")
        value = self.interface.numbers[place[1]][1]
        if isinstance(value, Scaled):
            made, word = self.scaled(value), {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat"}[dtype.name]
            narrow = made if word == "double" else self.let(f"fptrunc double {made} to {word}")
            return self.let(f"bitcast {word} {narrow} to {t}")
        if isinstance(value, Formula):
            found = self.formula(value)
            if dtype.is_float:
                return self.bits_of_float(self.let(f"sitofp i64 {found} to double"), dtype, t)
            return found if t == "i64" else self.let(f"trunc i64 {found} to {t}")
        payload = dtype.numpy.type(value).tobytes()
        return str(int.from_bytes(payload, "little"))

    def bits_of_float(self, made: str, dtype: DType, t: str) -> str:
        word = {"f64": "double", "f32": "float", "f16": "half", "bf16": "bfloat"}[dtype.name]
        narrow = made if word == "double" else self.let(f"fptrunc double {made} to {word}")
        return self.let(f"bitcast {word} {narrow} to {t}")

    def scaled(self, value: Scaled) -> str:
        n = self.let(f"sitofp i64 {self.formula(value.formula)} to double")
        if value.kind.endswith("root"):
            n = self.intrinsic("double", "llvm.sqrt.f64", [("double", n)])
        factor = f"0x{struct.unpack('<Q', struct.pack('<d', value.factor))[0]:016X}"
        return self.let(f"{'fdiv' if value.kind.startswith('over') else 'fmul'} double {factor}, {n}")

    def copy(self, target: Place, source: Place, size: Sequence[Extent]) -> None:
        self.declared["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"] = None
        places = f"ptr {self.pointer(target)}, ptr {self.pointer(source)}"
        self.line(f"call void @llvm.memcpy.p0.p0.i64({places}, i64 {self.extent(product(size))}, i1 false)")

    # steps

    def step(self, step: Step) -> None:
        """Fill in the slots of a kernel and call it."""
        for k, slot in enumerate(step.slots):
            at = self.let(f"getelementptr i64, ptr {self.block}, i64 {k}")
            self.line(f"store i64 {self.slot_value(step, slot)}, ptr {at}")
        status = self.let(f"call i64 @{step.symbol}(ptr {self.block})")
        if not step.first:
            return
        failed, on = self.labels("failed", "on")
        self.line(f"br i1 {self.let(f'icmp ne i64 {status}, 0')}, label %{failed}, label %{on}")
        self.label(failed)
        self.leave(self.let(f"add i64 {status}, {step.first - 1}"))
        self.label(on)

    def slot_value(self, step: Step, slot: Sequence[object]) -> str:
        kind, *rest = slot
        match kind, rest:
            case "size", [int(k)]:
                return self.extent(step.sizes[k])
            case "pointer", [int(k)]:
                return self.word(self.pointer(step.operands[k]))
            case "scalar", [int(k), str(name)]:
                return self.scalar(step.operands[k], name)
            case "stride", [int(k), int()]:
                return str(step.itemsizes[k])
            case "threads", _:
                return self.word("@crew")
            case "poll", _:
                own = self.let(f"load ptr, ptr getelementptr ([{len(HOOKS)} x ptr], ptr @hooks, i64 0, i64 {HOOKS.index('poll')})")
                is_null = self.let(f"icmp eq ptr {own}, null")
                return self.word(self.let(f"select i1 {is_null}, ptr @poll, ptr {own}"))
            case "c", [str(name)]:
                return self.word({"realloc": "@reallocate", "free": "@release"}[name])
        for k, need in enumerate(self.interface.needs):
            if tuple(slot) in need.slots:
                place = f"getelementptr ([{len(self.interface.needs)} x ptr], ptr @needs, i64 0, i64 {k})"
                return self.word(self.let(f"load ptr, ptr {place}"))
        raise NotImplementedError(f"slot {slot}")

    def scalar(self, place: Place, name: str) -> str:
        """A number in the low bits of a slot."""
        leaf = DTYPES[name]
        t = f"i{leaf.bytes * 8}"
        bits = self.bits(place, leaf)
        return bits if t == "i64" or bits.isdigit() else self.let(f"zext {t} {bits} to i64")

    def word(self, pointer: str) -> str:
        return self.let(f"ptrtoint ptr {pointer} to i64")
