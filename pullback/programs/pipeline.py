"""From a trace to something that runs: the passes in order, and the templates that every shape of a program shares.

A trace's canonical text, with its extents and constants abstract, together with the memory order of its arrays and the
device, is the key of a template. A trace whose key is known is instantiated: no pass runs and nothing is compiled.
Templates die with the last program made of them, but for the few that were used last.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from pullback.codegen.analysis.steps import accesses, owners
from pullback.codegen.targets import Target
from pullback.ir import OPS, OWN_OPS, Block, Function, Instruction, Module, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.matmul import Product
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.extents import Abstract, rename, value_of
from pullback.ir.text import Notes, canonical, print_module
from pullback.programs import logger as logs
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.cuda.driver.errors import warn_of
from pullback.runtime.memory import result_arrays as memory
from pullback.runtime.process import counters
from pullback.runtime.process import gc_pause as collector
from pullback.runtime.process.fork import work
from pullback.runtime.process.locks import KeyedLocks
from pullback.runtime.program import serialize as stored
from pullback.runtime.program.executable import Executable, parts_of
from pullback.runtime.threads import threads
from pullback.tracer import Argument, Captured, Trace, TraceError, leaf_key

if TYPE_CHECKING:
    from pullback.codegen.analysis import loop_kernels as repeated
    from pullback.codegen.cpu import schedule
    from pullback.codegen.cpu.loops.shared_functions import Told
    from pullback.codegen.cpu.matmul import library_or_generated as own_products
    from pullback.codegen.cpu.matmul.prepack import prepack as prepacked
    from pullback.codegen.cuda import emit as cuda
    from pullback.codegen.cuda.schedule import schedule as cuda_schedule
    from pullback.codegen.fuse import fuse
    from pullback.codegen.fuse import matmul_fusion as carrying
    from pullback.codegen.lower import lower
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
    from pullback.programs import matmul_choices as chosen
    from pullback.runtime.cuda.device import device as cuda_device
    from pullback.runtime.cuda.libraries import libraries as cuda_libraries
    from pullback.runtime.cuda.program import build as cuda_make
    from pullback.runtime.cuda.program import executable as cuda_program
else:
    cuda, fuse = later("pullback.codegen.cuda.emit"), later("pullback.codegen.fuse.fuse")
    cuda_schedule = later("pullback.codegen.cuda.schedule.schedule")
    lower, schedule = later("pullback.codegen.lower.lower"), later("pullback.codegen.cpu.schedule")
    own_products = later("pullback.codegen.cpu.matmul.library_or_generated")
    carrying = later("pullback.codegen.fuse.matmul_fusion")
    prepacked, repeated = later("pullback.codegen.cpu.matmul.prepack.prepack"), later("pullback.codegen.analysis.loop_kernels")
    cuda_libraries = later("pullback.runtime.cuda.libraries.libraries")
    cuda_device, cuda_make = later("pullback.runtime.cuda.device.device"), later("pullback.runtime.cuda.program.build")
    chosen = later("pullback.programs.matmul_choices")
    grad, passes = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.pipeline")

SHARED_STAGES = ("trace", "grad", "simplify", "fuse", "lower", "schedule")
TARGET_STAGES = {"cpu": ("program", "llvm", "asm"), "cuda": ("cuda", "ptx", "sass")}
DEVICES = ("cpu", "cuda")


def target_of(device: str) -> str:
    """What code is written for: "cpu", or "cuda" for any CUDA device."""
    return device.partition(":")[0]


def fused_for(device: str) -> str:
    """What products and their neighbours are fused for: as ``target_of``, or "cuda-alone" where no library multiplies."""
    target = target_of(device)
    return carrying.ALONE if target == "cuda" and not cuda_libraries.multiplies() else target


Over = tuple[tuple[int, int], ...]
"""Pairs of a result and a parameter in whose memory it may be."""

Observer = Callable[..., None]
"""Gets a stage's name and module; for "fuse" also the ``Fused``."""

