"""The section of a model card about usage, with code for each tool."""

import json
from collections.abc import Iterator

from declutr.export.exportable import Exportable

_POOL = {
    "mean": (
        'mask = inputs["attention_mask"].unsqueeze(-1)',
        "embeddings = (vectors * mask).sum(dim=1) / mask.sum(dim=1)",
    ),
    "cls": ("embeddings = vectors[:, 0]",),
    "max": (
        'padding = inputs["attention_mask"].unsqueeze(-1) == 0',
        'embeddings = vectors.masked_fill(padding, float("-inf")).amax(dim=1)',
    ),
    "mean-sqrt-length": (
        'mask = inputs["attention_mask"].unsqueeze(-1)',
        "embeddings = (vectors * mask).sum(dim=1) / mask.sum(dim=1).sqrt()",
    ),
    "last": (
        'last = inputs["attention_mask"].sum(dim=1) - 1',
        "embeddings = vectors[torch.arange(len(last)), last]",
    ),
}


def usage(model: Exportable, onnx: bool) -> Iterator[str]:
    """Yield the paragraphs of the section in Markdown."""
    yield "## How to use it"
    yield "With declutr:"
    yield _encoder_code("declutr", "Encoder", ', dtype="float32"', "encoder")
    yield "With sentence-transformers (releases 2 to 6):"
    yield _encoder_code("sentence_transformers", "SentenceTransformer", "", "encoder.encode")
    yield "With transformers:"
    yield _code(*_with_transformers(model))
    if model.has_head:
        yield "`AutoModelForMaskedLM` loads it with its language modelling head."
    if onnx:
        yield "With onnxruntime, without torch (pooling and what follows it is in the model):"
        yield _code(
            "import onnxruntime",
            "from transformers import AutoTokenizer",
            "",
            'place = "path/to/this/folder"',
            'session = onnxruntime.InferenceSession(f"{place}/onnx/model.onnx")',
            "tokenizer = AutoTokenizer.from_pretrained(place)",
            f'inputs = tokenizer({_texts(model)}, {_options(model)}, return_tensors="np")',
            'embeddings = session.run(["sentence_embedding"], dict(inputs))[0]',
        )
    yield from _use_prompts(model)
    yield "Training can start from it: `TRANSFORMER_MODEL=path/to/this/folder allennlp train ...`"


def _use_prompts(model: Exportable) -> Iterator[str]:
    prompts = model.prompts
    if prompts.default:
        yield (
            f"The default prompt, `{prompts.default_name}`, is put before every text: by `Encoder` "
            "and sentence-transformers themselves, for transformers and onnxruntime by the code "
            "above."
        )
    if prompts.named:
        yield (
            "A prompt is chosen by its name, in `Encoder` and in sentence-transformers' `encode`: "
            f"`prompt_name={json.dumps(next(iter(prompts.named)), ensure_ascii=False)}`."
        )


def _encoder_code(package: str, name: str, settings: str, function: str) -> str:
    return _code(
        f"from {package} import {name}",
        "",
        f'encoder = {name}("path/to/this/folder"{settings})',
        f'embeddings = {function}(["A sentence.", "Another one."])',
    )


def _with_transformers(model: Exportable) -> Iterator[str]:
    yield "import torch"
    if model.dense:
        yield "from safetensors.torch import load_file"
    yield "from transformers import AutoModel, AutoTokenizer"
    yield ""
    yield 'place = "path/to/this/folder"'
    yield "tokenizer = AutoTokenizer.from_pretrained(place)"
    yield "model = AutoModel.from_pretrained(place, dtype=torch.float32).eval()"
    yield f'inputs = tokenizer({_texts(model)}, {_options(model)}, return_tensors="pt")'
    yield "with torch.inference_mode():"
    yield "    vectors = model(**inputs).last_hidden_state"
    yield from _POOL[model.pooling]
    for number, layer in enumerate(model.dense, start=2):
        yield f'layer = load_file(f"{{place}}/{number}_Dense/model.safetensors")'
        bias = 'layer["linear.bias"]' if layer.linear.bias is not None else "None"
        linear = f'torch.nn.functional.linear(embeddings, layer["linear.weight"], {bias})'
        name = type(layer.activation).__name__
        yield f"embeddings = {linear if name == 'Identity' else f'torch.nn.{name}()({linear})'}"
    if model.normalizes:
        yield "embeddings = torch.nn.functional.normalize(embeddings, dim=1)"


def _texts(model: Exportable) -> str:
    texts = [model.prompts.default + text for text in ("A sentence.", "Another one.")]
    return json.dumps(texts, ensure_ascii=False)


def _options(model: Exportable) -> str:
    return "padding=True" if model.max_length is None else "padding=True, truncation=True"


def _code(*lines: str) -> str:
    return "\n".join(["```python", *lines, "```"])
