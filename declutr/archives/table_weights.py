"""The file that holds the vectors of a static encoder, in float32, float16 or int8."""

from pathlib import Path

import numpy as np

DTYPES = ("float32", "float16", "int8")
"""The number formats in which a table can be stored."""

_OURS, _OF_MODEL2VEC, _ROUNDED = "embedding.weight", "embeddings", "embedding.int8"
_NAMES = (_OURS, _OF_MODEL2VEC, _ROUNDED)
_SCALE = "embedding.scale"


class StaticFolderError(ValueError):
    """Raised for a folder that is no complete static encoder, or for a table of another shape."""


def read_weights(file: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the table `(V, d)` in a file, in one of `DTYPES`, and its scale `(d,)` if it has one.

    The vectors are the rows of the table times the scale. The mapping and the weights of model2vec
    are applied.

    # Raises

    `StaticFolderError` : the file holds no table, or its parts do not belong together.
    """
    tensors = _tensors(file)
    table = next((tensors[name] for name in _NAMES if name in tensors), None)
    if table is None or table.ndim != 2:
        raise StaticFolderError(
            f"'{file}' holds {', '.join(sorted(tensors)) or 'nothing'}; expected a table "
            f"{' or '.join(_NAMES)} of two dimensions."
        )
    if table.dtype.name not in DTYPES:
        table = table.astype(np.float32)
    if "mapping" in tensors:
        mapping = tensors["mapping"]
        if len(mapping) and not 0 <= mapping.min() <= mapping.max() < len(table):
            raise StaticFolderError(
                f"'{file}' maps tokens to rows {mapping.min()} to {mapping.max()}, of a table of "
                f"{len(table)}. Copy it anew."
            )
        table = table[mapping]
    if "weights" in tensors:
        if tensors["weights"].shape != (len(table),):
            raise StaticFolderError(
                f"'{file}' has {len(tensors['weights'])} weights of {len(table)} tokens. Copy it "
                "anew."
            )
        table = table.astype(np.float32) * tensors["weights"].astype(np.float32)[:, None]
    scale = tensors.get(_SCALE)
    if scale is not None and scale.shape != table.shape[1:]:
        raise StaticFolderError(
            f"'{file}' has a scale of shape {scale.shape} for {table.shape[1]} dimensions. Copy it "
            "anew."
        )
    return table, scale


def write_weights(vectors: np.ndarray, file: Path, dtype: str) -> None:
    """Write vectors `(V, d)` to a file, in one of `DTYPES`; this package alone reads int8."""
    from safetensors.numpy import save_file

    table, scale = rounded(vectors, dtype)
    save_file({_OURS: table} if scale is None else {_ROUNDED: table, _SCALE: scale}, file)


def rounded(vectors: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray | None]:
    """Return vectors `(V, d)` in one of `DTYPES`, and their scale `(d,)` if that is int8.

    `int8` rounds each dimension to 255 steps between its extremes.

    # Raises

    `StaticFolderError` : the dtype is another, or too narrow for the vectors.
    """
    if dtype not in DTYPES:
        raise StaticFolderError(f"Expected a dtype of {', '.join(DTYPES)}, got {dtype!r}.")
    if dtype != "int8":
        largest, most = np.abs(vectors).max(initial=0), np.finfo(dtype).max
        if np.isfinite(largest) and largest > most:
            raise StaticFolderError(f"Got numbers up to {largest:.3g}; {dtype} ends at {most:.3g}.")
        return np.ascontiguousarray(vectors, dtype=dtype), None
    scale = np.abs(vectors).max(axis=0).astype(np.float32) / 127
    scale[scale == 0] = 1
    return np.rint(vectors / scale).astype(np.int8), scale


def _tensors(file: Path) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return load_file(file)
    except TypeError:  # numpy has no bfloat16
        from safetensors.torch import load_file as load_torch_file

        return {name: value.float().numpy() for name, value in load_torch_file(file).items()}
    except (OSError, SafetensorError) as error:
        raise StaticFolderError(f"'{file}' cannot be read: {error}. Copy it anew.") from error
