"""Compile a trace: run the passes in order, and share one template between all shapes of a program.

A trace's canonical text, with its extents and constants abstract, together with the memory order of its arrays and the device,
is the key of a template. A trace whose key exists is instantiated: no pass runs and nothing is compiled. Templates die with
the last program made from them, except the few most recently used.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary, ref

from pullback.codegen.analysis.steps import accesses, owners
from pullback.codegen.targets import Target
from pullback.ir import OPS, OWN_OPS, Block, Function, Instruction, Module, Value
from pullback.ir.core.lazy_imports import later
from pullback.ir.core.records import dataclass
from pullback.ir.core.structure import walk
from pullback.ir.ops.kernel.matmul import Product
from pullback.ir.ops.program import BindExtent
from pullback.ir.passes.editing.activity import is_pure
from pullback.ir.passes.size_classes import templated
from pullback.ir.shapes.extents import Abstract, rename, value_of
from pullback.ir.text import Notes, canonical, print_module
from pullback.programs import logger, progress
from pullback.runtime.compile.engine import default_engine
from pullback.runtime.cuda.driver.errors import warn_of
from pullback.runtime.memory import result_arrays as memory
from pullback.runtime.process import counters, gc_pause
from pullback.runtime.process.fork import work
from pullback.runtime.process.locks import KeyedLocks
from pullback.runtime.program import serialize as program_serialize
from pullback.runtime.program.executable import Executable, parts_of
from pullback.runtime.threads import threads
from pullback.tracer import Argument, Captured, Trace, TraceError, leaf_key

if TYPE_CHECKING:
    from pullback.codegen.analysis import loop_kernels
    from pullback.codegen.cpu import schedule
    from pullback.codegen.cpu.loops.shared_functions import OnDefinition
    from pullback.codegen.cpu.matmul import library_or_generated
    from pullback.codegen.cpu.matmul.prepack import prepack
    from pullback.codegen.cuda import emit as cuda
    from pullback.codegen.cuda.schedule import schedule as cuda_schedule
    from pullback.codegen.fuse import fuse, matmul_fusion
    from pullback.codegen.lower import lower
    from pullback.ir.passes import pipeline as passes
    from pullback.ir.passes.transforms import expand as grad
    from pullback.programs import matmul_choices
    from pullback.runtime.cuda.device import device as cuda_device
    from pullback.runtime.cuda.libraries import libraries as cuda_libraries
    from pullback.runtime.cuda.program import build as cuda_build
    from pullback.runtime.cuda.program import executable as cuda_executable
else:
    cuda, fuse = later("pullback.codegen.cuda.emit"), later("pullback.codegen.fuse.fuse")
    cuda_schedule = later("pullback.codegen.cuda.schedule.schedule")
    lower, schedule = later("pullback.codegen.lower.lower"), later("pullback.codegen.cpu.schedule")
    library_or_generated = later("pullback.codegen.cpu.matmul.library_or_generated")
    matmul_fusion = later("pullback.codegen.fuse.matmul_fusion")
    prepack, loop_kernels = later("pullback.codegen.cpu.matmul.prepack.prepack"), later("pullback.codegen.analysis.loop_kernels")
    cuda_libraries = later("pullback.runtime.cuda.libraries.libraries")
    cuda_device, cuda_build = later("pullback.runtime.cuda.device.device"), later("pullback.runtime.cuda.program.build")
    matmul_choices = later("pullback.programs.matmul_choices")
    grad, passes = later("pullback.ir.passes.transforms.expand"), later("pullback.ir.passes.pipeline")

SHARED_STAGES = ("trace", "grad", "simplify", "fuse", "lower", "schedule")
"""Stages of every target, in order."""
TARGET_STAGES = {"cpu": ("program", "llvm", "asm"), "cuda": ("cuda", "ptx", "sass")}
"""Further stages by target, in order."""
DEVICES = ("cpu", "cuda")


def target_of(device: str) -> str:
    """Return the code generation target of a device: "cpu", or "cuda" for any CUDA device."""
    return device.partition(":")[0]


def fusion_target(device: str) -> str:
    """Return the target of matmul fusion: as ``target_of``, or "cuda-alone" if no library computes products."""
    target = target_of(device)
    return matmul_fusion.ALONE if target == "cuda" and not cuda_libraries.may_use_cublas() else target


Over = tuple[tuple[int, int], ...]
"""Pairs of a result and a parameter whose memory it may reuse."""

Observer = Callable[..., None]
"""Called with a stage's name and module; for "fuse" also with the ``Fused``."""

