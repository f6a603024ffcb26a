"""Tests of the calls of variable-length kernels, with reference kernels in their place."""

import re
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from declutr.transformer import memory_efficient_attention
from declutr.transformer.variable_length_kernels import Kernels, attend, kernels_of
from tests.reference_kernels import registered
from tests.transformer import texts_alone
from tests.transformer.texts_alone import assert_all_close, one_by_one

LENGTHS = [5, 3, 3, 1]
STARTS = torch.tensor([0, 5, 8, 11, 12], dtype=torch.int32)

# The signatures of torch's operators, by the first release that has them.
FLASH = (
    "_flash_attention_forward(Tensor query, Tensor key, Tensor value, Tensor? cum_seq_q, "
    "Tensor? cum_seq_k, SymInt max_q, SymInt max_k, float dropout_p, bool is_causal, "
    "bool return_debug_mask, *, float? scale=None, SymInt? window_size_left=None, "
    "SymInt? window_size_right=None, Tensor? seqused_k=None, Tensor? alibi_slopes=None%s) -> (%s)"
)
PHILOX = "Tensor output, Tensor logsumexp, Tensor seed, Tensor offset, Tensor debug_attn_mask"
RNG_STATE = "Tensor output, Tensor logsumexp, Tensor rng_state, Tensor unused, Tensor mask"
SIGNATURES = {
    "flash, 2.6": FLASH % ("", PHILOX),
    "flash, 2.7 to 2.11": FLASH % ("", RNG_STATE),
    "flash, 2.12 to 2.15": FLASH % (", Tensor? block_table=None, int? num_splits=None", RNG_STATE),
    "efficient, 2.6 to 2.15": "_efficient_attention_forward(Tensor query, Tensor key, "
    "Tensor value, Tensor? bias, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, "
    "SymInt? max_seqlen_q, SymInt? max_seqlen_k, float dropout_p, int custom_mask_type, "
    "bool compute_log_sumexp=False, *, float? scale=None, Tensor? seqlen_k=None, "
    "int? window_size=None) -> (Tensor output, Tensor logsumexp, Tensor philox_seed, "
    "Tensor philox_offset, SymInt max_seqlen_batch_q, SymInt max_seqlen_batch_k)",
    "efficient backward, 2.6 to 2.15": "_efficient_attention_backward(Tensor grad_out_, "
    "Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor out, Tensor? cu_seqlens_q, "
    "Tensor? cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, Tensor logsumexp, "
    "float dropout_p, Tensor philox_seed, Tensor philox_offset, int custom_mask_type, "
    "bool bias_requires_grad, *, float? scale=None, int? num_splits_key=None, "
    "int? window_size=None, bool shared_storage_dqdkdv=False) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
}


def inputs(dtype: torch.dtype = torch.float32, width: int = 8) -> list[Tensor]:
    return texts_alone.inputs(LENGTHS, dtype, width)


ALL = Kernels(flash=True, efficient=True, efficient_in_bfloat16=True)


def run(*tensors: Tensor, dropout_p: float = 0.0, kernels: Kernels = ALL) -> Tensor:
    return attend(*tensors, STARTS, max(LENGTHS), dropout_p, 0.3, kernels)


@pytest.fixture
def afresh() -> Iterator[None]:
    """Clear the cached results about devices, before and after a test."""
    kernels_of.cache_clear()
    yield
    kernels_of.cache_clear()


class Arguments(Exception):
    pass


