"""Features of texts from the outputs of submodules of any AllenNLP model, recorded by hooks."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from allennlp.common.checks import ConfigurationError
from torch import Tensor

from declutr.models.reclaim.named_submodules import (
    input_embeddings_name,
    output_width,
    pooler_name,
    require_submodule,
    word_embeddings_name,
)
from declutr.modules import text_batches
from declutr.system.host_memory import on_host

# -------------------------------------------------------------------------- calls of submodules


@dataclass
class Call:
    """A call of a submodule: all tensors of its arguments, and the first tensor of its output."""

    given: list[Tensor]
    output: Tensor | None


@contextmanager
def recorded_calls(model: torch.nn.Module, names: Sequence[str]) -> Iterator[dict[str, list[Call]]]:
    """Record the calls of submodules, by name, while the context is active."""
    calls: dict[str, list[Call]] = {name: [] for name in names}

    def recorder(name: str) -> Any:
        def record(module: torch.nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            first = next((t for t in _tensors(output) if t.is_floating_point()), None)
            calls[name].append(Call([*_tensors(args), *_tensors(kwargs)], first))

        return record

    with ExitStack() as hooks:
        for name in calls:
            module = model.get_submodule(name)
            hooks.enter_context(module.register_forward_hook(recorder(name), with_kwargs=True))
        yield calls


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested mappings and sequences, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _tensors(part)


def _same(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors share their memory, without reading it from the device."""
    return (
        one.shape == other.shape
        and one.stride() == other.stride()
        and one.data_ptr() == other.data_ptr()
    )


# ----------------------------------------------------------------------------- features of texts