RECENT_TEMPLATES = 128
"""So many of the templates used last outlive their programs: code that is written again finds them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """A program for all shapes: an ``Executable``, or for a device a ``CudaExecutable``. The results at ``given``
    turned out to be parameters: they come back as they were given. ``is_stored``: it was read from the cache folder."""

    executable: Any
    given: tuple[int, ...]
    is_stored: bool = False

    @property
    def is_native(self) -> bool:
        """Whether it is one native function: a program of the CPU."""
        return isinstance(self.executable, Executable)

    @property
    def device(self) -> str:
        """The device that it runs on."""
        name: str = "cpu" if self.is_native else self.executable.device.name
        return name

    @property
    def home(self) -> Mapping[int, int]:
        """The results that are in the memory of parameters, with these."""
        found: Mapping[int, int] = self.executable.home
        return found


@dataclass(frozen=True, kw_only=True)
class TemplateCounts:
    """Templates built (all passes ran), loaded (from the cache folder) and instantiated (a trace found its template)."""

    built: int = 0
    loaded: int = 0
    instantiated: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Where a result of a trace comes from. ``source``: "result" (of the program, by ``index``), "repeat" (a copy of such a
    result), "parameter" (a copy of that argument of the program) or "leaf" (that leaf of the call itself)."""

    source: str
    index: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A template with the sizes and constants of one trace. ``template`` and ``instance`` are None if nothing has to be
    computed."""

    template: Template | None
    instance: Any
    sizes: Mapping[str, int]
    constants: tuple[Any, ...]
    outcomes: tuple[Outcome, ...]


class Templates:
    """The templates in use and those used last, by key. Each is built once, others meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._building = KeyedLocks()
        self._alive: WeakValueDictionary[bytes, Template] = WeakValueDictionary()
        self._recent: OrderedDict[bytes, Template] = OrderedDict()

    def __len__(self) -> int:
        return len(self._alive)

    def __contains__(self, key: bytes) -> bool:
        return key in self._alive

    def get_or_build(self, key: bytes, make: Callable[[], Template]) -> Template:
        """The template of ``key``."""
        with self._building.hold(key):
            found = self._alive.get(key)
            template = make() if found is None else found
            event: counters.Event = "templates_loaded" if template.is_stored else "templates_built"
            counters.count("templates_instantiated" if found is not None else event)
            with self._lock:
                self._alive[key] = self._recent[key] = template
                self._recent.move_to_end(key)
                while len(self._recent) > RECENT_TEMPLATES:
                    self._recent.popitem(last=False)
        return template

    def forget(self) -> int:
        """Lets go of those that no program uses; how many were kept."""
        with self._lock:
            count = len(self._recent)
            self._recent.clear()
        return count


templates = Templates()


def template_counts() -> TemplateCounts:
    """The counts of this process so far."""
    now = counters.snapshot()
    return TemplateCounts(built=now.templates_built, loaded=now.templates_loaded, instantiated=now.templates_instantiated)


def program(trace: Trace, leaves: Sequence[Any], device: str, over: Over = ()) -> Program:
    """The program of a trace whose call had these leaves. Raises TraceError where a gradient cannot be had."""
    function, outcomes = split_outcomes(trace)
    if not needs_program(function):
        return Program(template=None, instance=None, sizes={}, constants=(), outcomes=outcomes)
    found = templated(function)
    template = template_of_key(found, layouts_of(trace, leaves, len(found.constants), device), device, over)
    return program_at(found, outcomes, template)


def needs_program(function: Function) -> bool:
    """Whether anything has to be computed."""
    return bool(function.results) or not all(map(is_pure, function.instructions))


