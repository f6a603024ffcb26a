"""Compare what threads embed with what one thread embeds; models that change are left to one."""

import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from allennlp.modules.seq2vec_encoders import LstmSeq2VecEncoder
from transformers import AutoModel

from declutr.inference import text_embedding
from declutr.inference.embedding_threads import (
    computed_in_threads,
    may_embed_in_threads,
    threads_here,
)
from declutr.inference.encoder import Encoder
from declutr.modules.embedders import PretrainedTransformerEmbedderMLM
from declutr.system.processors import torch_threads
from declutr.transformer.architectures import first_position
from declutr.transformer.unpadding import UnpaddedPass
from tests.transformer.test_linear_layers import DISTILBERT, SMALL, T5

_PADDING = {"pad_token_id": 1}
_BERT = {**SMALL, **_PADDING, "max_position_embeddings": 60}
KINDS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        ("Bert", "Camembert", "Ernie", "MPNet", "NomicBert", "Roberta", "XLMRoberta"), _BERT
    ),
    "Albert": {**_BERT, "embedding_size": 8},
    "Electra": {**_BERT, "embedding_size": 8},
    "XLMRobertaXL": _BERT,
    "DistilBert": {**DISTILBERT, **_PADDING},
    "ModernBert": {
        **_BERT, "local_attention": 8,
        **{f"{name}_token_id": 1 for name in ("bos", "eos", "cls", "sep")},
    },
    "T5": {**T5, **_PADDING},
    "MT5": {**T5, **_PADDING},
}  # fmt: skip


def model(kind: str, **settings: Any) -> torch.nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config", None)
    if config is None:
        pytest.skip(f"this release of transformers has no {kind}")
    config = config(**{**KINDS[kind], **settings})
    if kind.endswith("T5"):
        return getattr(transformers, f"{kind}EncoderModel")(config).eval()
    return AutoModel.from_config(config).eval()


@pytest.mark.parametrize("kind", KINDS)
def test_threads_embed_as_one_thread_does(kind: str) -> None:
    """Compare to the bit, with texts of many lengths on all sides at once."""
    transformer = model(kind)
    assert may_embed_in_threads([transformer])
    unpadded = UnpaddedPass(padding_id=1, first_position=first_position(transformer))

    def run(**inputs: torch.Tensor) -> torch.Tensor:
        return transformer(**inputs).last_hidden_state

    @torch.inference_mode()
    def embed(lengths: list[int]) -> torch.Tensor:
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        ids = torch.arange(mask.numel()).view(mask.shape) % 48 + 2
        return unpadded(transformer, run, ids.masked_fill(~mask, 1), mask)[mask]

    some = [[3, 50, 7], [20], [9, 9], [1, 2, 3, 4], [55, 1], [31, 33], [12, 40, 40], [5]]
    with torch_threads(1):
        expected = [embed(lengths) for lengths in some]
    for found in zip(computed_in_threads(embed, some * 3, 3), expected * 3, strict=True):
        assert torch.equal(*found)


def test_models_that_may_change_are_embedded_by_one_thread() -> None:
    known = model("Bert")
    assert not may_embed_in_threads([LstmSeq2VecEncoder(input_size=4, hidden_size=4)])
    dynamic = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    if hasattr(transformers, "NomicBertConfig"):
        assert not may_embed_in_threads([model("NomicBert", rope_parameters=dynamic)])

    class Counting(torch.nn.Module):
        """A module of a user, of which nothing is known."""

    assert not may_embed_in_threads([known, Counting()])
    known.compile()
    assert not may_embed_in_threads([known])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{}, {"layers": "last-two"}, {"last_layer_only": False}], ids=["last", "two", "mix"]
)
def test_embeddings_of_several_layers_are_left_to_one(
    settings: dict[str, Any], checkpoint: Path
) -> None:
    embedder = PretrainedTransformerEmbedderMLM(str(checkpoint), **settings)
    assert may_embed_in_threads([embedder]) == (not settings)
    pooling = settings.get("layers", "mean")
    encoder = Encoder(checkpoint, device="cpu", pooling=pooling)
    assert encoder._model.embeds_in_threads == (pooling == "mean")


def test_results_are_in_order_and_each_is_computed_with_one_thread() -> None:
    beside = threading.Barrier(3)

    def compute(item: int) -> tuple[int, str, int]:
        if item < 3:
            beside.wait(60)  # until all threads compute
        torch.ones(300, 300) @ torch.ones(300, 300)
        return item, threading.current_thread().name, torch.get_num_threads()

    with torch_threads(2):
        results = list(computed_in_threads(compute, range(7), 3))
        assert torch.get_num_threads() == 2
        numbers: list[int] = []
        new = threading.Thread(target=lambda: numbers.append(torch.get_num_threads()))
        new.start()
        new.join()
        assert numbers == [2]
    assert [item for item, _, _ in results] == list(range(7))
    assert len({name for _, name, _ in results[:3]}) == 3
    assert {count for _, _, count in results} == {1}


