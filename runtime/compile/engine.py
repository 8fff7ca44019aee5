"""LLVM IR text to machine code in this process, through the kernel cache.

No text given to it may end the process: what would make LLVM
abort during code generation is refused before it is reached. Floating-point operations are never contracted,
reassociated or otherwise relaxed. Machine code is unloaded when nobody holds its ``Kernel`` any more; what was
asked for by address alone (``Engine.load``) stays for the life of the process.
"""

from __future__ import annotations

import ctypes
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pullback.codegen.cpu.llvm.text import BETTER, has_better, is_brief, is_tiered, quick
from pullback.ir.core import environment as settings
from pullback.runtime.cache.cache import KernelCache, Origin, default_cache, generator_stamp
from pullback.runtime.cache.cache import key as cache_key
from pullback.runtime.compile.background import Ahead, Begun
from pullback.runtime.compile.key_inputs import deciders
from pullback.runtime.compile.llvmlite_binding import (
    emit_object,
    know_all_targets,
    llvm_binding,
    llvm_version,
    run_passes,
    unheld,
)
from pullback.runtime.compile.machine import Host, find_host
from pullback.runtime.compile.validation import CompileError, check_symbols, refuse
from pullback.runtime.process import counters
from pullback.runtime.process.fork import hold_over_fork, work

Passes = Literal["none", "light", "full"]

CODEGEN_LEVEL = 2
MOST_HELPERS = 7

# An object of Windows that computes with floats asks its linker for this name.
_FLOATS_USED = "@_fltused = global i32 0\n"

# Each library of a linker makes its next one dearer (35 us per thousand), so a fresh one follows in time.
_LIBRARIES_PER_LINKER = 128

# Kernels whose addresses were handed out alone: dropping one would unmap code that somebody still calls.
_kept: set[Kernel] = set()


class Kernel:
    """Loaded machine code. ``addresses`` by symbol are valid as long as this object lives.

    Unloading waits for the next load: it enters LLVM, which an object that dies at any moment, in any thread, must not.
    """

    __slots__ = ("__weakref__", "_better", "_code", "_dead", "addresses")

    def __init__(self, addresses: Mapping[str, int], code: Any, dead: deque[Any]) -> None:
        self.addresses = addresses
        self._better: Kernel | None = None
        self._code = code
        self._dead = dead

    def __del__(self) -> None:
        self._dead.append(self._code)

    def runs(self, better: Kernel, symbol: str) -> None:
        """Have who calls the quick function ``symbol`` of this code run that of other code from now on."""
        self._better = better
        ctypes.c_void_p.from_address(self.addresses[BETTER]).value = better.addresses[symbol]


@dataclass(frozen=True, kw_only=True)
class Object:
    """Object code that was compiled under ``key``, and the function that it is loaded for."""

    key: str
    symbol: str
    payload: bytes