class SubmoduleFeature:
    """A feature `(d,)` of each instance of a batch, computed from the output of a submodule.

    If the output is vectors `(n, d)`, they are the features. If it is token embeddings `(n, L, d)`,
    the features are their means over the tokens of each text. Of a tuple or a model output, the
    first tensor counts. If the submodule is called several times in a forward pass, for example for
    premise and hypothesis, the feature is the mean over the calls.

    The input embeddings of a Hugging Face transformer are looked up once more if the transformer
    gets the texts in another form than the batch has them (packed, in groups, in segments).

    # Parameters

    model : the model that has the submodule.
    key : the configuration key, `"u"` or `"v"`, for error messages.
    name : the dotted name of the submodule; by default the pooler (u), or the submodule that embeds
        words (v).
    width : d; by default the width that the submodule states.

    # Raises

    `ConfigurationError` : there is no such submodule, or its width is unknown.
    """

    def __init__(
        self, model: torch.nn.Module, key: str, name: str | None, width: int | None = None
    ) -> None:
        if name is None:
            name = pooler_name(model) if key == "u" else word_embeddings_name(model)
        module = require_submodule(model, name, key)
        known = output_width(module) if width is None else width
        if known is None:
            raise ConfigurationError(
                f"The submodule '{name}' ({type(module).__name__}) does not say how wide its "
                f"vectors are: set '{key}_width'."
            )
        self.key, self.name, self.width = key, name, known
        self._of_words = name == input_embeddings_name(model)

    def of_batch(
        self,
        model: torch.nn.Module,
        calls: Sequence[Call],
        fields: Mapping[str, Any],
        instances: int,
    ) -> Tensor:
        """Return the features `(n, d)` with their gradient, in at least float32.

        # Parameters

        model : the model that has the submodule.
        calls : the calls of the submodule in a forward pass.
        fields : the batch, as it was passed to the model.
        instances : n, the number of instances.

        # Raises

        `ConfigurationError` : the calls do not give one feature of width d for each instance.
        """
        if not calls:
            raise ConfigurationError(
                f"The submodule '{self.name}' was not called in the forward pass, so it gives no "
                f"feature. Set '{self.key}' to another one."
            )
        parts = self._of_words_of(model, calls, fields) if self._of_words else []
        if not parts:
            parts = [self._of_call(call, fields, instances) for call in calls]
        for part in parts:
            if part.shape != (instances, self.width):
                raise ConfigurationError(
                    f"The submodule '{self.name}' gave features {tuple(part.shape)}, expected "
                    f"{(instances, self.width)}: if they are of {instances} instances, set "
                    f"'{self.key}_width' to {part.size(1)}."
                )
        return parts[0] if len(parts) == 1 else torch.stack(parts).mean(dim=0)

    def _of_words_of(
        self, model: torch.nn.Module, calls: Sequence[Call], fields: Mapping[str, Any]
    ) -> list[Tensor]:
        """Return the mean word embeddings `(n, d)` of each text field of word pieces."""
        pieces = [
            (indexer, ids, text_batches.mask_of_ids(field[indexer], ids))
            for field in text_batches.text_fields(fields).values()
            for indexer, ids in text_batches.indexed_ids(field, ("token_ids",))
        ]
        seen = [
            text_batches.mean_of_texts(call.output, mask)
            for call in calls
            for _, ids, mask in pieces
            if call.output is not None and any(_same(ids, given) for given in call.given)
        ]
        if seen or len({indexer for indexer, *_ in pieces}) != 1:
            return seen
        embed = model.get_submodule(self.name)
        return [text_batches.mean_of_texts(embed(ids), mask) for _, ids, mask in pieces]

    def _of_call(self, call: Call, fields: Mapping[str, Any], instances: int) -> Tensor:
        output = call.output
        if output is None:
            raise ConfigurationError(
                f"The submodule '{self.name}' gave no tensor of numbers. Set '{self.key}' to one "
                "that gives vectors (n, d) or token vectors (n, L, d)."
            )
        if output.dim() not in (2, 3) or output.size(0) != instances:
            raise ConfigurationError(
                f"The submodule '{self.name}' gave a tensor {tuple(output.shape)}, expected "
                f"vectors ({instances}, d) or token vectors ({instances}, L, d) of the "
                f"{instances} instances of the batch. Set '{self.key}' to another one; if texts go "
                "through the transformer packed, in groups or in segments, remove that "
                '(unpadding "none", no max_length of the indexer), or take what comes after it.'
            )
        if output.dim() == 2:
            return text_batches.wide(output)
        return text_batches.mean_of_texts(output, self._mask(call, fields, output.shape[:2]))

    def _mask(self, call: Call, fields: Mapping[str, Any], shape: torch.Size) -> Tensor:
        """Return the mask `(n, L)` of the text field that a call embedded."""
        texts = text_batches.text_fields(fields)
        given = {
            name: field
            for name, field in texts.items()
            if any(_same(own, other) for own in _tensors(field) for other in call.given)
        }
        masks = {
            name: text_batches.mask_of_length(field, shape)
            for name, field in (given or texts).items()
        }
        fitting = {name: mask for name, mask in masks.items() if mask is not None}
        if not fitting:
            lengths = {
                name: tuple(ids.shape)
                for name, field in texts.items()
                for indexer, ids in text_batches.indexed_ids(field)
            }
            raise ConfigurationError(
                f"The submodule '{self.name}' gave token vectors for {tuple(shape)} tokens, but no "
                f"text field of the batch has that shape: {lengths or 'it has none'}. Set "
                f"'{self.key}' to a submodule that gives vectors (n, d), or one for each token."
            )
        first, *others = fitting.values()
        if others and not _all_equal([texts[name] for name in fitting], shape):
            raise ConfigurationError(
                f"The submodule '{self.name}' gave token vectors for {tuple(shape)} tokens, which "
                f"may be of any of the text fields {', '.join(fitting)}. Set '{self.key}' to a "
                "submodule that gives vectors (n, d), or to the one that embeds tokens."
            )
        return first


def _all_equal(fields: Sequence[text_batches.TextField], shape: torch.Size) -> bool:
    """Return whether the masks of that shape are equal, compared on the host."""
    first, *others = (
        text_batches.mask_of_length(text_batches.each(field, on_host), shape) for field in fields
    )
    return all(
        first is not None and other is not None and torch.equal(first, other) for other in others
    )