@pytest.mark.parametrize("release", SIGNATURES)
def test_kernels_are_called_as_every_release_allows(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def operator(**arguments: Any) -> None:
        raise Arguments(arguments)

    schema = torch._C.parse_schema(SIGNATURES[release])
    monkeypatch.setattr(torch.ops.aten, schema.name, SimpleNamespace(default=operator))
    with pytest.raises(Arguments) as got:
        if "backward" in schema.name:
            nothing = torch.zeros(())
            memory_efficient_attention._backward._init_fn(*[nothing] * 9, 5, 0.1, 0.3)
        else:
            run(*inputs(torch.bfloat16 if "flash" in schema.name else torch.float32))
    (arguments,) = got.value.args
    taken = {argument.name: argument for argument in schema.arguments}
    assert arguments.keys() <= taken.keys()
    needed = {name for name, argument in taken.items() if not argument.has_default_value()}
    assert needed <= arguments.keys()
    for name, value in arguments.items():
        kind = re.sub(r"Optional\[(.*)\]", r"\1", str(taken[name].type))
        kinds = {"Tensor": Tensor, "SymInt": int, "int": int, "float": float, "bool": bool}
        assert value is None or type(value) is kinds[kind], name


@pytest.mark.parametrize("name", ["_flash_attention_forward", "_efficient_attention_forward"])
def test_signatures_of_this_torch_are_known(name: str) -> None:
    """If this fails, a release has changed the signatures: add them to the table."""
    schema = getattr(torch.ops.aten, name).default._schema
    known = [torch._C.parse_schema(text) for text in SIGNATURES.values()]
    arguments = [[(a.name, str(a.type)) for a in one.arguments] for one in (schema, *known)]
    assert arguments[0] in arguments[1:]


@pytest.mark.parametrize("flash", [True, False])
@pytest.mark.parametrize("width", [8, 5, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_equals_attention_over_each_text(dtype: torch.dtype, width: int, flash: bool) -> None:
    """Compare forward and backward with torch's own derivatives, and check the kernel used."""
    tensors = inputs(dtype, width)
    with registered() as calls:
        got = run(*tensors, kernels=ALL._replace(flash=flash))
        weights = torch.randn(got.shape)
        gradients = torch.autograd.grad((got * weights).sum(), tensors)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    expected = one_by_one(exact, LENGTHS, scale=0.3)
    rounding = {torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 8e-2}[dtype]
    assert got.dtype == dtype and torch.allclose(got.double(), expected, atol=rounding)
    right = torch.autograd.grad((expected * weights).sum(), exact)
    gradients = [gradient.double() for gradient in gradients]
    assert_all_close(gradients, right, rtol=rounding, atol=2 * rounding)
    by_flash = flash and dtype != torch.float32 and width < 200
    by_efficient = ("efficient for a gradient", "efficient backward")
    assert tuple(calls) == (("flash", "flash backward") if by_flash else by_efficient)


def test_nothing_is_kept_where_there_is_no_gradient() -> None:
    tensors = inputs()
    with registered() as calls:
        for context in (torch.no_grad(), torch.inference_mode()):
            with context:
                run(*tensors)
        run(*(tensor.detach() for tensor in tensors))
    assert calls == {"efficient": 3}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_is_the_same_when_computed_again(dtype: torch.dtype) -> None:
    gradients = []
    with registered():
        for again in (False, True):
            tensors = inputs(dtype)
            torch.manual_seed(1)
            attended = partial(run, dropout_p=0.4)
            output = (
                checkpoint(attended, *tensors, use_reentrant=False) if again else attended(*tensors)
            )
            gradients.append(torch.autograd.grad(output.float().sin().sum(), tensors))
        without = torch.autograd.grad(run(*tensors).float().sin().sum(), tensors)
    for one, other, third in zip(*gradients, without, strict=True):
        assert torch.equal(one, other) and not torch.allclose(one, third, rtol=0.1)


def test_kernels_are_tried_once(
    afresh: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """They are tried forward and backward, without drawing random numbers."""

    def operator(**arguments: Any) -> None:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")

    cpu, state = torch.device("cpu"), torch.get_rng_state()
    caplog.set_level("INFO")
    with registered() as calls:
        with torch.inference_mode():
            assert kernels_of(cpu) == kernels_of(cpu) == ALL
        kinds = ("flash", "flash backward", "efficient for a gradient", "efficient backward")
        assert calls == dict(zip(kinds, (1, 1, 2, 2), strict=True))
        kernels_of.cache_clear()
        monkeypatch.setattr(
            torch.ops.aten, "_flash_attention_forward", SimpleNamespace(default=operator)
        )
        assert kernels_of(cpu) == ALL._replace(flash=False)
    assert torch.equal(torch.get_rng_state(), state)
    (told,) = caplog.messages
    assert "flash attention does not run on cpu in bfloat16 (FlashAttention only" in told


def test_kernels_may_be_tried_within_a_checkpoint(afresh: None) -> None:
    def tried(tensor: Tensor) -> Tensor:
        assert kernels_of(torch.device("cpu")) == ALL
        return tensor.sin().exp()

    numbers = torch.ones(3, requires_grad=True)
    with registered():
        checkpoint(tried, numbers, use_reentrant=False).sum().backward()
    assert torch.allclose(numbers.grad, numbers.cos() * numbers.sin().exp())


def test_missing_kernels_fall_back_or_raise() -> None:
    """GPUs before Ampere compute bfloat16 in float32; without any kernel it is an error."""
    tensors = inputs(torch.bfloat16)
    old = Kernels(flash=False, efficient=True, efficient_in_bfloat16=False)
    with registered():
        got = run(*tensors, kernels=old)
        exact = run(*(tensor.float() for tensor in tensors), kernels=old)
    assert got.dtype == torch.bfloat16 and torch.equal(got, exact.bfloat16())
    with pytest.raises(NotImplementedError, match="no kernel for attention over packed"):
        run(*tensors, kernels=Kernels(False, False, False))


def test_compiled_code_has_its_own_operator_for_efficient_attention() -> None:
    q, k, v = (tensor.transpose(1, 2).contiguous() for tensor in inputs())
    leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    with registered():
        torch.library.opcheck(
            torch.ops.declutr.efficient_attention.default,
            (*leaves, STARTS, max(LENGTHS), 0.0, 0.3, True),
            test_utils=checks,
        )
