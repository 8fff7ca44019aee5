"""The text format of the IR; printing and parsing are inverse.

    file      = "pullback-ir 2" function*
    function  = kind name "(" parameters ")" "->" "(" types ")" "{" instruction* "return" values "}"
    kind      = "func" | "kernel" | "program"
    instruction = [value ":" type {"," value ":" type} "="] op values ["{" params "}"] region* ["@" file ":" line [note]]
    region    = "(" parameters ")" "{" instruction* "yield" values "}"
    parameter = value ":" type
    type      = dtype "[" extents "]"  |  dtype "[*" {"," extent} "]"  |  "&" dtype "[" extents {";" word} "]"
    params    = name "=" literal {"," name "=" literal}

Values are written ``%name``; ``#`` starts a comment. A literal is an int, float (inf, -inf, nan), complex(float, float), true,
false, none, a quoted string, a dtype, the name of a size, or a list of literals. Params that the result type shows are
omitted. *Canonical* text has numbered values, a fixed function name and no locations; it is the text that is hashed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pullback.ir.core.notebook_cells import cell_name
from pullback.ir.core.op import OPS
from pullback.ir.core.structure import NOWHERE, Block, Function, Instruction, Loc, Module, walk
from pullback.ir.core.types import DTYPES, ArrayType, DType, RefType, StackType, Type
from pullback.ir.core.value import Value

VERSION = 2
"""The format version, in the header of every file. It is increased when older files can no longer be read."""
HEADER = f"pullback-ir {VERSION}"
KINDS = ("func", "kernel", "program")


class ParseError(ValueError):
    """Text that is not IR; the message starts with the line number."""


# printing


Notes = Mapping[Instruction, Mapping[int | None, str]]
"""Comments to print before instructions: on the instruction (None), or on an operand (its position)."""


def print_module(module: Module, locations: bool = False, notes: Notes | None = None) -> str:
    """Return the text of a file."""
    return "\n\n".join([HEADER, *(print_function(f, locations, notes) for f in module.functions)]) + "\n"


def print_function(function: Function, locations: bool = False, notes: Notes | None = None) -> str:
    """Return the text of one function, without the file's header."""
    return Printer(locations=locations, notes=notes).function(function)


def canonical(function: Function) -> str:
    """Return text that does not depend on the names of values and of the function, or on locations."""
    return Printer(canonical=True).function(function)


