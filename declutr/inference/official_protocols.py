"""Adapters that let the original code of MTEB and SentEval evaluate an encoder.

    mteb.evaluate(MtebEncoder(open_encoder("output")), mteb.get_tasks(tasks=["STS12"]))

    prepare, batcher = senteval_functions(open_encoder("output"))
    senteval.engine.SE(params, batcher, prepare).eval(["STS12"])

Neither package is needed for the rest of declutr.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from declutr.corpus.text_inputs import as_texts, require_rows
from declutr.inference.text_model import side_prompts

if TYPE_CHECKING:
    import torch

Encode = Callable[[list[str]], np.ndarray]

_SIDES = {"query": "query", "document": "document", "passage": "document"}


class MtebEncoder:
    """An encoder with the interface of mteb 2 (its `EncoderProtocol`), for `mteb.evaluate`.

    Similarity is the cosine; a vector of zeros has similarity 0 to everything. If the model has
    prompts for queries and documents, they are put before the texts that MTEB calls queries and
    documents, unless the encoder was opened with a prompt. Batches are joined, so that the encoder
    can sort all texts by length.

    # Parameters

    encode : a function from a list of texts to their embeddings `(n, d)`.
    name : `organisation/model` in MTEB's results; by default `declutr/` and the encoder's own name.
    revision : a string that changes when the model does, since MTEB caches results by name and
        revision. By default the encoder's fingerprint (followed by `-prompts` if the prompts for
        queries and documents are used); for a callable without a fingerprint, a new random string
        each time.
    """

    def __init__(
        self, encode: Encode, name: str | None = None, revision: str | None = None
    ) -> None:
        self._encode = encode
        chosen = getattr(encode, "prompt", None) is not None
        self._sides = None if chosen else side_prompts(encode)
        own = name or getattr(encode, "name", None) or getattr(encode, "__name__", "encoder")
        full = str(own) if "/" in str(own) else f"declutr/{own}"
        # MTEB uses the name as the name of a folder.
        self.name = re.sub(r"[^\w./-]+", "_", full).strip("_")
        self.revision = revision or self._own_revision() or uuid.uuid4().hex

    @property
    def mteb_model_meta(self) -> Any:
        """The metadata of the model, with the name and revision by which MTEB caches results."""
        from mteb.models.model_meta import ModelMeta, ScoringFunction

        return ModelMeta.create_empty(
            overwrites={
                "name": self.name,
                "revision": self.revision,
                "embed_dim": getattr(self._encode, "dimension", None),
                "similarity_fn_name": ScoringFunction.COSINE,
                "framework": ["PyTorch"],
            }
        )

    def encode(
        self,
        inputs: Iterable[dict[str, Any]] | Sequence[str],
        *,
        precision: str = "float32",
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return the embeddings `(n, d)`, float32, of all texts of all batches, in their order.

        # Parameters

        inputs : batches with a list of strings under the key `text` (mteb 2), or strings (mteb 1).
        precision : the dtype of the embeddings; only `float32` is supported.
        prompt_type : `query`, `document` (`passage` in mteb 1) or `None`, as a string or as a
            member of MTEB's enumeration.
        kwargs : other arguments of MTEB (the task, its split, `batch_size`), which are ignored.

        # Raises

        `TypeError` : an input, or an element of a batch, is not a text.
        `ValueError` : a batch has no text, or another precision is asked for.
        """
        if precision != "float32":
            raise ValueError(f"Expected precision float32, got {precision!r}.")
        require_rows(inputs)
        texts: list[str] = []
        for batch in inputs:
            if isinstance(batch, str):
                texts.append(batch)
            elif "text" in batch:
                texts.extend(as_texts(batch["text"]))
            else:
                raise ValueError(
                    f"Expected batches with 'text', got {sorted(batch)}: only tasks on text can be "
                    "evaluated."
                )
        side = str(getattr(prompt_type, "value", prompt_type))
        if self._sides is None or side not in _SIDES:
            return np.asarray(self._encode(texts), dtype=np.float32)
        prompted: Any = self._encode
        prompt = getattr(self._sides, _SIDES[side])
        return np.asarray(prompted(texts, prompt=prompt), dtype=np.float32)

    def _own_revision(self) -> str | None:
        """Return the revision that the encoder's fingerprint gives; `None` if it has none."""
        describe = getattr(self._encode, "describe", None)
        fingerprint = describe().get("fingerprint") if callable(describe) else None
        # Earlier releases used no prompts: without the suffix, MTEB would take the results that it
        # cached for them.
        return f"{fingerprint}-prompts" if fingerprint and self._sides else fingerprint

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosines `(n, m)` of n embeddings with m others."""
        import torch

        return torch.atleast_2d(_unit(embeddings1)) @ torch.atleast_2d(_unit(embeddings2)).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosines `(n,)` of n pairs of embeddings."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)


def senteval_functions(
    encode: Encode,
) -> tuple[Callable[[Any, Any], None], Callable[[Any, Sequence[Sequence[str]]], np.ndarray]]:
    """Return the functions `prepare` and `batcher` that `senteval.engine.SE` takes.

    `prepare(params, samples)` does nothing. `batcher(params, batch)` returns the embeddings
    `(n, d)` of a list of n tokenised sentences, whose tokens are joined by spaces; a sentence may
    also be a string. A sentence without tokens is embedded as a full stop, as in SentEval's
    examples.

    # Parameters

    encode : a function from a list of texts to their embeddings `(n, d)`.
    """

    def prepare(params: Any, samples: Any) -> None:
        """Do nothing, since the encoder needs no vocabulary of the task."""

    def batcher(params: Any, batch: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the embeddings `(n, d)` of n sentences."""
        return np.asarray(encode([_sentence(tokens) for tokens in batch]), dtype=np.float32)

    return prepare, batcher


def _sentence(tokens: Sequence[str | bytes]) -> str:
    if isinstance(tokens, str):  # its characters are not tokens
        return tokens or "."
    # Some of SentEval's loaders give bytes.
    words = [token.decode("utf-8") if isinstance(token, bytes) else token for token in tokens]
    return " ".join(words) or "."


def _unit(vectors: Any) -> torch.Tensor:
    """Return the rows `(n, d)`, or the vector `(d,)`, scaled to length 1; zeros stay zeros."""
    import torch

    return torch.nn.functional.normalize(torch.as_tensor(vectors).float(), dim=-1)
