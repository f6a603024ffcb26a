"""What the pages say to type works: their commands and Python, in a prepared folder.

A block is run, or `NOT_RUN` has it with another check, so that no new block goes untested.
"""

import argparse
import importlib.metadata
import logging
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import _jsonnet
import pytest
from allennlp.commands import main, parse_args
from allennlp.common import cached_transformers

import declutr.__main__
from tests.commands.test_evaluate_embeddings import pairs
from tests.conftest import as_sentence_transformers, make_documents
from tests.pages_code import Block, blocks, commands

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
RUN = ("README.md", "INSTALL.md", "TRAINING.md", "EMBEDDING.md", "SEARCH.md")
"""Pages of which every block is run. Commands of the others are parsed."""
PARSED = [page for page in PAGES if page.name not in RUN]
COMMAND = re.compile(r"^(\w+=\S+ )*(allennlp|declutr) ", re.MULTILINE)
SMALLER = {"256": "8"}
"""Numbers of dimensions, and what takes their places with tiny models."""
HUB_NAMES = ("distilroberta-base", "e5")


def explains_itself(command: str) -> bool:
    """Return whether `declutr` alone has this command, and it prints its help."""
    module, _, function = declutr.__main__.COMMANDS[command.split()[1]][0].partition(":")
    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)(["--help"])
    return not ended.value.code


def is_target(command: str) -> bool:
    makefile = (ROOT / "Makefile").read_text()
    return re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE) is not None


def has_allennlp(command: str) -> bool:
    """Return whether it installs the release of AllenNLP that this environment has."""
    return importlib.metadata.version("allennlp") in command


NOT_RUN: dict[str, Callable[[str], bool]] = {
    r"make [a-z-]+": is_target,
    r"pip install (-c constraints\.txt )?\.": lambda command: (ROOT / "setup.py").is_file(),
    r"pip install --no-deps allennlp==\S+": has_allennlp,
    r"uv venv && uv pip install -e \. allennlp==\S+": has_allennlp,
    r"declutr (setup|doctor)": explains_itself,
    r"python -m benchmarks all --quick": lambda command: find_spec(command.split()[2]) is not None,
}
"""Commands that install, take minutes or are no commands: a form of each, and what is checked."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny models under the names of models of the hub."""
    from declutr.quickstart.small_checkpoints import make_checkpoint, train_tokenizer

    folder = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer(make_documents(8, 300), 400, max_length=512)
    for name in HUB_NAMES:
        make_checkpoint(folder / name, tokenizer, layers=1, hidden_size=16, heads=2, max_length=512)
    prompts = {"query": "q: ", "passage": "p: "}
    as_sentence_transformers(folder / "e5", 16, prompts=prompts)
    return folder


@pytest.fixture
def here(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, with the files that pages name; what a page changed is changed back."""
    documents = make_documents(32, 1800)
    for name, some in (("docs", documents), ("held_out", documents[:2])):
        (tmp_path / f"{name}.txt").write_text("\n".join(some) + "\n")
    lines = [" ".join(document.split()[:9]) for document in documents]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    words = " ".join(documents).split()
    sentences = [" ".join(words[start : start + 9]) for start in range(0, 900, 9)]
    (tmp_path / "sentences.txt").write_text("\n".join(sentences) + "\n")
    (tmp_path / "passages.txt").write_text("\n".join(lines[::-1]) + "\n")
    table = [f"{line} {n}\t{' '.join(line.split()[4:])}" for line in lines for n in range(2)]
    (tmp_path / "pairs.tsv").write_text("\n".join(["anchor\tpositive", *table]) + "\n")
    (tmp_path / "glove.txt").write_text("".join(f"word{n} {n} 1 0.5\n" for n in range(9)))
    data = tmp_path / "SentEval/data/downstream/STS/STSBenchmark"
    data.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (data / f"sts-{split}.csv").write_text(pairs(12, split))
    (tmp_path / "training_config").symlink_to(ROOT / "training_config")
    for name in HUB_NAMES:
        (tmp_path / name).symlink_to(models / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRANSFORMER_MODEL", raising=False)
    cached_transformers._clear_caches()  # `output` was another model on the page before
    handlers, level = list(logging.root.handlers), logging.root.level
    yield tmp_path
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


def with_settings(words: list[str]) -> tuple[list[str], list[str]]:
    """The settings of variables before a command, and its words."""
    first = next((n for n, word in enumerate(words) if not re.match(r"\w+=", word)), len(words))
    return words[:first], words[first:]


def run_command(words: list[str], patch: pytest.MonkeyPatch) -> None:
    """Run a command in this process, with the variables set before it."""
    settings, words = with_settings(words)
    for setting in settings:
        patch.setenv(*setting.split("=", 1))
    assert words[0] in ("allennlp", "declutr"), f"Neither run nor in NOT_RUN: {words}"
    patch.setattr(sys, "argv", [SMALLER.get(word, word) for word in words])
    try:
        if words[0] == "allennlp":
            main(prog="allennlp")
        else:
            declutr.__main__.main()
    except SystemExit as ended:
        assert not ended.code, f"{words}: {ended.code}"


def run_block(block: Block, names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    if block.kind == "python":
        exec(compile(block.text, f"the example at line {block.line}", "exec"), names)
        return
    if block.kind == "jsonnet":
        _jsonnet.evaluate_snippet("recipe", block.text, ext_vars={"TRANSFORMER_MODEL": "any"})
        return
    if block.kind == "text":  # what a command prints
        return
    assert block.kind == "shell", f"Who runs {block.kind}, line {block.line}?"
    for words in commands(block.text):
        command = " ".join(words)
        checks = [check for form, check in NOT_RUN.items() if re.fullmatch(form, command)]
        if checks:
            assert checks[0](command), command
            continue
        with monkeypatch.context() as patch:
            run_command(words, patch)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_every_block_of_a_page(
    page: str, here: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    (file,) = (known for known in PAGES if known.name == page)
    if page not in ("README.md", "TRAINING.md"):  # These train what they go on with.
        shutil.copytree(request.getfixturevalue("trained"), here / "output")
    names: dict[str, object] = {"texts": ["ka lo mi", "tu re"]}
    for block in blocks(file.read_text(encoding="utf-8")):
        run_block(block, names, monkeypatch)


@pytest.fixture(scope="module")
def parser() -> argparse.ArgumentParser:
    """The parser of `allennlp` with the commands of this package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["declutr", "search", "index"])
        return parse_args("declutr")[0]


@pytest.mark.parametrize("page", PARSED, ids=lambda page: page.name)
def test_commands_of_a_page_are_understood(page: Path, parser: argparse.ArgumentParser) -> None:
    """Their arguments are parsed, and their recipes exist; nothing is run."""
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind != "shell" or not COMMAND.search(block.text):
            continue
        for _, words in map(with_settings, commands(block.text)):
            if words[0] not in ("allennlp", "declutr"):
                continue
            if words[1] not in declutr.__main__.COMMANDS:
                parser.parse_args(words[1:])
            for recipe in re.findall(r"training_config/\S+", " ".join(words)):
                assert (ROOT / recipe).is_file(), recipe