class Printer:
    """Prints one function."""

    def __init__(self, locations: bool = False, canonical: bool = False, notes: Notes | None = None) -> None:
        self.locations = locations
        self.notes = notes or {}
        self.canonical = canonical
        self.names: dict[Value, str] = {}
        self.types: dict[Type, str] = {}
        self.taken: set[str] = set()
        self.counters: dict[str, int] = {}
        self.lines: list[str] = []

    def name(self, value: Value) -> str:
        name = self.names.get(value)
        return name if name is not None else self.define(value)

    def define(self, value: Value) -> str:
        if self.canonical:
            name = self.names[value] = str(len(self.names))
            return name
        name = hint = value.name
        while not name or name in self.taken:
            count = self.counters.get(hint, 0)
            self.counters[hint] = count + 1
            name = f"{hint}{count}"
        self.taken.add(name)
        self.names[value] = name
        return name

    def function(self, function: Function) -> str:
        """Print a whole function; a printer prints one function."""
        if not self.canonical:
            self.reserve(function)
        parameters = self.parameters(function.parameters)
        types = ", ".join(str(v.type) for v in function.results)
        name = "f" if self.canonical else function.name
        self.lines.append(f"{function.kind} {name}({parameters}) -> ({types}) {{")
        self.block(function.body, "return", 1)
        self.lines.append("}")
        return "\n".join(self.lines)

    def reserve(self, function: Function) -> None:
        """Reserve the names of values, so that a numbered name never equals one of them."""
        values = list(function.parameters)
        for instruction in walk(function.body):
            values.extend(instruction.results)
            for region in instruction.regions:
                values.extend(region.parameters)
        for value in values:
            if value.name and value.name not in self.taken and value not in self.names:
                self.taken.add(value.name)
                self.names[value] = value.name

    def parameters(self, values: tuple[Value, ...]) -> str:
        return ", ".join([f"%{self.name(v)}: {self.type(v.type)}" for v in values])

    def type(self, type_: Type) -> str:
        text = self.types.get(type_)
        if text is None:
            text = self.types[type_] = str(type_)
        return text

    def block(self, block: Block, closing: str, depth: int) -> None:
        for instruction in block.instructions:
            self.instruction(instruction, depth)
        results = ", ".join(f"%{self.name(v)}" for v in block.results)
        self.lines.append("  " * depth + f"{closing} {results}".rstrip())

    def instruction(self, instruction: Instruction, depth: int) -> None:
        indent = "  " * depth
        operands = ", ".join([f"%{self.name(v)}" for v in instruction.operands])
        results = self.parameters(instruction.results)
        if self.notes:
            for position, note in self.notes.get(instruction, {}).items():
                about = "" if position is None else f"%{self.name(instruction.operands[position])}: "
                self.lines += [f"{indent}# {about}{line}" for line in note.split("\n")]
        head = f"{results} = " if results else ""
        text = f"{indent}{head}{instruction.op.name} {operands}".rstrip()
        params = instruction.params
        if params and instruction.op.typed:
            params = {k: v for k, v in params.items() if k not in instruction.op.typed}
        if params:
            text += " {" + ", ".join(f"{k}={print_literal(params[k])}" for k in sorted(params)) + "}"
        for region in instruction.regions:
            self.lines.append(f"{text} ({self.parameters(region.parameters)}) {{")
            self.block(region, "yield", depth + 1)
            text = indent + "}"
        if self.locations and instruction.loc:
            loc = instruction.loc
            text = f"{text:<70}  @{print_file(loc.file)}:{loc.line}" + (f" {loc.note}" if loc.note else "")
        self.lines.append(text)


def short_file(name: str) -> str:
    """Return a file's name without its folders."""
    return cell_name(name) or name.replace("\\", "/").rpartition("/")[2]


def print_file(name: str) -> str:
    short = short_file(name)
    return short if re.fullmatch(r"[\w.<>\[\]-]+", short) else json.dumps(short)


