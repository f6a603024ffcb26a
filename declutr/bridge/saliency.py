"""Repairs of what explains predictions by the input: saliency and HotFlip."""

import contextlib
import importlib
from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def input_embeddings(module: ModuleType) -> None:
    """Let `find_embedding_layer` find the input embeddings of every pretrained transformer.

    AllenNLP knows those of BERT, RoBERTa, ALBERT and GPT-2. Of other transformers, it returns the
    whole embedder, so saliency was that of the last layer's outputs, and HotFlip refused them.
    Can be removed when AllenNLP calls `get_input_embeddings`.
    """

    @replaces(module)
    def find_embedding_layer(original: Any, model: Any) -> Any:
        transformers = importlib.import_module("transformers")
        found = original(model)
        for part in found.modules():  # AllenNLP's own choice, if it knows the transformer, has none
            if isinstance(part, transformers.PreTrainedModel):
                with contextlib.suppress(NotImplementedError, AttributeError):  # it has none
                    layer = part.get_input_embeddings()
                    if isinstance(layer, module.torch.nn.Embedding):
                        return layer
        return found


def products_with_inputs(module: ModuleType) -> None:
    """Let "simple-gradient" multiply the gradient of a token by the embedding of this token.

    AllenNLP takes the first token's for all: it undoes batching twice. Can be removed when it keeps
    the embeddings as they are, or takes them without `[0]`.
    """

    @replaces(module.SimpleGradient)
    def _register_hooks(
        original: Any, self: Any, embeddings_list: list[Any], token_offsets: list[Any]
    ) -> list[Any]:
        def in_batch(layer: Any, inputs: Any, output: Any) -> None:
            embeddings_list[-1] = output.detach().clone()

        handles = original(self, embeddings_list, token_offsets)
        layer = self.predictor.get_interpretable_layer()
        return [*handles, layer.register_forward_hook(in_batch)]
