"""The command line: dump the stages of a function, run and rewrite IR files, manage the kernel cache, report on the
installation.

Exit codes: 0, 1 if the action failed, 2 if the command line was wrong. A user's error is one message, never a traceback.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pullback.cli import cache as cache_command
from pullback.cli import doctor, targets
from pullback.cli import tune as tuning
from pullback.compiled.reports import Inspected
from pullback.exporting import argument_specs
from pullback.exporting import export as exporting
from pullback.exporting.argument_specs import UsageError, random_array
from pullback.exporting.exporter import ExportError
from pullback.inspection import reports
from pullback.ir.core.structure import Function, Module
from pullback.ir.core.types import DType, RefType
from pullback.ir.interpret import interpret
from pullback.ir.ops.control.regions import CheckFailed
from pullback.ir.passes.pipeline import PASSES, run
from pullback.ir.passes.transforms.expand import GradientError, grad
from pullback.ir.shapes.extents import extents_of, rename
from pullback.ir.text import ParseError, parse_module, print_module
from pullback.ir.verify import VerifyError, verify_module
from pullback.programs.pipeline import DEVICES, SHARED_STAGES, TARGET_STAGES
from pullback.tracer import TraceError
from pullback.tracer.names.call_objects import serving
from pullback.transforms import api
from pullback.view import view as views

INPUTS = "inputs.npz"
"""File to which the arguments of a dumped call are written and from which ``run`` reads them."""
ARCH = re.compile(r"sm_\d+[af]?")
IMPORTS = (
    "The file or module is imported, so what stands at its top level runs. Arrays are random, the same at each run; quote what "
    "your shell would read itself: \"{'w': float64[64,32]}\" \"mode='full'\"."
)
"""Note in the help of commands that import the user's file."""
REPORTS = {
    "explain": "print whether a call is traced and compiled, and why",
    "residuals": "print what the backward part of a gradient reads of the forward part",
    "memory": "print the buffers of a call",
    "cost": "print the operations and bytes of each kernel of a call",
    "profile": "run a call some times and print what each step takes",
}
"""The commands that print a report on a call, with their help."""
VIEWED = (*SHARED_STAGES, *TARGET_STAGES["cpu"], "cuda")
"""The stages of a page. A function for a GPU has no native ones."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    grammar = parser()
    arguments, rest = grammar.parse_known_args(argv)
    if rest and (not hasattr(arguments, "arguments") or any(word.startswith("-") for word in rest)):
        grammar.error(f"unrecognized arguments: {' '.join(rest)}")
    if rest:
        arguments.arguments += rest
    try:
        return int(arguments.command(arguments))
    except UsageError as error:
        return _failed(error, 2)
    except (TraceError, VerifyError, ParseError, CheckFailed, targets.UserError) as error:
        return _failed(error, 1)
    except GradientError as error:
        return _failed(f"{error.loc}: {error}" if error.loc else error, 1)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _failed(f"{error.filename}: {error.strerror}" if error.filename else error, 1)
    except KeyboardInterrupt:
        return 130


def _failed(error: object, code: int) -> int:
    print(f"pullback: {error}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    top = argparse.ArgumentParser(prog="pullback", description="compile NumPy functions and their gradients")
    top.add_argument("--version", action="version", version=f"pullback {doctor.version('pullback')}")
    commands = top.add_subparsers(required=True, metavar="COMMAND")

    dump = _command(commands, "dump", dump_command, "print the stages of a function", IMPORTS)
    _call_options(dump)
    stages = (*SHARED_STAGES, *TARGET_STAGES["cpu"], *TARGET_STAGES["cuda"], "all")
    dump.add_argument("--stage", default="all", choices=stages, help="one stage (all)")
    dump.add_argument("--arch", metavar="sm_NN", help="with ptx and sass: the architecture (that of the first GPU, else sm_90)")
    dump.add_argument("--out", metavar="DIR", type=Path, help=f"write numbered files, and the arguments as {INPUTS}")
    dump.add_argument("--locations", action="store_true", help="with the user's file and line of each instruction")

    for name, text in REPORTS.items():
        _call_options(_command(commands, name, report_command, text, IMPORTS))

    text = "write a page that shows a call: source, stages, kernels, memory, time, residuals, loops"
    view = _command(commands, "view", view_command, text, IMPORTS)
    _call_options(view)
    view.add_argument("--out", metavar="PAGE.html", type=Path, help="the file to write (the function's name and .html)")
    view.add_argument("--stage", default="", help=f"the stage shown first: {', '.join(VIEWED)} (trace)")
    view.add_argument("--no-profile", action="store_true", help="make no calls, so that the page has no times")
    view.add_argument("--open", action="store_true", help="show the page in a browser")

    text = "write a function as an object file, a C header and a shared library"
    out = _command(commands, "export", export_command, text, f"{IMPORTS} An extent that is a name, as in f64[n,3], stays free.")
    _call_options(out)
    out.add_argument("--out", metavar="DIR/NAME", type=Path, required=True, help="the files without their suffixes")
    out.add_argument("--cpu", default="native", help="native (this processor), baseline, avx2 or avx512")

    execute = _command(commands, "run", run_command, "run an IR file on the interpreter")
    execute.add_argument("file", metavar="FILE.ir", type=Path)
    execute.add_argument(
        "--inputs", metavar="X.npz", type=Path, help=f"arguments by name ({INPUTS} beside the file, else random arrays)"
    )
    execute.add_argument("--seed", type=int, default=0, help="of the random arrays (0)")
    execute.add_argument("--function", metavar="NAME", help="the function to run (the first)")
    execute.add_argument("--size", metavar="NAME=N", action="append", default=[], help="the value of a named extent")

    opt = _command(commands, "opt", opt_command, "run passes on an IR file and print the result")
    opt.add_argument("file", metavar="FILE.ir", type=Path)
    opt.add_argument("--passes", required=True, metavar="A,B", help=f"of {', '.join(PASSES)}, in order")
    opt.add_argument("--locations", action="store_true")

    cache_command.add_to(commands)

    text = "measure who does plain matrix products best on this machine, SciPy's BLAS or our own kernels, and remember it"
    _command(commands, "tune", lambda arguments: tuning.tune(), text)

    text = "versions, platform, processor, threads, cache folder, CUDA or why not"
    diagnosis = _command(commands, "doctor", lambda arguments: doctor.report(check=arguments.selftest), text)
    diagnosis.add_argument("--selftest", action="store_true", help="compile ten kernels anew and compare them with NumPy")
    return top


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str, more: str = ""
) -> argparse.ArgumentParser:
    """Add one command and return its parser."""
    command_parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text, epilog=more)
    command_parser.set_defaults(command=run, name=name)
    return command_parser


def _call_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a function, the arguments of its call and the transform applied first."""
    parser.add_argument("target", metavar="FILE.py:NAME", help="a function; also MODULE:NAME, and Class.method for the name")
    parser.add_argument(
        "arguments", nargs="*", metavar="ARG",
        help="a Python literal with arrays as f64[64,32] or float32[3] anywhere in it; NAME=ARG for a keyword",
    )  # fmt: skip
    parser.add_argument("--example", metavar="NAME", help="take the arguments from this callable of the file")
    parser.add_argument("--grad", action="store_true", help="of the function's value and gradient")
    parser.add_argument("--argnums", metavar="N[,N]", type=_numbers, help="with --grad: the arguments to differentiate (0)")
    parser.add_argument("--static", metavar="NAME[,NAME]", default="", help="arguments that are static")
    parser.add_argument("--device", choices=DEVICES, help="the device to compile for (cpu)")
    parser.add_argument("--seed", type=int, default=0, help="of the random arrays (0)")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(","))