def print_literal(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case DType():
            return value.name
        case str():
            return value if SIZE.fullmatch(value) and value not in RESERVED else json.dumps(value)
        case tuple() | list():
            return "[" + ", ".join(print_literal(v) for v in value) + "]"
    raise TypeError(f"a param cannot hold {value!r}")


SIZE = re.compile(r"[A-Za-z_]\w*(?:(?:\.\w+)*/\d+)?(?:\*\w+(?:(?:\.\w+)*/\d+)?)*")
RESERVED = {"inf", "nan", "true", "false", "none", *DTYPES}


# parsing

TOKEN = re.compile(
    r"""(?:(?P<value>%[\w.]+) | (?P<string>"(?:[^"\\]|\\.)*") | (?P<arrow>->)
      | (?P<number>-?(?:inf|nan)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<word>pullback-ir|[A-Za-z_][\w.]*(?:/\d+)?(?:\*[\w.]+(?:/\d+)?)*) | (?P<loc>@.*) | (?P<sign>[(){}\[\]:,=&;*]))\s*""",
    re.VERBOSE,
)


def parse_module(text: str) -> Module:
    """Parse a file. Raises ParseError (with the line number), or TypeError on ill-typed instructions."""
    return Parser(text).module()


def parse_function(text: str) -> Function:
    """Parse a text with a single function; the header is optional."""
    body = text if re.match(r"(?:\s|#[^\n]*\n)*pullback-ir\b", text) else f"{HEADER}\n{text}"
    functions = parse_module(body).functions
    if len(functions) != 1:
        raise ParseError(f"line 1: expected one function, found {len(functions)}")
    return functions[0]


def wrong_version(version: int | str) -> str:
    """Return the message on a text of another format version than ``VERSION``."""
    message = f"format version {version}, this version reads {VERSION}"
    return f"{message}: names of ops changed, dump it again from its program" if str(version) == "1" else message


class Parser:
    """A recursive-descent parser of the text format."""

    def __init__(self, text: str) -> None:
        self.tokens = list(self.scan(text))
        self.at = 0

    def scan(self, text: str) -> Iterator[tuple[str, str, int]]:
        for line_number, line in enumerate(text.split("\n"), 1):
            line, position = line.strip(), 0
            while position < len(line) and line[position] != "#":
                token = TOKEN.match(line, position)
                if token is None:
                    raise ParseError(f"line {line_number}: cannot read {line[position:]!r}")
                kind = str(token.lastgroup)
                yield kind, token[kind], line_number
                position = token.end()
        yield "end", "", line_number

    def fail(self, expected: str) -> ParseError:
        _, text, line = self.tokens[self.at]
        return ParseError(f"line {line}: expected {expected}, found {text or 'the end'!r}")

    def peek(self, text: str) -> bool:
        return self.tokens[self.at][1] == text and self.tokens[self.at][0] != "string"

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            raise self.fail(repr(text))

    def take(self, kind: str) -> str:
        if self.tokens[self.at][0] != kind:
            raise self.fail(f"a {kind}")
        self.at += 1
        return self.tokens[self.at - 1][1]

    def module(self) -> Module:
        self.header()
        functions = []
        while self.tokens[self.at][0] != "end":
            functions.append(self.function())
        return Module(tuple(functions))

    def header(self) -> None:
        if not self.accept("pullback-ir") or self.tokens[self.at][0] != "number":
            raise self.fail(f"the header {HEADER!r}")
        _, version, line = self.tokens[self.at]
        if version != str(VERSION):
            raise ParseError(f"line {line}: {wrong_version(version)}")
        self.at += 1

    def function(self) -> Function:
        kind = self.take("word")
        if kind not in KINDS:
            self.at -= 1
            raise self.fail("func, kernel or program")
        name = self.take("word")
        scope: dict[str, Value] = {}
        parameters = self.parameters(scope)
        self.expect("->")
        line = self.tokens[self.at][2]
        types = self.list("(", ")", self.type)
        body = self.block(parameters, "return", scope)
        if [v.type for v in body.results] != types:
            raise ParseError(f"line {line}: {name} declares results ({', '.join(map(str, types))}) and returns others")
        return Function(name, body, kind)

    def list(self, opening: str, closing: str, item: Any) -> list[Any]:
        self.expect(opening)
        items = []
        while not self.accept(closing):
            items.append(item())
            if not self.peek(closing):
                self.expect(",")
        return items

    def parameters(self, scope: dict[str, Value]) -> tuple[Value, ...]:
        return tuple(self.list("(", ")", lambda: self.definition(scope)))

    def definition(self, scope: dict[str, Value]) -> Value:
        line = self.tokens[self.at][2]
        name = self.take("value")[1:]
        self.expect(":")
        if name in scope:
            raise ParseError(f"line {line}: %{name} is defined twice")
        scope[name] = Value(self.type(), "" if name.isdigit() else name)
        return scope[name]

    def use(self, scope: dict[str, Value]) -> Value:
        name = self.take("value")[1:]
        if name not in scope:
            self.at -= 1
            raise self.fail("a value defined above")
        return scope[name]

    def uses(self, scope: dict[str, Value]) -> tuple[Value, ...]:
        values = []
        line = self.tokens[self.at - 1][2]
        while self.tokens[self.at][0] == "value" and self.tokens[self.at][2] == line:
            values.append(self.use(scope))
            if not self.accept(","):
                break
        return tuple(values)

    def type(self) -> Type:
        is_ref = self.accept("&")
        word = self.take("word")
        if word not in DTYPES:
            self.at -= 1
            raise self.fail("a dtype")
        self.expect("[")
        shape: list[int | str] = []
        words: list[str] = []
        is_stack = not is_ref and self.accept("*")
        if is_stack:
            self.accept(",")
        while not self.accept("]"):
            if self.accept(";"):
                words.append(self.take("word"))
                continue
            kind, text, _ = self.tokens[self.at]
            if kind not in ("number", "word"):
                raise self.fail("an extent")
            self.at += 1
            shape.append(int(text) if kind == "number" else text)
            self.accept(",")
        if is_stack:
            return StackType(DTYPES[word], tuple(shape))
        if not is_ref:
            return ArrayType(DTYPES[word], tuple(shape))
        layout = "strided" if "strided" in words else "c"
        space = next((w for w in words if w in ("stack", "shared")), "global")
        return RefType(DTYPES[word], tuple(shape), layout, space)

    def block(self, parameters: tuple[Value, ...], closing: str, scope: dict[str, Value]) -> Block:
        self.expect("{")
        instructions = []
        while not self.accept(closing):
            instructions.append(self.instruction(scope))
        results = self.uses(scope)
        self.expect("}")
        return Block(parameters, tuple(instructions), results)

    def instruction(self, scope: dict[str, Value]) -> Instruction:
        line = self.tokens[self.at][2]
        results: list[Value] = []
        if self.tokens[self.at][0] == "value":
            results.append(self.definition(scope))
            while self.accept(","):
                results.append(self.definition(scope))
            self.expect("=")
        name = self.take("word")
        op = OPS.get(name)
        if op is None:
            raise ParseError(f"line {line}: there is no op {name}")
        operands = self.uses(scope)
        params: dict[str, Any] = dict(self.params()) if self.peek("{") else {}
        regions = []
        while self.peek("("):
            inner = dict(scope)
            region_parameters = self.parameters(inner)
            regions.append(self.block(region_parameters, "yield", inner))
        if op.typed and not results:
            raise ParseError(f"line {line}: {name} needs a result")
        for param in op.typed:
            shown = results[0].type
            params[param] = shown.shape if param == "shape" else shown.dtype
        return Instruction(op, operands, tuple(results), params, tuple(regions), self.loc())

    def params(self) -> Iterator[tuple[str, Any]]:
        def pair() -> tuple[str, Any]:
            name = self.take("word")
            self.expect("=")
            return name, self.literal()

        return iter(self.list("{", "}", pair))

    def literal(self) -> Any:
        kind, text, _ = self.tokens[self.at]
        if kind == "sign" and text == "[":
            return tuple(self.list("[", "]", self.literal))
        self.at += 1
        if kind == "string":
            return json.loads(text)
        if kind == "number":
            return int(text) if re.fullmatch(r"-?\d+", text) else float(text)
        if text == "complex" and self.peek("("):
            parts = self.list("(", ")", self.literal)
            if [type(part) for part in parts] != [float, float]:
                raise self.fail("two floats before")
            return complex(*parts)
        if kind == "word":
            fixed = {"true": True, "false": False, "none": None}
            return fixed[text] if text in fixed else DTYPES.get(text, text)
        self.at -= 1
        raise self.fail("a literal")

    def loc(self) -> Loc:
        kind, text, _ = self.tokens[self.at]
        if kind != "loc":
            return NOWHERE
        self.at += 1
        match = re.fullmatch(r'@(?:"((?:[^"\\]|\\.)*)"|([^:"]+)):(\d+)(?: (.*?))?\s*', text)
        if match is None:
            self.at -= 1
            raise self.fail("a location @file:line")
        return Loc(match[1] if match[1] is not None else match[2], int(match[3]), match[4] or "")
