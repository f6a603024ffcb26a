"""Pretrained transformers from the Hugging Face hub or a folder, with pooling, as text models."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from declutr.archives.sentence_transformers_folder import ModuleList, NotFollowed, read_modules
from declutr.data.collation import ContentIds, PackedSpans
from declutr.inference import EncoderError, require_one_of, special_tokens
from declutr.inference.embedding_threads import may_embed_in_threads
from declutr.inference.fingerprints import model_fingerprint
from declutr.inference.text_model import Prompts, TextModel
from declutr.inference.transformer_loading import loaded_transformer
from declutr.system import raised_as
from declutr.system.host_memory import to_device
from declutr.transformer.architectures import (
    first_position,
    longest_text,
    max_positions,
    output_width,
)
from declutr.transformer.pooling import LAYERS, POOLINGS, layers_of, mean_of_layers, pooled
from declutr.transformer.unpadding import UnpaddedPass, inputs_of


class TransformerModel(TextModel):
    """A pretrained transformer with pooling, or a model of the sentence-transformers package.

    A sentence-transformers model keeps its pooling, dense layers, normalisation, maximum length and
    prompts. Of a model with encoder and decoder, only the encoder is used; but of BART and its
    relatives in such a model the whole, as sentence-transformers does.

    # Parameters

    place : a name on the Hugging Face hub, or a folder.
    device : the device of the model.
    pooling : one of `POOLINGS`, applied to the transformer alone; by default all modules of a
        sentence-transformers model are used, and the mean for any other transformer.
    revision : a branch, tag or commit of a name on the hub.
    trust : run the Python code that the model brings (transformers' `trust_remote_code`); see
        `declutr.archives.safety`.

    # Raises

    `EncoderError` : there is no transformer at that place, or it has modules that are not
        supported.
    `declutr.archives.safety.UnsafeArchive` : the model would run code, or touch other files.
    """

    def __init__(
        self,
        place: str,
        *,
        device: torch.device,
        pooling: str | None = None,
        revision: str | None = None,
        trust: bool = False,
    ) -> None:
        if pooling is not None:
            require_one_of(POOLINGS, pooling=pooling)
        self.device, self.device_type = device, device.type
        # A pooling that the user asks for belongs to the transformer without further modules.
        with raised_as(EncoderError, NotFollowed):
            modules = ModuleList() if pooling else read_modules(place, revision)
        self.pooling = pooling or modules.pooling
        self.prompts = Prompts(modules.prompts, modules.default_prompt_name)
        self._pools_prompt, self._lower_case = modules.pools_prompt, modules.lower_case
        self.normalizes = modules.normalizes
        self.tokenizer, self.transformer = loaded_transformer(
            place, revision, modules.transformer_folder, self.pooling, trust, not modules.listed
        )
        self.transformer.to(device).eval()
        self.linear_part = self.transformer
        self.embeds_in_threads = (
            device.type == "cpu"
            and self.pooling not in LAYERS
            and may_embed_in_threads([self.transformer])
        )
        with raised_as(EncoderError, ValueError):
            self._width = output_width(self.transformer.config)
        self.dense = modules.dense.to(device).eval()
        layers: list[Any] = list(self.dense)
        self.dimension = layers[-1].linear.out_features if layers else self._width
        self.keep_leading(modules.truncate_dim)
        self.keeps_end = self.tokenizer.truncation_side == "left"
        self._content_ids = ContentIds(self.tokenizer)
        self._frame = special_tokens.special_tokens_of(self.tokenizer, place)
        self.special_tokens = len(self._frame.start) + len(self._frame.end)
        # The folder, the tokenizer and the position embeddings may each name a limit; the smallest
        # is taken, since settings and tokenizers may name one that the transformer does not have.
        longest = longest_text(self.tokenizer, max_positions(self.transformer))
        limits = (modules.max_length, longest)
        self.max_length = min((limit for limit in limits if limit), default=None)
        # The transformer computes the pooler's output itself, of the first token of each row.
        self._unpadded = UnpaddedPass(
            "grouped" if self.pooling == "pooler" else "auto",
            padding_id=self._frame.padding_id,
            first_position=first_position(self.transformer),
        )
        named = "token_type_ids" in self.tokenizer.model_input_names
        self._has_types = named and _takes_types(self.transformer)
        self._content = model_fingerprint(place, revision)

    def tokenize(self, texts: list[str], prompt: str = "") -> list[Any]:
        tokens = self._tokens([prompt + text for text in texts])
        if not prompt or self._pools_prompt:
            return tokens
        # The prompt is counted alone, as sentence-transformers does: before a text, a blank at its
        # end may become part of the first word.
        length = len(self._tokens([prompt])[0])
        return [special_tokens.PromptedTokens(ids, length) for ids in tokens]

    def _tokens(self, texts: list[str]) -> list[np.ndarray]:
        if self._lower_case:
            texts = [text.lower() for text in texts]
        return [np.asarray(ids, dtype=np.int64) for ids in self._content_ids(texts)]

    @torch.inference_mode()
    def embed(self, pieces: Sequence[Any]) -> torch.Tensor:
        pieces, left_out = special_tokens.ids_of(pieces, len(self._frame.start))
        ((_, tensors),) = PackedSpans.of(pieces, (len(pieces),), self._frame).tensors().items()
        # Without special tokens, a blank text has no tokens at all; its embedding is zeros.
        kept = torch.tensor([bool(len(piece) or self.special_tokens) for piece in pieces])
        vectors = torch.zeros(len(pieces), self._width, dtype=torch.float32, device=self.device)
        if kept.any():
            token_ids, mask, types = (
                to_device(tensors[key][kept], self.device)
                for key in ("token_ids", "mask", "type_ids")
            )
            skipped = None if left_out is None else left_out[kept]
            rows = to_device(kept.nonzero()[:, 0], self.device)
            used_types = types if self._has_types else None
            vectors[rows] = self._pooled(token_ids, mask, used_types, skipped)
        for layer in self.dense:
            vectors = layer(vectors).float()
        return vectors

    def describe(self) -> dict[str, Any]:
        default = self.prompts.default
        lowered = self._lower_case and default != default.lower()
        return {
            "kind": "transformer",
            "pooling": self.pooling,
            "dense": len(self.dense),
            "content": self._content,
            # Releases before 1.6 did not lower the default prompt: embeddings differ from theirs,
            # and so must fingerprints.
            **({"default_prompt": default.lower()} if lowered else {}),
        }

    def _pooled(
        self,
        token_ids: torch.Tensor,
        mask: torch.Tensor,
        types: torch.Tensor | None,
        left_out: torch.Tensor | None,
    ) -> torch.Tensor:
        vectors = self._unpadded(self.transformer, self._run, token_ids, mask, types)
        if self.pooling == "pooler":
            return vectors[:, 0].float()
        if left_out is None:
            return pooled(vectors, mask, self.pooling)
        return special_tokens.pooled_after_prompts(vectors, mask, self.pooling, left_out)

    def _run(self, **inputs: torch.Tensor) -> torch.Tensor:
        several = self.pooling in LAYERS
        output = self.transformer(**inputs, output_hidden_states=several, return_dict=True)
        if self.pooling == "pooler":  # one vector a text, in the place of those of its tokens
            return output.pooler_output[:, None].expand(*inputs["input_ids"].shape, -1)
        if several:
            return mean_of_layers(layers_of(output), self.pooling)
        return output.last_hidden_state


def _takes_types(transformer: torch.nn.Module) -> bool:
    """Return whether a transformer takes types of tokens, which a tokenizer may make for none.

    In transformers 4, DistilBERT and ModernBERT raise an error.
    """
    taken = inputs_of(transformer)
    any_name = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    return "token_type_ids" in taken or any_name
