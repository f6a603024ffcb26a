"""Where each value of a recipe is written: the file and the line, in the recipe or what it imports.

Jsonnet does not tell. So every literal of the recipe and of the files it imports is replaced by a
mark of its own, and the recipe is evaluated: where a mark comes out, that literal is the source. A
recipe that cannot be evaluated with some of the marks (it compares values, say) is evaluated
without those. Of a value that is computed from several literals, the source is not told apart.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allennlp.common.params import evaluate_file

from declutr.recipes import recipes_folder

COMPUTED = "computed in the recipe"
_FIRST_MARK = 1 << 40  # far from any number of a recipe, and exact in a double
_TEXT_MARK = "\N{REPLACEMENT CHARACTER}mark"
_MOST_EVALUATIONS = 60
_TOKENS = re.compile(
    r"""
    (?P<skipped> //[^\n]* | \#[^\n]* | /\*.*?\*/ | \|\|\|.*?\n\s*\|\|\|
        | \b(?:import|importstr|importbin)\s*(?:"[^"]*"|'[^']*')
        | \bstd\.extVar\(\s*(?:"[^"]*"|'[^']*')\s*\)
        | (?:"[^"\n]*"|'[^'\n]*')\s*(?=\+?:{1,3}[^:])                 # keys of fields
    )
    | (?P<text> "(?:\\.|[^"\\])*" | '(?:\\.|[^'\\])*' )
    | (?P<number> (?<![\w.]) \d+(?:\.\d+)?(?:[eE][+-]?\d+)? (?![\w.]) )
    | (?P<word> \b(?:true|false|null)\b )
    """,
    re.VERBOSE | re.DOTALL,
)
_UNSET = re.compile(r"undefined external variable: (\w+)")
_VARIABLE = re.compile(r"""std\.extVar\(\s*["']([^"']+)["']\s*\)""")


@dataclass(frozen=True)
class Literal:
    """A literal of a Jsonnet file, or an external variable.

    # Parameters

    file : the path of the file; empty for an external variable.
    start, end : where the literal is in the text of the file.
    line : its line, from 1; 0 for an external variable.
    value : what it stands for.
    name : the name of an external variable.
    """

    file: str
    start: int
    end: int
    line: int
    value: Any
    name: str = ""


class RecipeSources:
    """The sources of the values of one recipe.

    # Parameters

    path : the recipe.
    variables : its external variables, such as those of the environment.
    """

    def __init__(self, path: str | os.PathLike, variables: Mapping[str, str]) -> None:
        self.path, self._variables = Path(path), dict(variables)
        self._texts: dict[str, str] = {}
        self._defaults: set[str] = set()  # variables that are not set and have a default
        self._evaluations = 0
        self._unmarked: list[Literal] = []
        self.plain: Any = json.loads(evaluate_file(str(path), ext_vars=self._variables))
        """The configuration as AllenNLP evaluates the recipe."""
        self._read_texts()
        self._literals = list(self._found())
        self._sources = dict(self._traced())

    def of(self, path: str) -> str:
        """Return the source of the value at a dotted path: `file:line`, or what is known of it.

        The source of a list or an object is that of the first value in it.
        """
        for known in (path, path.removesuffix(".type")):  # a name stands for an object of it alone
            if known in self._sources:
                return self._sources[known]
        inside = (self._sources[one] for one in self._sources if one.startswith(f"{path}."))
        return next(inside, COMPUTED)

    def _read_texts(self) -> None:
        """Read the recipe and what it imports; give what it has a default for a mark instead."""
        try:
            self._evaluated({})
        except RuntimeError as error:
            unset = _UNSET.search(str(error))
            if unset is None or unset[1] in self._variables:
                raise
            self._variables[unset[1]] = ""
            self._defaults.add(unset[1])
            self._read_texts()

    def _found(self) -> Iterator[Literal]:
        for file, text in self._texts.items():
            for match in _TOKENS.finditer(text):
                kind = match.lastgroup
                if kind in (None, "skipped"):
                    continue
                value = _value_of(match[0])
                line = text.count("\n", 0, match.start()) + 1
                yield Literal(file, match.start(), match.end(), line, value)
        names = {name for text in self._texts.values() for name in _VARIABLE.findall(text)}
        for name in sorted(names & self._variables.keys()):
            yield Literal("", 0, 0, 0, self._variables[name], name)

    def _traced(self) -> Iterator[tuple[str, str]]:
        plain, found = dict(leaves(self.plain)), set()
        for marked in self._marked(list(enumerate(self._literals))):
            for path, value in leaves(marked):
                number = _number_of(value)
                if number is None or number >= len(self._literals) or path not in plain:
                    continue
                literal = self._literals[number]
                was = plain[path]
                if isinstance(value, (int, float)) and value < 0:
                    was = -was
                # A mark can decide which branch of the recipe is taken; then the values differ.
                of_variable = literal.name and literal.value in str(was)
                if was == literal.value or of_variable:
                    found.add(path)
                    yield path, self._named(literal)
        # A literal that the recipe looks up cannot be a mark. If no other has its value, it is it.
        values = [json.dumps(one.value) for one in self._literals]
        for literal in self._unmarked:
            if values.count(json.dumps(literal.value)) == 1:
                for path in plain.keys() - found:
                    if type(plain[path]) is type(literal.value) and plain[path] == literal.value:
                        yield path, self._named(literal)

    def _marked(self, literals: list[tuple[int, Literal]]) -> Iterator[Any]:
        """Yield evaluations of the recipe with marks for as many of these literals as can be."""
        if not literals or self._evaluations >= _MOST_EVALUATIONS:
            return
        self._evaluations += 1
        try:
            yield self._evaluated(dict(literals))
        except RuntimeError:  # of Jsonnet: a mark does not fit where the literal is
            if len(literals) > 1:
                middle = len(literals) // 2
                yield from self._marked(literals[:middle])
                yield from self._marked(literals[middle:])
            else:
                self._unmarked.append(literals[0][1])

    def _evaluated(self, marked: Mapping[int, Literal]) -> Any:
        """Return the configuration with these literals replaced by the marks of their numbers."""
        from _jsonnet import evaluate_snippet

        def content(file: str) -> str:
            if file not in self._texts:
                self._texts[file] = Path(file).read_text(encoding="utf-8")
            text = self._texts[file]
            own = [(one, number) for number, one in marked.items() if one.file == file]
            for literal, number in sorted(own, key=lambda pair: -pair[0].start):
                text = text[: literal.start] + _mark(number, literal) + text[literal.end :]
            return text

        def imported(folder: str, name: str) -> tuple[str, bytes]:
            file = os.path.normpath(os.path.join(folder, name))
            if not os.path.exists(file):  # of this package, wherever it is installed
                file = os.path.normpath(os.path.join(recipes_folder().parent, name))
            return file, content(file).encode()

        variables = dict(self._variables)
        for number, literal in marked.items():
            if literal.name:
                variables[literal.name] = json.loads(_mark(number, literal))
        top = os.path.normpath(self.path)
        evaluated = evaluate_snippet(
            top, content(top), import_callback=imported, ext_vars=variables
        )
        return json.loads(evaluated)

    def _named(self, literal: Literal) -> str:
        if literal.name in self._defaults:
            return f"default, as {literal.name} is not set"
        if literal.name:
            return f"variable {literal.name}"
        folder = os.path.dirname(os.path.normpath(self.path))
        name = os.path.relpath(literal.file, folder or ".")
        return f"{os.path.basename(name) if name.startswith('..') else name}:{literal.line}"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted path and the value of each part of a configuration that has no parts."""
    parts: Any = None
    if isinstance(value, Mapping):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    if not parts:
        yield path, value
        return
    for key, part in parts:
        yield from leaves(part, f"{path}.{key}" if path else str(key))


def _mark(number: int, literal: Literal) -> str:
    if isinstance(literal.value, (int, float)) and not isinstance(literal.value, bool):
        return str(_FIRST_MARK + number)
    return json.dumps(f"{_TEXT_MARK}{number};")


def _number_of(value: Any) -> int | None:
    """Return the number of the literal whose mark a value is, or contains."""
    if isinstance(value, str):
        found = re.search(rf"{_TEXT_MARK}(\d+);", value)
        return int(found[1]) if found else None
    if isinstance(value, (int, float)) and abs(value) >= _FIRST_MARK:
        return int(abs(value)) - _FIRST_MARK
    return None


def _value_of(text: str) -> Any:
    if text[0] not in "\"'":
        return json.loads(text)
    if text[0] == "'":
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return text[1:-1]
