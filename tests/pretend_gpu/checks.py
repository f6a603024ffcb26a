"""The pretend GPU itself. `tests/test_pretend_gpu.py` runs these in a process with its hooks."""

import copy
import io
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor
from torch.nn.functional import dropout, scaled_dot_product_attention

from .runtime import pretend_gpu
from .waits import Record, recorded

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def record() -> Iterator[Record]:
    with pretend_gpu(), recorded() as record:
        yield record


def numbers(*shape: int, **options: object) -> Tensor:
    return torch.randn(*shape, device="cuda", **options)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "together",
    [
        lambda host: numbers(3) + host,
        lambda host: torch.cat([numbers(3), host]),
        lambda host: host.add_(numbers(3)),
        lambda host: torch.where(numbers(3) > 0, numbers(3), host),
        lambda host: host[torch.tensor([0], device="cuda")],
        lambda host: torch.zeros(()).add_(numbers(())),
        lambda host: torch.nn.functional.embedding(torch.tensor([0]), numbers(2, 2)),
    ],
)
def test_tensors_of_two_devices_are_refused(together: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match=r"same device.*cuda:0.*cpu"):
        together(torch.ones(3))


def test_a_number_of_the_host_is_a_constant(record: Record) -> None:
    assert (numbers(3) * torch.tensor(2.0)).device == torch.device("cuda:0")
    assert not record.waits


def test_what_cuda_has_no_kernel_for() -> None:
    with pytest.raises(NotImplementedError, match="int64"):
        torch.ones(2, 2, dtype=torch.long, device="cuda") @ torch.ones(2, 2, device="cuda").long()
    with pytest.raises(TypeError, match=r"Use Tensor\.cpu\(\)"):
        numbers(2).numpy()
    with pytest.raises(RuntimeError, match="'cuda' device type for generator but found 'cpu'"):
        numbers(2, generator=torch.Generator())
    with pytest.raises(RuntimeError, match="dtype"):
        numbers(2, 2) @ numbers(2, 2, dtype=torch.bfloat16)


INDEX = [0, 2]
WAITING: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x[0]),
    "int": lambda x: int(x[0]),
    "bool": lambda x: bool(x[0] > 0),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "copy_ to the host": lambda x: torch.zeros(3).copy_(x),
    "nonzero": lambda x: x.nonzero(),
    "boolean index": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "write of a tensor through a mask": lambda x: x.__setitem__(x == x, numbers(3)),
    "unique": lambda x: x.unique(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.abs().long()),
    "equal": lambda x: torch.equal(x, x),
    "index on the host": lambda x: x[torch.tensor(INDEX)],
    "tensor": lambda x: torch.tensor(INDEX, device="cuda"),
    "new_tensor": lambda x: x.new_tensor(INDEX),
    "as_tensor": lambda x: torch.as_tensor(INDEX, device="cuda"),
    "to": lambda x: torch.ones(3).to("cuda", non_blocking=True),
    "to, from pinned memory": lambda x: torch.ones(3).pin_memory().to("cuda"),
    "copy_ to the device": lambda x: x.copy_(torch.ones(3)),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "event": lambda x: torch.cuda.Event().synchronize(),
}


@pytest.mark.parametrize("kind", WAITING)
def test_the_host_waits(kind: str, record: Record) -> None:
    x = numbers(3)
    WAITING[kind](x)
    assert sum(record.waits.values()) == 1, record.by_place()


def test_the_host_does_not_wait(record: Record) -> None:
    x = numbers(3)
    x[x > 0] = 0.0
    x.masked_fill(x > 0, 1.0).cumsum(0).sort()
    x.repeat_interleave(torch.full((3,), 2, device="cuda"), output_size=6)
    pinned = torch.arange(3.0).pin_memory()
    pinned[1:].to("cuda", non_blocking=True)
    x.copy_(pinned, non_blocking=True)
    x.to("cpu", non_blocking=True)
    torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0)
    assert not record.waits, record.by_place()


