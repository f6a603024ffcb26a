"""Views: the ways to make the two views of a text that a contrastive objective compares."""

import contextlib
from contextlib import AbstractContextManager
from functools import partial

import torch
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from allennlp.modules import TextFieldEmbedder
from allennlp.nn.util import get_text_field_mask

from declutr.modules.embedders import MLMTextFieldEmbedder
from declutr.modules.text_batches import mean_of_texts
from declutr.objectives.numerics import one_of
from declutr.system.distributed import is_sharded


class Views(torch.nn.Module, Registrable):
    """A way to make the two views of the texts of a batch; register subclasses under a name.

    Called with anchors, texts `(N, L)`, with positives, the texts `(N * P, L)` of the reader or
    `None`, and with the text field embedder that will embed them, it returns the texts of both
    views. Without `needs_positives` they are the same texts, encoded in two ways.
    """

    default_implementation = "spans"

    changes_passes: bool = False
    """Whether each view takes an encoder pass of its own, in the context that `within` returns."""

    needs_positives: bool = False
    """Whether the second view must come from the dataset reader."""

    group: int = 1
    """The number of consecutive pairs that an objective must take together."""

    embeds_positives: bool = False
    """Whether `embed_positives`, and no encoder, makes the embeddings of positives."""

    def within(self, name: str, encoder: torch.nn.Module) -> AbstractContextManager:
        """Return the context in which to encode a view.

        # Parameters

        name : `"anchors"` or `"positives"`.
        encoder : the text field embedder that encodes it.
        """
        return contextlib.nullcontext()

    def embed_positives(self, texts: TextFieldTensors, embedder: TextFieldEmbedder) -> torch.Tensor:
        """Return the embeddings `(N, d)` of positives `(N, L)`; needed if `embeds_positives`."""
        raise NotImplementedError

    def forward(
        self,
        anchors: TextFieldTensors,
        positives: TextFieldTensors | None,
        embedder: TextFieldEmbedder,
    ) -> tuple[TextFieldTensors, TextFieldTensors]:
        if self.needs_positives and positives is None:
            raise ConfigurationError(
                "There are no positives to contrast anchors with. Set num_anchors and "
                "num_positives on the dataset reader, remove the model's loss, or let the model "
                'make the second view: "views": "dropout".'
            )
        if not self.needs_positives and positives is not None:
            raise ConfigurationError(
                f"{type(self).__name__} makes both views of the same text, but the dataset reader "
                "brings positives. Remove what makes them from the reader (num_anchors, positives; "
                "text_pairs brings them always), or set the model's views to 'spans'."
            )
        return anchors, anchors if positives is None else positives


@Views.register("spans")
class SpanViews(Views):
    """The views "spans": spans, neighbouring sentences or pairs from the dataset reader."""

    needs_positives = True


@Views.register("dropout")
class DropoutViews(Views):
    """The views "dropout": the same texts under different dropout (SimCSE, Gao et al., 2021)."""


@Views.register("dropout_rates")
class DropoutRateViews(Views):
    """The views "dropout_rates": the same texts under a low and a high dropout rate.

    The rate is set on every dropout layer of the encoder (SCD; Klein & Nabi, 2022, section 2).

    # Parameters

    low, high : the rates for anchors and for positives, in [0, 1). The defaults are those of the
        paper for BERT.

    # Raises

    `ConfigurationError` : a rate is out of range, or `low` is not below `high`.
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
class LevelViews(Views):
    """The views "levels": the embedding of a text, and the mean of its word embeddings.

    They are the features u and v of RECLAIM, section 5.1. The second view is looked up in the
    transformer's table of input embeddings, which gets its gradient; special tokens count as words.
    It is as wide as that table, which may be narrower than embeddings, as in ALBERT.
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
class CutoffViews(Views):
    """The views "cutoff": the same texts with parts of their input erased (Shen et al., 2020).

    Texts are cut in training only. Dropout makes the views differ as well.

    # Parameters

    kind : `"token"`, `"span"` or `"feature"`; see `declutr.models.cutoff`.
    rate : the share of tokens or features that is cut, in (0, 1).
    both : True cuts both views, with separate draws; False leaves the anchors whole.

    # Raises

    `ConfigurationError` : the kind is unknown, or the rate is out of range.
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
        positives: TextFieldTensors | None,
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
