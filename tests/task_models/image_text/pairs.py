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


def write_published(
    folder: Path, captions: list[str], regions: int = 3, repeated: bool = False
) -> Path:
    """Write `test_caps.txt`, `test_ims.npy` and `test_ids.txt`, five captions an image.

    With `repeated`, the features of an image are there once for each of its captions.
    """
    images = len(captions) // 5
    features = np.random.default_rng(1).normal(size=(images, regions, WIDTH)).astype(np.float32)
    np.save(folder / "test_ims.npy", features.repeat(5, axis=0) if repeated else features)
    (folder / "test_ids.txt").write_text("".join(f"{100 + image}\n" for image in range(images)))
    file = folder / "test_caps.txt"
    file.write_text("".join(f"{caption}\n" for caption in captions))
    return file


def scan_config(**changes: Any) -> dict[str, Any]:
    config = model_config(**changes)
    del config["seq2vec_encoder"]
    encoder = {"type": "gru", "input_size": 8, "hidden_size": 12, "bidirectional": True}
    return {"seq2seq_encoder": encoder, **config, "type": "scan"}


def captions_of(images: int) -> list[str]:
    return [f"{word} thing {number}" for word in WORDS[:images] for number in range(5)]
