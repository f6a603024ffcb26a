"""The model card of an export: properties of the model, usage, training and comparison."""

import json
from collections.abc import Iterator
from typing import Any

from declutr._version import __version__
from declutr.export.comparison import Comparison
from declutr.export.exportable import Exportable
from declutr.export.training_record import TrainingRecord
from declutr.export.usage import usage
from declutr.system import installed_versions

_LIBRARIES = ("torch", "transformers", "tokenizers", "sentence-transformers", "onnxruntime")


def model_card(
    name: str, model: Exportable, record: TrainingRecord, comparison: Comparison, onnx: bool
) -> str:
    """Return the text of README.md, in Markdown with a YAML header.

    # Parameters

    name : the name of the model, which becomes the title.
    model : the exported model.
    record : the record of its training; it may be empty.
    comparison : the differences of each tool from the original model.
    onnx : whether there is an ONNX model.
    """
    versions = installed_versions(*_LIBRARIES)
    parts = [
        *_header(model, onnx),
        f"# {name}",
        *_about(model, record),
        *usage(model, onnx),
        *training_section(record),
        *scores_section(record),
        *_checked(comparison),
        *_limits(model),
        "## Made with",
        _table(("library", "version"), [("declutr", __version__), *versions.items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _header(model: Exportable, onnx: bool) -> Iterator[str]:
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction", "transformers"]
    tags += ["onnx"] if onnx else []
    listed = "\n".join(f"- {tag}" for tag in [*tags, "declutr"])
    yield (
        "---\nlibrary_name: sentence-transformers\npipeline_tag: sentence-similarity\n"
        f"tags:\n{listed}\n---"
    )


def _about(model: Exportable, record: TrainingRecord) -> Iterator[str]:
    yield f"Sentence embeddings of {model.dimension} dimensions, exported by declutr."
    cut = "beginnings" if _keeps_end(model) else "tails"
    length = "no limit" if model.max_length is None else f"{model.max_length} tokens"
    rows = [
        ("transformer", type(model.transformer).__name__),
        ("masked language modelling head", "yes" if model.has_head else "no"),
        ("pooling", f"{model.pooling}, over all tokens, special ones included"
            if model.pooling != "cls" else "cls (the first token)"),
        ("whitening", f"yes, {model.width} to {model.dimension} dimensions"
            if model.whitened else "no"),
        ("scaled to length 1", "yes" if model.normalizes else "no"),
        ("similarity", model.similarity),
        *((_inline(f"prompt `{name}`"), _inline(f"`{json.dumps(text, ensure_ascii=False)}`"))
            for name, text in model.prompts.named.items()),
        ("longest text", f"{length}, special ones included; {cut} of longer texts are cut"
            if model.max_length else length),
    ]  # fmt: skip
    yield _table(("", ""), rows)


def training_section(record: TrainingRecord) -> Iterator[str]:
    """Yield the paragraphs of the section about training, in Markdown."""
    yield "## Training"
    if not record.recipe:
        yield "Nothing is known of it here: the model was not exported from a training run."
        return
    facts = [(name.replace("_", " "), value) for name, value in _flat(record.run)]
    steps, epochs = record.run.get("batches_per_epoch"), record.run.get("epochs")
    if isinstance(steps, int) and isinstance(epochs, int):
        each = record.run.get("gradient_accumulation_steps") or 1
        facts.append(("steps planned", -(-steps // each) * epochs))
    data = [
        (key.replace("_", " "), _inline(record.recipe[key]))
        for key in ("train_data_path", "validation_data_path")
        if record.recipe.get(key)
    ]
    if data or facts:
        yield _table(("", ""), [*data, *facts])
    if record.metrics:
        yield "Metrics at the end of training:"
        yield _table(("metric", "value"), [(k, _number(v)) for k, v in _flat(record.metrics)])
    yield "The recipe (files by their names alone):"
    yield f"```json\n{json.dumps(record.recipe, indent=2, ensure_ascii=False)}\n```"


def scores_section(record: TrainingRecord) -> Iterator[str]:
    """Yield the paragraphs of the section with scores; there are none without scores."""
    if not record.scores:
        return
    yield "## Scores"
    yield "By `declutr evaluate-embeddings`; averages come first."
    yield _table(("task", "score"), [(k, f"{v:.2f}") for k, v in record.scores.items()])
    made = [(name, _inline(value)) for name, value in record.scored_by.items()]
    yield _table(("scored with", ""), made)


def _checked(comparison: Comparison) -> Iterator[str]:
    yield "## What was compared"
    yield (
        f"Each part was loaded back after writing and embedded {comparison.texts} texts of 0 to "
        "600 words in a dozen languages. The largest absolute differences from the model this was "
        f"exported from, in float32 on a CPU (largest number in an embedding: "
        f"{comparison.largest:.3g}; allowed: {comparison.limit:.1e}):"
    )
    yield comparison.table()


def _limits(model: Exportable) -> Iterator[str]:
    yield "## Limits"
    points = ["Texts are compared by their tokens; what was rare in training is embedded badly."]
    if model.max_length is not None:
        which = "last" if _keeps_end(model) else "first"
        points.append(
            f"Of a text only the {which} {model.max_length} tokens count. "
            '`Encoder(..., long_texts="chunk")` embeds all of it in parts.'
        )
    if model.plain_white_space:
        points.append(
            "The tokenizer makes one blank of any run of white space and strips the ends, as in "
            "training."
        )
    else:
        points.append(
            "The tokenizer takes white space as it comes. What was compared had one blank for each "
            "run of it, and none at the ends."
        )
    if model.whitened:
        points.append("Whitening was fitted on some text; it suits text of that kind.")
    points.append("No license is stated: those of the data and of the first checkpoint decide.")
    yield "\n".join(f"- {point}" for point in points)


def _keeps_end(model: Exportable) -> bool:
    return getattr(model.tokenizer, "truncation_side", "right") == "left"


def _flat(value: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        if isinstance(item, dict):
            yield from _flat(item, f"{before}{name} ")
        elif item is not None:
            yield f"{before}{name}", _inline(item)


def _inline(value: Any) -> Any:
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False)
    return value.replace("|", "\\|").replace("\n", " ") if isinstance(value, str) else value


def _number(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def _table(head: tuple[str, str], rows: list[tuple[str, Any]]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)])
