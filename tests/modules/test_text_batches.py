"""Keys of texts are equal for equal tokens, and only for those."""

import itertools

import torch

from declutr.modules.text_batches import text_keys


def batch(rows: list[list[int]], padding: int = 0, mask: bool = True) -> dict:
    length = max(map(len, rows)) + padding
    ids = torch.tensor([row + [0] * (length - len(row)) for row in rows])
    if not mask:
        return {"tokens": {"tokens": ids}}
    lengths = torch.tensor([len(row) for row in rows])
    return {"token_ids": ids, "mask": torch.arange(length) < lengths.unsqueeze(1)}


def keys(rows: list[list[int]], padding: int = 0) -> list[int]:
    result = text_keys({"tokens": {"tokens": batch(rows, padding)}})
    assert result is not None and result.dtype == torch.int64
    return result.tolist()


def test_padding_does_not_matter() -> None:
    rows = [[5, 6, 7], [5], [6, 5, 7], [5, 6, 7]]
    assert keys(rows) == keys(rows, padding=9)
    assert keys(rows)[0] == keys(rows)[3]
    assert keys([[5]]) == [keys(rows)[1]]


def test_different_texts_have_different_keys() -> None:
    rows = [list(row) for n in range(1, 5) for row in itertools.product(range(6), repeat=n)]
    assert len(set(keys(rows))) == len(rows)  # id 0 is a token where the mask says so
    long = [[3] * length for length in range(1, 400)]
    assert len(set(keys(long))) == len(long)


def test_all_text_fields_count() -> None:
    rows = [[5, 6], [7], [5, 6]]
    others = [[1], [2], [3]]
    fields = {
        "premise": {"tokens": batch(rows)},
        "hypothesis": {"tokens": batch(others)},
        "label": torch.tensor([0, 1, 0]),
        "metadata": [{}, {}, {}],
    }
    both = text_keys(fields)
    assert both is not None and len(set(both.tolist())) == 3
    swapped = {"premise": fields["hypothesis"], "hypothesis": fields["premise"]}
    assert not bool((text_keys(swapped) == both).any())
    plain = text_keys({"tokens": batch(rows, mask=False)})
    assert plain is not None and plain[0] == plain[2] != plain[1]
    assert text_keys({"label": fields["label"]}) is None