# dump and the reports


def examine_call(arguments: argparse.Namespace) -> reports.Call:
    """Return the call that a command line describes. A function that is already transformed is used as it is."""
    target, function, args, kwargs = resolve_call(arguments, arguments.seed)
    with targets.users_errors(f"calling {target.name}"):
        call: reports.Call = function.examine(args, kwargs)
    return call


def resolve_call(
    arguments: argparse.Namespace, make: int | argument_specs.Maker
) -> tuple[targets.Target, Any, list[Any], dict[str, Any]]:
    """Return the target, its transformed function, and its positional and keyword arguments, with arrays as ``specs.parsed``
    makes them."""
    target = targets.load(arguments.target)
    if arguments.example is not None and arguments.arguments:
        raise UsageError("give either arguments or --example")
    if arguments.argnums is not None and not arguments.grad:
        raise UsageError("--argnums goes with --grad")
    function: Any = target.function
    if arguments.example is not None:
        args, kwargs = targets.example(target, arguments.example)
    else:
        args, kwargs = argument_specs.parsed(function, arguments.arguments, make)
    argument_specs.check_call(function, args, kwargs, f"pullback {arguments.name} {arguments.target}")
    if arguments.grad:
        argnums = arguments.argnums
        function = api.value_and_grad(function, argnums=argnums[0] if argnums is not None and len(argnums) == 1 else argnums)
    static = [name for name in arguments.static.split(",") if name]
    if static or arguments.device is not None or not isinstance(function, Inspected):
        with targets.users_errors("--static"):
            function = api.jit(function, static_argnames=static, device=arguments.device or DEVICES[0])
    return target, function, args, kwargs


