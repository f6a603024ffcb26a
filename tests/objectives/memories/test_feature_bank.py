"""Tests of the feature bank: search against loops, updates, storage and approximate search."""

import copy
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from allennlp.common.checks import ConfigurationError
from hypothesis import strategies as st
from torch import Tensor

from declutr.objectives import FeatureBank
from declutr.objectives.memories import bank_search, feature_bank
from declutr.objectives.memories.bank_search import nearest_rows
from declutr.objectives.numerics import unit
from tests.objectives.oracles import Golden, cosine, doubles, drawn, normal

GOLDEN = Golden("reclaim", "reclaim")


def filled(rows: Tensor, texts: Tensor | None = None, **settings: Any) -> FeatureBank:
    """Return a bank whose slots have the vectors `rows`."""
    bank = FeatureBank(*rows.shape, **settings).to(rows.dtype)
    bank.update(torch.arange(len(rows)), rows, texts)
    return bank


@pytest.mark.parametrize("level", ["u", "v"])
def test_golden_numbers(level: str) -> None:
    inputs, values = GOLDEN.given, GOLDEN.values
    bank, query = filled(doubles(inputs[f"bank_{level}"])), doubles([inputs[level]])
    own = torch.tensor([GOLDEN.params["own_index"]])
    slots, found = bank.nearest(query, own, GOLDEN.params["K"])
    assert slots.tolist() == [values[f"topk_{level}"]] and found.all()
    unmasked, _ = bank.nearest(query, torch.tensor([2]), 1)
    assert unmasked.item() == 0  # This is what would be found if an instance found itself.
    bank.update(own, query)
    expected = values[f"bank_{level}0_after_update"]
    assert bank.vectors[0].tolist() == pytest.approx(expected, abs=1e-12)


@drawn(
    60,
    n=st.integers(1, 5),
    size=st.integers(1, 12),
    k=st.integers(0, 14),
    texts_some_fixed=st.tuples(*3 * [st.booleans()]),
    block=st.integers(1, 200),
    cached=st.integers(1, 20),
)
def test_finds_what_a_loop_finds(
    n: int, size: int, k: int, seed: int, texts_some_fixed: tuple, block: int, cached: int
) -> None:
    texts, some, fixed = texts_some_fixed
    generator = torch.Generator().manual_seed(seed)
    rows, queries = normal(size, 3, seed=seed), normal(n, 3, seed=seed + 1)
    visited = (torch.rand(size, generator=generator) < 0.7).nonzero()[:, 0]
    keys = torch.randint(3, (size,), generator=generator)
    ids, own_keys = (torch.randint(top, (n,), generator=generator) for top in (size, 3))
    among = torch.rand(size, generator=generator) < 0.8
    bank = FeatureBank(size, 3).double()
    bank.fixed_shapes = fixed
    bank.update(visited, rows[visited], keys[visited])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bank_search, "CACHED", cached)
        for module in (feature_bank, bank_search):
            patch.setattr(module, "BLOCK", block)
            patch.setattr(module, "DEVICE_BLOCK", block)
        slots, found = bank.nearest(
            queries, ids, k, own_keys if texts else None, among if some else None
        )
    assert slots.shape == found.shape == (n, min(k, size))
    for i in range(n):
        usable = [
            j
            for j in visited.tolist()
            if j != ids[i]
            and not (texts and keys[j] == own_keys[i])
            and not (some and not among[j])
        ]
        near = sorted(usable, key=lambda j: -cosine(queries[i], rows[j]))
        assert slots[i][found[i]].tolist() == near[:k]
        assert found[i].tolist() == sorted(found[i].tolist(), reverse=True)


def test_equal_and_zero_rows_are_found_too() -> None:
    rows = torch.zeros(4, 3)
    rows[1:3] = 1
    slots, found = filled(rows).nearest(rows, torch.arange(4), 4)
    assert found.sum(dim=1).tolist() == [3] * 4
    assert slots[1, 0] == 2 and slots[2, 0] == 1


# ----------------------------------------------------------------------------------------- update


