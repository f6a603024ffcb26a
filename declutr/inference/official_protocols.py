"""An encoder as MTEB and SentEval want it, to check a number with their own code.

    mteb.evaluate(MtebEncoder(open_encoder("output")), mteb.get_tasks(tasks=["STS12"]))

    prepare, batcher = senteval_functions(open_encoder("output"))
    senteval.engine.SE(params, batcher, prepare).eval(["STS12"])

Neither package is needed for the rest of this one.
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
    """What `mteb.evaluate` of mteb 2 takes for a model (its `EncoderProtocol`).

    Similarity is the cosine; a vector of zeros has similarity 0 to everything. If the model names
    prompts for queries and documents, those stand before what MTEB says are queries and documents,
    unless the encoder was opened with a prompt. Batches are joined, so that the encoder can sort
    all texts by length.

    # Parameters

    encode : texts to their embeddings `(n, d)`.
    name : `organisation/model` in MTEB's results; by default `declutr/` and the encoder's own name.
    revision : tells one state of a model from another: MTEB keeps results by name and revision, and
        takes them from there the next time. By default the encoder's fingerprint (with `-prompts`,
        where those of queries and documents are used); of a callable that has none, something new
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
        # It becomes the name of a folder.
        self.name = re.sub(r"[^\w./-]+", "_", full).strip("_")
        self.revision = revision or self._own_revision() or uuid.uuid4().hex

    @property
    def mteb_model_meta(self) -> Any:
        """Name and revision, under which MTEB keeps results."""
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
        """The embeddings `(n, d)`, float32, of all texts of all batches, in their order.

        # Parameters

        inputs : batches with a list of strings under `text` (mteb 2), or strings, as mteb 1 gave.
        precision : of embeddings; only `float32` is there.
        prompt_type : `query`, `document` (of mteb 1 `passage`) or `None`, as a string or MTEB's
            own enumeration.
        kwargs : what else MTEB says: the task, its split, `batch_size`. None of it changes an
            embedding.

        # Raises

        `TypeError` : what is no text, in a batch or in place of batches.
        `ValueError` : a batch without text, or another precision.
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
        """Return the encoder's fingerprint, if it has one."""
        describe = getattr(self._encode, "describe", None)
        fingerprint = describe().get("fingerprint") if callable(describe) else None
        # Results of releases that used no prompts have the fingerprint alone.
        return f"{fingerprint}-prompts" if fingerprint and self._sides else fingerprint

    def similarity(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """Return the cosine of each of n vectors with each of m, `(n, m)`."""
        import torch

        return torch.atleast_2d(_unit(embeddings1)) @ torch.atleast_2d(_unit(embeddings2)).T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> torch.Tensor:
        """The cosines of n pairs, `(n,)`."""
        return (_unit(embeddings1) * _unit(embeddings2)).sum(dim=-1)


def senteval_functions(
    encode: Encode,
) -> tuple[Callable[[Any, Any], None], Callable[[Any, Sequence[Sequence[str]]], np.ndarray]]:
    """`prepare(params, samples)` and `batcher(params, batch)`, as `senteval.engine.SE` calls them.

    A batch is a list of tokenised sentences; tokens are joined by spaces, and a string stays whole.
    A sentence without tokens is embedded as a full stop, as in SentEval's examples.
    """

    def prepare(params: Any, samples: Any) -> None:
        """Nothing: the encoder knows its words already."""

    def batcher(params: Any, batch: Sequence[Sequence[str]]) -> np.ndarray:
        """The embeddings `(n, d)` of n sentences."""
        return np.asarray(encode([_sentence(tokens) for tokens in batch]), dtype=np.float32)

    return prepare, batcher


def _sentence(tokens: Sequence[str | bytes]) -> str:
    if isinstance(tokens, str):  # or its characters would be taken for tokens
        return tokens or "."
    # Some of SentEval's loaders give bytes.
    words = [token.decode("utf-8") if isinstance(token, bytes) else token for token in tokens]
    return " ".join(words) or "."


def _unit(vectors: Any) -> torch.Tensor:
    """Rows scaled to length 1, `(n, d)` or `(d,)`; zeros stay zeros."""
    import torch

    return torch.nn.functional.normalize(torch.as_tensor(vectors).float(), dim=-1)
