"""The export of a model to a folder, which appears only if all comparisons succeed."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from declutr.archives import CONFIG
from declutr.corpus.documents import normalize_whitespace
from declutr.corpus.text_inputs import as_texts, require_rows
from declutr.export.comparison import Comparison, ExportDiffers, compare, quiet, reference_texts
from declutr.export.exportable import Exportable, exportable
from declutr.export.model_card import model_card
from declutr.export.onnx_model import FILE, missing_packages, write_onnx
from declutr.export.output_place import CARD, ExportError, check_place, folder_beside, move
from declutr.export.sentence_transformers import write_modules
from declutr.export.static_export import StaticExport, static_table
from declutr.export.training_record import TrainingRecord, add_scores, training_record
from declutr.inference.encoder import Encoder
from declutr.inference.open_text_model import open_text_model
from declutr.inference.text_embedding import not_told
from declutr.system import LOADING, local_path
from declutr.system.files import use_umask

TOLERANCE = 1e-5
"""The default tolerance of `export_model`."""


@dataclass
class Exported:
    """The result of an export.

    # Parameters

    folder : the exported folder.
    comparison : the differences of each tool from the original model.
    notes : messages for the user, such as about an ONNX model that was left out.
    """

    folder: Path
    comparison: Comparison
    notes: list[str]


def export_model(
    place: str | os.PathLike,
    folder: str | os.PathLike,
    *,
    normalize: bool = False,
    whiten: bool = True,
    truncate_dim: int | None = None,
    dtype: str = "float32",
    onnx: bool | None = None,
    tolerance: float = TOLERANCE,
    texts: Sequence[str] = (),
    scores: str | os.PathLike | None = None,
    overwrite: bool = False,
    trust: bool = False,
    say: Callable[[str], None] = lambda step: None,
) -> Exported:
    """Write a model to `folder` for transformers, sentence-transformers and onnxruntime.

    The export is written to a temporary folder beside `folder`, loaded back by each tool, and
    compared with the model. It is moved to `folder` only if all embeddings agree. If anything
    fails, `folder` stays as it was.

    # Parameters

    place : an archive (`model.tar.gz`), a serialization directory, or a folder of transformers or
        sentence-transformers.
    folder : the folder to write.
    normalize : whether to scale embeddings to length 1 even if the model does not.
    whiten : whether to apply the whitening stored with the model, if there is one.
    truncate_dim : the number of leading dimensions to keep, before scaling; for models that were
        trained for it (the objective `matryoshka`).
    dtype : of a static encoder, in what its table is stored: `"float32"`, `"float16"` or `"int8"`,
        which this package alone reads.
    onnx : whether to write an ONNX model; `None` writes one if the packages for it are installed,
        and adds a note otherwise.
    tolerance : the largest allowed absolute difference, as a fraction of the largest absolute value
        in the embeddings if that is above 1.
    texts : texts to compare in addition to `comparison.reference_texts()`.
    scores : the output folder of `evaluate-embeddings`, for the model card.
    overwrite : whether to replace an earlier export.
    trust : whether to open archives that would be refused as unsafe.
    say : a function that is called with a description of each step as it begins.

    # Returns

    The folder, the comparison, and notes for the user.

    # Raises

    `ExportError` : if the model cannot be exported, or `folder` cannot be written.
    `ExportDiffers` : if a tool embeds differently.
    `declutr.inference.open_text_model.EncoderError`, `FileNotFoundError`,
        `declutr.archives.safety.UnsafeArchive` :
        if the model cannot be opened.
    `TypeError` : if `texts` is a single string or a path.
    """
    require_rows(texts)
    place, folder = os.path.expanduser(os.fspath(place)), local_path(folder).absolute()
    own = as_texts(texts)
    check_place(place, folder, overwrite)
    if not tolerance > 0:
        raise ExportError(f"Expected a tolerance above 0, got {tolerance}.")
    with_onnx, notes = _with_onnx(onnx, dtype)
    say(f"Reading {place}")
    with quiet():
        opened = open_text_model(place, device=torch.device("cpu"), trust=trust)
        export: StaticExport | TransformerExport
        table = static_table(place, opened, normalize=normalize, whiten=whiten)
        whitened = whiten and opened.whitening is not None
        if truncate_dim is None and not whitened:
            truncate_dim = opened.truncate_dim
        if table is not None:
            if _cuts(truncate_dim, table.dimension):
                vectors = np.ascontiguousarray(table.vectors[:, :truncate_dim])
                table = table.with_vectors(vectors)
            export = StaticExport(table, whitened, dtype)
        elif dtype != "float32":
            raise ExportError(f"A dtype is for static encoders; '{place}' is none. Leave it out.")
        else:
            model = exportable(place, cast(Any, opened), normalize=normalize, whiten=whiten)
            if truncate_dim is not None and _cuts(truncate_dim, model.dimension):
                model.keep_first(truncate_dim)
            export = TransformerExport(model)
    if not export.plain_white_space:
        notes.append(
            "The exported tokenizer takes white space as it comes; texts were compared with one "
            "blank for each run of it."
        )
    record = training_record(place)
    with folder_beside(folder) as beside:
        with quiet(), not_told():  # Some reference texts are too long on purpose.
            export.write(beside, with_onnx, say)
            say("Comparing")
            compared = [*reference_texts(), *own]
            if not export.plain_white_space:
                compared = [normalize_whitespace(text) for text in compared]
            compared = export.comparable(compared)
            with Encoder(
                place,
                normalize=normalize or None,
                whiten=None if whiten else False,
                truncate_dim=truncate_dim,
                dtype="float32",
                device="cpu",
                trust=trust,
            ) as encoder:
                expected, described = encoder(compared), encoder.describe()
        if scores is not None:
            add_scores(record, local_path(scores), place, described)
        with not_told():
            comparison = export.compare(beside, compared, expected, tolerance)
        notes += export.notes
        if comparison.failed:
            raise ExportDiffers(_differs(whitened, comparison), comparison)
        card = export.card(folder.name, record, comparison, with_onnx)
        (beside / CARD).write_text(card, encoding="utf-8")
        use_umask([beside, *beside.rglob("*")])
        move(beside, folder)
    return Exported(folder, comparison, notes)


class TransformerExport:
    """The steps of an export of a transformer; `StaticExport` has them for tables."""

    notes: Sequence[str] = ()

    def __init__(self, model: Exportable) -> None:
        self._model = model
        self.plain_white_space = model.plain_white_space

    def write(self, folder: Path, with_onnx: bool, say: Callable[[str], None]) -> None:
        """Write the transformer, its tokenizer and modules, and an ONNX model if it is wanted."""
        model = self._model
        say("Writing the transformer, its tokenizer and modules")
        write_transformer(model, folder)
        write_modules(model, folder)
        model.transformer = _without_hooks(folder, model)
        if with_onnx:
            say("Writing the ONNX model")
            write_onnx(model.graph(model.transformer.base_model), folder / FILE)

    def comparable(self, texts: list[str]) -> list[str]:
        """Return the texts that all tools embed alike: all of them."""
        return texts

    def compare(
        self, folder: Path, texts: Sequence[str], expected: np.ndarray, tolerance: float
    ) -> Comparison:
        """Embed texts with the export in each tool, and compare with given embeddings."""
        return compare(folder, self._model, texts, expected, tolerance)

    def card(self, name: str, record: TrainingRecord, found: Comparison, with_onnx: bool) -> str:
        """Return the text of README.md."""
        return model_card(name, self._model, record, found, with_onnx)


def _without_hooks(folder: Path, model: Exportable) -> torch.nn.Module:
    """Load the exported transformer back, so that it lacks the hooks that training added."""
    from transformers import AutoModel, AutoModelForMaskedLM

    auto_class = AutoModelForMaskedLM if model.has_head else AutoModel
    # Every family of transformers has this attention, and it can be traced for ONNX.
    with LOADING:
        return auto_class.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", trust_remote_code=False
        ).eval()


def _cuts(size: int | None, width: int) -> bool:
    """Return whether embeddings are cut to a size; raise `ExportError` if it is out of range."""
    if size is not None and not 1 <= size <= width:
        raise ExportError(f"truncate_dim must lie in 1 to {width}, got {size}.")
    return size is not None and size < width


def _with_onnx(wanted: bool | None, dtype: str) -> tuple[bool, list[str]]:
    """Return whether to write an ONNX model, which holds float32 alone, and notes for the user.

    # Raises

    `ExportError` : if the user demands one and packages for it are missing, or another dtype.
    """
    if wanted and dtype != "float32":
        raise ExportError(f"An ONNX model is of float32, got {dtype}. Leave out --onnx or --dtype.")
    if wanted is False:
        return False, []
    missing = missing_packages()
    if not missing:
        return dtype == "float32", []
    how = f"{' and '.join(missing)} not installed: pip install 'declutr[onnx]'"
    if wanted:
        raise ExportError(f"No ONNX model can be made: {how}, or leave ONNX out (--no-onnx).")
    return False, [f"No ONNX model: {how}"]


def _differs(whitened: bool, comparison: Comparison) -> str:
    hint = (
        " Whitening makes directions loud in which embeddings hardly differ, and their rounding "
        "with them: keep fewer dimensions (`declutr whiten --dimension K`), or export without it "
        "(--no-whitening)."
        if whitened
        else ""
    )
    return (
        f"{', '.join(comparison.failed)} does not embed as the model does: expected differences of "
        f"at most {comparison.limit:.1e}, nothing was exported.{hint}"
    )


def write_transformer(model: Exportable, folder: Path) -> None:
    """Write the files that `AutoModel`, `AutoModelForMaskedLM` and `AutoTokenizer` load."""
    model.transformer.save_pretrained(folder)
    # Paths of the training machine are of no use to others.
    _change(folder / CONFIG, {}, remove=("_name_or_path", "auto_map"))
    model.tokenizer.save_pretrained(folder)
    changes: dict[str, Any] = {"model_input_names": model.inputs}
    if model.plain_white_space:
        # The tokenizer class of a family would replace the white space normalizer by its own. This
        # class exists in all releases of transformers and uses tokenizer.json unchanged.
        changes["tokenizer_class"] = "PreTrainedTokenizerFast"
    _change(
        folder / "tokenizer_config.json",
        changes,
        remove=("name_or_path", "_name_or_path", "vocab_file", "tokenizer_file", "auto_map"),
    )


def _change(file: Path, changes: dict[str, Any], remove: tuple[str, ...]) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    kept = {name: value for name, value in content.items() if name not in remove}
    text = json.dumps(kept | changes, indent=2, ensure_ascii=False, sort_keys=True)
    file.write_text(text + "\n", encoding="utf-8")
