"""Other platforms: kernels of every op become objects for each of them, which need nothing but what is there."""

from __future__ import annotations

import functools
import itertools
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

import pytest

from pullback.codegen.cpu.schedule import schedule
from pullback.codegen.fuse.fuse import fuse
from pullback.codegen.lower.lower import lower
from pullback.ir import Function
from pullback.ir.ops.elementwise.elementwise import Elementwise
from pullback.ir.passes.pipeline import OPTIMIZE, run
from pullback.ir.shapes.extents import abstract
from pullback.ir.text import canonical, parse_module
from pullback.runtime.compile.engine import Engine
from pullback.runtime.compile.machine import Host
from pullback.runtime.compile.object_files import object_symbols
from pullback.runtime.compile.platforms import HOSTS, PYTHONS, python_support, support
from pullback.runtime.compile.validation import CompileError, runtime_symbols
from pullback.runtime.fastcall import entry
from pullback.runtime.memory.pool import ALLOCATOR, SERVICES, SOURCE
from pullback.runtime.program.executable import emit_kernel
from pullback.runtime.program.launcher import RUNNER
from tests.support.matmul.kernels import product_text
from tests.support.op_cases import Case, case_function, cases, covered_ops
from tests.support.programs import random_function

TOGETHER = 40
OTHERS = [name for name in HOSTS if name != "Linux x86-64"]
FURTHER = ("Linux aarch64 with SVE", "Windows x86-64 of 2009")
"""Further machines of platforms that are there already."""


def is_chosen(case: Case) -> bool:
    """Return whether a case has a kernel of its own: elementwise ops, whose kernels differ by dtype alone, need one shape."""
    kinds = [t.dtype.kind for t in case.types] + [d.kind for d in [case.params.get("dtype")] if d is not None]
    shapes = [t.shape for t in case.types]
    return "c" not in kinds and (shapes[0] == (3,) if isinstance(case.op, Elementwise) else not any(0 in s for s in shapes))


def functions() -> Iterator[Function]:
    """One instruction each, for every op, dtype and kind of shape; and random programs, whose groups have many."""
    for op in covered_ops():
        if "func" in op.vocabularies:
            yield from (case_function(case) for case in cases(op) if is_chosen(case))
    yield from (random_function(seed, steps=16) for seed in range(20))


@functools.cache
def kernels(every: int = 1) -> tuple[Function, ...]:
    """Return the scheduled kernels, each once, of one function in ``every``. The kernels of every second such function take
    strided arguments."""
    result: dict[str, Function] = {}
    for count, function in enumerate(itertools.islice(functions(), 0, None, every)):
        general = abstract(function).function
        layouts = ["c" if count % 2 else "strided"] * len(general.parameters)
        for kernel in lower(fuse(run(general, OPTIMIZE)), layouts).functions[1:]:
            scheduled = schedule(kernel)
            result.setdefault(canonical(scheduled), scheduled)
    return tuple(result.values())


def together(texts: Iterable[str]) -> str:
    """Return several modules as one; a declaration that several have appears once."""
    lines = [line for text in texts for line in text.splitlines()]
    shared = ("declare ", "@", "!")
    declared = dict.fromkeys(line for line in lines if line.startswith(shared))
    return "\n".join([*declared, *(line for line in lines if not line.startswith(shared))])


def become_objects(chosen: Sequence[Function], host: Host) -> None:
    engine = Engine(host=host)
    emitted = [emit_kernel(kernel, host) for kernel in chosen]
    for start in range(0, len(emitted), TOGETHER):
        batch = emitted[start : start + TOGETHER]
        symbols = object_symbols(engine.compile(together(dict.fromkeys(e.text for e in batch))))
        assert symbols is not None
        defined, undefined = symbols
        assert {e.name for e in batch} <= defined
        assert undefined <= runtime_symbols(host.triple)


def some() -> Sequence[Function]:
    """Return the kernels of every ninth function; ``-m long`` takes all."""
    return kernels(9)


def share(platform: str) -> Sequence[Function]:
    """Return a platform's share of some kernels. Each kernel is in one platform's share; further machines get a third of it."""
    first = [name for name in OTHERS if name not in FURTHER]
    if platform in first:
        return some()[first.index(platform) :: len(first)]
    return some()[FURTHER.index(platform) :: 3 * len(first)]


@pytest.mark.parametrize("platform", OTHERS)
def test_kernels_become_objects(platform: str) -> None:
    become_objects(share(platform), HOSTS[platform])


@pytest.mark.parametrize("platform", OTHERS)
def test_products_become_objects(platform: str) -> None:
    host = HOSTS[platform]
    texts = [product_text(dtype, turned) for dtype in ("f32", "f64") for turned in ((False, False), (True, True))]
    become_objects([schedule(parse_module(text).functions[0], host.core, host.target) for text in texts], host)


