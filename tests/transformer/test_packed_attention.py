"""Compare attention within each text of a packed row with attention over each text alone."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.utils.checkpoint import checkpoint

from declutr.transformer import text_by_text_attention, text_runs
from declutr.transformer.packed_attention import CannotPack, PackedAttention, recomputation_contexts
from declutr.transformer.packing import Packing
from tests.reference_kernels import as_on_a_gpu
from tests.transformer import texts_alone
from tests.transformer.texts_alone import HEADS, assert_all_close

LENGTHS = [3, 7, 7, 1, 5, 7]
WIDTH = 4


def packing_of(lengths: list[int]) -> Packing:
    return Packing(lengths, max(lengths), torch.device("cpu"))


def inputs(lengths: list[int] = LENGTHS, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return texts_alone.inputs(lengths, dtype, WIDTH)


def one_by_one(*tensors: Tensor, lengths: list[int] = LENGTHS) -> Tensor:
    return texts_alone.one_by_one(tensors, packing_of(lengths).lengths)


def packed(lengths: list[int], **options: float) -> Callable[..., Tensor]:
    def attend(*tensors: Tensor) -> Tensor:
        with PackedAttention(packing_of(lengths)):
            return attention(*tensors, **options)

    return attend


@pytest.mark.parametrize(
    "lengths",
    [LENGTHS, [4], [2] * 5, [40, 20, 20], [31, 31, 24, 24, 24, 13, 9], [600, 30, 3, 600, 600, 2]],
    ids=len,
)
def test_equals_attention_over_each_text(lengths: list[int]) -> None:
    tensors = inputs(lengths)
    expected = one_by_one(*tensors, lengths=lengths)
    got = packed(lengths)(*tensors)
    assert torch.allclose(got, expected, atol=1e-12)
    weights = torch.randn_like(expected)
    gradients = (torch.autograd.grad((one * weights).sum(), tensors) for one in (got, expected))
    assert_all_close(*gradients, atol=1e-10)


@pytest.fixture
def sixteen_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_runs, "_LANES", 16)


def test_torchs_kernel_in_float32_reads_full_rows_of_keys(
    sixteen_lanes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of the next texts are read and masked; the last text has zeros behind it."""
    calls: list[tuple[int, int, int]] = []
    flash = text_by_text_attention._flash

    def watched(query: Tensor, key: Tensor, *others: Tensor, **options: object) -> object:
        calls.append((query.size(0), query.size(2), key.size(2)))
        return flash(query, key, *others, **options)

    monkeypatch.setattr(text_by_text_attention, "_flash", watched)
    lengths = [33, 32, 24, 24, 15, 15]
    tensors = inputs(lengths, torch.float32)
    with torch.no_grad():
        got = packed(lengths)(*tensors)
        assert torch.allclose(got, one_by_one(*tensors, lengths=lengths), atol=1e-6)
    assert calls == [(1, 33, 33), (1, 32, 32), (2, 24, 32), (1, 15, 16), (1, 15, 16)]
    assert torch.allclose(packed(lengths)(*tensors), got)  # with sums for gradients


