"""Small image-text data on disk, and the models that are trained on them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

WIDTH = 6
WORDS = ["red", "green", "blue", "cat", "dog", "bird", "tree", "house"]


def write_pairs(
    folder: Path, images: int = 8, captions_each: int = 2, regions: int | None = None
) -> Path:
    """Write `captions.jsonl` and `captions.npy` with pairs that can be learned.

    The images are noise, and the captions of each image begin with a word of its own.
    """
    rng = np.random.default_rng(0)
    shape = (images, WIDTH) if regions is None else (images, regions, WIDTH)
    np.save(folder / "captions.npy", rng.normal(size=shape).astype(np.float32))
    rows = [
        {"image": image, "caption": f"{WORDS[image]} thing {number}"}
        for image in range(images)
        for number in range(captions_each)
    ]
    file = folder / "captions.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def model_config(**changes: Any) -> dict[str, Any]:
    return {
        "type": "image_text",
        "text_field_embedder": {
            "token_embedders": {"tokens": {"type": "embedding", "embedding_dim": 8}}
        },
        "seq2vec_encoder": {"type": "gru", "input_size": 8, "hidden_size": 12},
        "image_width": WIDTH,
        **changes,
    }
