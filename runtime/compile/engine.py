"""Compile LLVM IR text to machine code in this process, through the kernel cache.

No text passed to it may end the process: what would make LLVM abort during code generation is refused first. Floating-point
operations are never contracted, reassociated or otherwise relaxed. Machine code is unloaded when its ``Kernel`` is no longer
referenced; code requested by address alone (``Engine.load``) stays for the life of the process.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Literal, get_args

from pullback.codegen.cpu.llvm.text import OPTIMISED, calls_optimised, has_hot_loops, is_branchy, is_brief, is_tiered, quick_form
from pullback.ir.core import environment as settings
from pullback.ir.core.records import dataclass
from pullback.runtime.cache.cache import KernelCache, Origin, default_cache, generator_stamp
from pullback.runtime.cache.cache import key as cache_key
from pullback.runtime.compile.background import BackgroundTask, BackgroundWorkers
from pullback.runtime.compile.key_inputs import deciders
from pullback.runtime.compile.llvmlite_binding import (
    emit_object,
    initialise_all_targets,
    llvm_binding,
    llvm_version,
    releases_llvmlite_lock,
    run_passes,
)
from pullback.runtime.compile.machine import Host, find_host
from pullback.runtime.compile.validation import CompileError, check_symbols, refuse
from pullback.runtime.process import counters
from pullback.runtime.process.fork import hold_over_fork, work

Passes = Literal["none", "light", "full"]

CODEGEN_LEVEL = 2
"""LLVM's optimisation level for code generation."""
MAX_HELPERS = 7
"""The largest number of threads that ``precompile`` starts."""

MOST_OPTIMISED = 120_000
"""Largest number of characters of a driver with many loops and branches that LLVM optimises: 0.1 seconds more than without."""

# A Windows object file that computes with floats needs this symbol to link.
_FLOATS_USED = "@_fltused = global i32 0\n"

# Each library makes the next one in the same linker slower (35 us per thousand), so the linker is replaced after this many.
_LIBRARIES_PER_LINKER = 128

# Kernels whose addresses were returned without the kernel: dropping one would unmap code that may still be called.
_kept: set[Kernel] = set()


class Kernel:
    """Loaded machine code. ``addresses`` by symbol are valid as long as this object lives.

    Unloading is deferred to the next load: it calls LLVM, which must not happen in ``__del__``, at any moment and in any
    thread.
    """

    __slots__ = ("__weakref__", "_better", "_code", "_dead", "addresses")

    def __init__(self, addresses: Mapping[str, int], code: Any, dead: deque[Any]) -> None:
        self.addresses = addresses
        self._better: Kernel | None = None
        self._code = code
        self._dead = dead

    def __del__(self) -> None:
        self._dead.append(self._code)

    def redirect(self, better: Kernel, symbol: str) -> None:
        """Redirect callers of the quickly compiled function ``symbol`` of this code to the one in ``better``, from now on."""
        self._better = better
        ctypes.c_void_p.from_address(self.addresses[OPTIMISED]).value = better.addresses[symbol]


@dataclass(frozen=True, kw_only=True)
class Object:
    """Object code that was compiled under ``key``, and the function that it is loaded for."""

    key: str
    symbol: str
    payload: bytes