def export_command(arguments: argparse.Namespace) -> int:
    """Export a function for callers in C."""

    def text(dtype: DType, extents: Sequence[int | str], name: str) -> str:
        return f"{dtype.name}[{','.join(map(str, extents))}]"

    target, function, args, kwargs = resolve_call(arguments, text)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    with targets.users_errors(f"exporting {target.name}"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", exporting.ExportWarning)
        try:
            exported = exporting.export(function, *args, path=arguments.out, cpu=arguments.cpu, kwargs=kwargs)
        except (ExportError, ValueError) as error:
            raise targets.UserError(str(error)) from None
    for warning in caught:
        print(f"pullback: {warning.message}", file=sys.stderr)
    print(exported)
    return 0


def report_command(arguments: argparse.Namespace) -> int:
    """Print a report on a call."""
    call = examine_call(arguments)
    with targets.users_errors(f"tracing {arguments.target}"):
        print(getattr(reports, arguments.name)(call))
    return 0


def view_command(arguments: argparse.Namespace) -> int:
    """Write the page on a call, also where it cannot be traced; the code is then 1, and the error is printed."""
    if arguments.stage and arguments.stage not in VIEWED:
        raise UsageError(f"there is no stage {arguments.stage}; there are {', '.join(VIEWED)}")
    call = examine_call(arguments)
    with targets.users_errors(f"tracing {arguments.target}"), serving(call.signature.objects):
        page = views.view(call, times=not arguments.no_profile)
    error, stage = page.contents.error, arguments.stage
    try:
        path = page.save(arguments.out or Path(f"{call.title}.html"), "" if error is not None else stage)
    except ValueError as unknown:
        raise UsageError(str(unknown)) from None
    print(path)
    if arguments.open and not webbrowser.open(path.absolute().as_uri()):
        print(f"pullback: no browser could be started; open {path} in one", file=sys.stderr)
    return 0 if error is None else _failed(error.text, 1)


def dump_command(arguments: argparse.Namespace) -> int:
    """Print or write the stages of a function for the call's arguments."""
    call = examine_call(arguments)
    if arguments.arch is not None and (call.device == "cpu" or not ARCH.fullmatch(arguments.arch)):
        raise UsageError(f"--arch {arguments.arch}: as sm_90, and with --device cuda")
    with targets.users_errors(f"tracing {arguments.target}"):
        texts = reports.stages(call, locations=arguments.locations, arch=arguments.arch)
    chosen = list(texts) if arguments.stage == "all" else [arguments.stage]
    if arguments.stage not in ("all", *texts):
        raise UsageError(f"there is no stage {arguments.stage} for this device; there are {', '.join(texts)}")
    if arguments.stage != "all" and (problem := texts.problem(arguments.stage)) is not None:
        raise targets.UserError(problem)
    if arguments.out is None:
        for name in chosen:
            print((f"# stage: {name}\n" if arguments.stage == "all" else "") + texts[name], end="")
        return 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    for ordinal, name in enumerate(texts):
        if name in chosen:
            path = arguments.out / f"{ordinal:02}-{name}{_suffix(name)}"
            path.write_text(texts[name], encoding="utf-8")
            print(path)
    np.savez(arguments.out / INPUTS, **texts.inputs)
    print(arguments.out / INPUTS)
    return 0


def _suffix(stage: str) -> str:
    return {"llvm": ".ll", "asm": ".s", "cuda": ".cu", "ptx": ".ptx", "sass": ".sass"}.get(stage, ".ir")


# run and opt


def read_module(path: Path) -> Module:
    """Return the verified module of a file. Raises ParseError, VerifyError, UserError, OSError."""
    try:
        return verify_module(parse_module(path.read_text(encoding="utf-8")))
    except ParseError as error:
        raise targets.UserError(f"{path}: {error}") from None
    except (TypeError, KeyError, IndexError) as error:
        raise targets.UserError(f"{path}: {type(error).__name__}: {error}") from None
    except UnicodeDecodeError:
        raise targets.UserError(f"{path}: not a text in UTF-8") from None


def run_command(arguments: argparse.Namespace) -> int:
    """Run a function of a file on the interpreter and print its results."""
    module = read_module(arguments.file)
    function = _chosen(module, arguments.function)
    sizes = _sizes(arguments.size)
    missing = [name for name in extents_of(function) if name not in sizes]
    if missing:
        raise UsageError(f"{function.name} has named extents; give --size {missing[0]}=N")
    if function.kind != "kernel":
        function = grad(rename(function, sizes))
    values = _inputs(function, arguments, sizes)
    with targets.users_errors(f"running {function.name}"):
        results = interpret(function, *values, module=module, sizes=sizes)
    if function.kind == "kernel":
        print(f"status: {results}")
        pairs = [(v, a) for v, a in zip(function.parameters, values) if isinstance(v.type, RefType)]
    else:
        pairs = list(zip(function.results, results))
    for position, (value, result) in enumerate(pairs):
        print(f"{value.name or position}: {value.type} = {np.array2string(np.asarray(result), precision=17, separator=', ')}")
    return 0


def _chosen(module: Module, name: str | None) -> Function:
    """Return the function of that name, the first one by default. Raises UsageError if there is none."""
    names = [f.name for f in module.functions]
    if not names:
        raise UsageError("the file holds no function")
    if name is not None and name not in names:
        raise UsageError(f"the file holds no function {name}; it has {', '.join(names)}")
    return module.functions[0] if name is None else module[name]


def _sizes(words: Sequence[str]) -> dict[str, int]:
    """Parse NAME=N options. Raises UsageError."""
    sizes = {}
    for word in words:
        name, _, value = word.partition("=")
        if not value.isdecimal():
            raise UsageError(f"--size {word}: NAME=N with N a number from 0 on")
        sizes[name] = int(value)
    return sizes


def _inputs(function: Function, arguments: argparse.Namespace, sizes: dict[str, int]) -> list[Any]:
    """Return the arguments of a function: from a file by name, or random."""
    path = arguments.inputs
    default_path = arguments.file.parent / INPUTS
    if path is None and default_path.exists():
        path = default_path
    arrays: dict[str, Any] = {}
    if path is not None:
        arrays = targets.read_inputs(path)
        print(f"inputs from {path}", file=sys.stderr)
    values = []
    for parameter in function.parameters:
        if path is not None:
            if parameter.name not in arrays:
                raise UsageError(f"{path} has no array {parameter.name}; it has {', '.join(arrays)}")
            values.append(arrays[parameter.name])
        else:
            values.append(random_array(parameter.type, parameter.name, arguments.seed, sizes))
    return values


def opt_command(arguments: argparse.Namespace) -> int:
    """Run passes on the functions of kind ``func`` in a file and print the module."""
    names = [name for name in arguments.passes.split(",") if name]
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise UsageError(f"there is no pass {unknown[0]}; there are {', '.join(PASSES)}")
    module = read_module(arguments.file)
    with targets.users_errors("the passes"):
        functions = [run(f, [PASSES[n] for n in names]) if f.kind == "func" else f for f in module.functions]
    print(print_module(Module(tuple(functions)), arguments.locations), end="")
    return 0