RECENT_TEMPLATES = 128
"""Number of the most recently used templates that outlive their programs, for code that is traced again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """A program for all shapes: an ``Executable``, or for a device a ``CudaExecutable``.

    The results at ``passed_through`` turned out to be parameters: they are returned unchanged. ``is_stored``: it was read from
    the cache folder.
    """

    executable: Any
    passed_through: tuple[int, ...]
    is_stored: bool = False

    @property
    def is_native(self) -> bool:
        """Whether it is one native function: a program for the CPU."""
        return isinstance(self.executable, Executable)

    @property
    def device(self) -> str:
        """The device that it runs on."""
        name: str = "cpu" if self.is_native else self.executable.device.name
        return name

    @property
    def home(self) -> Mapping[int, int]:
        """The parameters in whose memory results are, by result."""
        reused: Mapping[int, int] = self.executable.home
        return reused


@dataclass(frozen=True, kw_only=True)
class TemplateCounts:
    """Counts of templates built (all passes ran), loaded (from the cache folder) and instantiated (a trace matched an existing
    template)."""

    built: int = 0
    loaded: int = 0
    instantiated: int = 0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The source of a result of a trace: "result" (of the program, by ``index``), "repeat" (a copy of such a result),
    "parameter" (a copy of that argument of the program) or "leaf" (that leaf of the call itself). ``kind``: the type of a
    Python number; None for an array or a scalar of NumPy."""

    source: str
    index: int
    kind: type | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A template with the sizes and constants of one trace. ``template`` and ``instance`` are None if nothing is computed."""

    template: Template | None
    instance: Any
    sizes: Mapping[str, int]
    constants: tuple[Any, ...]
    outcomes: tuple[Outcome, ...]


class Templates:
    """The templates in use and the most recently used ones, by key. Each is built once; different keys are built concurrently."""

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
        """Return the template of ``key``, built by ``make`` if there is none."""
        with self._building.hold(key):
            existing = self._alive.get(key)
            template = make() if existing is None else existing
            event: counters.Event = "templates_loaded" if template.is_stored else "templates_built"
            counters.count("templates_instantiated" if existing is not None else event)
            with self._lock:
                self._alive[key] = self._recent[key] = template
                self._recent.move_to_end(key)
                while len(self._recent) > RECENT_TEMPLATES:
                    self._recent.popitem(last=False)
        return template

    def forget(self) -> int:
        """Drop the recent templates that no program uses; return how many were kept as recent."""
        with self._lock:
            count = len(self._recent)
            self._recent.clear()
        return count


templates = Templates()


def template_counts() -> TemplateCounts:
    """Return the counts of this process so far."""
    now = counters.snapshot()
    return TemplateCounts(built=now.templates_built, loaded=now.templates_loaded, instantiated=now.templates_instantiated)


def program(trace: Trace, leaves: Sequence[Any], device: str, over: Over = ()) -> Program:
    """Return the program of a trace whose call had these leaves. Raises TraceError if a gradient cannot be computed."""
    function, outcomes = split_outcomes(trace)
    if not needs_program(function):
        return Program(template=None, instance=None, sizes={}, constants=(), outcomes=outcomes)
    abstract = templated(function)
    template = template_of_key(abstract, layouts_of(trace, leaves, len(abstract.constants), device), device, over)
    return program_at(abstract, outcomes, template)


def needs_program(function: Function) -> bool:
    """Return whether anything has to be computed."""
    return bool(function.results) or not all(map(is_pure, function.instructions))


def template_of_key(abstract: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    """Return the template of an abstract function, built if there is none."""
    key = template_key(abstract, layouts, device, over)
    with work.underway():
        return templates.get_or_build(key, lambda: loaded_or_built(key, abstract, layouts, device, over))


def program_at(abstract: Abstract, outcomes: tuple[Outcome, ...], template: Template) -> Program:
    """Return a template with the sizes and constants of an abstract function."""
    with work.underway():
        instance = template.executable.instance(abstract.sizes)
    constants = typed_constants(abstract)
    return Program(template=template, instance=instance, sizes=abstract.sizes, constants=constants, outcomes=outcomes)


def template_key(ir: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bytes:
    """Return the key of the calls that share a template."""
    pairs = [f"{result} over {parameter}" for result, parameter in over]
    return hashlib.sha256("\n".join([device, fusion_target(device), *layouts, *pairs, canonical(ir.function)]).encode()).digest()


def has_template(abstract: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bool:
    """Return whether the template has already been built or loaded."""
    return template_key(abstract, layouts, device, over) in templates


def is_stored(abstract: Abstract, layouts: Sequence[str], device: str, over: Over = ()) -> bool:
    """Return whether a template that is not in memory is in the cache folder."""
    key = stored_key(template_key(abstract, layouts, device, over), abstract, device)
    return key is not None and default_engine().cache.where(key) is not None


def stored_key(key: bytes, abstract: Abstract, device: str) -> str | None:
    """Return the cache key of the program of a template key; None if it is not stored.

    Programs with ops from outside this package are not stored: the meaning of such an op depends on sources that no key
    covers.
    """
    if not all(i.op in OWN_OPS for i in walk(abstract.function.body)):
        return None
    return program_serialize.key_of(key) if device == "cpu" else cuda_build.key_of(key, device)


def split_outcomes(trace: Trace) -> tuple[Function, tuple[Outcome, ...]]:
    """Return the function without results that are parameters or repeated, and the source of each result of the trace."""
    function = trace.function
    kept: dict[Value, int] = {}
    outcomes = []
    positions = {v: k for k, v in enumerate(function.parameters)}
    written = [None] * trace.writes_count
    for value, leaf, kind in zip(function.results, (*trace.returned, *written), (*trace.numbers, *written), strict=True):
        if leaf is not None:
            outcomes.append(Outcome(source="leaf", index=leaf, kind=kind))
        elif value in positions:
            outcomes.append(Outcome(source="parameter", index=positions[value], kind=kind))
        else:
            source = "repeat" if value in kept else "result"
            outcomes.append(Outcome(source=source, index=kept.setdefault(value, len(kept)), kind=kind))
    body = replace(function.body, results=tuple(kept))
    return replace(function, body=body), tuple(outcomes)


def layouts_of(trace: Trace, leaves: Sequence[Any], constants: int = 0, device: str = "cpu") -> tuple[str, ...]:
    """Return the memory order, "c", "strided" or "held", of each parameter and of the constants that follow.

    Arrays uploaded to a device are row-major there.
    """
    orders = []
    for source in trace.inputs:
        match source:
            case Argument(index=index):
                key = leaf_key(leaves[index])
            case Captured(key=key):
                pass
            case _:
                key = leaf_key(source.array)
        is_array = isinstance(key, tuple) and len(key) > 2
        is_uploaded = device != "cpu" and len(key) == 3 if is_array else False
        orders.append(key[2] if is_array and not is_uploaded else "c")
    return (*orders, *("c",) * constants)


def typed_constants(abstract: Abstract) -> tuple[Any, ...]:
    """Return the constants of an abstract function as NumPy scalars of their parameters' types."""
    parameters = abstract.function.parameters[len(abstract.function.parameters) - len(abstract.constants) :]
    return tuple(p.type.dtype.numpy.type(c) for p, c in zip(parameters, abstract.constants, strict=True))


