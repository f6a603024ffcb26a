"""The Seq2VecEncoder "classification_pooler": what transformers puts before a linear classifier."""

from typing import Any, Optional

import torch
from allennlp.common.checks import ConfigurationError
from allennlp.modules import Seq2VecEncoder
from torch import Tensor
from transformers import AutoConfig, AutoModel

from declutr.system import LOADING

WITH_POOLER = ("albert", "bert", "ernie", "megatron-bert", "rembert")
"""The kinds of transformers whose pretrained pooler their sequence classifiers use."""


@Seq2VecEncoder.register("classification_pooler")
class ClassificationPooler(Seq2VecEncoder):
    """A pooler that passes the first token's vector through a linear layer and tanh.

    With dropout and a linear layer behind it, as the Model "glue" has them, it is what the public
    fine-tuning code for GLUE trains: of BERT the pretrained pooler (Devlin et al., 2019), of
    RoBERTa the new layer of its classification head, with dropout before it (Liu et al., 2019).
    In contrast to AllenNLP's "bert_pooler", no second copy of the transformer stays in memory,
    and an archive opens without the pretrained weights.

    # Parameters

    model_name : a name on the Hugging Face hub, or a folder: that of the transformer that embeds.
    pretrained : whether to begin with the weights of the transformer's own pooler; by default it
        depends on the kind of transformer, see `WITH_POOLER`. Otherwise the layer is drawn.
    dropout : the probability of dropout before a layer that is not pretrained.
    load_weights : False builds the architecture only, to open an archive, which has weights.
    transformer_kwargs : keyword arguments of `from_pretrained`.

    # Raises

    `ConfigurationError` : `pretrained` is true, and the transformer has no pooler.
    """

    def __init__(
        self,
        model_name: str,
        pretrained: Optional[bool] = None,
        dropout: float = 0.1,
        load_weights: bool = True,
        transformer_kwargs: Optional[dict[str, Any]] = None,
    ) -> None:
        super().__init__()
        kwargs = {"trust_remote_code": False, **(transformer_kwargs or {})}
        config = AutoConfig.from_pretrained(model_name, **kwargs)
        if pretrained is None:
            pretrained = config.model_type in WITH_POOLER
        self._dropout = torch.nn.Dropout(0.0 if pretrained else dropout)
        self._width: int = config.hidden_size
        self._dense = torch.nn.Linear(self._width, self._width)
        torch.nn.init.normal_(self._dense.weight, std=getattr(config, "initializer_range", 0.02))
        torch.nn.init.zeros_(self._dense.bias)
        if pretrained and load_weights:
            self._dense.load_state_dict(_pooler(model_name, kwargs).state_dict())

    def get_input_dim(self) -> int:
        return self._width

    def get_output_dim(self) -> int:
        return self._width

    def forward(self, tokens: Tensor, mask: Optional[Tensor] = None) -> Tensor:
        """Return the pooled texts `(N, d)`.

        # Parameters

        tokens : token vectors `(N, L, d)`, the first one of each text that of `[CLS]` or `<s>`.
        mask : not used.
        """
        return torch.tanh(self._dense(self._dropout(tokens[:, 0])))


def _pooler(model_name: str, kwargs: dict[str, Any]) -> torch.nn.Linear:
    """Return the linear layer of a transformer's pooler, in float32."""
    with LOADING:
        model = AutoModel.from_pretrained(model_name, **{"dtype": torch.float32, **kwargs})
    pooler = getattr(model, "pooler", None)
    layer = getattr(pooler, "dense", pooler)
    if not isinstance(layer, torch.nn.Linear):
        raise ConfigurationError(
            f"The transformer '{model_name}' has no pooler with a linear layer, got "
            f"{type(pooler).__name__}. Set pretrained to false for a new layer."
        )
    return layer
