"""Models of AllenNLP with parts of a trained archive: trained, moved, and used elsewhere."""

import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.commands.train import train_model
from allennlp.common import Params
from allennlp.data import Batch
from allennlp.models import Archive
from allennlp.models.archival import load_archive

from declutr.archives.safety import safely_loaded_archive
from tests.pretrained_parts.conftest import moved_away

SENTENCES = [["ka", "lo", "mi"], ["lo", "ka"], ["mi", "mi", "ka", "lo"]] * 2
TRAINER = {"optimizer": {"type": "adam", "lr": 1e-2}, "cuda_device": -1, "num_epochs": 1}


def parts(archive: Path, **tokenizer: Any) -> dict[str, Any]:
    """Return tokenizer, indexers and embedder of an archive."""
    ours = {"type": "declutr", "archive": str(archive)}
    return {
        "tokenizer": {**ours, **tokenizer},
        "token_indexers": {"tokens": {**ours}},
        "text_field_embedder": {**ours, "train_parameters": True},
    }


def used_elsewhere(config: dict[str, Any], source: Path, folder: Path) -> Archive:
    """Train a model with parts of an archive, then load it where the archive is not.

    It is loaded as an untrusted archive, and gives the same predictions as in training.
    """
    config = json.loads(json.dumps(config))  # no two parts share a dictionary
    data = config["train_data_path"]
    trained = train_model(Params(config), str(folder / "run"))
    expected = predicted(load_archive(folder / "run"), data)
    archive = safely_loaded_archive(moved_away(folder / "run", source))
    assert type(archive.model) is type(trained)
    state = archive.model.state_dict()
    assert all(torch.equal(state[name], value) for name, value in trained.state_dict().items())
    assert predicted(archive, data) == expected
    return archive


def predicted(archive: Archive, data: str) -> list[dict[str, Any]]:
    """Return what a model says of each instance of a file, without losses and raw tensors."""
    archive.model.eval()
    instances = list(archive.dataset_reader.read(data))
    found = [archive.model.forward_on_instance(instance) for instance in instances]
    assert len(Batch(instances).instances) == len(found) > 0
    texts = (str, list, int)
    return [{key: x for key, x in one.items() if isinstance(x, texts)} for one in found]


def copied(trained: Path, folder: Path) -> Path:
    return Path(shutil.copytree(trained, folder / "source"))


def tagged(folder: Path, columns: Callable[[str], Iterable[str]], separator: str) -> Path:
    file = folder / "tagged.txt"
    lines = (separator.join(" ".join(columns(word)) for word in words) for words in SENTENCES)
    file.write_text(("\n\n" if separator == "\n" else "\n").join(lines) + "\n")
    return file


@pytest.mark.slow
def test_a_tagger_of_words(of_words: Path, tmp_path: Path) -> None:
    """The "simple_tagger" of AllenNLP, fed by the data loader of this package."""
    source = copied(of_words, tmp_path)
    given = parts(source)
    data = tagged(tmp_path, lambda word: [f"{word}###{word[0].upper()}"], "\t")
    config = {
        "dataset_reader": {
            "type": "sequence_tagging",
            "token_indexers": given["token_indexers"],
        },
        "train_data_path": str(data),
        "model": {
            "type": "simple_tagger",
            "text_field_embedder": given["text_field_embedder"],
            "encoder": {"type": "lstm", "input_size": 12, "hidden_size": 4},
        },
        "data_loader": {"type": "declutr", "batch_size": 2, "shuffle": True},
        "trainer": TRAINER,
    }
    archive = used_elsewhere(config, source, tmp_path)
    tags = predicted(archive, str(data))[0]["tags"]
    assert len(tags) == 3 and set(tags) <= set("KLM")


@pytest.mark.long
@pytest.mark.slow
def test_a_conditional_random_field(of_words: Path, tmp_path: Path) -> None:
    pytest.importorskip("allennlp_models.tagging", exc_type=ImportError)
    source = copied(of_words, tmp_path)
    given = parts(source)
    entity = {"ka": "B-PER", "lo": "I-PER", "mi": "O"}
    data = tagged(tmp_path, lambda word: [word, "NN", "O", entity[word]], "\n")
    config = {
        "dataset_reader": {
            "type": "conll2003",
            "tag_label": "ner",
            "coding_scheme": "BIOUL",
            "token_indexers": given["token_indexers"],
        },
        "train_data_path": str(data),
        "validation_data_path": str(data),
        "model": {
            "type": "crf_tagger",
            "label_encoding": "BIOUL",
            "constrain_crf_decoding": True,
            "text_field_embedder": given["text_field_embedder"],
            "encoder": {"type": "gru", "input_size": 12, "hidden_size": 4},
        },
        "data_loader": {"type": "declutr", "batch_size": 2},
        "trainer": TRAINER,
    }
    assert predicted(used_elsewhere(config, source, tmp_path), str(data))[0]["tags"]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["of_words", "trained"])
def test_reading_comprehension(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """BiDAF over words, and over the pieces of a transformer."""
    pytest.importorskip("allennlp_models.rc", exc_type=ImportError)
    source = copied(request.getfixturevalue(kind), tmp_path)
    given = parts(source, add_special_tokens=False)
    if kind == "of_words":  # whose tokens do not tell where they stand in the text
        given["tokenizer"] = {"type": "letters_digits"}
    width = 12 if kind == "of_words" else 32
    question = {"question": "ka lo", "id": "0", "answers": [{"text": "mi", "answer_start": 3}]}
    paragraph = {"context": "ka mi lo ka", "qas": [question]}
    data = tmp_path / "squad.json"
    data.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph] * 4}]}))

    def lstm(size: int) -> dict[str, Any]:
        return {"type": "lstm", "input_size": size, "hidden_size": 4}

    config = {
        "dataset_reader": {
            "type": "squad",
            "tokenizer": given["tokenizer"],
            "token_indexers": given["token_indexers"],
        },
        "train_data_path": str(data),
        "model": {
            "type": "bidaf",
            "text_field_embedder": given["text_field_embedder"],
            "num_highway_layers": 1,
            "phrase_layer": lstm(width),
            "matrix_attention": {
                "type": "linear",
                "combination": "x,y,x*y",
                "tensor_1_dim": 4,
                "tensor_2_dim": 4,
            },
            "modeling_layer": lstm(16),
            "span_end_encoder": lstm(28),
        },
        "data_loader": {"batch_size": 2},
        "trainer": TRAINER,
    }
    archive = used_elsewhere(config, source, tmp_path)
    assert "best_span_str" in predicted(archive, str(data))[0]
