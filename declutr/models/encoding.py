"""The encoders of a model, and the embeddings that they make of the views of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from allennlp.data import TextFieldTensors
from allennlp.nn.util import get_text_field_mask
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from declutr.models.views import Views
from declutr.modules.momentum import MomentumEncoder
from declutr.modules.text_batches import count, device_of, joined, part, rows_of
from declutr.objectives.objective import TARGETS
from declutr.system.host_memory import HEAP, carried

_BY_TARGET = {"keys": "positives", **dict(zip(TARGETS, ("anchors", "positives"), strict=True))}
"""Views that a momentum encoder embeds, and what they are views of."""


@dataclass(eq=False)
class Encoders:
    """The encoders of a model, each `{"embedder": ..., "pooler": ..., "head": ...}`, by view.

    The modules are parts of the model. This only holds them, and is none itself.

    # Parameters

    own : the encoder that is trained.
    second : one for positives and negatives, of its own weights.
    target : a momentum encoder, for `keys` and targets.
    """

    own: Mapping[str, Any]
    second: torch.nn.ModuleDict | None = None
    target: MomentumEncoder | None = None

    def of(self, name: str) -> Any:
        """The encoder that embeds and projects the view of that name."""
        if self.is_of_target(name):
            return self.target
        if self.second is not None and name in ("positives", "negatives"):
            return self.second
        return self.own

    def is_of_target(self, name: str) -> bool:
        return self.target is not None and name in _BY_TARGET

    def gradients(self, name: str) -> AbstractContextManager:
        """A context for what is done with a view: without gradients if it is a target's."""
        return torch.no_grad() if self.is_of_target(name) else nullcontext()

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """The embeddings `(N, d)` of texts `(N, L)` for use: those of two encoders concatenated."""
        encoders = [self.own] if self.second is None else [self.own, self.second]
        each = [embedded(encoder, texts) for encoder in encoders]
        return each[0] if len(each) == 1 else torch.cat(each, dim=-1)


class Encoded(NamedTuple):
    """What an encoder makes of the views of some documents."""

    embeddings: dict[str, torch.Tensor]
    """By view, `(n, d)`."""

    mlm_sums: torch.Tensor | None
    """Cross entropy of masked tokens, how many were predicted right, how many there are: `(3,)`."""


