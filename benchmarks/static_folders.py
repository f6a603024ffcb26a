"""Writes a static encoder's folder as sentence-transformers and model2vec save it.

`python static_folders.py FOLDER OUTPUT TOOL...`, in an environment that has the tools. It imports
nothing of this package.
"""

import sys
from pathlib import Path


def sentence_transformers(folder: str, output: Path) -> None:
    """In float32 and float16."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder, device="cpu")
    model.save(str(output / "float32"), create_model_card=False)
    model.half().save(str(output / "float16"), create_model_card=False)


def model2vec(folder: str, output: Path) -> None:
    """In float32, float16 and int8, without a limit to the length of texts."""
    from model2vec import StaticModel
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    vectors = load_file(Path(folder, "model.safetensors"))["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(Path(folder, "tokenizer.json")))
    model = StaticModel(
        vectors, tokenizer, {"model_type": "model2vec"}, normalize=True, max_length=None
    )
    model.save_pretrained(output / "float32")
    for dtype in ("float16", "int8"):
        read = StaticModel.from_pretrained(output / "float32", quantize_to=dtype)
        read.save_pretrained(output / dtype)


if __name__ == "__main__":
    del sys.path[0]  # modules beside this file are not to be taken for libraries
    for tool in sys.argv[3:]:
        writer = {"sentence-transformers": sentence_transformers, "model2vec": model2vec}[tool]
        writer(sys.argv[1], Path(sys.argv[2], tool))
