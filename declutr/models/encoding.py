"""The encoders of a model, and the embeddings that they make of the views of a batch."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from allennlp.data import TextFieldTensors
from allennlp.modules import Seq2VecEncoder, TextFieldEmbedder
from allennlp.nn.util import get_text_field_mask
from torch.nn.functional import pad

from declutr.models.views import Views
from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.gradient_caching import Encoded, encode_in_chunks
from declutr.modules.heads import Head
from declutr.modules.momentum import MomentumEncoder
from declutr.modules.text_batches import count, device_of, joined
from declutr.objectives.objective import TARGETS
from declutr.sampling.masking import IGNORE
from declutr.system.host_memory import HEAP, carried

_BY_TARGET = {"keys": "positives", **dict(zip(TARGETS, ("anchors", "positives"), strict=True))}
"""Views that a momentum encoder embeds, and what they are views of."""


class Encoders:
    """The encoders of a model, each `{"embedder": ..., "pooler": ..., "head": ...}`, by view.

    The modules are parts of the model. This only holds them, and is none itself.

    # Parameters

    embedder, pooler, head : the encoder that is trained.
    second : one for positives and negatives, of its own weights.
    target : a momentum encoder, for `keys` and targets.
    """

    def __init__(
        self,
        embedder: TextFieldEmbedder,
        pooler: Seq2VecEncoder,
        head: Head | None = None,
        second: torch.nn.ModuleDict | None = None,
        target: MomentumEncoder | None = None,
    ) -> None:
        self.own: dict[str, Any] = {"embedder": embedder, "pooler": pooler, "head": head}
        self.second, self.target = second, target

    def of(self, name: str) -> Any:
        """The encoder that embeds and projects the view of that name."""
        if self.is_of_target(name):
            return self.target
        return self.second if self.is_of_second(name) else self.own

    def is_of_target(self, name: str) -> bool:
        return self.target is not None and name in _BY_TARGET

    def is_of_second(self, name: str) -> bool:
        return self.second is not None and name in ("positives", "negatives")

    def embed(self, texts: TextFieldTensors) -> torch.Tensor:
        """The embeddings `(N, d)` of texts `(N, L)` for use: those of two encoders concatenated."""
        encoders = [self.own] if self.second is None else [self.own, self.second]
        each = [embedded(encoder, texts) for encoder in encoders]
        return each[0] if len(each) == 1 else torch.cat(each, dim=-1)


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
        self,
        texts: dict[str, TextFieldTensors],
        labels: torch.Tensor | None,
        documents: int,
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
        of_tokens = [name for name in texts if name == "token_vectors"]
        made = [name for name in texts if name == "positives" and self._views.embeds_positives]
        targets = [name for name in texts if self._encoders.is_of_target(name)]
        seconds = [name for name in texts if self._encoders.is_of_second(name)]
        others = of_tokens + made + targets + seconds
        encoded = self._encode_own(
            {name: some for name, some in texts.items() if name not in others}, labels
        )
        embeddings = encoded.embeddings
        for name in of_tokens:
            embeddings |= self._token_vectors(texts[name])
        for name in made:
            embeddings[name] = self._views.embed_positives(texts[name], self._embedder)
        for name in targets:
            with torch.no_grad():
                embeddings[name] = self._encode_by_other(name, texts[name])
        for name in seconds:
            embeddings[name] = self._encode_by_other(name, texts[name])
        return encoded

    def _encode_by_other(self, name: str, texts: TextFieldTensors) -> torch.Tensor:
        encoder = self._encoders.of(name)
        with self._views.within(_BY_TARGET.get(name, name), encoder["embedder"]):
            return embedded(encoder, texts)

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
            with self._within(name):
                each.append(self._encode_own({name: some}, labels if name == "masked" else None))
        embeddings = {name: vectors for one in each for name, vectors in one.embeddings.items()}
        return Encoded(embeddings, each[0].mlm_sums)

    def _within(self, name: str) -> AbstractContextManager:
        if name in ("anchors", "positives"):
            return self._views.within(name, self._embedder)
        return nullcontext()

    def _encode_together(
        self,
        texts: dict[str, TextFieldTensors],
        together: TextFieldTensors,
        labels: torch.Tensor | None,
    ) -> Encoded:
        mlm_sums = None
        if labels is None:
            vectors = self._embedder(together)
        else:
            assert isinstance(self._embedder, MLMTextFieldEmbedder)
            ((_, tensors),) = together.items()
            rows, width = tensors["mask"].shape
            missing = (0, width - labels.size(1), 0, rows - labels.size(0))
            labels = carried(lambda own: pad(own, missing, value=IGNORE), labels)
            output = self._embedder.masked_lm(together, labels)
            vectors = output.embeddings
            mlm_sums = torch.stack([output.loss_sum, output.num_correct, output.num_masked])
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