class Encoding:
    """Embeds the views of a batch in a training step.

    # Parameters

    encoders : of the model.
    views : what holds while a view is encoded, and may make the vectors of positives itself.
    chunk_size : documents that go through the encoders at a time; `None` for all.
    """

    def __init__(self, encoders: Encoders, views: Views, chunk_size: int | None) -> None:
        self._encoders, self._views, self._chunk_size = encoders, views, chunk_size
        self._embedder: Any = encoders.own["embedder"]
        self._pooler: Any = encoders.own["pooler"]
        # Where padding costs, anchors and positives are padded apart, each to its longest.
        self._joins = not views.changes_passes and any(
            getattr(module, "unpads", False) for module in self._embedder.modules()
        )

    def __call__(
        self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None, documents: int
    ) -> Encoded:
        """The embeddings of each view, and sums of masked language modelling.

        # Parameters

        texts : `(n, L)`, by view.
        labels : of masked language modelling, for the first view.
        documents : of which there are equally many texts each.
        """
        if self._chunk_size is None or documents <= self._chunk_size:
            return self._encode(texts, labels)
        return encode_in_chunks(self._encode, texts, labels, documents, self._chunk_size)

    def _encode(self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None) -> Encoded:
        """Every view by the encoder that is to embed it."""
        own = {name: some for name, some in texts.items() if self._is_own(name)}
        encoded = self._encode_own(own, labels)
        for name, some in texts.items():
            if name not in own:
                encoded.embeddings.update(self._encode_apart(name, some))
        return encoded

    def _is_own(self, name: str) -> bool:
        """Whether the encoder that is trained makes an embedding of that view."""
        if name == "token_vectors" or (name == "positives" and self._views.embeds_positives):
            return False
        return self._encoders.of(name) is self._encoders.own

    def _encode_apart(self, name: str, texts: TextFieldTensors) -> dict[str, torch.Tensor]:
        if name == "token_vectors":
            return self._token_vectors(texts)
        if name == "positives" and self._views.embeds_positives:
            return {name: self._views.embed_positives(texts, self._embedder)}
        encoder = self._encoders.of(name)
        with (
            self._encoders.gradients(name),
            self._views.within(_BY_TARGET.get(name, name), encoder["embedder"]),
        ):
            return {name: embedded(encoder, texts)}

    def _token_vectors(self, texts: TextFieldTensors) -> dict[str, torch.Tensor]:
        """What the pooler has of each token, `(n, L, c)`, and the mask `(n, L)`."""
        mask = get_text_field_mask(texts)
        vectors = self._embedder(texts).float()
        return {"token_vectors": self._pooler.local_vectors(vectors, mask), "token_mask": mask}

    def _encode_own(
        self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None
    ) -> Encoded:
        """By the encoder that is trained, in one pass if that may be, or in one for each view."""
        if not texts:
            return Encoded({}, None)
        if self._embedder.training and device_of(next(iter(texts.values()))).type == "cpu":
            HEAP.settle()
        together = joined(list(texts.values())) if len(texts) == 1 or self._joins else None
        if together is not None:
            return self._encode_together(texts, together, labels)
        each = []
        for name, some in texts.items():
            paired = name in ("anchors", "positives")
            with self._views.within(name, self._embedder) if paired else nullcontext():
                each.append(self._encode_own({name: some}, labels if name == "masked" else None))
        embeddings = {name: vectors for one in each for name, vectors in one.embeddings.items()}
        return Encoded(embeddings, each[0].mlm_sums)

    def _encode_together(
        self,
        texts: dict[str, TextFieldTensors],
        together: TextFieldTensors,
        labels: torch.Tensor | None,
    ) -> Encoded:
        from declutr.sampling.masking import IGNORE  # embedding masks nothing

        mlm_sums = None
        if labels is None:
            vectors = self._embedder(together)
        else:
            ((_, tensors),) = together.items()
            rows, width = tensors["mask"].shape
            missing = (0, width - labels.size(1), 0, rows - labels.size(0))
            labels = carried(lambda own: pad(own, missing, value=IGNORE), labels)
            vectors, *sums = self._embedder.masked_lm(together, labels)
            mlm_sums = torch.stack(sums)
        sizes = [count(some) for some in texts.values()]
        embeddings = pooled(self._pooler, vectors, together).split(sizes)
        return Encoded(dict(zip(texts, embeddings, strict=True)), mlm_sums)


def embedded(encoder: Any, texts: TextFieldTensors) -> torch.Tensor:
    """Embeddings `(N, d)` by an encoder, `{"embedder": ..., "pooler": ...}`."""
    return pooled(encoder["pooler"], encoder["embedder"](texts), texts)


def pooled(
    pooler: torch.nn.Module, token_vectors: torch.Tensor, texts: TextFieldTensors
) -> torch.Tensor:
    """`(N, L, d)` -> `(N, d)`, in float32."""
    return pooler(token_vectors.float(), mask=get_text_field_mask(texts))


def encode_in_chunks(
    encode: Callable[[dict[str, TextFieldTensors], torch.Tensor | None], Encoded],
    views: dict[str, TextFieldTensors],
    labels: torch.Tensor | None,
    documents: int,
    chunk_size: int,
) -> Encoded:
    """`encode(views, labels)` of `documents` documents, `chunk_size` of them at a time.

    Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", 2021: a
    loss over a batch needs all embeddings, but their gradients are known before any activation is.
    So the batch is encoded keeping nothing but embeddings, the loss gives their gradients, and each
    chunk is then encoded once more to carry its gradients on to the weights. That is activation
    checkpointing of whole chunks, and torch's own does it: with the same random numbers, and under
    DistributedDataParallel and FSDP alike.

    Every view, and the labels, hold equally many rows of each document, document by document.
    """

    def share(rows: int, start: int) -> slice:
        each = rows // documents
        return slice(start * each, (start + chunk_size) * each)

    chunks = []
    for start in range(0, documents, chunk_size):
        some = {name: part(texts, share(count(texts), start)) for name, texts in views.items()}
        their = None if labels is None else rows_of(labels, share(len(labels), start))
        # Weights cast once for all chunks would sum the gradients of all in bfloat16.
        torch.clear_autocast_cache()
        # The backward pass is done with one chunk before it turns to the next.
        chunks.append(checkpoint(encode, some, their, use_reentrant=False))
    return Encoded(
        {name: torch.cat([chunk.embeddings[name] for chunk in chunks]) for name in views},
        None if labels is None else torch.stack([chunk.mlm_sums for chunk in chunks]).sum(0),
    )
