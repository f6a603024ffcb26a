"""AllenNLP starts, trains and embeds without its optional packages; errors name the extra."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from declutr.bridge import optional_packages
from declutr.bridge.lending import MissingPackage

NAMES = ("spacy", "nltk", "lmdb", "h5py", "tensorboardX", "cached_path", "pytest")
# `sys.modules[name] = None` is how Python itself is told that there is no such module.
HIDDEN = f"import sys\nfor name in {NAMES}: sys.modules[name] = None\n"

USES = """
import json, pickle
import declutr.plugin, allennlp.commands
from allennlp.common import Params
from allennlp.common.file_utils import TensorCache, cached_path
from allennlp.common.util import import_module_and_submodules, sanitize
from allennlp.data import TokenIndexer, Tokenizer
from allennlp.data.fields import TextField
from allennlp.data.tokenizers import SpacyTokenizer, Token
from allennlp.data.tokenizers.sentence_splitter import SentenceSplitter
from allennlp.modules.elmo import _ElmoCharacterEncoder
from allennlp.training.callbacks import TrainerCallback

for part in ("common", "data", "fairness", "training"):
    import_module_and_submodules(f"allennlp.{part}")
import allennlp.common.testing as testing
from allennlp.training.metrics import EvalbBracketingScorer, evalb_bracketing_scorer

def told(use):
    try:
        use()
    except (ImportError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"

def third_party():
    import spacy

tokens = [Token("a"), Token("b")]
field = TextField(tokens, {"tokens": TokenIndexer.by_name("single_id")()})
print(json.dumps({
    "tokenizer": told(SpacyTokenizer),
    "by name": told(lambda: Tokenizer.from_params(Params({"type": "spacy"}))),
    "splitter": told(lambda: SentenceSplitter.by_name("spacy")()),
    "cache": told(lambda: TensorCache("cache")),
    "hdf5": told(lambda: _ElmoCharacterEncoder(OPTIONS, WEIGHTS)),
    "tensorboard": told(lambda: TrainerCallback.by_name("tensorboard")(SERIALIZATION)),
    "tree": told(lambda: evalb_bracketing_scorer.Tree("S", [])),
    "url": told(lambda: cached_path("https://example.org/model.tar.gz")),
    "test": told(lambda: testing.requires_gpu(third_party)),
    "third party": told(third_party),
    "field": pickle.loads(pickle.dumps(field)).human_readable_repr(),
    "sanitized": [sanitize(token) for token in tokens],
    "file": cached_path(OPTIONS),
    "loaded": sorted(name for name in NAMES if sys.modules.get(name) is not None),
}))
"""


def test_every_package_has_its_extra_in_setup() -> None:
    text = Path(__file__).parents[2].joinpath("setup.py").read_text(encoding="utf-8")
    for extra in ("spacy", "nltk", "lmdb", "hdf5", "tensorboard", "remote"):
        assert f'    "{extra}": [' in text
        assert optional_packages.get(extra) == f"Install it: pip install 'declutr[{extra}]'."


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what AllenNLP's uses of the packages give in a process that has none of them."""
    folder = tmp_path_factory.mktemp("bare")
    options, weights = folder / "options.json", folder / "weights.hdf5"
    characters = {"embedding": {"dim": 4}, "n_characters": 261}
    options.write_text(json.dumps({"char_cnn": characters, "lstm": {"projection_dim": 4}}))
    weights.write_bytes(b"")
    constants = {"OPTIONS": options, "WEIGHTS": weights, "SERIALIZATION": folder}
    given = "".join(f"{name} = {str(value)!r}\n" for name, value in constants.items())
    code = HIDDEN + f"NAMES = {NAMES}\n" + given + USES
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use", "name", "extra"),
    [
        ("tokenizer", "spacy.load", "spacy"),
        ("by name", "spacy.load", "spacy"),
        ("splitter", "spacy.load", "spacy"),
        ("cache", "lmdb.open", "lmdb"),
        ("hdf5", "h5py.File", "hdf5"),
        ("tensorboard", "tensorboardX.SummaryWriter", "tensorboard"),
        ("tree", "nltk.Tree", "nltk"),
    ],
)
def test_a_use_of_an_absent_package_names_the_extra(
    told: dict[str, Any], use: str, name: str, extra: str
) -> None:
    package = name.partition(".")[0]
    assert told[use] == (
        f"MissingPackage: AllenNLP uses {name} here, which the '{package}' of this environment "
        "does not offer (not installed, or too new). Install it: pip install "
        f"'declutr[{extra}]'."
    )