def test_launches_are_of_kernels_alone(record: Record) -> None:
    x = numbers(4, 4)
    record.clear()
    x.t()[1:].unsqueeze(0).expand(2, 3, 4).detach()
    torch.empty_like(x)
    assert record.num_launches == 0
    x.add(1).mul_(2)
    assert record.num_launches == 2


def test_modules_move_as_they_do(record: Record) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3))
    module.tied = module[0].weight
    parameters, expected = list(module.parameters()), copy.deepcopy(module)
    module.to("cuda")
    assert [id(p) for p in parameters] == [id(p) for p in module.parameters()]
    assert {t.device.type for t in (*module.parameters(), *module.buffers())} == {"cuda"}
    copied = copy.deepcopy(module)
    assert copied.tied is copied[0].weight and copied.tied is not module.tied
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.1) for m in (module, expected)]
    for _ in range(2):
        inputs = torch.randn(5, 3)
        for part, device in ((module, "cuda"), (expected, "cpu")):
            part(inputs.to(device)).exp().sum().backward()
        record.clear()
        for optimizer in optimizers:
            optimizer.step()
        assert record.launches["aten::_foreach_addcdiv_.ScalarList"] == 1  # of all parameters
    saved = io.BytesIO()
    torch.save(module.state_dict(), saved)
    state = torch.load(io.BytesIO(saved.getvalue()), weights_only=True)
    for name, value in expected.state_dict().items():
        assert torch.allclose(state[name], value, atol=1e-6), name
    copied.load_state_dict(state)
    assert copied.tied.device.type == "cuda" and torch.equal(copied.tied.cpu(), state["tied"])


def test_autocast_is_that_of_cuda() -> None:
    layer = torch.nn.Linear(4, 4).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output = layer(numbers(2, 4))
        assert output.dtype == torch.bfloat16 and output.softmax(dim=-1).dtype == torch.float32
    output.float().sum().backward()
    assert layer.weight.grad is not None and layer.weight.grad.device.type == "cuda"


def test_random_numbers_are_of_a_generator_of_the_device() -> None:
    torch.manual_seed(0)
    x, host = torch.ones(50, device="cuda"), torch.get_rng_state()
    state = torch.cuda.get_rng_state()
    first = dropout(x, 0.5)
    assert torch.equal(torch.get_rng_state(), host), "the generator of the host is another"
    assert not torch.equal(first, dropout(x, 0.5))
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, dropout(x, 0.5))
    texts, offsets = packed(torch.bfloat16)
    state = torch.cuda.get_rng_state()
    flash(*texts, offsets, 0.0)
    assert torch.equal(torch.cuda.get_rng_state(), state), "without dropout it draws nothing"
    draws = [numbers(3, generator=torch.Generator("cuda").manual_seed(1)) for _ in range(2)]
    assert torch.equal(*draws)