class Engine:
    """Compiles and loads; one for a process is enough. All methods may be called from any thread.

    With a ``host``, code is for that machine, and can be made but not loaded unless this is one.
    """

    def __init__(self, cache: KernelCache | None = None, *, level: str | None = None, host: Host | None = None) -> None:
        self._cache = KernelCache() if cache is None else cache
        self._host = find_host(level) if host is None else host
        if host is not None:
            know_all_targets()
        self._target = llvm_binding().Target.from_triple(self._host.triple)
        self._layout = str(self._new_machine().target_data)
        self._stamp = cache_key(*self._made_by())
        self._programs_stamp = cache_key(self._stamp, *deciders(self._host))
        self.lock = threading.RLock()
        self._loaded: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()
        self._dead: deque[Any] = deque()
        self._ahead: dict[str, bytes] = {}
        self._begun: dict[str, Begun] = {}
        self._quick: dict[str, tuple[Passes, list[str], weakref.ref[Kernel]]] = {}
        self._linker: Any = None
        self._libraries = 0

    def host(self) -> Host:
        """What this engine compiles for."""
        return self._host

    def load(
        self,
        text: str,
        *,
        symbols: Sequence[str],
        meta: Mapping[str, Any] | None = None,
        passes: Passes = "light",
    ) -> dict[str, int]:
        """The addresses of `symbols` of a kernel that is never unloaded; arguments and errors as in `kernel`."""
        found = self.kernel(text, symbols=symbols, meta=meta, passes=passes)
        _kept.add(found)
        return {symbol: found.addresses[symbol] for symbol in symbols}

    def kernel(
        self,
        text: str,
        *,
        symbols: Sequence[str],
        meta: Mapping[str, Any] | None = None,
        passes: Passes = "light",
    ) -> Kernel:
        """The functions `symbols` that `text` defines: found in memory, on disk, or compiled. Equal texts share a kernel.

        `meta` is shown by the cache's listing. `passes` says how much LLVM works on the text before code
        generation: "none"; "light", which inlines `alwaysinline` functions, rotates loops and removes what is
        redundant, in time near-linear in the text; "full", LLVM's O2 without its vectorisers and unroller.
        Raises CompileError where the text is not accepted, needs a symbol from outside, or defines no such
        function.
        """
        now = self._for_now(text, passes)
        if now is text:
            return self._kernel(text, symbols, meta, passes)
        found = self._kernel(now, [*symbols, BETTER] if has_better(now) else symbols, meta, passes)
        self._quick[text] = passes, list(symbols), weakref.ref(found)
        return found

    def _kernel(self, text: str, symbols: Sequence[str], meta: Mapping[str, Any] | None, passes: Passes) -> Kernel:
        name = self.key(text, passes=passes)
        found = self._loaded.get(name)
        if found is not None and all(symbol in found.addresses for symbol in symbols):
            counters.count("hits")
            return found
        with self._alone():
            self._unload()
            found = self._loaded.get(name)
            known = {} if found is None else found.addresses
            if found is not None and all(symbol in known for symbol in symbols):
                counters.count("hits")
                return found
            wanted = [*known, *(symbol for symbol in symbols if symbol not in known)]
            made = self._loaded[name] = self._obtain(name, text, wanted, meta or {}, passes)
            return made

    def object_code(self, key: str) -> bytes | None:
        """The object code of a kernel, or None where neither memory nor disk has it any more."""
        return self._cache.get(key)

    def load_objects(self, objects: Sequence[Object], origin: Origin) -> list[Kernel]:
        """Load what was compiled before and found in memory or on disk; what is loaded already is not loaded again. Raises
        RuntimeError for what is no object code."""
        with self._alone():
            self._unload()
            made, hits = [], 0
            for each in objects:
                found = self._loaded.get(each.key)
                if found is not None and each.symbol in found.addresses:
                    hits += 1
                else:
                    found = self._loaded[each.key] = self._link(each.payload, [each.symbol])
                made.append(found)
        counters.count("hits", len(objects) if origin == "memory" else hits)
        counters.count("disk_hits", 0 if origin == "memory" else len(objects) - hits)
        return made

    def program_key(self, *parts: str) -> str:
        """The cache key of a program that these parts decide: all that decides the texts and the code of its kernels goes into it
        too."""
        return cache_key(self._programs_stamp, "program", *parts)

    @property
    def cache(self) -> KernelCache:
        """Where code is kept."""
        return self._cache

    def loaded(self) -> int:
        """How many kernels are loaded that somebody holds."""
        return len(self._loaded)

    def key(self, text: str, *, passes: Passes = "light") -> str:
        """The cache key of the machine code of `text`."""
        if passes not in get_args(Passes):
            raise ValueError(f"passes {passes!r}: one of {', '.join(get_args(Passes))}")
        return cache_key(self._stamp, passes, text)

    def where(self, text: str, *, passes: Passes = "light") -> Origin | None:
        """Where the machine code of `text` is: "memory", "disk", or None if it would be compiled. Changes nothing."""
        name = self.key(text, passes=passes)
        return "memory" if name in self._loaded else self._cache.where(name)

    def optimised(self, text: str, *, passes: Passes = "light") -> str:
        """The LLVM IR that code is generated from. Raises CompileError."""
        with self._alone(), self._module(text, passes, self._machine_for(text)) as module:
            return str(module)

    def assembly(self, text: str, *, passes: Passes = "light") -> str:
        """The target's assembly of `text`. Raises CompileError."""
        machine = self._machine_for(text)
        with self._alone(), self._module(text, passes, machine) as module:
            return str(machine.emit_assembly(module))

    def compile(self, text: str, *, passes: Passes = "light") -> bytes:
        """The object file of `text`, past every cache. Raises CompileError."""
        with self._alone():
            return self._compile(text, passes, self._machine_for(text))

    def compile_together(self, texts: Sequence[str], entry: str, public: Sequence[str]) -> bytes:
        """The object file of kernels and of ``entry``, a text of our own that calls them, for a linker: one module, in which only
        the symbols ``public`` are seen from outside. Raises CompileError."""
        machine = self._new_machine(jit=False)
        llvm_binding().initialize_native_asmparser()
        with self._alone(), self._together(texts, entry, public) as module:
            self._run_passes(module, "light", machine)
            return emit_object(machine, module)

    def joined_key(self, entry: str, kernels: Sequence[str]) -> str:
        """The cache key of ``joined`` code, by the text of its entry and the keys of its kernels."""
        return cache_key(self._stamp, "joined", entry, *kernels)

    def is_joined(self, name: str) -> bool:
        """Whether the code of such a key is in memory or on disk."""
        return name in self._loaded or self._cache.where(name) is not None

    def joined(self, name: str, entry: str, texts: Sequence[str], symbol: str) -> Kernel:
        """The function ``symbol`` of ``entry``, a text of our own, with the kernels that it calls inside: found under its
        ``joined_key`` or compiled and kept. Others compile meanwhile. Raises CompileError."""
        with self._alone():
            if (found := self._loaded.get(name)) is not None:
                return found
        stored = self._cache.get(name)
        if stored is not None:
            try:
                return self._checked(name, entry, stored, symbol)
            except (CompileError, RuntimeError):
                self._cache.discard(name)
        payload = self._joined(entry, texts, symbol)
        found = self._checked(name, entry, payload, symbol)
        about = {"symbols": [symbol], "cpu": self._host.cpu, "triple": self._host.triple}
        self._cache.put(name, payload, kind="object", meta=about)
        return found

    def _checked(self, name: str, entry: str, payload: bytes, symbol: str) -> Kernel:
        check_symbols(entry, payload, [symbol], self._host.triple)
        with self._alone():
            self._unload()
            found = self._loaded[name] = self._link(payload, [symbol])
        return found

    def _joined(self, entry: str, texts: Sequence[str], symbol: str) -> bytes:
        machine = self._new_machine()
        with self._together(texts, entry, [symbol]) as module:
            for function in module.functions:
                if not function.is_declaration and function.name != symbol:
                    function.add_function_attribute("alwaysinline")
            self._run_passes(module, "full", machine)
            return emit_object(machine, module)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other thread changes the engine meanwhile."""
        with self.lock, unheld():
            yield

    @contextmanager
    def _together(self, texts: Sequence[str], entry: str, public: Sequence[str]) -> Iterator[Any]:
        """The module of several texts, in which only the symbols ``public`` are seen from outside."""
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
    def ahead(self, helpers: int, passes: Passes = "light") -> Iterator[Callable[[str], None]]:
        """Gives a function that has texts compiled which will be asked for, by up to ``helpers`` threads while the caller writes
        more of them, and by the caller at the end. A fork waits for that."""
        local = threading.local()

        recorder = counters.innermost()

        def compile_apart(text: str) -> bytes:
            known = local.__dict__.setdefault("machines", {})
            with counters.within(recorder), unheld():
                if (machine := known.get(is_brief(text))) is None:
                    machine = known[is_brief(text)] = self._machine_for(text)
                return self._compile(text, passes, machine)

        added: set[str] = set()

        def add(text: str) -> None:
            text = self._for_now(text, passes)
            if text not in added and self.key(text, passes=passes) not in self._ahead and self.where(text, passes=passes) is None:
                added.add(text)
                ahead.add(text)

        ahead = Ahead(compile_apart, max(0, min(helpers, MOST_HELPERS)), CompileError)
        with work.underway():
            try:
                with unheld():
                    yield add
                ahead.finish()
            except BaseException:
                ahead.drop()
                raise
        with self._alone():
            self._ahead.update((self.key(text, passes=passes), payload) for text, payload in ahead.done.items())

    def begin(self, text: str, passes: Passes = "light") -> Begun | None:
        """Have a text of the package's own compiled by a thread that is likely to be asked for soon, and stored, in case it is
        not. A fork waits for that. None if it is compiled already."""
        text = self._for_now(text, passes)
        name = self.key(text, passes=passes)
        with work.underway(), self._alone():
            if name not in self._begun and self.where(text, passes=passes) is None:
                self._begun[name] = Begun(lambda text: self._compiled_apart(text, passes), text)
            return self._begun.get(name)

    def improve(self) -> None:
        """Have a thread compile well what tiered texts were compiled quickly: for who asks for one from then on, and, if it is
        one function, for who has its quick code. A fork waits for that."""
        if not self._quick:
            return

        def work_on(_: str) -> bytes:
            for text, (passes, symbols, kernel) in made.items():
                if self.where(text, passes=passes) is None:
                    self._compiled_apart(text, passes)
                if (running := kernel()) is not None and BETTER in running.addresses:
                    self._replace(running, text, symbols, passes)
            return b""

        with work.underway():
            with self._alone():
                made, self._quick = self._quick, {}
            with suppress(RuntimeError):  # no thread can be had, as at the end of the interpreter
                Begun(work_on, "")

    def _compiled_apart(self, text: str, passes: Passes) -> bytes:
        payload = self._compile(text, passes, self._machine_for(text))
        about = {"cpu": self._host.cpu, "triple": self._host.triple}
        self._cache.put(self.key(text, passes=passes), payload, kind="object", meta=about)
        return payload

    def _replace(self, running: Kernel, text: str, symbols: Sequence[str], passes: Passes) -> None:
        """Have who calls quick code run what ``text`` was compiled to."""
        name = self.key(text, passes=passes)
        payload = self._cache.get(name)
        with self._alone():
            better = self._loaded.get(name)
            if better is None and payload is not None:
                better = self._loaded[name] = self._link(payload, symbols)
            if better is not None:
                running.runs(better, symbols[0])

    def _for_now(self, text: str, passes: Passes) -> str:
        """The text that is compiled for who waits for a text: of a tiered one that nobody has compiled, a quick one."""
        return text if not is_tiered(text) or self.where(text, passes=passes) is not None else quick(text)

    def _compile(self, text: str, passes: Passes, machine: Any) -> bytes:
        with self._module(text, passes, machine) as module, counters.timed("emit object"):
            try:
                return emit_object(machine, module)
            except RuntimeError as error:
                raise CompileError(text, str(error)) from None

    def _made_by(self) -> Iterator[str]:
        """All that decides what a text becomes, but the text and the passes.

        Asked for once, with the engine: it imports modules, and a fork amid an import leaves the child waiting.
        """
        yield from (self._host.triple, self._host.cpu, self._host.features, f"O{CODEGEN_LEVEL}")
        yield from (llvm_version(), generator_stamp())

    def _obtain(self, name: str, text: str, symbols: list[str], meta: Mapping[str, Any], passes: Passes) -> Kernel:
        begun = self._begun.pop(name, None)
        made = (begun.result() if begun else None) or self._ahead.pop(name, b"")
        stored = None if made else self._cache.find(name)
        if stored is not None:
            payload, origin = stored
            try:
                found = self._link(payload, symbols)
            except RuntimeError:
                self._cache.discard(name)
            else:
                counters.count("hits" if origin == "memory" else "disk_hits")
                return found
        start = time.perf_counter()
        payload = made or self.compile(text, passes=passes)
        seconds = {} if made else {"seconds": round(time.perf_counter() - start, 4)}
        check_symbols(text, payload, symbols, self._host.triple)
        try:
            found = self._link(payload, symbols)
        except RuntimeError as error:
            raise CompileError(text, str(error)) from None
        counters.count("compiles")
        shown = [symbol for symbol in symbols if symbol != BETTER]
        about = {"symbols": shown, "cpu": self._host.cpu, "triple": self._host.triple, **seconds, **meta}
        self._cache.put(name, payload, kind="object", meta=about)
        return found

    def _link(self, payload: bytes, symbols: Sequence[str]) -> Kernel:
        """Loads an object; its sections lie together, so that the small code model's offsets always reach."""
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
        """Frees the code of kernels that died. A tracker goes before its linker, which it holds."""
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
        """The text parsed, checked and optimised, in an LLVM context of its own."""
        refuse(text, self._host)
        # A module must go before its context, also where a traceback would keep it.
        with ExitStack() as stack:
            context = stack.enter_context(llvm_binding().create_context())
            module = self._parsed(text, context, stack)
            with counters.timed("optimise"):
                self._run_passes(module, "none" if is_brief(text) else passes, machine)
            yield module

    def _parsed(self, text: str, context: Any, stack: ExitStack) -> Any:
        """The module of a text, which ends with the stack."""
        with counters.timed("parse text"):
            try:
                whole = _FLOATS_USED + text if "-windows-" in self._host.triple else text
                module = stack.enter_context(llvm_binding().parse_assembly(whole, context))
                module.verify()
            except RuntimeError as error:
                raise CompileError(text, str(error)) from None
        module.triple = self._host.triple
        module.data_layout = self._layout
        return module

    def _run_passes(self, module: Any, passes: Passes, machine: Any) -> None:
        if passes == "none":
            return
        llvm = llvm_binding()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = False
        options.slp_vectorization = False
        options.loop_unrolling = False
        options.loop_interleaving = False
        builder = llvm.create_pass_builder(machine, options)
        if passes == "full":
            run_passes(builder.getModulePassManager(), module, builder)
            return
        manager = llvm.create_new_module_pass_manager()
        manager.add_always_inliner_pass()
        manager.add_global_dead_code_eliminate_pass()
        manager.add_sroa_pass()
        manager.add_simplify_cfg_pass()
        manager.add_loop_rotate_pass()
        manager.add_new_gvn_pass()
        manager.add_dead_code_elimination_pass()
        run_passes(manager, module, builder)


_default_lock = threading.Lock()
hold_over_fork(_default_lock)
_default: Engine | None = None


def default_engine() -> Engine:
    """The engine of this process, over its default cache."""
    global _default
    with _default_lock:
        if _default is None:
            settings.check()
            _default = Engine(default_cache())
            hold_over_fork(_default.lock)
        return _default