def test_products_in_bfloat16_read_full_rows_of_keys(
    sixteen_lanes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They need twice as many as torch's kernel, and mask what is of the next texts."""
    rows: list[int] = []
    products = text_by_text_attention._probabilities

    def watched(query: Tensor, key: Tensor) -> Tensor:
        rows.append(key.size(-2))
        return products(query, key)

    monkeypatch.setattr(text_by_text_attention, "_probabilities", watched)
    monkeypatch.setattr(text_runs, "instructions", lambda: ())
    lengths = [64, 40, 39, 24, 24, 15, 15, 7]
    query, key, value = inputs(lengths, torch.bfloat16)
    scales = torch.tensor([float(4**n) for n in range(8)]).repeat_interleave(torch.tensor(lengths))
    with torch.no_grad():
        value *= scales[:, None].to(value.dtype)  # of the next text, it would be seen at once
        got = packed(lengths)(query, key, value).float() / scales[:, None]
        exact = one_by_one(query.float(), key.float(), value.float(), lengths=lengths)
        assert torch.allclose(got, exact / scales[:, None], atol=0.02)
        assert rows == [64, 64, 39, 32, 32, 7]
        rows.clear()
        packed(lengths, dropout_p=0.1)(query, key, value)
    assert rows == [64, 40, 39, 24, 15, 7]


@pytest.mark.parametrize(
    ("dtype", "instructions"),
    [(torch.float32, ()), (torch.bfloat16, ("amx",)), (torch.bfloat16, ())],
    ids=["float32", "torch's kernel in bfloat16", "products in bfloat16"],
)
def test_attention_of_a_text_is_the_same_alone(
    sixteen_lanes: None,
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    instructions: tuple[str, ...],
) -> None:
    monkeypatch.setattr(text_runs, "instructions", lambda: instructions)
    lengths = [60, 24, 24, 13, 13, 13, 5]
    tensors = inputs(lengths, dtype)
    with torch.no_grad():
        together = packed(lengths)(*tensors).split(lengths, dim=2)
        for number, length in enumerate(lengths):
            alone = packed([length])(*(t.split(lengths, dim=2)[number] for t in tensors))
            assert torch.equal(alone, together[number]), length


def test_runs_whose_last_texts_have_no_keys_behind_them(sixteen_lanes: None) -> None:
    run = text_runs.Run(start=10, number=5, length=5)
    assert run.full_rows() == 16 and run._replace(length=3).full_rows() == 3
    parts = {tokens: list(run.parts(16, tokens)) for tokens in (35, 46, 100)}
    assert parts[35] == [(10, 2, 5), (20, 3, 5)]
    assert parts[46] == [(10, 5, 5)] == parts[100]
    assert list(text_runs.Run(0, 1, 5).parts(16, 5)) == [(0, 1, 5)]


def test_the_scale_is_used() -> None:
    tensors = inputs()
    got = packed(LENGTHS, scale=0.1)(*tensors)
    again = [tensors[0] * 0.1 * WIDTH**0.5, *tensors[1:]]
    assert torch.allclose(got, one_by_one(*again))


def test_gradcheck() -> None:
    assert torch.autograd.gradcheck(packed([2, 3, 3]), inputs([2, 3, 3]))


def test_gradcheck_with_dropout() -> None:
    """The backward pass uses the masks of the forward pass."""

    def attend(*tensors: Tensor) -> Tensor:
        torch.manual_seed(5)
        return packed([4, 6, 6], dropout_p=0.4)(*tensors)

    assert torch.autograd.gradcheck(attend, inputs([4, 6, 6]))
    assert not torch.allclose(attend(*inputs([4, 6, 6])), packed([4, 6, 6])(*inputs([4, 6, 6])))


def test_dropout_keeps_or_drops_a_probability() -> None:
    """With unit vectors as values, attention returns the probabilities after dropout."""
    lengths = [WIDTH, WIDTH]
    query, key, _ = inputs(lengths)
    units = torch.eye(WIDTH, dtype=query.dtype).repeat(2, 1).expand_as(query)
    assert not packed(lengths, dropout_p=1.0)(query, key, units).any()
    whole, dropped = (packed(lengths, dropout_p=p)(query, key, units) for p in (0.0, 0.25))
    kept = dropped != 0
    assert 0 < kept.double().mean() < 1
    assert torch.allclose(dropped, torch.where(kept, whole / 0.75, 0.0))


def test_dropout_does_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of threads decides how many heads are computed at once."""
    tensors, found = inputs([301, 20, 20]), []
    for threads in (1, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        torch.manual_seed(0)
        output = packed([301, 20, 20], dropout_p=0.3)(*tensors)
        found.append([output, *torch.autograd.grad(output.sin().sum(), tensors)])
    assert_all_close(*found, atol=1e-12)


def test_inputs_need_not_be_contiguous() -> None:
    tensors = [tensor.repeat_interleave(2, dim=-1)[..., ::2] for tensor in inputs()]
    output = packed(LENGTHS)(*tensors)
    assert torch.allclose(output, one_by_one(*inputs()))


def test_dropout_follows_the_seed() -> None:
    def attend(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return packed(LENGTHS, dropout_p=0.5)(*fixed)

    fixed = inputs()
    assert torch.equal(attend(1), attend(1))
    assert not torch.equal(attend(1), attend(2))


def test_bfloat16_under_autocast() -> None:
    tensors = inputs(dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = packed(LENGTHS)(*tensors)
    exact = one_by_one(*(t.double() for t in tensors))
    assert got.dtype == torch.bfloat16
    assert torch.allclose(got.double(), exact, atol=3e-2)
    gradients = (torch.autograd.grad(output.sum(), tensors) for output in (got, exact))
    assert_all_close(*gradients, atol=3e-2)


def test_autocast_casts_inputs_to_one_dtype() -> None:
    """Rotary positions leave queries and keys in float32, which autocast casts for torch too."""
    query, key, value = inputs(dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = packed(LENGTHS)(query, key, value.bfloat16())
        got.sum().backward()
    assert got.dtype == torch.bfloat16 and query.grad.dtype == torch.float32


def test_threads_do_not_see_each_other() -> None:
    with PackedAttention(packing_of(LENGTHS)), ThreadPoolExecutor(1) as pool:
        elsewhere = pool.submit(recomputation_contexts).result()
        here = recomputation_contexts()
    assert not any(isinstance(context, PackedAttention) for context in elsewhere)
    assert isinstance(here[1], PackedAttention)


@pytest.mark.parametrize(
    "options",
    [{"attn_mask": torch.zeros(1, 1, 30, 30)}, {"is_causal": True}, {"enable_gqa": True}],
    ids=["mask", "causal", "fewer keys"],
)
def test_other_attention_is_refused(options: dict) -> None:
    with pytest.raises(CannotPack):
        packed(LENGTHS, **options)(*inputs())


def test_rows_of_another_length_are_refused() -> None:
    with pytest.raises(CannotPack, match="over the tokens as they come in"):
        packed([3, 4])(*inputs())


def test_nothing_changes_outside() -> None:
    tensors = inputs()
    before = attention(*tensors)
    with PackedAttention(packing_of(LENGTHS)) as mode:
        inside = attention(*tensors)
    assert mode.calls == 1
    assert torch.equal(attention(*tensors), before) and not torch.allclose(inside, before)


def test_recomputed_attention_stays_within_texts() -> None:
    """Activation checkpointing recomputes in the backward pass, outside the context."""
    gradients = []
    for again in (False, True):
        torch.manual_seed(1)
        tensors = inputs()
        with PackedAttention(packing_of(LENGTHS)):
            if again:
                options = {"use_reentrant": False, "context_fn": recomputation_contexts}
                output = checkpoint(lambda *t: attention(*t, dropout_p=0.3), *tensors, **options)
            else:
                output = attention(*tensors, dropout_p=0.3)
        gradients.append(torch.autograd.grad(output.sin().sum(), tensors))
    assert_all_close(*gradients)


# --------------------------------------------------------------------------- kernels, compilation


@pytest.fixture
def kernels() -> Iterator[Counter[str]]:
    with as_on_a_gpu() as calls:
        yield calls


def test_the_dtype_decides_about_the_kernel(kernels: Counter[str]) -> None:
    tensors = inputs(dtype=torch.float32)
    got = packed(LENGTHS)(*tensors)
    assert torch.allclose(got, one_by_one(*tensors), atol=1e-6)
    assert kernels == {"efficient for a gradient": 1}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert packed(LENGTHS)(*tensors).dtype == torch.bfloat16
    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        packed(LENGTHS)(*(tensor.bfloat16() for tensor in tensors))
    assert kernels == {"efficient for a gradient": 2, "flash": 1}
    with pytest.raises(CannotPack, match="no kernel for attention over packed"):
        packed(LENGTHS)(*inputs())


class Encoder(torch.nn.Module):
    """A module with two layers of attention."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(width, 3 * width) for _ in range(2))

    def forward(self, row: Tensor) -> Tensor:
        for layer in self.layers:
            heads = (part.view(1, -1, HEADS, 8) for part in layer(row).chunk(3, dim=-1))
            attended = attention(*(part.transpose(1, 2) for part in heads))
            row = row + attended.transpose(1, 2).flatten(2)
        return row


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_compiled_attention_is_one_graph_for_all_lengths(
    device: str, request: pytest.FixtureRequest
) -> None:
    if device == "gpu":
        request.getfixturevalue("kernels")
    torch._dynamo.reset()
    encoder = Encoder(HEADS * 8)
    compiled = torch.compile(encoder, backend="aot_eager", dynamic=True, fullgraph=True)
    torch._dynamo.utils.counters.clear()
    for lengths in ([5, 2, 3], [9, 1]):
        row = torch.randn(1, sum(lengths), HEADS * 8)
        found = []
        for run in (encoder, compiled):
            encoder.zero_grad()
            with PackedAttention(packing_of(lengths)) as mode:
                output = run(row)
            assert mode.calls == 2
            output.sin().sum().backward()
            found.append([output, *(parameter.grad for parameter in encoder.parameters())])
        assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(*found, strict=True))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