class Engine:
    """Compiles and loads machine code; one per process is enough. All methods may be called from any thread.

    With a ``host``, code is compiled for that machine, and can be loaded only if this is one.
    """

    def __init__(self, cache: KernelCache | None = None, *, level: str | None = None, host: Host | None = None) -> None:
        self._cache = KernelCache() if cache is None else cache
        self._host = find_host(level) if host is None else host
        if host is not None:
            initialise_all_targets()
        self._target = llvm_binding().Target.from_triple(self._host.triple)
        self._layout = str(self._new_machine().target_data)
        self._stamp = cache_key(*self._toolchain())
        self._programs_stamp = cache_key(self._stamp, *deciders(self._host))
        self.lock = threading.RLock()
        self._loaded: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
        self._dead: deque[Any] = deque()
        self._ahead: dict[str, bytes] = {}
        self._begun: dict[str, BackgroundTask] = {}
        self._quick: dict[str, tuple[Passes, list[str], weakref.ref[Kernel]]] = {}
        self._linker: Any = None
        self._libraries = 0

    def host(self) -> Host:
        """Return the machine that this engine compiles for."""
        return self._host

    def load(
        self,
        text: str,
        *,
        symbols: Sequence[str],
        meta: Mapping[str, Any] | None = None,
        passes: Passes = "light",
    ) -> dict[str, int]:
        """Return the addresses of `symbols` of a kernel that is never unloaded; arguments and errors as in `kernel`."""
        kernel = self.kernel(text, symbols=symbols, meta=meta, passes=passes)
        _kept.add(kernel)
        return {symbol: kernel.addresses[symbol] for symbol in symbols}

    def kernel(
        self,
        text: str,
        *,
        symbols: Sequence[str],
        meta: Mapping[str, Any] | None = None,
        passes: Passes = "light",
    ) -> Kernel:
        """Return the functions `symbols` that `text` defines, from memory, from disk, or compiled. Equal texts share a kernel.

        `meta` is shown by the cache's listing. `passes` sets how much LLVM optimises the text before code generation: "none";
        "light", which inlines `alwaysinline` functions, rotates loops and removes redundancies, in time near-linear in the
        text; "full", LLVM's O2 without its vectorisers and unroller. Raises CompileError if the text is not accepted, needs a
        symbol from outside, or defines no such function.
        """
        first_text = self._first_tier(text, passes)
        if first_text is text:
            return self._kernel(text, symbols, meta, passes)
        loaded = self._kernel(first_text, [*symbols, OPTIMISED] if calls_optimised(first_text) else symbols, meta, passes)
        self._quick[text] = passes, list(symbols), weakref.ref(loaded)
        return loaded

    def _kernel(self, text: str, symbols: Sequence[str], meta: Mapping[str, Any] | None, passes: Passes) -> Kernel:
        name = self.key(text, passes=passes)
        loaded = self._loaded.get(name)
        if loaded is not None and all(symbol in loaded.addresses for symbol in symbols):
            counters.count("hits")
            return loaded
        with self._exclusive():
            self._unload()
            loaded = self._loaded.get(name)
            addresses = {} if loaded is None else loaded.addresses
            if loaded is not None and all(symbol in addresses for symbol in symbols):
                counters.count("hits")
                return loaded
            wanted = [*addresses, *(symbol for symbol in symbols if symbol not in addresses)]
            kernel = self._loaded[name] = self._obtain(name, text, wanted, meta or {}, passes)
            return kernel

    def object_code(self, key: str) -> bytes | None:
        """Return the object code of a kernel, or None if it is neither in memory nor on disk any more."""
        return self._cache.get(key)

    def load_objects(self, objects: Sequence[Object], origin: Origin) -> list[Kernel]:
        """Load object code that was compiled earlier and read from memory or disk (``origin``); what is loaded already is
        reused. Raises RuntimeError if a payload is no object code."""
        with self._exclusive():
            self._unload()
            kernels, hits = [], 0
            for each in objects:
                kernel = self._loaded.get(each.key)
                if kernel is not None and each.symbol in kernel.addresses:
                    hits += 1
                else:
                    kernel = self._loaded[each.key] = self._link(each.payload, [each.symbol])
                kernels.append(kernel)
        counters.count("hits", len(objects) if origin == "memory" else hits)
        counters.count("disk_hits", 0 if origin == "memory" else len(objects) - hits)
        return kernels

    def program_key(self, *parts: str) -> str:
        """Return the cache key of a program from ``parts`` and everything that decides the texts and the code of its kernels."""
        return cache_key(self._programs_stamp, "program", *parts)

    @property
    def cache(self) -> KernelCache:
        """The cache of compiled code."""
        return self._cache

    def loaded(self) -> int:
        """Return the number of loaded kernels that are still referenced."""
        return len(self._loaded)

    def key(self, text: str, *, passes: Passes = "light") -> str:
        """Return the cache key of the machine code of `text`."""
        if passes not in get_args(Passes):
            raise ValueError(f"passes {passes!r}: one of {', '.join(get_args(Passes))}")
        return cache_key(self._stamp, passes, text)

    def where(self, text: str, *, passes: Passes = "light") -> Origin | None:
        """Return where the machine code of `text` is: "memory", "disk", or None if it would be compiled. Changes nothing."""
        name = self.key(text, passes=passes)
        return "memory" if name in self._loaded else self._cache.where(name)

    def optimised(self, text: str, *, passes: Passes = "light") -> str:
        """Return the LLVM IR that code is generated from. Raises CompileError."""
        with self._exclusive(), self._module(text, passes, self._machine_for(text)) as module:
            return str(module)

    def assembly(self, text: str, *, passes: Passes = "light") -> str:
        """Return the target's assembly of `text`. Raises CompileError."""
        machine = self._machine_for(text)
        with self._exclusive(), self._module(text, passes, machine) as module:
            return str(machine.emit_assembly(module))

    def compile(self, text: str, *, passes: Passes = "light") -> bytes:
        """Return the object file of `text`, bypassing every cache. Raises CompileError."""
        with self._exclusive():
            return self._compile(text, passes, self._machine_for(text))

    def compile_together(self, texts: Sequence[str], entry: str, public: Sequence[str]) -> bytes:
        """Return one object file, for a linker, of kernels and of ``entry``, a generated text that calls them. Only the
        symbols ``public`` are visible outside it. Raises CompileError."""
        machine = self._new_machine(jit=False)
        llvm_binding().initialize_native_asmparser()
        with self._exclusive(), self._linked_module(texts, entry, public) as module:
            self._run_passes(module, "light", machine)
            return emit_object(machine, module)

    def joined_key(self, entry: str, kernels: Sequence[str]) -> str:
        """Return the cache key of ``joined`` code, from the text of its entry function and the keys of its kernels."""
        return cache_key(self._stamp, "joined", entry, *kernels)

    def is_joined(self, name: str) -> bool:
        """Return whether the code of a ``joined_key`` is in memory or on disk."""
        return name in self._loaded or self._cache.where(name) is not None

    def joined(self, name: str, entry: str, texts: Sequence[str], symbol: str) -> Kernel:
        """Return the function ``symbol`` of ``entry``, a generated text, with the kernels that it calls inlined: looked up
        under ``name``, its ``joined_key``, or compiled and stored. Other threads may compile meanwhile. Raises
        CompileError."""
        with self._exclusive():
            if (kernel := self._loaded.get(name)) is not None:
                return kernel
        stored = self._cache.get(name)
        if stored is not None:
            try:
                return self._checked_and_loaded(name, entry, stored, symbol)
            except (CompileError, RuntimeError):
                self._cache.discard(name)
        payload = self._joined(entry, texts, symbol)
        kernel = self._checked_and_loaded(name, entry, payload, symbol)
        about = {"symbols": [symbol], "cpu": self._host.cpu, "triple": self._host.triple}
        self._cache.put(name, payload, kind="object", meta=about)
        return kernel

    def _checked_and_loaded(self, name: str, entry: str, payload: bytes, symbol: str) -> Kernel:
        check_symbols(entry, payload, [symbol], self._host.triple)
        with self._exclusive():
            self._unload()
            kernel = self._loaded[name] = self._link(payload, [symbol])
        return kernel

    def _joined(self, entry: str, texts: Sequence[str], symbol: str) -> bytes:
        machine = self._new_machine()
        with self._linked_module(texts, entry, [symbol]) as module:
            for function in module.functions:
                if not function.is_declaration and function.name != symbol:
                    function.add_function_attribute("alwaysinline")
            self._run_passes(module, "full", machine)
            return emit_object(machine, module)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold the engine's lock."""
        with self.lock, releases_llvmlite_lock():
            yield

    @contextmanager
    def _linked_module(self, texts: Sequence[str], entry: str, public: Sequence[str]) -> Iterator[Any]:
        """Yield the module linked from several texts, in which only the symbols ``public`` are visible from outside."""
        for text in texts:
            refuse(text, self._host)
        with ExitStack() as stack:
            context = stack.enter_context(llvm_binding().create_context())
            module = self._parsed(entry, context, stack)
            for text in texts:
                part = self._parsed(text, context, ExitStack())
                module.link_in(part)
            for function in module.functions:
                if not function.is_declaration and function.name not in public:
                    function.linkage, function.visibility = "internal", "default"
            yield module

    @contextmanager
    def precompile(self, helpers: int, passes: Passes = "light") -> Iterator[Callable[[str], None]]:
        """Yield a function that adds texts to be compiled before they are needed: by up to ``helpers`` threads while the
        caller emits more of them, and by the caller at the end. A fork waits until this is done."""
        local = threading.local()

        recorder = counters.innermost()

        def compile_text(text: str) -> bytes:
            machines = local.__dict__.setdefault("machines", {})
            with counters.within(recorder), releases_llvmlite_lock():
                if (machine := machines.get(is_brief(text))) is None:
                    machine = machines[is_brief(text)] = self._machine_for(text)
                return self._compile_and_store(text, passes, machine)

        added: set[str] = set()

        def add(text: str) -> None:
            text = self._first_tier(text, passes)
            if text not in added and self.key(text, passes=passes) not in self._ahead and self.where(text, passes=passes) is None:
                added.add(text)
                ahead.add(text)

        ahead = BackgroundWorkers(compile_text, max(0, min(helpers, MAX_HELPERS)), CompileError)
        with work.underway():
            try:
                with releases_llvmlite_lock():
                    yield add
                ahead.finish()
            except BaseException:
                ahead.drop()
                raise
        with self._exclusive():
            self._ahead.update((self.key(text, passes=passes), payload) for text, payload in ahead.done.items())

    def compile_in_background(self, text: str, passes: Passes = "light") -> BackgroundTask | None:
        """Start compiling a generated text in a background thread, if it is likely to be needed soon; the result is stored.
        Returns None if it is compiled already. A fork waits until this is done."""
        text = self._first_tier(text, passes)
        name = self.key(text, passes=passes)
        with work.underway(), self._exclusive():
            if name not in self._begun and self.where(text, passes=passes) is None:
                self._begun[name] = BackgroundTask(lambda text: self._compile_and_store(text, passes), text)
            return self._begun.get(name)

    def improve(self) -> None:
        """Recompile, in a background thread, the tiered texts that were compiled quickly. Later lookups return the optimised
        code; callers of the quick code are redirected to it if the text is one function. A fork waits until this is done."""
        if not self._quick:
            return

        def work_on(_: str) -> bytes:
            for text, (passes, symbols, kernel) in quick_texts.items():
                if self.where(text, passes=passes) is None:
                    self._compile_and_store(text, passes)
                if (running := kernel()) is not None and OPTIMISED in running.addresses:
                    self._replace(running, text, symbols, passes)
            return b""

        with work.underway():
            with self._exclusive():
                quick_texts, self._quick = self._quick, {}
            with suppress(RuntimeError):  # no thread can be started, as at the end of the interpreter
                BackgroundTask(work_on, "")

    def _compile_and_store(self, text: str, passes: Passes, machine: Any = None) -> bytes:
        """Return the object code of a text, which is stored; b"" if another process has stored it meanwhile."""
        name = self.key(text, passes=passes)
        with self._cache.building(name) as is_shared:
            if is_shared and self._cache.where(name) is not None:
                return b""
            payload = self._compile(text, passes, machine or self._machine_for(text))
            about = {"cpu": self._host.cpu, "triple": self._host.triple}
            self._cache.put(name, payload, kind="object", meta=about)
        return payload

    def _replace(self, running: Kernel, text: str, symbols: Sequence[str], passes: Passes) -> None:
        """Redirect callers of quickly compiled code to the optimised code of ``text``."""
        name = self.key(text, passes=passes)
        payload = self._cache.get(name)
        with self._exclusive():
            better = self._loaded.get(name)
            if better is None and payload is not None:
                better = self._loaded[name] = self._link(payload, symbols)
            if better is not None:
                running.redirect(better, symbols[0])

    def _first_tier(self, text: str, passes: Passes) -> str:
        """Return the text to compile first: the quick version of a tiered text that is not compiled yet, else the text."""
        return text if not is_tiered(text) or self.where(text, passes=passes) is not None else quick_form(text)

    def _compile(self, text: str, passes: Passes, machine: Any) -> bytes:
        with self._module(text, passes, machine) as module, counters.timed("emit object"):
            try:
                return emit_object(machine, module)
            except RuntimeError as error:
                raise CompileError(text, str(error)) from None

    def _toolchain(self) -> Iterator[str]:
        """Yield everything besides the text and the passes that decides the machine code.

        It is called once, in the constructor: it imports modules, and a fork during an import deadlocks the child.
        """
        yield from (self._host.triple, self._host.cpu, self._host.features, f"O{CODEGEN_LEVEL}")
        yield from (llvm_version(), generator_stamp())

    def _obtain(self, name: str, text: str, symbols: list[str], meta: Mapping[str, Any], passes: Passes) -> Kernel:
        begun = self._begun.pop(name, None)
        compiled = (begun.result() if begun else None) or self._ahead.pop(name, b"")
        kernel = None if compiled else self._from_cache(name, symbols)
        if kernel is not None:
            return kernel
        with nullcontext(False) if compiled else self._cache.building(name) as is_shared:
            kernel = self._from_cache(name, symbols) if is_shared else None
            return kernel or self._compiled_kernel(name, text, symbols, meta, passes, compiled)

    def _from_cache(self, name: str, symbols: Sequence[str]) -> Kernel | None:
        """Return the kernel of a key from memory or disk, loaded; None if there is none."""
        stored = self._cache.find(name)
        if stored is None:
            return None
        payload, origin = stored
        try:
            kernel = self._link(payload, symbols)
        except RuntimeError:
            self._cache.discard(name)
            return None
        counters.count("hits" if origin == "memory" else "disk_hits")
        return kernel

    def _compiled_kernel(
        self, name: str, text: str, symbols: list[str], meta: Mapping[str, Any], passes: Passes, compiled: bytes
    ) -> Kernel:
        """Return the kernel of a text, whose object code may be ``compiled`` already, loaded and stored."""
        start = time.perf_counter()
        payload = compiled or self.compile(text, passes=passes)
        seconds = {} if compiled else {"seconds": round(time.perf_counter() - start, 4)}
        check_symbols(text, payload, symbols, self._host.triple)
        try:
            kernel = self._link(payload, symbols)
        except RuntimeError as error:
            raise CompileError(text, str(error)) from None
        counters.count("compiles")
        shown = [symbol for symbol in symbols if symbol != OPTIMISED]
        about = {"symbols": shown, "cpu": self._host.cpu, "triple": self._host.triple, **seconds, **meta}
        self._cache.put(name, payload, kind="object", meta=about)
        return kernel

    def _link(self, payload: bytes, symbols: Sequence[str]) -> Kernel:
        """Load an object file; its sections are allocated together, so that the small code model's offsets always reach."""
        llvm = llvm_binding()
        with counters.timed("load object"):
            if self._linker is None or self._libraries % _LIBRARIES_PER_LINKER == 0:
                self._linker = llvm.create_lljit_compiler(self._new_machine(), use_jit_link=True, suppress_errors=True)
            self._libraries += 1
            library = llvm.JITLibraryBuilder().add_object_img(payload)
            for symbol in symbols:
                library.export_symbol(symbol)
            tracker = library.link(self._linker, f"kernel{self._libraries}")
            tracker.linker = self._linker
            return Kernel({symbol: int(tracker[symbol]) for symbol in symbols}, tracker, self._dead)

    def _unload(self) -> None:
        """Free the code of kernels that died. A tracker, which holds its linker, goes first."""
        while self._dead:
            self._dead.popleft().close()

    def _machine_for(self, text: str) -> Any:
        return self._new_machine(level=0) if is_brief(text) else self._new_machine()

    def _new_machine(self, jit: bool = True, level: int = CODEGEN_LEVEL) -> Any:
        return self._target.create_target_machine(
            cpu=self._host.cpu,
            features=self._host.features,
            opt=level,
            reloc="pic",
            codemodel="small",
            jit=jit,
        )

    @contextmanager
    def _module(self, text: str, passes: Passes, machine: Any) -> Iterator[Any]:
        """Yield the module of a text, checked, parsed and optimised, in an LLVM context of its own."""
        refuse(text, self._host)
        # A module must be freed before its context, even if a traceback would keep it.
        with ExitStack() as stack:
            context = stack.enter_context(llvm_binding().create_context())
            module = self._parsed(text, context, stack)
            with counters.timed("optimise"):
                self._run_passes(module, _passes_for(text, passes), machine, is_branchy(text), has_hot_loops(text))
            yield module

    def _parsed(self, text: str, context: Any, stack: ExitStack) -> Any:
        """Return the module of a text, which lives until the stack closes."""
        with counters.timed("parse text"):
            try:
                full_text = _FLOATS_USED + text if "-windows-" in self._host.triple else text
                module = stack.enter_context(llvm_binding().parse_assembly(full_text, context))
                module.verify()
            except RuntimeError as error:
                raise CompileError(text, str(error)) from None
        module.triple = self._host.triple
        module.data_layout = self._layout
        return module

    def _run_passes(self, module: Any, passes: Passes, machine: Any, is_branchy: bool = False, is_hot: bool = False) -> None:
        if passes == "none":
            return
        llvm = llvm_binding()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = options.loop_unrolling = is_branchy or is_hot
        options.slp_vectorization = False
        options.loop_interleaving = False
        builder = llvm.create_pass_builder(machine, options)
        if passes == "full":
            inlining = llvm.create_new_module_pass_manager()
            inlining.add_always_inliner_pass()
            run_passes(inlining, module, builder)
            run_passes(builder.getModulePassManager(), module, builder)
            return
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_global_dead_code_eliminate_pass()
        manager.add_sroa_pass()
        manager.add_simplify_cfg_pass()
        manager.add_loop_rotate_pass()
        if not is_branchy:
            manager.add_new_gvn_pass()
        manager.add_dead_code_elimination_pass()
        run_passes(manager, module, builder)


def _passes_for(text: str, passes: Passes) -> Passes:
    """Return the passes for a module: none for a brief one, and LLVM's usual ones for a driver with loops in loops or over
    scalars, which run most of the time, unless it is long and has many of them."""
    if is_brief(text) or passes == "none":
        return "none"
    is_short = is_branchy(text) and len(text) <= MOST_OPTIMISED
    return "full" if has_hot_loops(text) or is_short else passes


_default_lock = threading.Lock()
hold_over_fork(_default_lock)
_default: Engine | None = None


def default_engine() -> Engine:
    """Return the engine of this process, over its default cache."""
    global _default
    with _default_lock:
        if _default is None:
            settings.check()
            _default = Engine(default_cache())
            hold_over_fork(_default.lock)
        return _default
