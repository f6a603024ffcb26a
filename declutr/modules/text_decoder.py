"""The decoder of a denoising autoencoder of texts (TSDAE; Wang et al., 2021)."""

import copy
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.data import TextFieldTensors
from transformers import AutoModel

from declutr.modules.masked_lm import masked_lm_sums
from declutr.sampling.masking import IGNORE
from declutr.system import LOADING
from declutr.system.host_memory import carried
from declutr.transformer.architectures import remove_pooler
from declutr.transformer.training_products import quick_products


class TextDecoder(torch.nn.Module):
    """A decoder that reconstructs a text from its embedding and nothing else.

    The source is "TSDAE: Using Transformer-based Sequential Denoising Auto-Encoder for Unsupervised
    Sentence Embedding Learning", section 3: a transformer of the encoder's architecture, in which a
    token attends to those before it and, by cross-attention, to the embedding alone. It shares all
    weights with the encoder but those of its cross-attention, which begin at random; its language
    modelling head is the encoder's.

    # Parameters

    masked_lm : the encoder with its language modelling head. It is no submodule of the decoder.
    encoder : its part without the head.

    # Raises

    `ConfigurationError` : transformers has no cross-attention for this architecture.
    """

    def __init__(self, masked_lm: torch.nn.Module, encoder: Any) -> None:
        super().__init__()
        self._masked_lm = (masked_lm,)  # a tuple, or its weights would be listed twice
        config = copy.deepcopy(encoder.config)
        config.is_decoder, config.add_cross_attention, config.use_cache = True, True, False
        with LOADING:
            self.transformer: Any = AutoModel.from_config(config, dtype=torch.float32)
        remove_pooler(self.transformer)  # as the encoder has none
        if not _share(encoder, self.transformer):
            raise ConfigurationError(
                "reconstruct needs a transformer with cross-attention, which transformers does not "
                f"have for {type(encoder).__name__} ({config.model_type}). Take one of the kind of "
                "BERT or RoBERTa, or set reconstruct to false."
            )

    def forward(self, embeddings: torch.Tensor, texts: TextFieldTensors) -> torch.Tensor:
        """Predict each token of some texts from the tokens before it and an embedding.

        # Parameters

        embeddings : `(N, d)`, of the texts with noise.
        texts : `(N, L)`, the texts to reconstruct, padded on the right, as word pieces.

        # Returns

        The cross entropy, the number predicted correctly and the number of tokens, `(3,)`. The
        first token of a text, which is always the same, is not predicted.
        """
        ((_, tensors),) = texts.items()
        ids, mask = tensors["token_ids"], tensors["mask"]
        labels = carried(lambda i, m: i[:, 1:].masked_fill(~m[:, 1:], IGNORE), ids, mask)
        (masked_lm,) = self._masked_lm
        with quick_products(self.transformer, ids.device):
            # Attention to earlier tokens only never sees padding, which is on the right.
            hidden = self.transformer(
                input_ids=ids[:, :-1],
                encoder_hidden_states=embeddings.unsqueeze(1),  # (N, 1, d)
                return_dict=True,
            ).last_hidden_state  # (N, L - 1, d)
        return torch.stack(masked_lm_sums(masked_lm, hidden, labels))


def _share(encoder: torch.nn.Module, decoder: torch.nn.Module) -> bool:
    """Let a decoder have the parameters of an encoder, and return whether it has others as well."""
    own = dict(encoder.named_parameters(remove_duplicate=False))
    others = False
    for prefix, module in decoder.named_modules():
        for name in list(module._parameters):
            shared = own.get(f"{prefix}.{name}")
            if shared is None:
                others = True
            else:
                module._parameters[name] = shared
    return others
