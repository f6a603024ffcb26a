"""Archives of AllenNLP's own models, and commands that open them, run in this process."""

import json
import sys
from pathlib import Path
from typing import Any

import allennlp.commands
import pytest
import torch
from allennlp.common import Params
from allennlp.data import DatasetReader, Vocabulary
from allennlp.models import Model, archive_model

TEXTS = ["a good film", "a bad film", "good acting, bad sound"]


def text_classifier(folder: Path) -> Path:
    """Write the archive of a "basic_classifier" beside `texts.jsonl`, which it can evaluate."""
    data = folder / "texts.jsonl"
    rows = [{"text": text, "label": str(number % 2)} for number, text in enumerate(TEXTS)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "sentences.jsonl").write_text(
        "".join(json.dumps({"sentence": text}) + "\n" for text in TEXTS)
    )
    config: dict[str, Any] = {
        "dataset_reader": {"type": "text_classification_json", "tokenizer": "whitespace"},
        "train_data_path": str(data),
        "model": {
            "type": "basic_classifier",
            "text_field_embedder": {
                "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 4}}
            },
            "seq2vec_encoder": {"type": "lstm", "input_size": 4, "hidden_size": 3},
        },
        "data_loader": {"batch_sampler": {"type": "bucket", "batch_size": 2}},
        "trainer": {"num_epochs": 1},
    }
    reader = DatasetReader.from_params(Params(config["dataset_reader"]).duplicate())
    vocabulary = Vocabulary.from_instances(reader.read(str(data)))
    model = Model.from_params(vocab=vocabulary, params=Params(config["model"]).duplicate())
    vocabulary.save_to_files(str(folder / "vocabulary"))
    torch.save(model.state_dict(), folder / "best.th")
    (folder / "config.json").write_text(json.dumps(config))
    return Path(archive_model(folder))


class Commands:
    """Commands of a program, run in this process.

    # Parameters

    monkeypatch, capsys : those of pytest.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def run(self, program: str, *arguments: Any, safe: bool = True) -> str:
        """Run a command and return what it printed; `safe` is whether the rules hold."""
        with self._monkeypatch.context() as patch:
            patch.setenv("DECLUTR_SAFE", "1") if safe else patch.delenv("DECLUTR_SAFE", False)
            patch.setattr(sys, "argv", [program, *map(str, arguments)])
            patch.setattr(allennlp.commands, "import_plugins", lambda: None)  # it looks for long
            allennlp.commands.main(prog=program)
        return self._capsys.readouterr().out

    def refusal(self, program: str, *arguments: Any) -> str:
        """Run a command that must end with status 2; return the one line that it printed."""
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            self.run(program, *arguments)
        assert end.value.code == 2
        lines = self._capsys.readouterr().err.splitlines()
        (told,) = [line for line in lines if line.startswith(f"{program} {arguments[0]}: ")]
        assert told == lines[-1]
        return told
