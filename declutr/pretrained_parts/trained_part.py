"""What the modules of `declutr.pretrained_parts` have in common."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import Vocabulary
from allennlp.modules.token_embedders import TokenEmbedder

from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.pretrained_parts.opened import OpenedModel


class TrainedPart(torch.nn.Module):
    """A module around one that was trained, which it trains further or keeps as it is.

    What is frozen gets no gradients and stays in evaluation mode, so that its vectors are the same
    in training as afterwards.
    """

    def __init__(self) -> None:
        super().__init__()
        self.train_parameters = True

    def _set_trainable(self, train_parameters: bool) -> None:
        self.train_parameters = train_parameters
        self.requires_grad_(train_parameters)
        self.train()

    def train(self, mode: bool = True) -> Any:
        """Training mode, unless frozen."""
        return super().train(mode and self.train_parameters)


class VocabularyCheck:
    """Whether the ids of a batch mean what they meant in training. Asked once.

    # Parameters

    opened : the archive.
    vocab : of the model around; indexers enter their tokens there when they index first. `None`
        checks nothing.
    """

    def __init__(self, opened: OpenedModel, vocab: Optional[Vocabulary]) -> None:
        self._place = opened.place
        # Read now: what an archive carries is gone when it has been loaded.
        self._known = {} if vocab is None else opened.known_words()
        self._vocab = vocab

    def __call__(self) -> None:
        """Raise `ConfigurationError` if they do not."""
        vocab, known = self._vocab, self._known
        self._vocab, self._known = None, {}
        for namespace, expected in known.items():
            if vocab is None or namespace not in vocab.get_namespaces():
                continue  # not known: texts were indexed in another process
            words = vocab.get_token_to_index_vocabulary(namespace)
            if words != expected:
                raise ConfigurationError(
                    f"The namespace '{namespace}' has {len(words)} tokens that are not the "
                    f"{len(expected)} of '{self._place}': the text was indexed for another model. "
                    f"{use_its_indexer(self._place)} Two archives in one model need namespaces "
                    "of their own: set 'namespace' on their indexers."
                )


def use_its_indexer(place: str) -> str:
    """What to do about text that was not tokenised as the archive wants it."""
    return (
        "Give your dataset reader the tokenizer and a token indexer "
        f'{{"type": "declutr", "archive": "{place}"}}.'
    )


def require_same_folding(embedder: TokenEmbedder, tensors: dict[str, Any]) -> None:
    """Raise `ConfigurationError` if indexer and embedder disagree about segments of long texts."""
    if not isinstance(embedder, PretrainedTransformerEmbedderMLM):
        return
    folded = tensors.get("segment_concat_mask") is not None
    if folded != (embedder._max_length is not None):
        raise ConfigurationError(
            f"The token indexer {'folds' if folded else 'does not fold'} long texts into segments, "
            f"but the embedder's max_length is {embedder._max_length}. Set max_length of both to "
            "the same number, or of neither (max_length of the tokenizer cuts texts off)."
        )
