"""The families of allennlp-models train, save, load and predict, on its own fixtures.

    MODELS=folder pytest -m long tests/bridge/test_model_families.py

`MODELS` is a clone of https://github.com/allenai/allennlp-models; the package itself is installed
with `pip install --no-deps allennlp-models==2.10.1 py-rouge conllu ftfy word2number`. Names of the
hub are replaced by tiny transformers made here.
"""

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from .conftest import SPECIAL, byte_level, roberta_post, unigram, wordpiece

MODELS = os.environ.get("MODELS", "")

pytestmark = [
    pytest.mark.long,
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS, reason="MODELS names no clone of allennlp-models"),
]

FAMILIES = {
    "bcn": "classification/biattentive_classification_network/experiment.json",
    "coref": "coref/experiment.json",
    "simple_seq2seq": "generation/simple/experiment.json",
    "composed_seq2seq": "generation/composed/experiment.json",
    "copynet": "generation/copynet/experiment.json",
    "copynet_transformer": "generation/copynet/experiment_transformer.jsonnet",
    "bart": "generation/bart/experiment.jsonnet",
    "t5": "generation/t5/experiment.jsonnet",
    "language_model": "lm/language_model/experiment_unsampled.jsonnet",
    "language_model_sampled": "lm/language_model/experiment.jsonnet",
    "masked_language_model": "lm/masked_language_model/experiment.json",
    "next_token_lm": "lm/next_token_lm/experiment.json",
    "next_token_lm_transformer": "lm/next_token_lm/experiment_transformer.json",
    "transformer_mc": "mc/transformer_mc/experiment.jsonnet",
    "bimpm": "pair_classification/bimpm/experiment.json",
    "esim": "pair_classification/esim/experiment.json",
    "decomposable_attention": "pair_classification/decomposable_attention/experiment.json",
    "bidaf": "rc/bidaf/experiment.json",
    "dialog_qa": "rc/dialog_qa/experiment.json",
    "qanet": "rc/qanet/experiment.json",
    "naqanet": "rc/naqanet/experiment.json",
    "transformer_qa": "rc/transformer_qa/experiment.jsonnet",
    "biaffine_parser": "structured_prediction/biaffine_dependency_parser/experiment.json",
    "constituency_parser": "structured_prediction/constituency_parser/experiment.json",
    "graph_parser": "structured_prediction/semantic_dependencies/experiment.json",
    "srl": "structured_prediction/srl/experiment.json",
    "srl_bert": "structured_prediction/srl/bert_srl.jsonnet",
    "crf_tagger": "tagging/crf_tagger/experiment.json",
    "crf_tagger_albert": "tagging/crf_tagger/experiment_albert.json",
}


def saved(folder: Path, config: Any, tokenizer: Any, fast: str, **special: str) -> str:
    """Save a transformer of this configuration with random weights, and its tokenizer."""
    import torch
    import transformers

    torch.manual_seed(0)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    options = {"tokenizer_class": fast, "model_max_length": 64, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(options))
    if fast == "BertTokenizerFast":
        ids = sorted((number, token) for token, number in tokenizer.get_vocab().items())
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for _, token in ids))
    cls = getattr(transformers, config.architectures[0])
    cls(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return folders with tiny transformers, by the names of the hub that the fixtures have."""
    from transformers import AlbertConfig, BartConfig, BertConfig, T5Config

    root = tmp_path_factory.mktemp("hub")
    pad, unk, cls, sep, mask = SPECIAL
    names = {"pad_token": pad, "unk_token": unk, "mask_token": mask}
    marks = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>"}
    ends = {"cls_token": "<s>", "sep_token": "</s>", "bos_token": "<s>", "eos_token": "</s>"}
    small = {"num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    bert = saved(
        root / "bert",
        BertConfig(vocab_size=150, hidden_size=20, architectures=["BertForMaskedLM"], **small),
        wordpiece(),
        "BertTokenizerFast",
        cls_token=cls,
        sep_token=sep,
        **names,
    )
    albert = saved(
        root / "albert",
        AlbertConfig(
            vocab_size=90, hidden_size=20, embedding_size=8, architectures=["AlbertModel"], **small
        ),
        unigram("[CLS]", "[SEP]", "[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1"),
        "AlbertTokenizerFast",
        cls_token=cls,
        sep_token=sep,
        **marks,
    )
    layers = {"encoder_layers": 1, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_model": 16}
    bart = saved(
        root / "bart",
        BartConfig(
            vocab_size=330,
            architectures=["BartForConditionalGeneration"],
            max_position_embeddings=1100,
            bos_token_id=0,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=2,
            **layers,
            **heads,
            **widths,
        ),
        byte_level("<s>", "</s>", roberta_post),
        "RobertaTokenizerFast",
        **ends,
        **marks,
    )
    t5 = saved(
        root / "t5",
        T5Config(
            vocab_size=100,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=2,
            num_heads=2,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            architectures=["T5ForConditionalGeneration"],
        ),
        unigram("<s>", "</s>", "$A </s> $B </s>", "$A </s>"),
        "PreTrainedTokenizerFast",
        eos_token="</s>",
        **marks,
    )
    return {
        "bert-base-uncased": bert,
        "epwalsh/bert-xsmall-dummy": bert,
        "bert-base-cased": bert,
        "albert-base-v2": albert,
        "sshleifer/bart-tiny-random": bart,
        "patrickvonplaten/t5-tiny-random": t5,
    }


def replaced(value: Any, names: dict[str, str]) -> Any:
    """Return a configuration in which these strings are replaced."""
    if isinstance(value, dict):
        return {key: replaced(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, names) for inner in value]
    return names.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize("family", FAMILIES)
def test_family(
    family: str, stand_ins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("allennlp_models.generation")
    from allennlp.commands.train import train_model
    from allennlp.common import Params
    from allennlp.common.plugins import import_plugins
    from allennlp.models.archival import load_archive
    from allennlp.predictors import Predictor

    import_plugins()
    (tmp_path / "test_fixtures").symlink_to(Path(MODELS, "test_fixtures").resolve())
    monkeypatch.chdir(tmp_path)
    path = f"test_fixtures/{FAMILIES[family]}"
    import spacy

    # The fixtures name a model of spaCy that is not on PyPI; its tokenizer is the blank one's.
    monkeypatch.setattr(spacy, "load", lambda name, **options: spacy.blank("en"))
    config = replaced(Params.from_file(path).as_dict(), stand_ins)
    config["trainer"].update(num_epochs=1, cuda_device=-1)
    config["trainer"].pop("patience", None)
    if family == "t5":  # its decoding would end only at the bound
        config["model"]["beam_search"] = {"max_steps": 5, "beam_size": 2}
    if family == "bart":
        config["model"]["beam_search"]["max_steps"] = 8
    if family == "crf_tagger_albert":
        config["model"]["encoder"]["input_dim"] = 20
        config["trainer"]["run_confidence_checks"] = False  # ALBERT itself does not pass them
    if family == "next_token_lm_transformer":  # its model looks for the tokens there
        config["dataset_reader"]["token_indexers"]["tokens"]["namespace"] = "tokens"
    data = config["validation_data_path"]

    trained = train_model(Params(config), "out")

    archive = load_archive("out/model.tar.gz")
    for name, value in trained.state_dict().items():
        assert value.equal(archive.model.state_dict()[name]), name
    predictor = Predictor.from_archive(archive)
    instances = list(itertools.islice(archive.validation_dataset_reader.read(data), 2))
    predicted = predictor.predict_batch_instance(instances)
    assert len(predicted) == len(instances) and all(predicted)
    json.dumps(predicted)
