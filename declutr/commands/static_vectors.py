"""The command `static-vectors`, which makes the first table of a static encoder."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from declutr.commands.command import (
    Command,
    add_text_key,
    require_at_least_1,
    require_use,
    text_key,
    told_to_user,
)
from declutr.commands.errors import CommandError
from declutr.inference import is_archive

if TYPE_CHECKING:  # importing these takes time, and every `allennlp` command loads this module
    import numpy as np

    from declutr.archives.static_folder import StaticTable

METHODS = ("texts", "words", "transformer", "distil", "random")
_OF_TEXTS = ("texts", "random")
_WRITTEN = re.compile(
    r"model\.safetensors|(modules|config_sentence_transformers|static_embedding)\.json"
    r"|(tokenizer|tokenizer_config)\.json"
)


class StaticVectors(Command):
    """A command that makes the first table of a static encoder: token vectors without training."""

    name = "static-vectors"
    description = (
        "Make the table of a static encoder, whose embedding of a text is the mean of the vectors "
        "of its tokens. The folder is an encoder already (Encoder, sentence-transformers), and "
        "what the recipes static_* train (`declutr train --transformer`)."
    )
    epilog = """\
--method texts        vectors from nothing but your text: co-occurrences, PPMI and their singular
                      vectors, with SIF weights. SOURCE is texts: a text a line (plain or
                      compressed), JSON lines, CSV or TSV with a header, or parquet.
--method words        SOURCE is a file of word vectors in the format of GloVe or fastText.
--method transformer  SOURCE is a transformer, of which the table of input embeddings is taken.
--method distil       SOURCE is a sentence encoder (any that Encoder opens, with a tokenizer of word
                      pieces): its embedding of every token alone, PCA and Zipf weights, as in
                      model2vec.