def optimised(abstract: Abstract, observe: Observer) -> Function:
    """Run the array passes, in order. Raises TraceError at the user's line if a gradient cannot be computed."""
    progress.working_on(abstract.function)
    with counters.timed("grad"):
        function = passes.run(abstract.function, passes.BEFORE_GRAD)
        try:
            function = grad.grad(function)
        except grad.GradientError as error:
            raise TraceError(str(error), error.loc) from None
    observe("grad", Module((function,)))
    progress.working_on(function)
    with counters.timed("simplify"):
        function = passes.run(function, passes.OPTIMIZE)
    observe("simplify", Module((function,)))
    return function


def lowered(abstract: Abstract, layouts: tuple[str, ...], device: str, observe: Observer, over: Over = ()) -> Module:
    """Return the program of an abstract function and its kernels."""
    function = optimised(abstract, observe)
    progress.working_on(function)
    if device == "cpu":
        function = passes.run(function, passes.ON_CPU)
    with counters.timed("fuse"):
        groups = fuse.fuse_with_decisions(function, fusion_target(device))
    observe("fuse", Module((groups.function,)), groups)
    with counters.timed("lower"):
        module = lower.lower(groups.function, layouts, device, over)
    progress.working_on(*module.functions)
    observe("lower", module)
    return module


