"""Repairs of AllenNLP's predictors, and of what explains predictions."""

from types import ModuleType
from typing import Any

from declutr.bridge.repairs import replaces


def order_of_instances(module: ModuleType) -> bool:
    """Let the predictor "multitask" return predictions in the order of the instances.

    AllenNLP returns those of the first task, then those of the second, and so on, and
    `allennlp predict --batch-size 8` writes them in this order. Can be removed when AllenNLP puts
    them back.
    """

    @replaces(module.MultiTaskPredictor)
    def predict_batch_instance(original: Any, self: Any, instances: list[Any]) -> list[Any]:
        places: dict[Any, list[int]] = {}  # of the instances of a task
        for place, instance in enumerate(instances):
            places.setdefault(getattr(instance["task"], "metadata", None), []).append(place)
        by_task = [place for of_task in places.values() for place in of_task]
        predicted = dict(zip(by_task, original(self, instances), strict=True))
        return [predicted[place] for place in range(len(instances))]

    return True


def products_with_inputs(module: ModuleType) -> bool:
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

    return True