--method random       random vectors, with a tokenizer that is trained on the texts SOURCE.

  declutr static-vectors docs.txt -o start
  declutr train static_declutr docs.txt --transformer start -s output"""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add = parser.add_argument
        add("source", metavar="SOURCE", nargs="+", help="texts, or see below")
        add("-o", "--output", metavar="FOLDER", required=True, help="the folder to write")
        add("--method", choices=METHODS, default="texts", help="where vectors come from (texts)")
        add("--dimension", metavar="D", type=int, help="of vectors (256; of words: as in the file)")
        add("--vocabulary", metavar="N", type=int, help="texts, random: most tokens (30,000)")
        add("--tokenizer", metavar="FOLDER", help="texts, random: take the tokenizer.json there")
        add("--window", metavar="N", type=int, help="texts: largest distance of a pair (5)")
        add("--sif", metavar="A", type=float, help="texts: weights a/(a+p) (0.001); 0: none")
        add("--components", metavar="N", type=int, help="texts: directions to remove (0)")
        add("--seed", type=int, help="texts, random: of random numbers (0)")
        add(
            "--dtype",
            choices=("float32", "float16", "int8"),
            default="float32",
            help="on disk (float32)",
        )
        add("--overwrite", action="store_true", help="replace a static encoder that is there")
        add_text_key(parser)

    def needs_allennlp(self, args: argparse.Namespace) -> bool:
        return args.method == "distil" and is_archive(args.source[0])

    def run(self, args: argparse.Namespace) -> None:
        from declutr.archives.static_folder import StaticFolderError, write_static
        from declutr.corpus.text_files import SourceError
        from declutr.export.output_place import folder_beside, move
        from declutr.inference import EncoderError
        from declutr.system.files import use_umask
        from declutr.system.processors import keep_to_quota

        _check(args)
        keep_to_quota()
        errors = (StaticFolderError, EncoderError, SourceError, ValueError, OSError)
        with told_to_user(*errors):
            folder = _checked_place(Path(args.output), args.overwrite)
            with folder_beside(folder) as beside:
                table = _MAKERS[args.method](args)
                write_static(table, beside, args.dtype)
                use_umask([beside, *beside.rglob("*")])
                move(beside, folder)
        rows, width = table.vectors.shape
        print(f"{rows:,} vectors of {width} dimensions in {folder}.")
        print(f"Train it: declutr train static_declutr docs.txt --transformer {folder} -s output")


def _check(args: argparse.Namespace) -> None:
    """Raise `CommandError` for options of another method, and numbers out of range."""
    require_at_least_1(args, "--dimension", "--vocabulary", "--window")
    of_texts = args.method in _OF_TEXTS
    for option in ("--vocabulary", "--tokenizer"):
        if getattr(args, option.strip("-")) is not None and not of_texts:
            raise CommandError(
                f"{option} is for the methods {' and '.join(_OF_TEXTS)}: {args.method} has its own "
                "tokenizer. Leave it out."
            )
    if not of_texts:
        require_use(args, f"with --method {args.method}", "--seed", "--text-key")
    if args.tokenizer is not None:
        require_use(args, "with --tokenizer, which has its vocabulary", "--vocabulary")
    for option in ("--window", "--sif", "--components"):
        value = getattr(args, option.strip("-"))
        if value is not None and args.method != "texts":
            raise CommandError(f"{option} is for the method texts, got --method {args.method}.")
        if (value or 0) < 0:
            raise CommandError(f"Expected {option} of 0 or more, got {value}.")
    if len(args.source) > 1 and not of_texts:
        raise CommandError(
            f"--method {args.method} takes one SOURCE, got {len(args.source)}: "
            f"{', '.join(args.source)}."
        )


def _checked_place(folder: Path, overwrite: bool) -> Path:
    from declutr.archives.static_folder import SHAPE, is_static
    from declutr.export.output_place import other_files

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not is_static(folder):
            raise CommandError(
                f"There is something at '{folder}' that is no static encoder. Choose another "
                "--output."
            )
        if not overwrite:
            raise CommandError(
                f"There is a static encoder at '{folder}'. Replace it with --overwrite, or choose "
                "another --output."
            )
        if not (folder / SHAPE).is_file():
            raise CommandError(
                f"There is a static encoder at '{folder}' that another tool wrote (it has no "
                f"{SHAPE}). Choose another --output."
            )
        if others := other_files(folder, _WRITTEN):
            raise CommandError(
                f"The static encoder at '{folder}' has files that this command does not write: "
                f"{others}. Move them elsewhere, or choose another --output."
            )
    return folder


def _of_texts(args: argparse.Namespace) -> StaticTable:
    from declutr.static_vectors.first_tables import table_of_texts
    from declutr.static_vectors.progress import TextPasses

    tokenizer = _tokenizer(args)
    return table_of_texts(
        TextPasses(lambda: _texts(args), has_tokenizer=tokenizer is not None),
        tokenizer=tokenizer,
        vocabulary=args.vocabulary or 30_000,
        dimension=args.dimension or 256,
        window=args.window or 5,
        sif_a=(1e-3 if args.sif is None else args.sif) or None,
        components=args.components or 0,
        seed=args.seed or 0,
    )


def _random(args: argparse.Namespace) -> StaticTable:
    from declutr.static_vectors.first_tables import random_table
    from declutr.static_vectors.tokenizers import trained_word_pieces

    tokenizer = _tokenizer(args) or trained_word_pieces(
        lambda: _texts(args), args.vocabulary or 30_000
    )
    return random_table(tokenizer, args.dimension or 256, args.seed or 0)


def _of_words(args: argparse.Namespace) -> StaticTable:
    import numpy as np

    from declutr.corpus.file_digests import file_digests
    from declutr.inference.sources.word_vector_files import open_word_vectors
    from declutr.static_vectors.first_tables import table_of_words
    from declutr.static_vectors.weighting import principal_components
    from declutr.system.cache_folder import default_cache_dir

    file = Path(args.source[0])
    if not file.is_file():
        raise CommandError(f"There is no file '{file}'. Expected vectors as of GloVe.")
    digest, _ = file_digests([file], default_cache_dir())[file]
    found = open_word_vectors(file, digest)
    vectors = found.vectors_of(np.array(list(found.row.values())))
    if args.dimension is not None:
        vectors = principal_components(vectors, args.dimension)
    return table_of_words(list(found.row), vectors)


def _of_transformer(args: argparse.Namespace) -> StaticTable:
    from declutr.inference.transformer_loading import loaded_transformer
    from declutr.static_vectors.first_tables import table_of_transformer

    tokenizer, model = loaded_transformer(args.source[0], None, "", "mean", trust=False)
    _require_fast(tokenizer, args.source[0])
    return table_of_transformer(model, tokenizer, args.dimension)


def _distilled(args: argparse.Namespace) -> StaticTable:
    import numpy as np
    from tqdm.auto import tqdm

    from declutr.inference.encoder import Encoder
    from declutr.static_vectors.first_tables import table_of_encoder

    place = args.source[0]
    encoder = Encoder(place, dtype="float32")
    model: Any = encoder._model
    tokenizer: Any = getattr(model, "tokenizer", None)
    if tokenizer is None:
        tokenizer = getattr(getattr(model, "codec", None), "_tokenizer", None)
    if isinstance(tokenizer, str):
        raise CommandError(
            f"'{place}' is a static encoder itself. Expected a sentence encoder to distil."
        )
    _require_fast(tokenizer, place)

    def embed(tokens: list[np.ndarray]) -> np.ndarray:
        starts = range(0, len(tokens), 256)
        bar = tqdm(starts, desc="embedding tokens", unit=" batches", disable=None)
        return np.concatenate([model.embed(tokens[at : at + 256]).cpu().numpy() for at in bar])

    text = tokenizer.backend_tokenizer.to_str()
    return table_of_encoder(embed, text, args.dimension or 256)


def _require_fast(tokenizer: Any, place: str) -> None:
    if getattr(tokenizer, "backend_tokenizer", None) is None:
        raise CommandError(
            f"'{place}' has no tokenizer of the tokenizers library (a tokenizer.json). Expected a "
            "model with a fast tokenizer."
        )


def _texts(args: argparse.Namespace) -> Iterable[str]:
    from declutr.corpus.documents import read_documents
    from declutr.corpus.source_files import source_files

    files = source_files(args.source)
    return (text for text in read_documents(files, text_key(args, files)) if text.strip())


def _tokenizer(args: argparse.Namespace) -> str | None:
    if args.tokenizer is None:
        return None
    file = Path(args.tokenizer, "tokenizer.json")
    if not file.is_file():
        raise CommandError(f"There is no '{file}'. Expected the folder of a fast tokenizer.")
    return file.read_text("utf-8")


_MAKERS = {
    "texts": _of_texts,
    "words": _of_words,
    "transformer": _of_transformer,
    "distil": _distilled,
    "random": _random,
}
