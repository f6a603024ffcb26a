"""The command `whiten`, which fits a whitening or a flow on training text and stores it."""

from __future__ import annotations

import argparse
import hashlib
import random
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from declutr.archives import ARCHIVE, Kind, NoModel, kind_of
from declutr.commands.command import (
    Command,
    add_text_key,
    require_at_least_1,
    text_key,
    told_to_user,
)
from declutr.commands.errors import CommandError
from declutr.inference import is_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    import numpy as np

    from declutr.inference.encoder import Encoder
    from declutr.inference.fitted_map import FittedMap

_BLOCK_TEXTS = 4096
_BLOCK_CHARACTERS = 8 << 20
_FEW = 10  # texts per dimension; with fewer, a covariance is mostly noise
_SEED = 0
_BATCH = 64  # texts of a step of a flow, as in the public code


class Whiten(Command):
    """A command that fits a whitening of embeddings: mean 0 and covariance I on training text.

    It is linear, and can also reduce the number of dimensions, or it is a normalising flow, which
    makes them normal in all else as well (BERT-flow).
    """

    name = "whiten"
    description = (
        "Fit a whitening on the embeddings of training text and store it with the model: "
        "Encoder, `declutr embed` and `declutr export` apply it from then on. Cosines of "
        "whitened embeddings say more where those of plain ones are all high. With --method flow, "
        "it is a normalising flow (BERT-flow), which is not linear."
    )
    epilog = """\
TEXTS holds one text a line (plain or compressed), JSON lines, CSV or TSV with a header, or parquet;
blank ones are passed over. Use text of the kind the model was trained on, never the test data of an
evaluation.

MODEL is changed in place: whitening.safetensors comes into the folder, and into its model.tar.gz,
whichever of the two is named; into the archive alone if the folder has other weights. Repeat the
command to replace it. Encoder(MODEL, whiten=False) embeds without it.

A flow keeps all embeddings in memory while it is fitted (3 GB for a million of 768 dimensions;
--max-texts takes fewer), and cannot be exported to other tools."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("model", metavar="MODEL", help="a serialization folder, or a model.tar.gz")
        add("texts", metavar="TEXTS", nargs="+", help="files of training text, folders or globs")
        add(
            "--method",
            choices=("linear", "flow"),
            default="linear",
            help="a linear whitening (default), or the normalising flow of BERT-flow",
        )
        add("--dimension", metavar="K", type=int, help="linear: keep the K strongest directions")
        add("--epochs", metavar="N", type=int, help="flow: go through the texts N times (1)")
        add("--max-texts", metavar="N", type=int, help="a random sample of N texts (all texts)")
        add("-o", "--output", metavar="FOLDER", help="store it here; the model stays as it is")
        add_text_key(parser)
        add("--device", help="cpu or cuda:0; by default a GPU if there is one")
        add("--trust", action="store_true", help="the model is yours: it may name code to run")
        add("--quiet", action="store_true", help="no progress bar")

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return is_archive(args.model)

    def run(self, args: argparse.Namespace) -> None:
        from declutr.corpus.source_files import source_files
        from declutr.inference.encoder import Encoder
        from declutr.inference.text_embedding import not_told

        _check_numbers(args)
        places = _places(args)
        with told_to_user(ValueError, FileNotFoundError):
            files = source_files(args.texts)  # checked before the model is loaded, which takes long
            key = text_key(args, files)
            weights = _weights(Path(args.model))  # those of now: they may be trained on meanwhile
            options = {"whiten": False, "normalize": False, "trust": args.trust}
            encoder = Encoder(args.model, device=args.device, **options)
            if (args.dimension or 0) > encoder.dimension:
                raise CommandError(
                    f"Embeddings have {encoder.dimension} dimensions, got --dimension "
                    f"{args.dimension}. Expected at most {encoder.dimension}."
                )
            with not_told():
                whitening = _fitted(encoder, _texts(files, key, args), args).with_weights(weights)
            if places == [Path(args.model)]:
                places += _run_of(places[0], weights)
            stored = [_stored(whitening, place) for place in places]
        print("\n".join(_told(whitening, stored, encoder, args.method == "linear")))


def _check_numbers(args: argparse.Namespace) -> None:
    """Raise `CommandError` for numbers that would fail only after everything is embedded."""
    require_at_least_1(args, "--dimension", "--epochs")
    flow = args.method == "flow"
    for option, value, fits in (
        ("--dimension", args.dimension, not flow),
        ("--epochs", args.epochs, flow),
    ):
        if value is not None and not fits:
            raise CommandError(
                f"{option} {value} is not for --method {args.method}: "
                + ("a flow keeps all dimensions." if flow else "one pass fits a linear whitening.")
            )
    least = _BATCH if flow else (args.dimension or 1) + 1
    if args.max_texts is not None and args.max_texts < least:
        what = "A flow" if flow else f"Whitening to {least - 1} dimensions"
        raise CommandError(
            f"{what} needs more texts than that, got --max-texts {args.max_texts}; expected at "
            f"least {least}."
        )


def _places(args: argparse.Namespace) -> list[Path]:
    """Return the folders and archives to store the whitening in.

    # Raises

    `CommandError` : the whitening cannot be stored there.
    """
    if args.output is not None:
        if Path(args.output).is_file():
            raise CommandError(f"--output '{args.output}' is a file, expected a folder.")
        return [Path(args.output)]
    model = Path(args.model)
    if not model.exists():
        raise CommandError(
            f"There is no '{model}' on this machine to store a whitening with. Expected a "
            "serialization folder or a model.tar.gz; for a model of a hub or a URL, add --output "
            "FOLDER."
        )
    with told_to_user(NoModel):
        kind = kind_of(model)
    if kind is Kind.ARCHIVE:
        return [model]
    if kind is not Kind.TRAINED:
        raise CommandError(
            f"'{model}' is an exported model or a static table, which stays as it is. Whiten "
            "the archive it comes from, `declutr whiten ARCHIVE TEXTS`, and export that again, "
            "`declutr export ARCHIVE OUT`; or add --output FOLDER."
        )
    archive = model / ARCHIVE
    # The archive comes first because writing it takes long: if that fails, nothing has changed.
    return [archive, model] if archive.is_file() else [model]


def _run_of(archive: Path, weights: str | None) -> list[Path]:
    """Return the folder of the run that an archive lies in, if it has the same weights.

    The folder and its archive are one model: embeddings of both would differ, and the whitening
    would be missing when the folder is archived again.
    """
    folder = archive.parent
    if archive.name != ARCHIVE or weights is None:
        return []
    try:
        same = kind_of(folder) is Kind.TRAINED and _weights(folder) == weights
    except NoModel:
        return []
    return [folder] if same else []


def _weights(model: Path) -> str | None:
    """Return the digest of the weights of a trained model on this machine; `None` for others."""
    from declutr.archives.fitted_weights import digest_of_model

    try:
        known = model.exists() and kind_of(model) in (Kind.ARCHIVE, Kind.TRAINED)
        return digest_of_model(model) if known else None
    except (EOFError, OSError, tarfile.TarError, zlib.error):
        return None  # the encoder tells what is wrong with the model


def _stored(whitening: FittedMap, place: Path) -> Path:
    from declutr.archives.tar_members import put_member
    from declutr.inference.fitted_map import FILE

    if not place.is_file():
        return whitening.save(place)
    put_member(place, FILE, whitening.to_bytes())
    return place


def _texts(files: list[Path], key: str, args: argparse.Namespace) -> Iterator[str]:
    """Return the rows that are not blank, or with `--max-texts` a fixed random sample in order."""
    from declutr.corpus.documents import read_documents

    texts = (text for text in read_documents(files, key) if text.strip())
    return texts if args.max_texts is None else _sample(texts, args.max_texts)


def _sample(texts: Iterable[str], size: int) -> Iterator[str]:
    """Draw `size` texts with equal probability (reservoir sampling; Vitter 1985, algorithm R)."""
    rng = random.Random(_SEED)
    kept: list[tuple[int, str]] = []
    for number, text in enumerate(texts):
        if number < size:
            kept.append((number, text))
        elif (place := rng.randrange(number + 1)) < size:
            kept[place] = (number, text)
    return (text for _, text in sorted(kept))


def _fitted(encoder: Encoder, texts: Iterable[str], args: argparse.Namespace) -> FittedMap:
    from tqdm.auto import tqdm

    from declutr.corpus.text_inputs import text_blocks

    digest = hashlib.sha256()

    def embeddings() -> Iterator[np.ndarray]:
        # With None, tqdm shows a bar only on a terminal, so that logs contain none.
        with tqdm(unit=" texts", unit_scale=True, disable=True if args.quiet else None) as bar:
            for block in text_blocks(texts, _BLOCK_TEXTS, _BLOCK_CHARACTERS):
                for text in block:
                    content = text.encode("utf-8", "surrogatepass")
                    digest.update(len(content).to_bytes(8, "little") + content)
                yield encoder(block)
                bar.update(len(block))

    whitening = _map_of(embeddings(), args)
    return whitening.with_digest(f"sha256:{digest.hexdigest()}")  # known once all texts are read


def _map_of(embeddings: Iterator[np.ndarray], args: argparse.Namespace) -> FittedMap:
    if args.method == "flow":
        from declutr.inference.flow import Flow

        numbers = {"epochs": args.epochs or 1, "batch_size": _BATCH, "seed": _SEED}
        return Flow.fit(embeddings, **numbers, progress=not args.quiet)
    from declutr.inference.whitening import Whitening

    return Whitening.fit(embeddings, args.dimension)


def _told(
    whitening: FittedMap, places: list[Path], encoder: Encoder, linear: bool
) -> Iterator[str]:
    k = whitening.dimension
    yield f"Fitted on {whitening.texts:,} texts."
    if cut := encoder.truncated_texts:
        kept = "end" if encoder.describe().get("truncation_side") == "left" else "beginning"
        yield f"{cut:,} are longer than the model takes, and count with their {kept}."
    yield whitening.told()
    if whitening.texts < _FEW * k:
        better = ", or a smaller --dimension, gives a steadier whitening"
        yield (
            f"That is fewer than {_FEW} texts for each of the {k} dimensions: more text"
            + (f"{better}." if linear else " gives a steadier flow.")
        )
    yield from (f"Stored in {place}" for place in places)
