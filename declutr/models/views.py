"""How the two views of a text come about that an objective compares."""

import contextlib
from contextlib import AbstractContextManager
from functools import partial
from typing import Optional

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules import TextFieldEmbedder
from allennlp.nn.util import get_text_field_mask

from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.text_batches import mean_of_texts
from declutr.objectives.checks import one_of
from declutr.system.distributed import is_sharded


class Views(torch.nn.Module, Registrable):
    """Anchors and positives of a batch; register subclasses under a name.

    `forward(anchors, positives, embedder)` takes texts `(N, L)` and `(N * P, L)`, the positives of
    the reader or `None`, and what will embed them, and returns both views. Where `changes_passes`,
    each view goes through the encoder in a pass of its own, within `within(name, encoder)`.
    """

    default_implementation = "spans"

    changes_passes: bool = False

    needs_positives: bool = False
    """Whether it is the reader that brings the second view."""

    embeds_positives: bool = False
    """Whether `embed_positives` makes the vectors of positives; they go through no encoder then."""

    def within(self, name: str, encoder: torch.nn.Module) -> AbstractContextManager:
        """What holds while the view of that name (`anchors`, `positives`) is encoded."""
        return contextlib.nullcontext()

    def embed_positives(self, texts: TextFieldTensors, embedder: TextFieldEmbedder) -> torch.Tensor:
        """The vectors `(N, d)` of positives `(N, L)`, where `embeds_positives`."""
        raise NotImplementedError


@Views.register("spans")
class SpanViews(Views):
    """What the reader brings: spans of one document, neighbouring sentences, labelled pairs."""

    needs_positives = True

    def forward(
        self,
        anchors: TextFieldTensors,
        positives: Optional[TextFieldTensors],
        embedder: TextFieldEmbedder,
    ) -> tuple[TextFieldTensors, TextFieldTensors]:
        if positives is None:
            raise ConfigurationError(
                "There are no positives to contrast anchors with. Set num_anchors and "
                "num_positives on the dataset reader, remove the model's loss, or let the model "
                'make the second view: "views": "dropout".'
            )
        return anchors, positives


class _SameText(Views):
    """Both views are the text itself, encoded differently."""

    def forward(
        self,
        anchors: TextFieldTensors,
        positives: Optional[TextFieldTensors],
        embedder: TextFieldEmbedder,
    ) -> tuple[TextFieldTensors, TextFieldTensors]:
        if positives is not None:
            raise ConfigurationError(
                f"{type(self).__name__} makes both views of the same text, but the dataset reader "
                "brings positives. Remove what makes them from the reader (num_anchors, positives; "
                "text_pairs brings them always), or set the model's views to 'spans'."
            )
        return anchors, anchors


@Views.register("dropout")
class DropoutViews(_SameText):
    """The same texts twice: dropout alone makes the views differ (SimCSE, Gao et al., 2021)."""


@Views.register("dropout_rates")
class DropoutRateViews(_SameText):
    """The same texts under a low and a high rate of dropout, set on every dropout of the encoder
    (SCD, Klein & Nabi, 2022, section 2).

    # Parameters

    low, high : rates of the anchors' and of the positives' pass. Defaults are the paper's for BERT.
    """

    changes_passes = True

    def __init__(self, low: float = 0.05, high: float = 0.15) -> None:
        super().__init__()
        for name, rate in (("low", low), ("high", high)):
            if not 0 <= rate < 1:
                raise ConfigurationError(f"{name} must lie in [0, 1), got {rate}.")
        if low >= high:
            raise ConfigurationError(f"low must be below high, got {low} and {high}.")
        self.rates = {"anchors": low, "positives": high}

    def within(self, name: str, encoder: torch.nn.Module) -> AbstractContextManager:
        from declutr.transformer.architectures import dropout_rate

        return dropout_rate(encoder, self.rates[name])


@Views.register("levels")
class LevelViews(_SameText):
    """Two levels of the same text: its embedding, and the mean of its word embeddings (u and v of
    RECLAIM, section 5.1).

    The second is looked up in the transformer's table, to which the gradient goes; special tokens
    are words like others. It is as wide as that table, narrower than embeddings in an ALBERT.
    """

    embeds_positives = True

    def embed_positives(self, texts: TextFieldTensors, embedder: TextFieldEmbedder) -> torch.Tensor:
        if not isinstance(embedder, MLMTextFieldEmbedder):
            raise ConfigurationError(
                'Levels are a transformer\'s: give the model a text field embedder of type "mlm".'
            )
        if is_sharded(embedder):
            raise ConfigurationError(
                "Levels look words up in the transformer's table, of which a process of several "
                "has only a part here. Train without an accelerator that shards, or take other "
                "views."
            )
        words = embedder.token_embedder.transformer_model.get_input_embeddings()
        ((_, tensors),) = texts.items()
        return mean_of_texts(words(tensors["token_ids"]), get_text_field_mask(texts))


@Views.register("cutoff")
class CutoffViews(_SameText):
    """The same texts with parts of their input cut off (Shen et al., 2020); dropout acts besides.

    # Parameters

    kind : `"token"`, `"span"` or `"feature"`; see `declutr.models.cutoff`.
    rate : the share that is cut.
    both : cut both views, each on its own; otherwise anchors stay whole.
    """

    def __init__(self, kind: str = "token", rate: float = 0.1, both: bool = False) -> None:
        from declutr.models.cutoff import KINDS

        super().__init__()
        one_of("kind of cutoff", kind, KINDS)
        if not 0 < rate < 1:
            raise ConfigurationError(f"rate must lie in (0, 1), got {rate}.")
        self.kind, self.rate, self.both = kind, rate, both

    def forward(
        self,
        anchors: TextFieldTensors,
        positives: Optional[TextFieldTensors],
        embedder: TextFieldEmbedder,
    ) -> tuple[TextFieldTensors, TextFieldTensors]:
        whole, again = super().forward(anchors, positives, embedder)
        if not isinstance(embedder, MLMTextFieldEmbedder):
            raise ConfigurationError(
                "Cutoff works on a transformer's input: give the model a text field embedder of "
                'type "mlm".'
            )
        if not self.training:
            return whole, again
        from declutr.models.cutoff import cut_texts

        cut = partial(cut_texts, embedder=embedder.token_embedder, kind=self.kind, rate=self.rate)
        return cut(whole) if self.both else whole, cut(again)
