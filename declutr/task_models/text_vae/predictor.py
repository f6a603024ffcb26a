"""The Predictor "text_vae", which writes texts from codes."""

import json
from typing import Any, Optional

import numpy as np
import torch
from allennlp.common.util import JsonDict
from allennlp.data import DatasetReader
from allennlp.models import Model
from allennlp.predictors import Predictor

from declutr.task_models.text_vae.writing import Writing, whole_number

_REQUESTS = {
    "sentence": {"sentence"},
    "from": {"from", "to", "steps"},
    "prior": {"prior"},
    "code": {"code"},
}
_SETTINGS = {"temperature", "top_k", "max_tokens", "seed"}
_FORMS = (
    '{"sentence": "..."}, {"from": "...", "to": "...", "steps": 5}, {"prior": 3, "seed": 1} or '
    '{"code": [...]}'
)
_STEPS = 11


@Predictor.register("text_vae")
class TextVaePredictor(Predictor):
    """A Predictor that writes texts from the codes of a text VAE.

    Each line of the input is an object of one of these forms:

    - `{"sentence": "..."}`: the text that is written from the mean code of a sentence, under
      `reconstruction`;
    - `{"from": "...", "to": "...", "steps": 5}`: texts on the way between two sentences, in equal
      steps between their mean codes, both ends included (11 by default);
    - `{"prior": 3, "seed": 1}`: texts from three codes that are drawn from the prior;
    - `{"code": [0.1, ...]}`: the text of a code of your own.

    Each may also have `temperature`, `top_k`, `max_tokens` and `seed`, as described by
    `declutr.task_models.text_vae.writing.Writing`; the parameters below are what lines without them
    get. Equal lines give equal texts, whatever else is in the file. Texts have no start, end,
    padding or unknown tokens. With `--use-dataset-reader`, the output is that of the model for each
    text.

    # Parameters

    model : a text VAE, by itself or in the Model "reclaim".
    dataset_reader : the reader of its training data.
    frozen : as in AllenNLP.
    temperature, top_k, max_tokens, seed : the settings of lines that do not have them.

    # Raises

    `ValueError` : a line is not of these forms.
    """

    def __init__(
        self,
        model: Model,
        dataset_reader: DatasetReader,
        frozen: bool = True,
        temperature: float = 0.0,
        top_k: Optional[int] = None,
        max_tokens: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(model, dataset_reader, frozen)
        writing = Writing(temperature, top_k, max_tokens, seed)
        self._defaults = dict(vars(writing))

    def load_line(self, line: str) -> JsonDict:
        """Parse a line of a JSON-lines file."""
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"Expected {_FORMS}, got {line[:60]!r} ({error}).") from error
        _request(row)
        return row

    def predict_json(self, inputs: JsonDict) -> JsonDict:
        """Return the texts that an object of one of the forms above asks for, beside itself."""
        request = _request(inputs)
        given = {key: inputs[key] for key in _SETTINGS & inputs.keys()}
        writing = Writing(**{**self._defaults, **given})
        if request == "sentence":
            texts = self._written(self._codes(inputs, "sentence"), writing)
            return {**inputs, "reconstruction": texts[0]}
        if request == "from":
            steps = whole_number("steps", inputs.get("steps", _STEPS), 2)
            first, last = self._codes(inputs, "from", "to")
            shares = torch.linspace(0, 1, steps).unsqueeze(1)
            return {**inputs, "texts": self._written(torch.lerp(first, last, shares), writing)}
        if request == "prior":
            number = whole_number("prior", inputs["prior"], 1)
            generator = torch.Generator().manual_seed(writing.seed)
            codes = torch.randn(number, self._latent_size, generator=generator)
            return {**inputs, "texts": self._written(codes, writing)}
        return {**inputs, "text": self._written(self._code_of(inputs["code"]), writing)[0]}

    def predict_batch_json(self, inputs: list[JsonDict]) -> list[JsonDict]:
        """Return the texts that each of some objects asks for."""
        return [self.predict_json(row) for row in inputs]

    @property
    def _latent_size(self) -> int:
        vae: Any = self._model
        return vae.latent.get_output_dim()

    def _codes(self, inputs: JsonDict, *keys: str) -> torch.Tensor:
        """Return the mean codes `(n, k)` of the sentences under some keys."""
        for key in keys:
            if not isinstance(inputs.get(key), str):
                raise ValueError(f'Expected a string under "{key}", got {inputs.get(key)!r}.')
        instances = [self._dataset_reader.text_to_instance(inputs[key]) for key in keys]
        for instance in instances:
            self._dataset_reader.apply_token_indexers(instance)
        # One by one, so that padding rounds nothing differently.
        outputs = [self._model.forward_on_instance(instance)["latent"] for instance in instances]
        return torch.from_numpy(np.stack(outputs))

    def _code_of(self, numbers: Any) -> torch.Tensor:
        size = self._latent_size
        if not isinstance(numbers, list) or len(numbers) != size:
            got = len(numbers) if isinstance(numbers, list) else repr(numbers)
            raise ValueError(f'Expected {size} numbers under "code", got {got}.')
        try:
            return torch.tensor([numbers], dtype=torch.float32)
        except (TypeError, ValueError) as error:
            raise ValueError(f'Expected {size} numbers under "code": {error}.') from error

    def _written(self, codes: torch.Tensor, writing: Writing) -> list[str]:
        vae: Any = self._model
        return vae.write(codes, writing)


def _request(row: Any) -> str:
    """Return which of the forms an object has.

    # Raises

    `ValueError` : it has none, or keys of several, or keys that are not known.
    """
    found = [name for name in _REQUESTS if isinstance(row, dict) and name in row]
    if len(found) != 1:
        raise ValueError(f"Expected {_FORMS}, got {json.dumps(row)[:80]}.")
    known = _REQUESTS[found[0]] | _SETTINGS
    unknown = sorted(map(str, row.keys() - known))
    if unknown:
        raise ValueError(
            f'Beside "{found[0]}" there may be {", ".join(sorted(known - set(found)))}, got '
            f"{', '.join(unknown)}."
        )
    return found[0]