def scheduled(module: Module, device: str, machine: Target | None = None, alone: bool = False) -> Module:
    """Schedule the kernels of a lowered program for a device; see ``scheduled_kernel``. ``alone``: prefer generated code to
    libraries."""
    if device == "cpu":
        machine = machine or default_engine().host().target
        module = with_products(module, machine, alone)
    return Module(tuple(scheduled_kernel(f, device, machine) if f.kind == "kernel" else f for f in module.functions))


def with_products(module: Module, machine: Target, alone: bool = False) -> Module:
    """Outline loop kernels of a lowered CPU program, prepack operands, and select generated code or BLAS for its products."""
    packed = prepack.prepacked(loop_kernels.repeated(module), machine)
    return library_or_generated.own_products(packed, machine, alone)


def scheduled_kernel(
    kernel: Function, device: str, machine: Target | None = None, on_definition: OnDefinition | None = None
) -> Function:
    """Schedule a kernel for a device; for the CPU, for ``machine``, by default this one. ``on_definition``: see ``schedule``."""
    if device != "cpu":
        return cuda_schedule.schedule(kernel)
    machine = machine or default_engine().host().target
    return schedule.schedule(kernel, machine.cpu, machine, on_definition)


def loaded_or_built(key: bytes, abstract: Abstract, layouts: tuple[str, ...], device: str, over: Over = ()) -> Template:
    """Return the template of a key from the cache folder, or else built by the passes and stored there."""
    with gc_pause.paused():
        name = stored_key(key, abstract, device)
        template = None if name is None else _loaded(name, abstract.function.name, device)
        title = abstract.function.name
        if template is not None:
            logger.log("debug", "%s for %s is in the cache folder", title, device)
            return template
        with nullcontext(False) if name is None else default_engine().cache.building(name) as is_shared:
            if is_shared and name is not None:
                template = _loaded(name, title, device)
                if template is not None:
                    logger.log("debug", "%s for %s was compiled by another process meanwhile", title, device)
                    return template
            count = sum(1 for _ in walk(abstract.function.body))
            logger.log("debug", "building %s for %s: %d operations", title, device, count)
            start = time.perf_counter()
            template = build(abstract, layouts, device, over)
            seconds = time.perf_counter() - start
            logger.log("debug", "built %s for %s in %.2f s", title, device, seconds)
            if name is not None:
                with counters.timed("store program"):
                    (program_serialize.keep if device == "cpu" else cuda_build.keep)(name, template.executable, seconds)
                if device == "cpu":
                    _keep_later(name, template.executable)
        return template