@pytest.mark.parametrize("eligible", ["visited", "all"])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_update_equals_updates_row_by_row_exactly(eligible: str, precision: str) -> None:
    """The first feature overwrites, later ones move, and the last row of a repeated id counts."""
    bank = FeatureBank(40, 8, momentum=0.3, eligible=eligible, precision=precision)
    texts = bank.texts.clone()
    for step in range(6):
        generator = torch.Generator().manual_seed(step)
        ids = torch.randint(40, (16,), generator=generator)
        features = torch.randn(16, 8, generator=generator)
        vectors, visited = bank.vectors.clone(), bank.visited.clone()
        seen = visited | (eligible == "all")
        for row, slot in enumerate(ids.tolist()):
            kept = torch.tensor(0.3 if seen[slot] else 0.0)
            mixed = (1 - kept) * features[row] + kept * bank.vectors[slot].float()
            vectors[slot] = mixed.to(vectors.dtype)
            visited[slot], texts[slot] = True, 100 * step + row
        bank.update(ids, features, 100 * step + torch.arange(16))
        assert torch.equal(bank.vectors, vectors) and torch.equal(bank.visited, visited)
        assert torch.equal(bank.texts, texts)
        lengths = vectors[visited].float().norm(dim=1)
        assert torch.allclose(bank.lengths[visited], lengths, rtol=1e-3)
    assert visited.any() and not visited.all()


def test_with_all_slots_eligible_noise_is_found_and_kept_in_part() -> None:
    bank = FeatureBank(400, 8, eligible="all", momentum=0.25)
    noise = bank.vectors.clone()
    assert noise.mean().item() == pytest.approx(0, abs=0.1)
    assert noise.std().item() == pytest.approx(1, abs=0.1)
    assert torch.equal(noise, FeatureBank(400, 8, eligible="all").vectors)
    _, found = bank.nearest(normal(1, 8).float(), torch.tensor([0]), 400)
    assert found.sum().item() == 399
    feature = normal(1, 8).float()
    bank.update(torch.tensor([7]), feature)
    assert torch.allclose(bank.vectors[7], 0.75 * feature[0] + 0.25 * noise[7])


def test_the_bank_keeps_no_graph_and_returns_copies() -> None:
    feature, bank = normal(1, 3).requires_grad_(), FeatureBank(4, 3).double()
    bank.update(torch.tensor([0]), feature)
    assert not bank.vectors.requires_grad and not list(bank.parameters())
    assert "vectors" not in dict(bank.named_buffers())  # DistributedDataParallel sends buffers.
    assert bank.state_dict()["_extra_state"] is bank.vectors
    negatives = bank.rows(torch.tensor([[0]]))
    bank.update(torch.tensor([0]), 5 * feature)
    assert torch.equal(negatives[0], feature)  # Negatives are copies, as the loss still needs them.


# ------------------------------------------------------------------------------- where it is kept


STORED = [
    {},
    {"storage": "disk"},
    {"storage": "disk", "precision": "float16"},
    {"precision": "float16"},
]


