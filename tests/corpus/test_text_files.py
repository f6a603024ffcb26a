"""Tests of encodings; the oracle is Python's own codecs, which write byte order marks."""

import io

import pytest

from declutr.corpus.text_files import SourceError, encoding_of

TEXT = "naïve 文 𝔘\n"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "utf-8-sig"),
        (b"\x00", "utf-8-sig"),
        (TEXT.encode(), "utf-8-sig"),
        (TEXT.encode("utf-8-sig"), "utf-8-sig"),
        (TEXT.encode()[:3] + b"\xff\x00", "utf-8-sig"),
        (TEXT.encode() * 9 + b"\x00\x00" + TEXT.encode()[:-2], "utf-8-sig"),
        (TEXT.encode("utf-16"), "utf-16"),
        (f"\ufeff{TEXT}".encode("utf-16-be"), "utf-16"),
        (TEXT.encode("utf-32"), "utf-32"),
        (f"\ufeff{TEXT}".encode("utf-32-be"), "utf-32"),
    ],
)
def test_byte_order_marks_decide_the_encoding(data, name):
    assert encoding_of(data, "a.txt") == name
    assert data.decode(name, "replace")[:1] != "\ufeff"


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_many_nul_bytes_without_a_mark_are_refused(codec):
    with pytest.raises(
        SourceError, match=r"'a.txt' has .* NUL bytes .* no byte order mark: .*iconv -f"
    ):
        encoding_of((TEXT * 3).encode(codec), "a.txt")


@pytest.mark.parametrize("kind", ["stream", "file"])
def test_files_of_arrow_are_named(kind):
    pa = pytest.importorskip("pyarrow")
    table, sink = pa.table({"text": [TEXT]}), io.BytesIO()
    with getattr(pa.ipc, f"new_{kind}")(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(SourceError, match=r"'a.arrow' is an Arrow file, .*to_parquet"):
        encoding_of(sink.getvalue(), "a.arrow")
