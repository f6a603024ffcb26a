"""The encoders of the Model "declutr", and the passes that embed the views of a batch."""

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
from declutr.modules.heads import MomentumEncoder
from declutr.modules.text_batches import count, device_of, joined, part, rows_of
from declutr.modules.token_embedding_bag import MeanOfBag
from declutr.objectives.objective import TARGETS
from declutr.system.host_memory import HEAP, carried

_BY_TARGET = {"keys": "positives", **dict(zip(TARGETS, ("anchors", "positives"), strict=True))}
"""The views that a momentum encoder embeds, and the texts that they are embeddings of."""


@dataclass(eq=False)
class Encoders:
    """The encoders of a model, and which of them embeds which view.

    An encoder is a mapping `{"embedder": ..., "pooler": ..., "head": ...}`. Its modules belong to
    the model; this class is no module, so that their weights are not listed twice.

    # Parameters

    own : the encoder that the optimizer trains.
    second : a separate encoder for positives and negatives, with `two_encoders`.
    target : the momentum encoder, for `keys` and the targets of an objective.
    embed_with_first : whether embeddings are those of `own` alone, although there is a second.
    """

    own: Mapping[str, Any]
    second: torch.nn.ModuleDict | None = None
    target: MomentumEncoder | None = None
    embed_with_first: bool = False

    @property
    def embedding(self) -> list[Any]:
        """The encoders whose embeddings, joined, are the embedding of a text."""
        alone = self.second is None or self.embed_with_first
        return [self.own] if alone else [self.own, self.second]

    def of(self, name: str) -> Any:
        """Return the encoder that embeds and projects a view."""
        if self.is_of_target(name):
            return self.target
        if self.second is not None and name in ("positives", "negatives"):
            return self.second
        return self.own

    def is_of_target(self, name: str) -> bool:
        """Return whether the momentum encoder embeds a view."""
        return self.target is not None and name in _BY_TARGET

    def gradients(self, name: str) -> AbstractContextManager:
        """Return the context to encode a view in: without gradients for the momentum encoder."""
        return torch.no_grad() if self.is_of_target(name) else nullcontext()

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """Return the embeddings `(N, d)` of texts `(N, L)`, concatenated over two encoders."""
        each = [embedded(encoder, texts) for encoder in self.embedding]
        return each[0] if len(each) == 1 else torch.cat(each, dim=-1)


class Encoded(NamedTuple):
    """The embeddings of the views of some documents, and sums over their masked tokens."""

    embeddings: dict[str, torch.Tensor]
    """The embeddings `(n, d)` by the name of the view."""

    mlm_sums: torch.Tensor | None
    """The cross entropy, the number predicted correctly and the number of masked tokens: `(3,)`."""


class Encoding:
    """A callable that embeds the views of a batch in a training step.

    # Parameters

    encoders : the encoders of the model.
    views : the way that views are made, which may change the passes of the encoder.
    chunk_size : the number of documents that go through the encoders at a time; `None` takes all.
    """

    def __init__(self, encoders: Encoders, views: Views, chunk_size: int | None) -> None:
        self._encoders, self._views, self._chunk_size = encoders, views, chunk_size
        self._embedder: Any = encoders.own["embedder"]
        self._pooler: Any = encoders.own["pooler"]
        # If padding is computed on, anchors and positives take separate passes, so that each is
        # padded to its own longest text only.
        unpads = any(getattr(module, "unpads", False) for module in self._embedder.modules())
        self._joins = not views.changes_passes and unpads

    def __call__(
        self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None, documents: int
    ) -> Encoded:
        """Return the embeddings of each view, and the sums of masked language modelling.

        # Parameters

        texts : the texts `(n, L)` by the name of the view.
        labels : `(n, L)`, the labels of masked language modelling for the first view.
        documents : the number of documents. Every view has the same number of texts of each.
        """
        if self._chunk_size is None or documents <= self._chunk_size:
            return self._encode(texts, labels)
        return encode_in_chunks(self._encode, texts, labels, documents, self._chunk_size)

    def _encode(self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None) -> Encoded:
        own = {name: some for name, some in texts.items() if self._is_own(name)}
        encoded = self._encode_own(own, labels)
        for name, some in texts.items():
            if name not in own:
                encoded.embeddings.update(self._encode_apart(name, some))
        return encoded

    def _is_own(self, name: str) -> bool:
        """Return whether the trained encoder embeds a view in its usual pass."""
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
        """Return the pooler's local vectors `(n, L, c)` of tokens, and the mask `(n, L)`."""
        mask = get_text_field_mask(texts)
        vectors = self._embedder(texts).float()
        return {"token_vectors": self._pooler.local_vectors(vectors, mask), "token_mask": mask}

    def _encode_own(
        self, texts: dict[str, TextFieldTensors], labels: torch.Tensor | None
    ) -> Encoded:
        """Embed views with the trained encoder, in one pass if possible, or else one for each."""
        if not texts:
            return Encoded({}, None)
        if self._embedder.training and device_of(next(iter(texts.values()))).type == "cpu":
            HEAP.settle()
        together = joined(list(texts.values())) if self._joins else None
        if together is not None:
            return self._encode_together(texts, together, labels)
        each = []
        for name, some in texts.items():
            paired = name in ("anchors", "positives")
            own = labels if name == "masked" else None
            with self._views.within(name, self._embedder) if paired else nullcontext():
                each.append(self._encode_together({name: some}, some, own))
        embeddings = {name: vectors for one in each for name, vectors in one.embeddings.items()}
        return Encoded(embeddings, each[0].mlm_sums)

    def _encode_together(
        self,
        texts: dict[str, TextFieldTensors],
        together: TextFieldTensors,
        labels: torch.Tensor | None,
    ) -> Encoded:
        from declutr.sampling.masking import IGNORE  # needed in training only

        mlm_sums = None
        if labels is None:
            embeddings = embedded(self._encoders.own, together)
        else:
            ((_, tensors),) = together.items()
            rows, width = tensors["mask"].shape
            missing = (0, width - labels.size(1), 0, rows - labels.size(0))
            labels = carried(lambda own: pad(own, missing, value=IGNORE), labels)
            vectors, *sums = self._embedder.masked_lm(together, labels)
            mlm_sums = torch.stack(sums)
            embeddings = pooled(self._pooler, vectors, together)
        sizes = [count(some) for some in texts.values()]
        return Encoded(dict(zip(texts, embeddings.split(sizes), strict=True)), mlm_sums)