@pytest.mark.parametrize("settings", STORED)
@pytest.mark.parametrize("eligible", ["visited", "all"])
def test_continues_from_its_state(tmp_path: Path, settings: dict, eligible: str) -> None:
    def fresh(seed: int) -> FeatureBank:
        return FeatureBank(9, 4, eligible=eligible, seed=seed, **settings)

    one, other, ids = fresh(1), fresh(2), torch.tensor([1, 8, 3])
    one.update(ids, normal(3, 4).float(), ids)
    torch.save(one.state_dict(), tmp_path / "state.th")
    one.update(ids - 1, normal(3, 4, seed=5).float(), ids)  # The saved state must not change.
    other.load_state_dict(torch.load(tmp_path / "state.th"))
    other.update(ids - 1, normal(3, 4, seed=5).float(), ids)
    for name in ("vectors", "visited", "texts", "lengths"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    queries = normal(2, 4, seed=6).float()
    for mine, loaded in zip(
        one.nearest(queries, ids[:2], 3), other.nearest(queries, ids[:2], 3), strict=True
    ):
        assert torch.equal(mine, loaded)


@pytest.mark.parametrize("settings", STORED)
def test_finds_the_same_slots_with_any_storage(settings: dict) -> None:
    rows, queries = normal(40, 8).float(), normal(5, 8, seed=1).float()
    bank, ids = filled(rows, **settings), torch.arange(5)
    half = settings.get("precision") == "float16"
    assert bank.vectors.dtype == (torch.float16 if half else torch.float32)
    exact = filled(rows.half().float() if half else rows)
    slots, found = bank.nearest(queries, ids, 7)
    expected, _ = exact.nearest(queries, ids, 7)
    assert torch.equal(slots, expected) and found.all()
    assert torch.equal(bank.rows(slots), exact.rows(slots))


def test_the_file_is_in_the_given_folder_and_disappears_with_the_process(tmp_path: Path) -> None:
    bank = FeatureBank(100, 8, storage="disk", folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    if os.path.exists("/proc/self/maps"):
        assert str(tmp_path) in Path("/proc/self/maps").read_text()
    kept = bank.vectors.data_ptr()
    bank.double()
    assert bank.lengths.dtype == torch.float64
    assert (bank.vectors.data_ptr(), bank.vectors.dtype) == (kept, torch.float32)
    bank.update(torch.tensor([4]), normal(1, 8))
    assert torch.equal(bank.vectors[4], normal(1, 8)[0].float())
    twin = copy.deepcopy(bank)
    assert torch.equal(twin.vectors, bank.vectors) and twin.vectors.data_ptr() != kept


def test_float16_vectors_do_not_overflow() -> None:
    bank = filled(torch.full((2, 3), 1e6), precision="float16")
    assert bank.vectors.isfinite().all() and bank.lengths.isfinite().all()


def test_search_never_builds_a_matrix_of_all_cosines() -> None:
    largest = []

    def block_of(start: int, stop: int) -> Tensor:
        largest.append(stop - start)
        return rows[start:stop]

    rows, queries = normal(1000, 4), normal(3, 4, seed=1)
    everything = torch.tensor(True)
    slots, found = nearest_rows(queries, rows.norm(dim=1), block_of, lambda *_: everything, 5, 64)
    assert max(largest) == 64 and sum(largest) == 1000 and found.all()
    expected = (unit(queries) @ unit(rows).T).topk(5, dim=1).indices
    assert torch.equal(slots, expected)


# ------------------------------------------------------------------------------------ approximate


needs_faiss = pytest.mark.skipif(find_spec("faiss") is None, reason="faiss is an extra")


def clustered(count: int) -> Tensor:
    """Draw rows around 20 centres, the centre of a row being its number modulo 20."""
    return (normal(20, 16)[torch.arange(count) % 20] + normal(count, 16, seed=1) / 3).float()


def approximate(rows: Tensor, texts: Tensor | None = None) -> FeatureBank:
    return filled(rows, texts, search="approximate", approximate_from=len(rows) * 2 // 3)


@needs_faiss
def test_approximate_search_finds_most_slots_and_reports_recall() -> None:
    rows, ids = clustered(1500), torch.arange(30)
    bank = approximate(rows)
    assert bank.recall is None
    slots, found = bank.nearest(rows[:30], ids, 10)
    assert bank.recall is not None and bank.recall >= 0.9
    expected, _ = filled(rows).nearest(rows[:30], ids, 10)
    shared = (slots.unsqueeze(2) == expected.unsqueeze(1)).any(dim=2).float().mean().item()
    assert shared >= 0.85 and found.all()
    assert not (slots == ids.unsqueeze(1)).any()
    cosines = torch.cosine_similarity(rows[:30].unsqueeze(1), bank.rows(slots), dim=2)
    assert (cosines.diff(dim=1) <= 1e-6).all()  # the nearest first, by what slots hold now


@needs_faiss
def test_search_is_exact_while_few_slots_are_eligible_and_the_index_is_rebuilt() -> None:
    rows = clustered(600)
    bank = FeatureBank(600, 16, search="approximate", approximate_from=500, rebuild_every=2)
    bank.update(torch.arange(500), rows[:500])
    bank.nearest(rows[:2], torch.arange(2), 5)
    assert bank.recall is None
    bank.update(torch.arange(500, 599), rows[500:599])
    bank.nearest(rows[:2], torch.arange(2), 5)
    first = bank._index
    assert first is not None
    bank.update(torch.tensor([599]), rows[:1])  # now nearest to the first row
    assert 599 not in bank.nearest(rows[:1], torch.tensor([0]), 1)[0]
    bank.update(torch.tensor([599]), rows[:1])
    assert bank.nearest(rows[:1], torch.tensor([0]), 1)[0].item() == 599
    assert bank._index is not first


@needs_faiss
def test_approximate_search_finds_no_slot_that_is_ruled_out() -> None:
    rows, ids = clustered(300), torch.arange(4)
    keys = torch.arange(300) % 7
    bank = approximate(rows, keys)
    among = torch.arange(300) % 2 == 0
    slots, found = bank.nearest(rows[:4], ids, 20, keys[:4], among)
    for i in range(4):
        mine = slots[i][found[i]]
        assert mine.numel() and among[mine].all() and (keys[mine] != keys[i]).all()
        assert i not in mine.tolist()


@needs_faiss
def test_approximate_search_finds_k_slots_if_there_are_k() -> None:
    """Search more lists than `tune` chose, and all slots where candidates are ruled out."""
    rows, ids = clustered(1500), torch.arange(4)
    bank = approximate(rows)
    bank.nearest(rows[:4], ids, 3)  # tunes
    assert bank._index is not None
    bank._index._index.nprobe = 1
    near = bank._index.candidates(rows[:4], 1500)
    assert (near >= 0).all() and bank._index._index.nprobe == 1
    assert bank.nearest(rows[:4], ids, 900)[1].all()
    among = torch.arange(1500) % 20 == 9  # the cluster of none of the queries
    slots, found = bank.nearest(rows[:4], ids, 70, among=among)
    expected, there = filled(rows).nearest(rows[:4], ids, 70, among=among)
    assert torch.equal(slots[found], expected[there]) and torch.equal(found, there)
    assert found.all()


@needs_faiss
def test_exact_search_is_a_fallback_for_single_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that only queries without enough candidates are compared with all slots.

    A mask for all queries would be as large as the matrix that `BLOCK` avoids.
    """
    rows, ids, keys = clustered(1500), torch.arange(64), torch.arange(1500) % 50
    bank = approximate(rows, keys)
    among = torch.arange(1500) % 20 != 3  # not the cluster of four of the queries
    expected, there = filled(rows, keys).nearest(rows[:64], ids, 10, keys[:64], among)
    exactly, queries = FeatureBank._exactly, []

    def counted(self: FeatureBank, some: Tensor, usable: Any, k: int) -> tuple[Tensor, Tensor]:
        queries.extend([len(some), len(usable(torch.arange(1500)))])
        return exactly(self, some, usable, k)

    monkeypatch.setattr(FeatureBank, "_exactly", counted)
    slots, found = bank.nearest(rows[:64], ids, 10, keys[:64], among)
    assert found.all() and there.all() and set(queries) == {4}
    assert torch.equal(slots[3::20], expected[3::20])


def test_with_fixed_shapes_search_is_exact_and_without_faiss(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    rows, ids = clustered(300), torch.arange(9)
    bank = approximate(rows)
    assert not bank.fixed_shapes
    bank.fixed_shapes = True
    slots, found = bank.nearest(rows[:9], ids, 20)
    expected, there = filled(rows).nearest(rows[:9], ids, 20)
    assert torch.equal(slots, expected) and torch.equal(found, there)
    assert bank.recall is None
    bank.fixed_shapes = False
    with pytest.raises(ConfigurationError, match=r'faiss-cpu, which is not .* search to "exact"'):
        bank.nearest(rows[:1], ids[:1], 2)


# --------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\), got 1.0; 1 would never update"),
        ({"momentum": -0.1}, r"momentum must be in \[0, 1\)"),
        ({"instances": 0}, "instances must be above 0, got 0"),
        ({"width": 0}, "width must be above 0, got 0"),
        ({"eligible": "some"}, "Unknown eligible 'some': expected one of visited, all"),
        ({"storage": "tape"}, "Unknown storage 'tape': expected one of memory, disk"),
        ({"precision": "int8"}, "Unknown precision 'int8': expected one of float32, float16"),
        ({"search": "fast"}, "Unknown search 'fast': expected one of exact, approximate"),
        ({"rebuild_every": 0}, "rebuild_every must be above 0, got 0"),
        ({"approximate_from": -1}, "approximate_from must be 0 or above, got -1"),
    ],
)
def test_invalid_settings_raise(changes: dict, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        FeatureBank(**{"instances": 5, "width": 3, **changes})


@pytest.mark.parametrize(
    ("features", "ids", "texts", "message"),
    [
        (torch.zeros(2, 4), [0, 1], None, r"features \(n, 3\) and ids \(n,\), got \(2, 4\) and"),
        (torch.zeros(2, 1, 3), [0, 1], None, r"got \(2, 1, 3\) and \(2,\)"),
        (torch.zeros(2, 3), [0], None, r"got \(2, 3\) and \(1,\)"),
        (torch.zeros(2, 3), [0, 5], None, r"ids from 0 to 4 \(instances is 5\), got 0 to 5"),
        (torch.zeros(2, 3), [-1, 0], None, "got -1 to 0"),
        (torch.zeros(2, 3), [0, 1], [1], r"Expected texts \(2,\), got \(1,\)"),
    ],
)
def test_invalid_shapes_and_ids_raise(
    features: Tensor, ids: list, texts: Any, message: str
) -> None:
    bank = FeatureBank(5, 3)
    keys = None if texts is None else torch.tensor(texts)
    with pytest.raises(ValueError, match=message):
        bank.update(torch.tensor(ids), features, keys)
    with pytest.raises(ValueError, match=message):
        bank.nearest(features, torch.tensor(ids), 2, keys)
    assert not bank.visited.any()


def test_a_checkpoint_of_other_data_raises() -> None:
    state, bank = FeatureBank(5, 3).state_dict(), FeatureBank(5, 4)
    with pytest.raises(ConfigurationError, match=r"bank \(5, 3\) .* this one is \(5, 4\)"):
        bank.load_state_dict(state)