def test_new_threads_take_the_usual_number() -> None:
    """Threads of a server that embed for the first time, all at once, compute with all of torch's.

    torch gives a thread the number that was set last anywhere, at its first computation.
    """

    def embed(_: int) -> int:
        found = threads_here()
        list(computed_in_threads(lambda item: item, range(2), 2))
        return min(found, torch.get_num_threads())

    with torch_threads(3):
        for _ in range(25):
            with ThreadPoolExecutor(4) as pool:
                assert set(pool.map(embed, range(4))) == {3}
        assert torch.get_num_threads() == 3


def test_results_are_not_kept_nor_what_failed() -> None:
    class Vectors:
        """What a thread returns."""

    kept: list[weakref.ref] = []

    def compute(item: int) -> Vectors:
        vectors = Vectors()
        kept.append(weakref.ref(vectors))
        if item == 3:
            raise MemoryError
        return vectors

    results = computed_in_threads(compute, range(4), 1)
    gc.disable()
    try:
        for _ in range(3):
            next(results)
        assert sum(each() is not None for each in kept[:3]) == 0
        with pytest.raises(MemoryError):
            next(results)
        assert [each() for each in kept] == [None] * 4
    finally:
        gc.enable()


def test_an_error_ends_all_threads() -> None:
    began: list[int] = []

    def compute(item: int) -> int:
        began.append(item)
        time.sleep(0.01)
        raise OSError("gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(computed_in_threads(compute, range(1000), 2))
    assert len(began) < 1000 and threading.active_count() == before


def test_where_too_few_threads_can_be_started_this_one_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A limit of processes (`ulimit -u`, a container's) counts threads, too."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with torch_threads(2):
        results = list(computed_in_threads(lambda item: (item, threading.get_ident()), range(9), 4))
        assert torch.get_num_threads() == 2
    assert results == [(item, threading.get_ident()) for item in range(9)]
    for thread in started:
        thread.join(60)
    assert not any(thread.is_alive() for thread in started)


@pytest.mark.slow
@pytest.mark.parametrize("daemon", [False, True])
def test_a_program_ends_as_if_no_threads_embedded(daemon: bool) -> None:
    """Where its first thread ends, another one still computes, unless it is a daemon."""
    script = f"""
import threading, time
from declutr.inference.embedding_threads import computed_in_threads
began = threading.Event()
def compute(item):
    began.set()
    time.sleep(0.05 if item < 40 else 60)
    return item
def run():
    for some in range(2):
        print(list(computed_in_threads(compute, range(some * 7, some * 7 + 5), 2)), flush=True)
    if {daemon}:
        list(computed_in_threads(compute, range(60, 99), 2))
thread = threading.Thread(target=run, daemon={daemon})
thread.start()
began.wait()
if {daemon}:
    time.sleep(2)
"""
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=50, check=True
    )
    assert ran.stdout == "[0, 1, 2, 3, 4]\n[7, 8, 9, 10, 11]\n" and not ran.stderr


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Let few tokens be enough for threads, and return the names of those that embed."""
    monkeypatch.setattr(text_embedding, "_LEAST_TOKENS", 20)
    found: set[str] = set()
    embed = text_embedding.TextEmbedding._vectors

    def spy(self: Any, tokens: list[Any]) -> Any:
        found.add(threading.current_thread().name)
        return embed(self, tokens)

    monkeypatch.setattr(text_embedding.TextEmbedding, "_vectors", spy)
    with torch_threads(2):
        yield found


def unpadded_of(encoder: Encoder) -> UnpaddedPass:
    """Return the pass of an encoder's transformer, which knows whether texts can be packed."""
    model: Any = encoder._model
    if hasattr(model, "_unpadded"):
        return model._unpadded
    return model.model.embedders[0].token_embedder._unpadded


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("place", ["trained", "checkpoint"])
def test_an_encoder_embeds_by_threads(
    place: str,
    dtype: str,
    names: set[str],
    documents: list[str],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DECLUTR_KEEP_DTYPE", "1")
    texts = [document[: 9 * i + 1] for i, document in enumerate(documents[:30])]
    folder: Path = request.getfixturevalue(place)
    encoder = Encoder(folder, device="cpu", dtype=dtype)
    assert unpadded_of(encoder)._packs is not None  # so that threads need not try it
    with torch_threads(1):
        expected = encoder(texts)
    assert names == {threading.current_thread().name}
    assert np.array_equal(encoder(texts), expected)
    by_threads = {name for name in names if name.startswith("declutr-embed")}
    assert len(by_threads) >= 1
    done: list[int] = []
    encoder._embedded(texts, "", 4, done.append)
    assert sum(done) == len(texts) and max(done) <= 4
    names.clear()
    encoder(texts[:1])
    assert names == {threading.current_thread().name}  # too few for threads