def packed(dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    """Queries, keys and values of texts of 3, 0 and 4 tokens."""
    texts = [numbers(7, 2, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    return texts, torch.tensor([0, 3, 3, 7], dtype=torch.int32, device="cuda")


def flash(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, p: float, longest: int = 4) -> Tensor:
    sizes = (offsets, offsets, longest, longest, p, False, False)
    return aten._flash_attention_forward(q, k, v, *sizes)[0]


def efficient(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, p: float, longest: int = 4
) -> Tensor:
    sizes = (offsets, offsets, longest, longest, p, 0, True)
    return aten._efficient_attention_forward(q[None], k[None], v[None], None, *sizes)[0][0]


@pytest.mark.parametrize(
    ("attend", "dtype", "atol"), [(flash, torch.bfloat16, 0.05), (efficient, torch.float32, 1e-5)]
)
def test_packed_attention(attend: Callable, dtype: torch.dtype, atol: float) -> None:
    texts, offsets = packed(dtype)
    gradient = numbers(7, 2, 8, dtype=dtype)
    attend(*texts, offsets, 0.0).backward(gradient)
    on_host = [t.detach().cpu().float().requires_grad_() for t in texts]
    for part in (slice(0, 3), slice(3, 7)):
        q, k, v = (t[part].transpose(0, 1) for t in on_host)
        expected = scaled_dot_product_attention(q, k, v)
        expected.backward(gradient[part].cpu().float().transpose(0, 1))
    for ours, plain in zip(texts, on_host, strict=True):
        assert torch.allclose(ours.grad.cpu().float(), plain.grad, atol=atol)
    # With dropout the output is linear in the values, if the backward pass drops the same.
    texts[2].grad = None
    output = attend(*texts, offsets, 0.5)
    output.backward(gradient)
    pairs = (output, gradient), (texts[2], texts[2].grad)
    inner = [(one.float() * other.float()).sum().item() for one, other in pairs]
    assert inner[0] == pytest.approx(inner[1], abs=10 * atol)
    assert not torch.equal(output, attend(*texts, offsets, 0.5))
    with pytest.raises(RuntimeError, match="a text has 4 tokens"):
        attend(*texts, offsets, 0.0, longest=3)
    with pytest.raises(RuntimeError, match="int32"):
        attend(*texts, offsets.long(), 0.0)


def test_kernels_refuse_other_dtypes() -> None:
    texts, offsets = packed(torch.float32)
    with pytest.raises(RuntimeError, match="only support fp16 and bf16"):
        flash(*texts, offsets, 0.0)
    with pytest.raises(RuntimeError, match="one dtype"):
        efficient(texts[0].half(), *texts[1:], offsets, 0.0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_padded_attention(masked: bool, dtype: torch.dtype, record: Record) -> None:
    texts = [torch.randn(2, 2, 5, 8, dtype=dtype) for _ in range(3)]
    mask = torch.rand(2, 1, 5, 5) > 0.3 if masked else None
    results = []
    for device in ("cpu", "cuda"):
        moved = [t.detach().to(device).requires_grad_() for t in texts]
        at = None if mask is None else mask.to(device)
        output = scaled_dot_product_attention(*moved, attn_mask=at)
        output.square().sum().backward()
        results.append([output, *(t.grad for t in moved)])
    atol = 0.2 if dtype == torch.bfloat16 else 1e-5
    for ours, plain in zip(results[1], results[0], strict=True):
        assert torch.allclose(ours.cpu().float(), plain.float(), atol=atol)
    kind = "flash" if dtype == torch.bfloat16 and not masked else "efficient"
    assert record.launches[f"aten::_scaled_dot_product_{kind}_attention_backward"] == 1


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_networks(kind: type) -> None:
    network = kind(6, 5, batch_first=True)
    moved = copy.deepcopy(network).cuda()
    inputs, lengths = torch.randn(3, 4, 6), torch.tensor([4, 2, 1])
    for module, given in ((network, inputs), (moved, inputs.cuda())):
        texts = torch.nn.utils.rnn.pack_padded_sequence(given, lengths, batch_first=True)
        module(texts)[0].data.square().sum().backward()
    for plain, ours in zip(network.parameters(), moved.parameters(), strict=True):
        assert torch.allclose(plain.grad, ours.grad.cpu(), atol=1e-6)


def test_inference_mode() -> None:
    module, inputs = torch.nn.Linear(3, 3).cuda(), numbers(2, 3)
    with torch.inference_mode():
        output = module(inputs).t()[1:]
        assert inputs.expand(2, 3).sum() == inputs.sum()
        assert torch.ones(3).to(inputs.device, torch.bool).device == inputs.device
    assert output.is_inference() and torch.equal(output, module(inputs).t()[1:])


def test_custom_operators_need_a_kernel_of_cuda() -> None:
    @torch.library.custom_op("pretend_gpu::of_hosts", mutates_args=(), device_types="cpu")
    def of_hosts(x: Tensor) -> Tensor:
        return x + 1

    @torch.library.custom_op("pretend_gpu::of_both", mutates_args=())
    def of_both(x: Tensor) -> Tensor:
        return x + torch.ones(3, device=x.device)

    x = numbers(3)
    assert torch.equal(of_both(x), x + 1)
    with pytest.raises(NotImplementedError, match="of_hosts"):
        of_hosts(x)
