"""The switches of allennlp-models, shown on stand-ins of the modules that need them."""

import builtins
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import transformers

from declutr.bridge import allennlp_models, lending
from declutr.bridge.finder import BridgeFinder
from declutr.bridge.switches import LENT, REPAIRS

IS_5 = int(transformers.__version__.split(".")[0]) >= 5
NEW_SETUPTOOLS = importlib.util.find_spec("pkg_resources") is None


@pytest.fixture
def rouge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make a package that is like py-rouge: it asks `pkg_resources` for a file of its own."""
    folder = tmp_path / "rouge"
    folder.mkdir()
    (folder / "__init__.py").write_text("from rouge.rouge import Rouge\n")
    (folder / "rouge.py").write_text(
        "import pkg_resources\n"
        "class Rouge:\n"
        "    @staticmethod\n"
        "    def database():\n"
        "        return pkg_resources.resource_filename(__name__, 'wordnet.txt')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    loaded = {name for name in sys.modules if name.partition(".")[0] == "rouge"}
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    yield folder
    for name in ("rouge", "rouge.rouge"):
        sys.modules.pop(name, None)


@pytest.mark.skipif(not NEW_SETUPTOOLS, reason="the setuptools of this environment have it")
def test_pkg_resources_is_lent_to_rouge_alone(rouge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(sys, "meta_path", [f for f in sys.meta_path if type(f) is not BridgeFinder])
        with pytest.raises(ModuleNotFoundError, match="pkg_resources"):
            importlib.import_module("rouge")
    before = builtins.__import__
    Rouge = importlib.import_module("rouge").Rouge
    assert Rouge.database() == str(rouge / "wordnet.txt")
    assert "pkg_resources" not in sys.modules and builtins.__import__ is before
    with allennlp_models.pkg_resources(), pytest.raises(ModuleNotFoundError):
        exec("import pkg_resources", {"__name__": "setup"})


def test_whatever_offers_pkg_resources_is_used(
    rouge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ModuleType("pkg_resources")
    real.resource_filename = lambda name, file: f"{name}:{file}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pkg_resources", real)
    assert importlib.import_module("rouge").Rouge.database() == "rouge.rouge:wordnet.txt"


def test_the_names_of_the_tables_are_looked_for() -> None:
    from declutr.bridge.finder import _is_needed

    theirs = [name for name in {**LENT, **REPAIRS} if name[:9] not in ("allennlp", "allennlp.")]
    assert len(theirs) > 4 and all(map(_is_needed, theirs))
    assert not _is_needed("allennlp_modelsx.a") and not _is_needed("rougex.a")
    assert set(lending.BORROWERS) >= {"allennlp", "rouge"}


class Reader:
    """A reader of roles, which asks BERT's tokenizer for the pieces of single words."""

    def __init__(self, model_name: str | None = None) -> None:
        self.bert_tokenizer: Any = None
        if model_name is not None:
            self.bert_tokenizer = transformers.BertTokenizerFast.from_pretrained(model_name)

    def pieces(self, word: str) -> list[str]:
        return self.bert_tokenizer.wordpiece_tokenizer.tokenize(word)


def test_single_words_are_split_into_wordpieces() -> None:
    vocab = {
        "[PAD]": 0,
        "[UNK]": 1,
        "[CLS]": 2,
        "[SEP]": 3,
        "anno": 4,
        "##tate": 5,
        "##s": 6,
        ".": 7,
    }

    class Tokenizer(transformers.BertTokenizerFast):
        @classmethod
        def from_pretrained(cls, name: str) -> Any:
            from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

            inner = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
            inner.normalizer = normalizers.BertNormalizer()
            inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            return transformers.PreTrainedTokenizerFast(tokenizer_object=inner)

    class SrlReader(Reader):
        def __init__(self, model_name: str | None = None) -> None:
            self.bert_tokenizer = Tokenizer.from_pretrained("any") if model_name else None

    with pytest.raises(AttributeError, match="wordpiece_tokenizer"):
        SrlReader("any").pieces("annotates")
    module: Any = SimpleNamespace(BertTokenizer=Tokenizer, SrlReader=SrlReader)
    assert allennlp_models.wordpieces(module)
    reader = SrlReader("any")
    assert reader.pieces("annotates") == ["anno", "##tate", "##s"]
    assert reader.pieces("anno. anno") == ["[UNK]", "anno"]  # it does not split at punctuation
    assert reader.pieces("Anno") == ["[UNK]"]  # and does not lower the case
    assert reader.pieces("") == [] and reader.pieces("s" * 101) == ["[UNK]"]
    assert reader.bert_tokenizer.vocab["##tate"] == 5
    assert reader.bert_tokenizer.vocab is reader.bert_tokenizer.vocab
    assert SrlReader().bert_tokenizer is None
    slow: Any = SimpleNamespace(BertTokenizer=transformers.PreTrainedTokenizer, SrlReader=Reader)
    assert not allennlp_models.wordpieces(slow)


