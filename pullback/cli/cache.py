"""`pullback cache`: show, check, clear, export and import the kernel cache."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pullback.cli.targets import UserError
from pullback.exporting.argument_specs import UsageError
from pullback.runtime.cache.archive import BadArchive, read_archive, write_archive
from pullback.runtime.cache.cache import KernelCache, default_cache
from pullback.runtime.cache.entry_format import Entry
from pullback.runtime.cache.usage import uses_of
from pullback.runtime.cuda.compile.cubin import resources
from pullback.runtime.program import program_bytes

LEAST_KEY = 4
"""Minimum number of key digits that identify an entry."""
UNITS = (("d", 86400), ("h", 3600), ("min", 60))
"""Units of an age and their lengths in seconds, longest first."""
FOREIGN = (
    "an archive holds machine code, which runs in every process that finds it in its cache; it is checked to be whole, not to be "
    "harmless. Say --trust if you trust who made {path}"
)
"""The error of an import without ``--trust``."""

Command = Callable[[argparse.Namespace], int]


def add_to(commands: Any) -> None:
    """Add the command and its actions to the parser."""
    cache = commands.add_parser("cache", help="look after the kernel cache", description="look after the kernel cache")
    actions = cache.add_subparsers(required=True, metavar="ACTION")
    _action(actions, "info", info, "where it is, what it holds, how often processes found what they needed")
    _action(actions, "list", list_entries, "its entries, the most recently used first")
    show = _action(actions, "show", show_entry, "one entry; of a program its IR")
    show.add_argument("key", metavar="KEY", help=f"the key, or its first digits, at least {LEAST_KEY}")
    _action(actions, "verify", verify, "read every entry, and remove the damaged ones")
    _action(actions, "clear", clear, "remove every entry")
    export = _action(actions, "export", export_entries, "write the entries to an archive")
    export.add_argument("file", metavar="FILE", type=Path)
    taken = _action(actions, "import", import_entries, "take the entries of an archive")
    taken.add_argument("file", metavar="FILE", type=Path)
    taken.add_argument("--trust", action="store_true", help="run the machine code that it holds")


def _action(actions: Any, name: str, run: Command, text: str) -> argparse.ArgumentParser:
    """Add one action and return its parser."""
    action_parser: argparse.ArgumentParser = actions.add_parser(name, help=text, description=text)
    action_parser.set_defaults(command=run)
    return action_parser


def info(arguments: argparse.Namespace) -> int:
    """Print the folder of the cache, its contents and its use."""
    cache = default_cache()
    details = cache.info()
    print(f"folder     {details['path'] or 'none: the cache is in memory alone'}")
    print(f"entries    {details['entries']:,} of at most {details['max_entries']:,}")
    print(f"bytes      {details['bytes']:,} of at most {details['max_bytes']:,}")
    for path, count, size in details["others"]:
        print(f"read too   {path}: {count:,} entries, {size:,} bytes")
    if details["problem"]:
        print(f"problem    {details['problem']}")
    if cache.path is not None:
        _print_uses(cache.path)
    return 0


def _print_uses(folder: Path) -> None:
    """Print how often the processes that used the folder found programs and kernels in it."""
    uses = uses_of(folder)
    if not uses.processes:
        return
    n, loading, compiling = uses.counts, f"{uses.seconds['load program']:.3f} s", f"{uses.seconds['compile']:.3f} s"
    instantiated, loaded = n["templates_instantiated"], n["templates_loaded"]
    print(f"processes  {uses.processes:,} in {_age(uses.since)} that needed programs or kernels")
    print(f"programs   {instantiated:,} in memory, {loaded:,} on disk ({loading}), {n['templates_built']:,} built")
    print(f"kernels    {n['hits']:,} in memory, {n['disk_hits']:,} on disk, {n['compiles']:,} compiled ({compiling})")


def list_entries(arguments: argparse.Namespace) -> int:
    """Print a line for each entry: key, kind, bytes, age, processor, names."""
    for entry in default_cache().entries():
        age, cpu = _age(entry.modified), str(entry.meta.get("cpu", ""))
        print(f"{entry.key[:16]}  {entry.kind:<7} {entry.size:>9}  {age:>6}  {cpu:<16}  {_names(entry)}".rstrip())
    return 0


def _names(entry: Entry) -> str:
    if "program" in entry.meta:
        return f"{entry.meta['program']}, kernels: {entry.meta.get('kernels', '?')}"
    if "of" in entry.meta:
        return f"{entry.meta['of']}: {entry.meta.get('chosen', '?')}"
    symbols = entry.meta.get("symbols", ())
    return ", ".join(map(str, symbols)) if isinstance(symbols, list) else ""


def _age(moment: float) -> str:
    """Return how long ago a Unix time was, in one unit."""
    seconds = max(0, int(time.time() - moment))
    return next((f"{seconds // length} {unit}" for unit, length in UNITS if seconds >= length), f"{seconds} s")


def show_entry(arguments: argparse.Namespace) -> int:
    """Print the metadata of one entry, the resources of a cubin, the IR of a program."""
    cache = default_cache()
    entry = _chosen(cache, arguments.key)
    used = f"{_age(entry.modified)} ago"
    fields = {"key": entry.key, "kind": entry.kind, "bytes": f"{entry.size:,}", "used": used, **entry.meta}
    for name, value in fields.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        print(f"{name:<9}  {text}")
    if entry.kind == "cubin":
        for name, usage in resources(cache.get(entry.key) or b"").items():
            print(f"{name:<9}  {usage}")
    if entry.kind == "program":
        print("\n" + _program_text(cache, entry.key))
    return 0


def _program_text(cache: KernelCache, key: str) -> str:
    payload = cache.get(key)
    if payload is None:
        raise UserError(f"{key}: damaged; `pullback cache verify` removes it")
    try:
        return program_bytes.program_text(payload)
    except program_bytes.Unreadable as error:
        raise UserError(f"{key} holds no program: {error}") from None


def _chosen(cache: KernelCache, key: str) -> Entry:
    """Return the entry whose key starts with ``key``. Raises UsageError for too short a key, UserError if not exactly one
    matches."""
    if len(key) < LEAST_KEY:
        raise UsageError(f"{key}: at least {LEAST_KEY} digits of a key")
    matches = [entry for entry in cache.entries() if entry.key.startswith(key.lower())]
    if len(matches) != 1:
        raise UserError(f"{len(matches) or 'no'} entries have a key that starts with {key}")
    return matches[0]


def verify(arguments: argparse.Namespace) -> int:
    """Check every entry; return 1 if some are damaged or of an older format."""
    damaged, folders = 0, default_cache().folders
    if not folders:
        print("there is no folder: the cache is in memory alone")
    for folder in folders:
        good, bad, newer = folder.verify()
        text = f"{good} good, {bad} damaged or of an older format" + (" and removed" if folder.owned else "")
        print(text + (f", {newer} of a newer version" if newer else "") + ("" if folder.owned else f" in {folder.path}"))
        damaged += bad
    return 1 if damaged else 0


def clear(arguments: argparse.Namespace) -> int:
    """Remove every entry of the folder that the cache writes to."""
    print(f"{default_cache().clear()} entries removed")
    return 0


def export_entries(arguments: argparse.Namespace) -> int:
    """Write the entries to an archive."""
    print(f"{write_archive(default_cache(), arguments.file)} entries written to {arguments.file}")
    return 0


def import_entries(arguments: argparse.Namespace) -> int:
    """Import the entries of an archive that the user trusts."""
    if not arguments.trust:
        raise UsageError(FOREIGN.format(path=arguments.file))
    cache = default_cache()
    if cache.path is None:
        raise UserError(f"there is no cache folder to import into ({cache.info()['problem'] or 'PULLBACK_CACHE_DIR=off'})")
    try:
        count = read_archive(cache, arguments.file)
    except BadArchive as error:
        raise UserError(f"{error}; nothing was imported") from None
    print(f"{count} entries imported; their machine code will run where it is asked for", file=sys.stderr)
    return 0
