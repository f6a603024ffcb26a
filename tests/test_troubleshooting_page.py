"""The messages that pages explain, docs/TROUBLESHOOTING.md above all, are those of the package."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
HEAD = "| message | what to do |"
OF_LIBRARIES = {
    "couldn't connect to 'https://huggingface.co'",
    "Serialization directory … already exists",
    "Extra parameters passed to",
    "nan loss encountered",
    "Using AMP requires a cuda device",
    "ConfidenceCheckError",
    "No module named 'allennlp'",
    "KeyError",
}


def texts(file: Path) -> Iterator[str]:
    """The strings of a module; what is put into them is a NUL."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "\0" for part in node.values]
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_messages_are_those_of_the_package() -> None:
    pages = [page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")]
    tables = [page.partition(HEAD)[2].partition("\n\n")[0] for page in pages]
    rows = re.findall(r"^\| (`.*?) \| ", "\n".join(tables), re.MULTILINE)
    messages = {message for row in rows for message in re.findall(r"`([^`]+)`", row)}
    known = [text for file in (ROOT / "declutr").rglob("*.py") for text in texts(file)]
    gone = set()
    for message in messages - OF_LIBRARIES:
        parts = [part.strip() for part in re.split(r"…|\b[A-Z]\b|nan$", message)]  # N: a number
        form = re.compile(".*".join(map(re.escape, parts)), re.DOTALL)
        if not any(map(form.search, known)):
            gone.add(message)
    assert not gone - {"model.tar.gz", "manifest.json", "basic_classifier"}
    assert sum(map(bool, tables)) == 3 and len(messages) > 35
