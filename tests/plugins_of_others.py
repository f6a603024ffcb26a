"""Plugins of other packages that take the names of this one, and pipelines that use them."""

import json
import textwrap
from pathlib import Path
from typing import Any

from declutr.bridge.component_names import COMPONENTS, may_be_taken

NAMES = [(base, name) for base in COMPONENTS if may_be_taken(base) for name in COMPONENTS[base]]
"""All names that others may take, each with the place of its base class."""

# What the classes of others derive from, by the name of the base class, and how they are built.
_LIKE = {
    "DataLoader": "allennlp.data.data_loaders SimpleDataLoader from_dataset_reader",
    "DatasetReader": "allennlp.data.dataset_readers TextClassificationJsonReader",
    "Vocabulary": "allennlp.data Vocabulary",
    "TokenIndexer": "allennlp.data.token_indexers SingleIdTokenIndexer",
    "Tokenizer": "allennlp.data.tokenizers WhitespaceTokenizer",
    "Model": "allennlp.models BasicClassifier",
    "Seq2VecEncoder": "allennlp.modules.seq2vec_encoders BagOfEmbeddingsEncoder",
    "TextFieldEmbedder": "allennlp.modules.text_field_embedders BasicTextFieldEmbedder",
    "TokenEmbedder": "allennlp.modules.token_embedders Embedding",
    "DdpAccelerator": "allennlp.nn.parallel TorchDdpAccelerator",
    "Predictor": "allennlp.predictors TextClassifierPredictor",
    "TrainerCallback": "allennlp.training.callbacks TrackEpochCallback",
    "Checkpointer": "allennlp.training Checkpointer",
    "LearningRateScheduler": "allennlp.training.learning_rate_schedulers NoamLR",
    "Trainer": "allennlp.training GradientDescentTrainer from_partial_objects",
}
_COMMAND = """
@Subcommand.register({name!r})
class Command{number}(Subcommand):
    def add_subparser(self, parser):
        subparser = parser.add_parser(self.name, help="of others")
        subparser.set_defaults(func=lambda args: print("{name} of others"))
        return subparser
"""


def plugin(names: list[tuple[str, str]]) -> str:
    """Return the source of a plugin that registers classes of its own under these names."""
    lines = ["from allennlp.commands.subcommand import Subcommand"]
    for number, (place, name) in enumerate(names):
        base = place.partition(":")[2]
        if base == "Subcommand":
            lines.append(textwrap.dedent(_COMMAND).format(name=name, number=number))
            continue
        module, kind, *constructor = _LIKE[base].split()
        lines.append(
            f"from {place.partition(':')[0]} import {base}\nfrom {module} import {kind}\n"
            f"@{base}.register({name!r}, constructor={(*constructor, None)[0]!r})\n"
            f"class {base}{number}({kind}):\n    default_predictor = 'declutr'"
        )
    return "\n".join(lines) + "\n"


def pipeline(folder: Path) -> dict[str, Any]:
    """Write rows to a folder, and return a configuration that uses the names of others alone."""
    texts = {"a b c": "x", "a b d": "y", "a b e": "x", "a b f": "y"}
    rows = [{"text": text, "label": label} for text, label in texts.items()]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "dataset_reader": {
            "type": "glue",
            "tokenizer": "declutr",
            "token_indexers": {"tokens": {"type": "declutr"}},
        },
        "train_data_path": str(folder / "rows.jsonl"),
        "model": {
            "type": "declutr",
            "text_field_embedder": {
                "type": "mlm",
                "token_embedders": {"tokens": {"type": "declutr", "embedding_dim": 4}},
            },
            "seq2vec_encoder": {"type": "declutr", "embedding_dim": 4},
        },
        "data_loader": {"type": "declutr", "batch_size": 2},
        "trainer": {
            "type": "declutr",
            "optimizer": "adam",
            "num_epochs": 1,
            "cuda_device": -1,
            "callbacks": ["run_record", {"type": "exact_resume"}],
            "checkpointer": {"type": "atomic"},
        },
    }
