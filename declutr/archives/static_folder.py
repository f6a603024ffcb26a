"""The files of a static encoder: a tokenizer and a table of token vectors.

The layout is the one that sentence-transformers writes for its module `StaticEmbedding`; folders of
model2vec are read as well.
"""

import json
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from declutr.archives import CONFIG, MODULES, SETTINGS, JSONError, read_bounded_json
from declutr.archives.model_files import ModelFiles, NotFollowed, listed_modules, read_prompts
from declutr.archives.table_weights import (
    DTYPES,
    StaticFolderError,
    read_weights,
    rounded,
    write_weights,
)
from declutr.system import raised_as

__all__ = [
    "DTYPES", "StaticFolderError", "StaticTable", "is_static", "loaded_tokenizer", "read_static",
    "require_rows", "stored_shape", "write_static", "write_tokenizer",
]  # fmt: skip

TOKENIZER = "tokenizer.json"
WEIGHTS = "model.safetensors"
SHAPE = "static_embedding.json"
"""The name of the file that holds the shape of a table that is stored elsewhere."""

_STATIC = "StaticEmbedding"
_MODULE = f"sentence_transformers.models.{_STATIC}"
_NORMALIZE = "sentence_transformers.models.Normalize"


@dataclass
class StaticTable:
    """A tokenizer and the vectors of its tokens.

    # Parameters

    tokenizer : the tokenizer, of the `tokenizers` package, as the JSON that it writes.
    vectors : the table `(V, d)`, a vector for each token id.
    normalizes : whether embeddings are scaled to length 1.
    prompts, default_prompt_name : texts that are put before texts, by name, and the name of the one
        that is put before those without another.
    similarity : the similarity function by its sentence-transformers name.
    scale : of vectors in int8, the factors `(d,)` of their dimensions.
    """

    tokenizer: str
    vectors: np.ndarray
    normalizes: bool = False
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity: str = "cosine"
    scale: np.ndarray | None = None

    @property
    def loaded(self) -> Any:
        """The tokenizer itself, without truncation, padding or special tokens."""
        return self._parsed[0]

    @property
    def limit(self) -> int | None:
        """The number of tokens at which the tokenizer cuts texts elsewhere, or `None`."""
        return self._parsed[1]

    @cached_property
    def _parsed(self) -> tuple[Any, int | None]:
        tokenizer = _tokenizer_of(self.tokenizer)
        limit = (tokenizer.truncation or {}).get("max_length")
        return _of_whole_texts(tokenizer), limit

    @property
    def dimension(self) -> int:
        """The width d of the vectors."""
        return int(self.vectors.shape[1])

    def with_vectors(self, vectors: np.ndarray) -> "StaticTable":
        """Return the same tokenizer with other vectors `(V, k)`."""
        return replace(self, vectors=vectors, scale=None)

    def rounded(self, dtype: str) -> "StaticTable":
        """Return the table with vectors in float32 that are rounded to a dtype of `DTYPES`."""
        vectors, scale = rounded(self.vectors, dtype)
        return replace(self, vectors=vectors, scale=scale).in_float32()

    def in_float32(self) -> "StaticTable":
        """Return the table with its vectors in float32, and without a scale."""
        vectors = self.vectors.astype(np.float32, copy=False)
        return self.with_vectors(vectors if self.scale is None else vectors * self.scale)


def is_static(place: Path) -> bool:
    """Return whether a folder holds a static encoder, of this package or of the tools above."""
    return _folder_of_table(place) is not None


def read_static(place: Path, convert: bool = True) -> StaticTable:
    """Return the tokenizer and the table of a folder.

    # Parameters

    place : the folder.
    convert : whether to convert vectors to float32; if not, they stay as they are stored.

    # Raises

    `StaticFolderError` : there is no static encoder, or its files do not belong together.
    """
    found = _folder_of_table(place)
    if found is None:
        raise StaticFolderError(
            f"'{place}' holds no static encoder. Expected a folder of `declutr static-vectors`, of "
            f"sentence-transformers with a {_STATIC}, or of model2vec."
        )
    inside, normalizes = found
    file = inside / TOKENIZER
    if not file.is_file():
        raise StaticFolderError(f"'{place}' has no {TOKENIZER}. Copy the whole folder anew.")
    try:
        text = file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise StaticFolderError(f"'{file}' is no UTF-8 text ({error}). Copy it anew.") from error
    files = ModelFiles(str(place))
    with raised_as(StaticFolderError, NotFollowed):
        prompts, default = read_prompts(files)
        similarity = files.settings(SETTINGS).get("similarity_fn_name")
    if not isinstance(similarity, str):
        similarity = "cosine"
    vectors, scale = read_weights(inside / WEIGHTS)
    table = StaticTable(text, vectors, normalizes, prompts, default, similarity, scale)
    require_rows(table, str(place))
    return table.in_float32() if convert else table


