"""The name that was probably meant."""

import pytest

from declutr.system.nearest import did_you_mean, listed, nearest, of_wrong_keys


@pytest.mark.parametrize(
    ("name", "found"),
    [("temprature", "temperature"), ("Batch-Size", "batch_size"), ("xyz", None), ("lrr", "lr")],
)
def test_the_nearest_of_known_names(name: str, found: str | None) -> None:
    assert nearest(name, ["temperature", "batch_size", "lr"]) == found
    assert did_you_mean(name, []) == ""


def test_wrong_keys_in_words() -> None:
    assert of_wrong_keys(["tau", "sezd"], ["seed", "size"]) == (
        "Did you mean 'seed' for 'sezd'? It takes seed, size."
    )
    assert of_wrong_keys(["tau"], []) == "It takes no keys."


def test_long_lists_are_cut() -> None:
    assert listed(map(str, range(20))).endswith("10, 11, ... (20 in all)")