@pytest.mark.slow
def test_files_of_this_machine_are_found_without_cached_path(told: dict[str, Any]) -> None:
    assert told["file"].endswith("options.json")
    assert told["url"] == (
        "MissingPackage: 'https://example.org/model.tar.gz' is a URL, which AllenNLP opens with "
        "the package cached-path, which is not installed: pip install 'declutr[remote]'. Or "
        "download the file and give its path."
    )


@pytest.mark.slow
def test_text_fields_and_tokens_work_without_spacy(told: dict[str, Any]) -> None:
    assert told["field"] == ["a", "b"]
    assert told["sanitized"] == ["a", "b"]


@pytest.mark.slow
def test_others_still_learn_that_a_package_is_absent(told: dict[str, Any]) -> None:
    assert told["loaded"] == []
    assert told["third party"].startswith("ModuleNotFoundError: import of spacy halted")
    assert "pytest.mark" in told["test"] and "declutr[test]" in told["test"]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "nltk"])  # that is deferred
def test_an_installed_package_is_untouched(name: str) -> None:
    module = pytest.importorskip(name)
    switch = "h5py" if name == "h5py" else name.replace("tensorboardX", "tensorboard")
    with getattr(optional_packages, switch)():
        assert sys.modules[name] is module
        scope: dict[str, Any] = {"__name__": "allennlp.anything"}
        exec(f"import {name} as found", scope)
    assert scope["found"] is module


def test_a_misspelt_name_finds_the_registered_one() -> None:
    from allennlp.common import registrable

    assert registrable._get_suggestion("a-b", ["ab", "a_b"]) == "a_b"
    for misspelt in ("declut", "declutrr", "decltur", "declutx"):
        assert registrable._get_suggestion(misspelt, ["other", "declutr"]) == "declutr"
    for other in ("declutr", "dcltr", "cedlutr", "rutlced", ""):
        assert registrable._get_suggestion(other, ["declutr!?"]) is None


def test_suggestions_are_those_of_the_edit_distance() -> None:
    distance = pytest.importorskip("nltk.metrics.distance").edit_distance
    words = ["", "a", "b", "ab", "ba", "aab", "aba", "baa", "abc", "acb", "bac", "abcd", "abdc"]
    for one in words:
        for other in words:
            expected = distance(one, other, transpositions=True) == 1
            assert optional_packages._one_edit(one, other) is expected, (one, other)


def test_an_unknown_tokenizer_is_reported_without_nltk(monkeypatch: pytest.MonkeyPatch) -> None:
    from allennlp.common.checks import ConfigurationError
    from allennlp.data import Tokenizer

    monkeypatch.setitem(sys.modules, "nltk", None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="did you mean 'spacy'"):
        Tokenizer.by_name("spacey")


def test_the_error_is_one_for_users() -> None:
    from declutr.commands.errors import is_of_user

    assert is_of_user(MissingPackage("x"))


def test_splitting_sentences_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from declutr.corpus.sentence_splitting import SentenceSplitter

    monkeypatch.setitem(sys.modules, "spacy", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs spaCy.*pip install 'declutr\[spacy\]'"):
        SentenceSplitter()


def test_parquet_and_urls_name_their_extras(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from declutr.corpus.documents import SourceError, read_documents
    from declutr.corpus.source_files import source_files

    for name in ("pyarrow", "pyarrow.parquet", "cached_path"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    file = tmp_path / "texts.parquet"
    file.write_bytes(b"PAR1")
    with pytest.raises(SourceError, match=r"needs the package pyarrow.*'declutr\[parquet\]'"):
        list(read_documents([file]))
    with pytest.raises(SourceError, match=r"'https://a.b/c' is a URL.*'declutr\[remote\]'"):
        source_files("https://a.b/c")
    assert importlib.util.find_spec("cached_path") is None