def test_each_of_some_kernels_is_in_a_share() -> None:
    assert {id(k) for name in OTHERS for k in share(name)} == {id(k) for k in some()}


@pytest.mark.long
@pytest.mark.parametrize("platform", OTHERS)
def test_every_kernel_becomes_an_object(platform: str) -> None:
    become_objects(kernels(), HOSTS[platform])


@pytest.mark.parametrize("platform", HOSTS)
def test_the_runtimes_own_code_becomes_objects(platform: str) -> None:
    host = HOSTS[platform]
    engine = Engine(host=host)
    pool = [f"pullback_pool_{name}" for name in ALLOCATOR + SERVICES]
    for text, names in ((RUNNER, ["pullback_run"]), (SOURCE, pool), (entry.source(), [entry.CALL, entry.INIT])):
        symbols = object_symbols(engine.compile(text))
        assert symbols is not None and set(names) <= symbols[0] and symbols[1] <= runtime_symbols(host.triple)


@pytest.mark.parametrize("platform", HOSTS)
def test_the_symbols_of_an_object(platform: str) -> None:
    """Names of any length; what is called and not defined is found in every format."""
    text = """
declare void @an_outside_function_of_a_long_name(ptr)
declare void @out(ptr)
@a_table_of_numbers = global [2 x i64] [i64 1, i64 2]
define void @a_function_of_a_long_name(ptr %x) {
  call void @an_outside_function_of_a_long_name(ptr %x)
  call void @out(ptr @a_table_of_numbers)
  ret void
}
define double @short(double %x) {
  %y = fmul double %x, 3.5
  ret double %y
}
"""
    symbols = object_symbols(Engine(host=HOSTS[platform]).compile(text))
    assert symbols is not None
    assert symbols[0] >= {"a_function_of_a_long_name", "short", "a_table_of_numbers"}
    assert symbols[1] == {"an_outside_function_of_a_long_name", "out"}


def test_bytes_that_are_no_object() -> None:
    for payload in (b"", b"\x7fELF", b"not an object of any kind" * 3, bytes(64)):
        assert object_symbols(payload) is None


def test_code_for_another_platform_is_refused_like_that_for_this_one() -> None:
    with pytest.raises(CompileError):
        Engine(host=HOSTS["macOS arm64"]).compile("define void @f() { call void @g() ret void }")


@pytest.mark.parametrize(
    ("arguments", "promised"),
    [
        (("Linux", "x86_64"), "tested"),
        (("Linux", "aarch64"), "expected to work"),
        (("Darwin", "arm64"), "expected to work"),
        (("Windows", "AMD64"), "expected to work"),
        (("Darwin", "x86_64"), "not supported: Intel Macs"),
        (("Windows", "ARM64"), "not supported: Windows ARM64 was never tried"),
        (("FreeBSD", "amd64"), "not supported: FreeBSD amd64 was never tried"),
    ],
)
def test_support(arguments: tuple[str, str], promised: str) -> None:
    assert support(*arguments, bits=64, has_gil=True) == promised
    assert support(*arguments, bits=32, has_gil=True).startswith("not supported: Python of 32 bits")
    assert support(*arguments, bits=64, has_gil=False).startswith("not supported: Python without its lock")


def test_support_of_pythons() -> None:
    assert {python_support(version, "cpython") for version in PYTHONS} == {"tested"}
    assert python_support((3, 10), "cpython").startswith("not supported")
    assert python_support((3, 99), "cpython") == "never tried"
    assert python_support((3, 11), "pypy").startswith("not supported")


@pytest.mark.parametrize(("is_free_threaded", "expected"), [(True, "ImportError"), (False, "imported")])
def test_a_free_threaded_build_is_refused_by_name(is_free_threaded: bool, expected: str) -> None:
    """Also while it runs with the lock, as it does once a module has enabled it."""
    code = f"""if True:
        import sysconfig
        variable = sysconfig.get_config_var
        sysconfig.get_config_var = lambda name: {int(is_free_threaded)} if name == "Py_GIL_DISABLED" else variable(name)
        try:
            import pullback
            print("imported")
        except ImportError as error:
            print("ImportError", error)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(expected)
    if is_free_threaded:
        assert "free-threaded builds of Python" in done.stdout and sys.executable in done.stdout


def test_nothing_needs_what_windows_lacks() -> None:
    """The self-test runs in a Python without the modules and functions that only POSIX systems have."""
    code = """
import os, sys
for name in ("register_at_fork", "fork", "getuid", "geteuid", "sched_getaffinity", "O_NOFOLLOW", "O_NONBLOCK", "getpgid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[name] = None
from pullback.cli import selftest
sys.exit(selftest.run())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