def embedded(encoder: Any, texts: TextFieldTensors) -> torch.Tensor:
    """Return the embeddings `(N, d)` of texts `(N, L)` by one encoder."""
    if isinstance(encoder["pooler"], MeanOfBag):
        return encoder["embedder"].bag(texts)
    return pooled(encoder["pooler"], encoder["embedder"](texts), texts)


def pooled(
    pooler: torch.nn.Module, token_vectors: torch.Tensor, texts: TextFieldTensors
) -> torch.Tensor:
    """Return the embeddings `(N, d)` of texts from token embeddings `(N, L, d)`, in float32."""
    return pooler(token_vectors.float(), mask=get_text_field_mask(texts))


def encode_in_chunks(
    encode: Callable[[dict[str, TextFieldTensors], torch.Tensor | None], Encoded],
    views: dict[str, TextFieldTensors],
    labels: torch.Tensor | None,
    documents: int,
    chunk_size: int,
) -> Encoded:
    """Encode a batch in chunks, so that memory holds the activations of one chunk at a time.

    This is gradient caching (Gao et al., "Scaling Deep Contrastive Learning Batch Size under Memory
    Limited Setup", 2021). A loss over a batch needs all embeddings, but no activations. So the
    chunks are encoded without keeping activations, and in the backward pass each chunk is encoded
    once more to carry the gradients of its embeddings to the weights. torch's activation
    checkpointing of whole chunks does this, with the same random numbers both times, and also under
    DistributedDataParallel and FSDP.

    # Parameters

    encode : the function that encodes a chunk, called as `encode(views, labels)`.
    views : the texts by the name of the view. Like `labels`, each has the same number of rows of
        every document, ordered by document.
    labels : the labels of masked language modelling, or `None`.
    documents : the number of documents in the batch.
    chunk_size : the number of documents in a chunk.

    # Returns

    The embeddings of the whole batch, and its sums of masked language modelling.
    """

    def share(rows: int, start: int) -> slice:
        each = rows // documents
        return slice(start * each, (start + chunk_size) * each)

    chunks = []
    for start in range(0, documents, chunk_size):
        some = {name: part(texts, share(count(texts), start)) for name, texts in views.items()}
        their = None if labels is None else rows_of(labels, share(len(labels), start))
        # Autocast would cast the weights once for all chunks, and so sum the gradients of all
        # chunks in bfloat16.
        torch.clear_autocast_cache()
        # The backward pass completes one chunk before it recomputes the next.
        chunks.append(checkpoint(encode, some, their, use_reentrant=False))
    return Encoded(
        {name: torch.cat([chunk.embeddings[name] for chunk in chunks]) for name in views},
        None if labels is None else torch.stack([chunk.mlm_sums for chunk in chunks]).sum(0),
    )