def _keep_later(name: str, executable: Executable) -> None:
    """Have a program stored again when calls have needed functions whose texts its cache entry lacks."""
    reference = ref(executable)

    def keep() -> None:
        program = reference()
        if program is not None:
            with counters.timed("store program"):
                program_serialize.keep(name, program)

    executable.keep = keep


def _loaded(name: str, title: str, device: str) -> Template | None:
    with counters.timed("load program"):
        of_cuda = device != "cpu"
        executable: Any
        if of_cuda:
            executable = cuda_build.find(name, device, title, scheduled_kernel)
        else:
            executable = program_serialize.find(name, lambda kernel: scheduled_kernel(kernel, device))
            if executable is not None:
                _keep_later(name, executable)
    if executable is not None and of_cuda:
        warn_of(executable.title, executable.device.name, executable.fallbacks)
    return None if executable is None else template_of(executable, is_stored=True)


def build(abstract: Abstract, layouts: tuple[str, ...], device: str, over: Over = ()) -> Template:
    """Run every pass on an abstract function and load the result."""
    return (_built if device == "cpu" else _built_for_cuda)(abstract, layouts, device, over)


def _built_for_cuda(abstract: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    cuda_device.device(device)
    module = lowered(abstract, layouts, target_of(device), lambda *abstract: None)
    refuse_extents_by_value(module)
    with counters.timed("compile") as clock:

        def prepared(kernel: Function, target: str) -> Function:
            with clock.paused(), counters.timed("schedule"):
                return scheduled_kernel(kernel, target)

        executable = cuda_build.compiled(module, device, abstract.function.name, prepared)
    warn_of(executable.title, executable.device.name, executable.fallbacks)
    return template_of(executable)


def refuse_extents_by_value(module: Module) -> None:
    """Raise TraceError at the user's line for a program whose values decide the extents of arrays, which devices lack."""
    for i in walk(module.functions[0].body):
        if isinstance(i.op, BindExtent):
            raise TraceError(
                "the length of an array depends on values, and programs on a device have arrays of known lengths; keep all "
                'elements, as by np.where(mask, x, 0) and where=mask in reductions, or use device="cpu"',
                i.loc,
            )


def _built(abstract: Abstract, layouts: tuple[str, ...], device: str, over: Over) -> Template:
    if any(v.type.shape for v in abstract.function.parameters):
        threads.compile_in_background()
    module = lowered(abstract, layouts, device, lambda *abstract: None, over)
    with counters.timed("schedule"):
        module = with_products(module, default_engine().host().target)
    if takes_from_pool(module, abstract.sizes):
        memory.compile_in_background()
    with counters.timed("compile") as clock:

        def prepared(kernel: Function, on_definition: OnDefinition | None = None) -> Function:
            with clock.paused(), counters.timed("schedule"):
                return scheduled_kernel(kernel, device, on_definition=on_definition)

        executable = Executable(module, reused_parameters(module, over), prepared, abstract.sizes)
    return template_of(executable)


def takes_from_pool(module: Module, sizes: Mapping[str, int]) -> bool:
    """Return whether a lowered CPU program with these sizes has large results, packs operands of products, or allocates
    buffers whose extents it computes."""
    program, *kernels = module.functions
    if any(isinstance(i.op, BindExtent) for i in walk(program.body)):
        return True
    results = [(tuple(value_of(e, sizes) for e in v.type.shape), v.type.dtype.numpy) for v in program.results]
    packs = any(isinstance(i.op, Product) for kernel in kernels for i in walk(kernel.body))
    return packs or any(memory.is_large(shape, dtype) for shape, dtype in results)


def template_of(executable: Executable | cuda_executable.CudaExecutable, *, is_stored: bool = False) -> Template:
    """Return the template of a loaded program."""
    program = executable.program
    passed_through = tuple(k for k, v in enumerate(program.results) if v in program.parameters and k not in executable.home)
    return Template(executable=executable, passed_through=passed_through, is_stored=is_stored)


def reused_parameters(module: Module, over: Over) -> dict[int, int]:
    """Return those pairs of a result and a parameter for which the result is in the parameter's memory."""
    if not over:
        return {}
    program = module.functions[0]
    owner = owners(program)
    written = {v for step in accesses(module) for v in step.writes}
    parameters = program.parameters
    return {result: k for result, k in over if owner[program.results[result]] is parameters[k] and parameters[k] in written}


# texts of the stages


def concrete(function: Function, abstract: Abstract) -> Function:
    """Return a func or program of named extents as it is for one trace: extents as ints, constants as instructions."""
    renamed = rename(function, abstract.sizes)
    count = len(abstract.constants)
    if not count:
        return renamed
    parameters, last = renamed.parameters[:-count], renamed.parameters[-count:]
    constants = [
        Instruction(OPS["const"], (), (p,), {"value": c.item(), "dtype": p.type.dtype})
        for p, c in zip(last, typed_constants(abstract), strict=True)
    ]
    return replace(renamed, body=Block(parameters, (*constants, *renamed.body.instructions), renamed.results))


def stages(
    trace: Trace, leaves: Sequence[Any], device: str = "cpu", over: Over = (), *, locations: bool = False
) -> dict[str, str]:  # fmt: skip
    """Return the text of every stage by its name.

    Funcs and programs have the shapes of the call, so that their texts can be run; kernels serve all shapes.
    """
    texts: dict[str, str] = {}

    def show(stage: str, module: Module, notes: Notes) -> None:
        texts[stage] = print_module(module, locations, notes)

    module = observe_stages(trace, leaves, device, over, show)
    return texts | kernel_texts(module, target_of(device))


def observe_stages(
    trace: Trace, leaves: Sequence[Any], device: str, over: Over, show: Callable[[str, Module, Notes], None]
) -> Module:  # fmt: skip
    """Call ``show`` with the name of each stage of IR, its module and the comments on it, in order; return the scheduled
    module.

    Funcs and programs have the shapes of the call; kernels serve all shapes.
    """
    abstract, target = templated(trace.function), target_of(device)

    def observe(stage: str, module: Module, groups: fuse.Fused | None = None) -> None:
        functions = tuple(f if f.kind == "kernel" else concrete(f, abstract) for f in module.functions)
        notes: Notes = {} if groups is None else transfer_notes(groups.boundaries(), groups.function, functions[0])
        if stage == "schedule" and target == "cpu":
            notes = matmul_choices.notes_of(Module(functions))
        show(stage, Module(functions), notes)

    show("trace", Module((trace.function,)), {})
    layouts = layouts_of(trace, leaves, len(abstract.constants), device)
    module = scheduled(lowered(abstract, layouts, target, observe, over), target)
    observe("schedule", module)
    return module


def transfer_notes(notes: Notes, function: Function, concrete: Function) -> Notes:
    """Convert notes on a function to notes on its ``concrete`` form."""
    before, after = list(walk(function.body)), list(walk(concrete.body))
    pairs = zip(before, after[len(after) - len(before) :], strict=True)
    return {new: notes[old] for old, new in pairs if old in notes}


def kernel_texts(module: Module, device: str) -> dict[str, str]:
    """Return the texts of a scheduled module's kernels in the target's languages."""
    scheduled = [f for f in module.functions if f.kind == "kernel"]
    if device == "cuda":
        try:
            return {"cuda": cuda.emit_all(scheduled)}
        except NotImplementedError as error:
            return {"cuda": f"// {error}\n"}
    parts = parts_of(module)
    return {"llvm": "\n".join(parts), "asm": "\n".join(map(default_engine().assembly, parts))}
