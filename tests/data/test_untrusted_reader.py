"""A reader of an untrusted archive writes to no folder that the archive names."""

from pathlib import Path
from typing import Any

import pytest

from declutr.archives.safety.building import untrusted
from declutr.data.row_reader import RowReader
from declutr.data.sentence_reader import SentenceReader
from declutr.data.span_reader import DeCLUTRDatasetReader

SPANS = {"num_anchors": 1, "num_positives": 1, "max_span_len": 9, "min_span_len": 2}


@pytest.mark.parametrize(
    ("kind", "settings"), [(DeCLUTRDatasetReader, SPANS), (SentenceReader, {})]
)
def test_the_archive_does_not_choose_where_tokens_are_stored(
    kind: type[RowReader], settings: dict[str, Any], tmp_path: Path
) -> None:
    file, named = tmp_path / "texts.txt", tmp_path / "named"
    file.write_text(" ".join(f"word{number}" for number in range(60)) + "\n")
    with untrusted():
        reader = kind(cache_dir=str(named), **settings)
    assert len(list(reader.read(str(file)))) == 1 and not named.exists()
    assert len(list(kind(cache_dir=str(named), **settings).read(str(file)))) == 1
    assert named.exists()