class Bart:
    """The parts of the model "bart" that keep the decoder's state in a dictionary of tensors."""

    def __init__(self, bart: Any) -> None:
        self.bart = bart

    @staticmethod
    def _decoder_cache_to_dict(decoder_cache: Any) -> dict[str, torch.Tensor]:
        found = {}
        for number, layer in enumerate(decoder_cache):
            assert len(layer) == 4
            found.update({f"decoder_cache_{number}_{i}": part for i, part in enumerate(layer)})
        return found

    def _dict_to_decoder_cache(self, state: dict[str, torch.Tensor]) -> Any:
        layers = range(len(self.bart.model.decoder.layers))
        return tuple(tuple(state[f"decoder_cache_{n}_{i}"] for i in range(4)) for n in layers)

    def steps(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the logits of each next token, one step after the other."""
        encoded, state, logits = self.bart.model.encoder(input_ids=ids), {}, []
        for step in range(targets.shape[1]):
            out = self.bart(
                encoder_outputs=(encoded[0],),
                decoder_input_ids=targets[:, step : step + 1],
                past_key_values=self._dict_to_decoder_cache(state) if state else None,
                use_cache=True,
            )
            state = self._decoder_cache_to_dict(out.past_key_values)
            logits.append(out.logits[:, -1])
        return torch.stack(logits, dim=1)


def test_bart_decodes_step_by_step_as_at_once() -> None:
    torch.manual_seed(0)
    layers = {"encoder_layers": 1, "decoder_layers": 2}
    sizes = {"d_model": 8, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    config = transformers.BartConfig(
        vocab_size=20, max_position_embeddings=16, **layers, **sizes, **heads
    )
    bart = transformers.BartForConditionalGeneration(config).eval()
    ids, targets = torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([[2, 5, 9, 4], [2, 8, 7, 7]])

    class Patched(Bart):
        pass

    module: Any = SimpleNamespace(Bart=Patched)
    assert allennlp_models.decoder_caches(module) is IS_5
    if IS_5:
        with pytest.raises((AssertionError, AttributeError, TypeError)):
            Bart(bart).steps(ids, targets)
    with torch.no_grad():
        expected = bart(input_ids=ids, decoder_input_ids=targets).logits
        torch.testing.assert_close(Patched(bart).steps(ids, targets), expected)


class PennTreeBankConstituencySpanDatasetReader:
    """A reader that lets nltk open the file."""

    def _read(self, file_path: Any) -> Any:
        from nltk.corpus.reader.bracket_parse import BracketParseCorpusReader

        folder, name = str(file_path).rsplit("/", 1)
        yield from BracketParseCorpusReader(root=folder, fileids=[name]).parsed_sents()


def test_a_treebank_is_read_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nltk = pytest.importorskip("nltk")
    importlib.import_module("nltk.data")
    # NLTK reads below a temporary folder that nobody else may read. It looks for it again if one of
    # its own folders has changed.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("NLTK_DATA", str(tmp_path / "nltk"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "trees.txt").write_text("((S (NP (D the) (N cat)) (VP (V sleeps))))\n")
    (tmp_path / "link.txt").symlink_to(tmp_path / "data" / "trees.txt")
    plain = PennTreeBankConstituencySpanDatasetReader

    class Patched(plain):  # type: ignore[misc, valid-type]
        pass

    module: Any = SimpleNamespace(
        PennTreeBankConstituencySpanDatasetReader=Patched, cached_path=str
    )
    before = list(nltk.data.path)
    if tuple(map(int, nltk.__version__.split(".")[:2])) >= (3, 10):
        with pytest.raises(PermissionError, match="Unauthorized path"):
            list(plain()._read(tmp_path / "data" / "trees.txt"))
    allennlp_models.named_treebanks(module)
    for name in ("data/trees.txt", "link.txt"):
        (tree,) = Patched()._read(tmp_path / name)
        assert tree.leaves() == ["the", "cat", "sleeps"]
    assert nltk.data.path == before
    reading = Patched()._read(tmp_path / "link.txt")
    next(reading)
    reading.close()
    assert nltk.data.path == before


def test_the_package_itself_loads() -> None:
    pytest.importorskip("allennlp_models.version")
    from allennlp.models import Model

    importlib.import_module("allennlp_models.generation")
    assert Model.by_name("bart") is not None