def template_of_key(found: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    """The template of an abstract function, built if there is none."""
    key = template_key(found, layouts, device, over)
    with work.underway():
        return templates.get_or_build(key, lambda: loaded_or_built(key, found, layouts, device, over))


def program_at(found: Abstract, outcomes: tuple[Outcome, ...], template: Template) -> Program:
    """A template with the sizes and constants of an abstract function."""
    with work.underway():
        instance = template.executable.instance(found.sizes)
    constants = typed_constants(found)
    return Program(template=template, instance=instance, sizes=found.sizes, constants=constants, outcomes=outcomes)


def template_key(found: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bytes:
    """What calls that share a template have in common."""
    pairs = [f"{result} over {parameter}" for result, parameter in over]
    return hashlib.sha256("\n".join([device, fused_for(device), *layouts, *pairs, canonical(found.function)]).encode()).digest()


def has_template(found: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bool:
    """Whether a template has been built already."""
    return template_key(found, layouts, device, over) in templates


def is_stored(found: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bool:
    """Whether a template that is not built yet is in the cache folder."""
    key = stored_key(template_key(found, layouts, device, over), found, device)
    return key is not None and default_engine().cache.where(key) is not None


def stored_key(key: bytes, found: Abstract, device: str) -> str | None:
    """The cache key of the program of a template key; None where programs are not kept. An op of somebody else's means what that
    one's sources say, which no key knows."""
    if not all(i.op in OWN_OPS for i in walk(found.function.body)):
        return None
    return stored.key_of(key) if device == "cpu" else cuda_make.key_of(key, device)


def split_outcomes(trace: Trace) -> tuple[Function, tuple[Outcome, ...]]:
    """The function without results that are parameters or that repeat, and where each result of the trace comes from."""
    function = trace.function
    kept: dict[Value, int] = {}
    outcomes = []
    positions = {v: k for k, v in enumerate(function.parameters)}
    for value, leaf in zip(function.results, (*trace.returned, *[None] * trace.writes_count), strict=True):
        if leaf is not None:
            outcomes.append(Outcome(source="leaf", index=leaf))
        elif value in positions:
            outcomes.append(Outcome(source="parameter", index=positions[value]))
        else:
            source = "repeat" if value in kept else "result"
            outcomes.append(Outcome(source=source, index=kept.setdefault(value, len(kept))))
    body = replace(function.body, results=tuple(kept))
    return replace(function, body=body), tuple(outcomes)


def layouts_of(trace: Trace, leaves: Sequence[Any], constants: int = 0, device: str = "cpu") -> tuple[str, ...]:
    """The memory order, "c", "strided" or "held", of each parameter and of the constants that follow. What is brought to a device
    is row-major there."""
    found = []
    for given in trace.inputs:
        match given:
            case Argument(index=index):
                key = leaf_key(leaves[index])
            case Captured(key=key):
                pass
            case _:
                key = leaf_key(given.array)
        is_array = isinstance(key, tuple) and len(key) > 2
        is_brought = device != "cpu" and len(key) == 3 if is_array else False
        found.append(key[2] if is_array and not is_brought else "c")
    return (*found, *("c",) * constants)


def typed_constants(found: Abstract) -> tuple[Any, ...]:
    """The constants of an abstract function as NumPy scalars of their parameters' types."""
    parameters = found.function.parameters[len(found.function.parameters) - len(found.constants) :]
    return tuple(p.type.dtype.numpy.type(c) for p, c in zip(parameters, found.constants, strict=True))


def optimised(found: Abstract, observe: Observer) -> Function:
    """The array passes, in order. Raises TraceError at the user's line where a gradient cannot be had."""
    with counters.timed("grad"):
        function = passes.run(found.function, passes.BEFORE_GRAD)
        try:
            function = grad.grad(function)
        except grad.GradientError as error:
            raise TraceError(str(error), error.loc) from None
    observe("grad", Module((function,)))
    with counters.timed("simplify"):
        function = passes.run(function, passes.OPTIMIZE)
    observe("simplify", Module((function,)))
    return function


def lowered(found: Abstract, layouts: tuple[str, ...], device: str, observe: Observer, over: Over = ()) -> Module:
    """The program of an abstract function and its kernels."""
    function = optimised(found, observe)
    with counters.timed("fuse"):
        groups = fuse.fused(function, fused_for(device))
    observe("fuse", Module((groups.function,)), groups)
    with counters.timed("lower"):
        module = lower.lower(groups.function, layouts, device, over)
    observe("lower", module)
    return module


def scheduled(module: Module, device: str, machine: Target | None = None, alone: bool = False) -> Module:
    """A lowered program with its kernels scheduled for a device; see ``scheduled_kernel``. ``alone``: it had better need no
    library."""
    if device == "cpu":
        machine = machine or default_engine().host().target
        module = multiplied(module, machine, alone)
    return Module(tuple(scheduled_kernel(f, device, machine) if f.kind == "kernel" else f for f in module.functions))


def multiplied(module: Module, machine: Target, alone: bool = False) -> Module:
    """A lowered program for the CPU with kernels for loops, and with matrix products done as suits them: by blocks or by the
    library."""
    found = prepacked.prepacked(repeated.repeated(module), machine)
    return own_products.own_products(found, machine, alone)


def scheduled_kernel(
    kernel: Function, device: str, machine: Target | None = None, told: Told | None = None
) -> Function:
    """A kernel scheduled for a device; if that is the CPU, for a machine, this one by default. ``told``: see ``schedule``."""
    if device != "cpu":
        return cuda_schedule.schedule(kernel)
    machine = machine or default_engine().host().target
    return schedule.schedule(kernel, machine.cpu, machine, told)


def loaded_or_built(key: bytes, found: Abstract, layouts: tuple[str, ...], device: str, over: Over = ()) -> Template:
    """The template of a key from the cache folder; else by the passes, and kept there."""
    with collector.paused():
        name = stored_key(key, found, device)
        template = None if name is None else _loaded(name, found.function.name, device)
        title = found.function.name
        if template is not None:
            logs.info("%s for %s is in the cache folder", title, device)
            return template
        logs.info("compiling %s for %s: %d operations", title, device, sum(1 for _ in walk(found.function.body)))
        start = time.perf_counter()
        template = build(found, layouts, device, over)
        seconds = time.perf_counter() - start
        logs.info("compiled %s for %s in %.2f s", title, device, seconds)
        if name is not None:
            with counters.timed("store program"):
                (stored.keep if device == "cpu" else cuda_make.keep)(name, template.executable, seconds)
            if device == "cpu":
                _keep_later(name, template.executable)
        return template


def _keep_later(name: str, executable: Executable) -> None:
    """Have a program kept again when calls needed functions whose texts its entry does not have."""
    of = ref(executable)

    def keep() -> None:
        found = of()
        if found is not None:
            with counters.timed("store program"):
                stored.keep(name, found)

    executable.keep = keep


def _loaded(name: str, title: str, device: str) -> Template | None:
    with counters.timed("load program"):
        of_cuda = device != "cpu"
        executable: Any
        if of_cuda:
            executable = cuda_make.find(name, device, title, scheduled_kernel)
        else:
            executable = stored.find(name, lambda kernel: scheduled_kernel(kernel, device))
            if executable is not None:
                _keep_later(name, executable)
    if executable is not None and of_cuda:
        warn_of(executable.title, executable.device.name, executable.fallbacks)
    return None if executable is None else template_of(executable, is_stored=True)


def build(found: Abstract, layouts: tuple[str, ...], device: str, over: Over = ()) -> Template:
    """Run every pass on an abstract function and load the result."""
    return (_built if device == "cpu" else _built_for_cuda)(found, layouts, device, over)


def _built_for_cuda(found: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    cuda_device.device(device)
    module = lowered(found, layouts, target_of(device), lambda *found: None)
    with counters.timed("compile") as clock:

        def prepared(kernel: Function, target: str) -> Function:
            with clock.paused(), counters.timed("schedule"):
                return scheduled_kernel(kernel, target)

        executable = cuda_make.compiled(module, device, found.function.name, prepared)
    warn_of(executable.title, executable.device.name, executable.fallbacks)
    return template_of(executable)


def _built(found: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    if any(v.type.shape for v in found.function.parameters):
        threads.begin()
    module = lowered(found, layouts, device, lambda *found: None, over)
    with counters.timed("schedule"):
        module = multiplied(module, default_engine().host().target)
    if takes_from_pool(module, found.sizes):
        memory.begin()
    with counters.timed("compile") as clock:

        def prepared(kernel: Function, told: Told | None = None) -> Function:
            with clock.paused(), counters.timed("schedule"):
                return scheduled_kernel(kernel, device, told=told)

        executable = Executable(module, homes(module, over), prepared, found.sizes)
    return template_of(executable)


def takes_from_pool(module: Module, sizes: Mapping[str, int]) -> bool:
    """Whether a lowered program for the CPU with these sizes has large results, or packs operands of products."""
    program, *kernels = module.functions
    given = [(tuple(value_of(e, sizes) for e in v.type.shape), v.type.dtype.numpy) for v in program.results]
    packs = any(isinstance(i.op, Product) for kernel in kernels for i in walk(kernel.body))
    return packs or any(memory.is_large(shape, dtype) for shape, dtype in given)


def template_of(executable: Executable | cuda_program.CudaExecutable, *, is_stored: bool = False) -> Template:
    """A template of a program that is loaded."""
    program = executable.program
    given = tuple(k for k, v in enumerate(program.results) if v in program.parameters and k not in executable.home)
    return Template(executable=executable, given=given, is_stored=is_stored)


def homes(module: Module, over: Over) -> dict[int, int]:
    """Of the pairs of a result and a parameter, those of which the result is in the parameter's memory."""
    if not over:
        return {}
    program = module.functions[0]
    owner = owners(program)
    written = {v for step in accesses(module) for v in step.writes}
    given = program.parameters
    return {result: k for result, k in over if owner[program.results[result]] is given[k] and given[k] in written}


# the text of each stage


def concrete(function: Function, found: Abstract) -> Function:
    """A func or program of named extents as it is for one trace: its extents ints, its constants instructions."""
    renamed = rename(function, found.sizes)
    count = len(found.constants)
    if not count:
        return renamed
    parameters, last = renamed.parameters[:-count], renamed.parameters[-count:]
    made = [
        Instruction(OPS["const"], (), (p,), {"value": c.item(), "dtype": p.type.dtype})
        for p, c in zip(last, typed_constants(found), strict=True)
    ]
    return replace(renamed, body=Block(parameters, (*made, *renamed.body.instructions), renamed.results))


def stages(
    trace: Trace, leaves: Sequence[Any], device: str = "cpu", over: Over = (), *, locations: bool = False
) -> dict[str, str]:  # fmt: skip
    """The text of every stage by its name.

    Funcs and programs have the shapes of the call, so that their texts can be run; kernels serve all shapes.
    """
    texts: dict[str, str] = {}
    found, target = templated(trace.function), target_of(device)

    def observe(stage: str, module: Module, groups: fuse.Fused | None = None) -> None:
        functions = tuple(f if f.kind == "kernel" else concrete(f, found) for f in module.functions)
        notes = {} if groups is None else moved(groups.boundaries(), groups.function, functions[0])
        if stage == "schedule" and target == "cpu":
            notes = chosen.notes_of(Module(functions))
        texts[stage] = print_module(Module(functions), locations, notes)

    texts["trace"] = print_module(Module((trace.function,)), locations)
    layouts = layouts_of(trace, leaves, len(found.constants), device)
    module = scheduled(lowered(found, layouts, target, observe, over), target)
    observe("schedule", module)
    return texts | emitted(module, target)


def moved(notes: Notes, function: Function, concrete: Function) -> Notes:
    """Notes on a function as notes on what ``concrete`` made of it."""
    before, after = list(walk(function.body)), list(walk(concrete.body))
    pairs = zip(before, after[len(after) - len(before) :], strict=True)
    return {new: notes[old] for old, new in pairs if old in notes}


def emitted(module: Module, device: str) -> dict[str, str]:
    """The texts of a scheduled module's kernels in the target's languages."""
    scheduled = [f for f in module.functions if f.kind == "kernel"]
    if device == "cuda":
        try:
            return {"cuda": cuda.emit_all(scheduled)}
        except NotImplementedError as error:
            return {"cuda": f"// {error}\n"}
    parts = parts_of(module)
    return {"llvm": "\n".join(parts), "asm": "\n".join(map(default_engine().assembly, parts))}
