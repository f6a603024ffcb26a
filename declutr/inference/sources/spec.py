"""Parsing of the short texts that name encoders."""

import difflib
import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from declutr.archives import ARCHIVE, Kind, NoModel, kind_of, named_as_archive
from declutr.archives.static_folder import is_static
from declutr.inference.sources.source import EncoderError

FORMS = """\
  FOLDER, model.tar.gz or a URL   a trained model; also archive:PLACE; options precision=bf16|int8,
                                  dim=N, normalize=true, whiten=false, long_texts=chunk
  hf:NAME_OR_FOLDER               a Hugging Face transformer, mean of its tokens; these options, and
                                  pooling=mean|cls|max|mean-sqrt-length|last|first-last|
                                  embedding-last|last-two|pooler, revision=
  st:NAME_OR_FOLDER               a sentence-transformers model; options revision=,
                                  prompt_name=query (by default its default prompt, if any)
  words:FILE                      mean of word vectors (GloVe or fastText text file, .gz or .xz);
                                  options tokens=words, case=exact, weights=sif, counts=FILE
  random:DIM                      mean of a random vector for each word; options combine=sum,
                                  tokens=words, seed=
  random-sentence:DIM             a random vector for each sentence: chance; option seed=
  MODULE:FUNCTION                 a Python function list[str] -> array; also call:MODULE:FUNCTION;
                                  option fingerprint=TEXT, which changes when embeddings do
A folder may be a transformer or a sentence-transformers model as well. Options follow a question
mark (hf:roberta-base?pooling=cls), LABEL= before all gives a name for tables."""

_WHERE = (
    "`declutr evaluate-embeddings --help` says what an encoder can be; docs/EVALUATION.md has all "
    "forms and options."
)
_OWN = ("precision", "dim", "normalize", "whiten", "long_texts")
OPTIONS = {
    "archive": (*_OWN, "prompt_name"),
    "hf": ("pooling", "revision", *_OWN),
    "st": ("revision", "prompt_name"),
    "words": ("tokens", "case", "weights", "counts"),
    "random": ("combine", "tokens", "seed"),
    "random-sentence": ("seed",),
    "call": ("fingerprint",),
}
"""The options that each kind of encoder takes."""

_NOT_NAMED = ("counts", "fingerprint")
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_LABEL = re.compile(r"([^=:/?\\]+)=(.+)", re.DOTALL)
_VECTOR_FILES = (".vec", ".txt", ".gz", ".xz")
_KINDS = {
    Kind.ARCHIVE: "archive",
    Kind.TRAINED: "archive",
    Kind.TRANSFORMER: "hf",
    Kind.SENTENCE_TRANSFORMERS: "st",
}


@dataclass(frozen=True)
class EncoderSpec:
    """The parts of a text that names an encoder."""

    text: str
    """The text without the label."""
    name: str
    """The name in tables: the label, or a short name made from the other parts."""
    kind: str
    """The kind of encoder, a key of `OPTIONS`."""
    place: str
    """The file, folder, URL, name or number after the kind."""
    options: dict[str, str] = field(default_factory=dict)
    """The options after the question mark."""


def parse_spec(text: str) -> EncoderSpec:
    """Return the parts of a text that names an encoder, without loading anything.

    # Parameters

    text : one of `FORMS`, with or without a label.

    # Raises

    `EncoderError` : the text has none of the forms, or there is no such file or folder.

    >>> parse_spec("random:300?combine=sum").options
    {'combine': 'sum'}
    """
    spec, label = text.strip(), ""
    if not Path(spec).exists() and (match := _LABEL.fullmatch(spec)):
        label, spec = match[1].strip(), match[2].strip()
    kind, place, options = _parts(spec) if spec else ("", "", {})
    if not place:
        raise EncoderError(f"Expected the name of an encoder, got {text!r}. {_WHERE}")
    for key in options:
        if key not in OPTIONS[kind]:
            raise EncoderError(
                f"Unknown option {key!r} in {spec!r}; {kind} takes "
                f"{', '.join(OPTIONS[kind]) or 'none'}."
            )
    return EncoderSpec(spec, label or _short_name(kind, place, options), kind, place, options)


def _parts(spec: str) -> tuple[str, str, dict[str, str]]:
    """Return the kind, place and options that a text names."""
    before, colon, after = spec.partition(":")
    if colon and before in OPTIONS:
        return before, *_with_options(after)
    place, options = _with_options(spec)
    if "://" in place:
        return "archive", place, options
    if Path(place).exists():
        return _kind_of(Path(place)), place, options
    near = difflib.get_close_matches(before, OPTIONS, n=1) if colon else []
    if _FUNCTION.fullmatch(place) and (not near or _is_module(before)):
        return "call", place, options
    hint = "there is no such file or folder."
    if near:
        hint = f"did you mean {near[0]}:?"
    elif re.fullmatch(r"[\w.-]+(/[\w.-]+)?", spec):
        hint += f" A model of the Hugging Face hub is hf:{spec} or st:{spec}."
    raise EncoderError(f"No encoder {spec!r}: {hint} {_WHERE}")


def _with_options(text: str) -> tuple[str, dict[str, str]]:
    text = os.path.expanduser(text)  # shells leave `~` within quotes and after `=`
    place, mark, query = text.partition("?")
    if not mark or Path(text).exists():
        return text, {}
    options = {}
    for part in query.split("&"):
        key, sign, value = part.partition("=")
        if not (key and sign and value):
            raise EncoderError(f"Expected KEY=VALUE after the question mark, got {part!r}: {text}")
        if key in options:
            raise EncoderError(f"The option {key!r} stands twice in {text!r}.")
        options[key] = os.path.expanduser(value) if key == "counts" else value
    return place, options


def _kind_of(place: Path) -> str:
    """Return the kind of encoder that a file or folder holds."""
    if place.is_file() and place.suffix in _VECTOR_FILES and not named_as_archive(place):
        return "words"
    if is_static(place):
        return "archive"
    try:
        return _KINDS[kind_of(place)]
    except NoModel as error:
        vectors = f" Files of word vectors end in {', '.join(_VECTOR_FILES)}."
        named = vectors if place.is_file() else ""
        raise EncoderError(f"{error}{named} {_WHERE}") from error


def _is_module(name: str) -> bool:
    return importlib.util.find_spec(name) is not None or Path(f"{name}.py").exists()


def _short_name(kind: str, place: str, options: dict[str, str]) -> str:
    if kind in ("random", "random-sentence"):
        name = f"{kind}:{place}"
    elif kind == "call" or (kind in ("hf", "st") and not Path(place).exists()):
        name = place
    else:
        path = Path(place)
        name = (path.parent if path.name == ARCHIVE else path).resolve().name or place
    chosen = ", ".join(f"{key}={value}" for key, value in options.items() if key not in _NOT_NAMED)
    return f"{name} ({chosen})" if chosen else name