def require_rows(table: StaticTable, place: str) -> None:
    """Raise `StaticFolderError` if the tokenizer of a table gives ids that it has no row for."""
    highest = max(table.loaded.get_vocab().values(), default=-1)
    if highest >= len(table.vectors):
        raise StaticFolderError(
            f"'{place}' has {len(table.vectors)} vectors, and its tokenizer gives ids up to "
            f"{highest}. Expected a vector for each id: the files are of different encoders."
        )


def loaded_tokenizer(text: str) -> Any:
    """Return the tokenizer of a `tokenizer.json`, without truncation, padding or special tokens.

    # Raises

    `StaticFolderError` : the text is no such file.
    """
    return _of_whole_texts(_tokenizer_of(text))


def _tokenizer_of(text: str) -> Any:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_str(text)
    except Exception as error:  # the library raises nothing more special
        raise StaticFolderError(
            f"The tokenizer.json cannot be read: {error}. Copy it anew."
        ) from error


def _of_whole_texts(tokenizer: Any) -> Any:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def write_static(table: StaticTable, folder: Path, dtype: str = "float32") -> None:
    """Write a table to a folder that sentence-transformers, AllenNLP and this package open.

    # Parameters

    table : the tokenizer and the vectors.
    folder : the folder, which is created.
    dtype : one of `DTYPES`. `int8` rounds each dimension to 255 steps between its extremes; this
        package alone reads it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(table.in_float32().vectors, folder / WEIGHTS, dtype)
    modules = [{"idx": 0, "name": "0", "path": "", "type": _MODULE}]
    if table.normalizes:
        modules.append({"idx": 1, "name": "1", "path": "1_Normalize", "type": _NORMALIZE})
        (folder / "1_Normalize").mkdir(exist_ok=True)
    _write_json(folder / MODULES, modules)
    prompts = {"prompts": table.prompts, "default_prompt_name": table.default_prompt_name}
    _write_json(folder / SETTINGS, {**prompts, "similarity_fn_name": table.similarity})
    write_tokenizer(table, folder)


def write_tokenizer(table: StaticTable, folder: Path) -> None:
    """Write the tokenizer of a table alone, with the shape of the table.

    The tokenizer is one that `transformers.AutoTokenizer` loads, as AllenNLP does. It adds no
    special tokens.
    """
    folder.mkdir(parents=True, exist_ok=True)
    state = json.loads(table.tokenizer)
    state["post_processor"] = None  # it would add special tokens
    state["truncation"] = state["padding"] = None
    (folder / TOKENIZER).write_text(json.dumps(state, ensure_ascii=False), "utf-8")
    special = {t["content"] for t in state.get("added_tokens", []) if t.get("special")}
    named = {
        f"{name}_token": token
        for name in ("unk", "pad")
        for token in (f"[{name.upper()}]", f"<{name}>")
        if token in special
    }
    if named:  # padding is masked, so that any token can stand for it
        named.setdefault("pad_token", named.get("unk_token", ""))
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", **named}
    settings["model_input_names"] = ["input_ids", "attention_mask"]
    _write_json(folder / "tokenizer_config.json", settings)
    _write_json(folder / SHAPE, {"shape": list(table.vectors.shape)})


def stored_shape(folder: Path) -> tuple[int, int]:
    """Return the shape `(V, d)` of the table of a folder, which may lack the table itself.

    # Raises

    `StaticFolderError` : the folder holds neither a table nor its shape.
    """
    if (folder / SHAPE).is_file():
        try:
            rows, width = read_bounded_json(folder / SHAPE)["shape"]
        except (JSONError, KeyError, TypeError, ValueError) as error:
            raise StaticFolderError(f"'{folder / SHAPE}' holds no shape: {error}.") from error
        return int(rows), int(width)
    rows, width = read_static(folder).vectors.shape
    return int(rows), int(width)


def _folder_of_table(place: Path) -> tuple[Path, bool] | None:
    """Return the folder inside `place` that holds the table, and whether embeddings are scaled.

    `None` if `place` has neither the `modules.json` of a static encoder nor the files of model2vec.
    """
    if not place.is_dir():
        return None
    files = ModelFiles(str(place))
    try:
        listed = listed_modules(files)
        if listed is None:
            config = files.settings(CONFIG)
            found = place, bool(config.get("normalize"))
            return found if config.get("model_type") == "model2vec" else None
    except NotFollowed:
        return None
    kinds = [kind for kind, _ in listed]
    if kinds[:1] != [_STATIC] or not set(kinds[1:]) <= {"Normalize"}:
        return None
    return place / listed[0][1], len(listed) > 1


def _write_json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n", "utf-8")