def test_compiled_attention_ignores_a_mask() -> None:
    """While being compiled, transformers make a mask that hides nothing."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        everything = query.new_ones(1, 1, query.size(2), key.size(2), dtype=torch.bool)
        return attention(query, key, value, attn_mask=everything)

    tensors = inputs()
    with PackedAttention(packing_of(LENGTHS)):
        got = torch.compile(attend, backend="eager", fullgraph=True)(*tensors)
        with pytest.raises(CannotPack):
            attend(*tensors)
    assert torch.equal(got, packed(LENGTHS)(*tensors))


def test_the_operator_for_the_cpu_passes_opcheck() -> None:
    row = [tensor.detach().requires_grad_() for tensor in inputs()]
    for dropout_p, seed in ((0.0, None), (0.3, torch.tensor(7))):
        torch.library.opcheck(
            text_by_text_attention._attention._opoverload,
            (*row, packing_of(LENGTHS).cu_seqlens, seed, dropout_p, 0.5, True),
            test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
        )


@pytest.mark.parametrize("amx", [True, False])
def test_torchs_kernel_in_bfloat16_is_used_on_processors_with_amx(monkeypatch, amx: bool) -> None:
    """On other processors it is half as fast as separate products; results are the same."""
    calls: list[int] = []
    flash = text_by_text_attention._flash
    monkeypatch.setattr(
        text_by_text_attention, "_flash", lambda *a, **k: (calls.append(1), flash(*a, **k))[1]
    )
    monkeypatch.setattr(text_runs, "instructions", lambda: ("amx",) if amx else ())
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 1, 2, 60, 8).bfloat16()
    attended = text_by_text_attention.attend(
        query, key, value, torch.tensor([0, 20, 60]), dropout_p=0.0, scale=8**-0.5
    )
    assert len(calls) == (2 if amx else 0)
    expected = texts_alone.one_by_one([one.float() for one in (query, key, value)], (20, 40))
    torch.testing.assert_close(attended.float(), expected, atol=0.02, rtol=0.02)


def test_masks_of_ever_other_lengths_do_not_add_up() -> None:
    """As in a service that embeds texts of thousands of tokens: 100 MB for lengths up to 8192."""
    masks = text_by_text_attention._beyond
    masks.cache_clear()
    for length in range(1, 2001):
        masks(length, length + 1, torch.float32)
    assert masks.cache_info().currsize <= 512
    assert masks(3, 5, torch.float32).tolist() == [[0, 0, 0, -torch.inf, -torch.inf]]
