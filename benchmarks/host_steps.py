"""One way of a training step, taken in a process of its own by `benchmarks.host_time`.

It reads commands from its standard input, and prints an answer in JSON to each:

- `steps N`: CPU seconds of each of N steps;
- `parts N`: CPU seconds a step by cause, the medians of N steps;
- `operators`: how often each of torch's operators is called in a step, those left out that only
  look at memory.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import inputs, reference, stubbed_kernels
from benchmarks.part_times import PartTimes
from declutr.sampling.spans import SpanSampler

VOCABULARY = 300
_SPANS = SpanSampler(num_anchors=2, num_positives=2, min_span_len=4, max_span_len=8)
_WITHOUT_WORK = ("empty", "new_empty", "detach", "lift_fresh", "sym_", "layout", "_nested_get")

Step = Callable[[PartTimes], None]


def main(way: str, layers: int) -> None:
    """Answer commands about one of `WAYS`."""
    torch.set_num_threads(1)
    shape = inputs.Shape("roberta", layers, 32, 2, 64, VOCABULARY, 64)
    inputs.SHAPES["narrow"] = shape
    documents = [np.random.default_rng(i).integers(5, VOCABULARY, 40) for i in range(2)]
    batch = inputs.spans_batch(documents, 0, vocab_size=VOCABULARY, max_length=64, sampler=_SPANS)
    stubbed_kernels.install()
    step, parts = WAYS[way](way, batch)
    for _ in range(3):
        step(PartTimes())
    print("ready", flush=True)
    for line in sys.stdin:
        command, *count = line.split()
        answer = _COMMANDS[command](step, parts, *map(int, count))
        print(json.dumps(answer), flush=True)


def _steps(step: Step, parts: Any, count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        start = time.process_time()
        step(PartTimes())
        seconds.append(time.process_time() - start)
    return seconds


def _parts(step: Step, parts: Callable[[PartTimes], None], count: int) -> dict[str, float]:
    times = PartTimes()
    parts(times)
    taken = []
    for _ in range(count):
        times.begin()
        step(times)
        taken.append(times.end())
    names = {name: None for one in taken for name in one}
    return {name: statistics.median(one.get(name, 0.0) for one in taken) for name in names}


def _operators(step: Step, parts: Any) -> dict[str, int]:
    with _Counting() as counting:
        step(PartTimes())
    return dict(counting.calls.most_common())


_COMMANDS: dict[str, Callable[..., Any]] = {
    "steps": _steps,
    "parts": _parts,
    "operators": _operators,
}


class _Counting(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        returns = [value.alias_info for value in func._schema.returns]
        looks = any(alias is not None and not alias.is_write for alias in returns)
        if not looks and not name.startswith(_WITHOUT_WORK):
            self.calls[name] += 1
        return func(*args, **(kwargs or {}))


# --------------------------------------------------------------------------------- the reference


def _reference(way: str, batch: inputs.SpansBatch) -> tuple[Step, Any]:
    """The original recipe, padded; "one pass" puts anchors and positives through it together."""
    stubbed_kernels.stub_dense_attention()
    model = inputs.build_model("narrow")
    groups = [
        {"params": group["params"], "weight_decay": group["weight_decay"]}
        for group in reference.reference_optimizer(model).param_groups
    ]
    optimizer = torch.optim.AdamW(groups, lr=5e-5, eps=1e-6, fused="foreach" not in way)
    masked, labels = batch.masked(VOCABULARY)
    arguments = (masked, labels, batch.anchors_mask, batch.positives, batch.positives_mask)
    if "one pass" in way:
        together = _together(batch, masked, labels)

        def loss_of() -> torch.Tensor:
            return _one_pass(model, *together, anchors=len(masked))
    else:

        def loss_of() -> torch.Tensor:
            return reference.reference_loss(model, *arguments, bfloat16=True)

    def parts(times: PartTimes) -> None:
        times.of_layers()
        times.replace(model.base_model, "forward", "layers: all else")
        times.replace(torch.nn.functional, "scaled_dot_product_attention", "layers: attention")
        times.replace(model.lm_head, "forward", "head of masked language modelling")
        times.replace(reference, "mean_over_tokens", "pooling")
        times.replace(reference.NTXentLoss, "forward", "objective")

    return _step(model, optimizer, loss_of), parts


def _together(
    batch: inputs.SpansBatch, masked: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids, labels and mask of anchors and positives, padded to the longest of both."""
    width = max(masked.size(1), batch.positives.size(1))

    def both(first: torch.Tensor, second: torch.Tensor, filler: int) -> torch.Tensor:
        wide = [
            torch.nn.functional.pad(rows, (0, width - rows.size(1)), value=filler)
            for rows in (first, second)
        ]
        return torch.cat(wide)

    none = torch.full_like(batch.positives, reference.IGNORE)
    return (
        both(masked, batch.positives, inputs.PADDING),
        both(labels, none, reference.IGNORE),
        both(batch.anchors_mask, batch.positives_mask, False),
    )


def _one_pass(
    model: Any, ids: torch.Tensor, labels: torch.Tensor, mask: torch.Tensor, *, anchors: int
) -> torch.Tensor:
    with torch.autocast(ids.device.type, torch.bfloat16):
        output = model(
            input_ids=ids, attention_mask=mask.long(), labels=labels, output_hidden_states=True
        )
        embedded = reference.mean_over_tokens(output.hidden_states[-1], mask)
    means = embedded[anchors:].view(anchors, -1, embedded.size(1)).mean(dim=1)
    rows = torch.arange(anchors, device=ids.device)
    contrast = reference.NTXentLoss(temperature=reference.TEMPERATURE)
    pairs = torch.cat([embedded[:anchors], means])
    return contrast(pairs, torch.cat([rows, rows])) + output.loss


# -------------------------------------------------------------------------------------------- ours


def _ours(way: str, batch: inputs.SpansBatch) -> tuple[Step, Any]:
    """The model "declutr" as recipes configure it, on the way it takes on a GPU."""
    from allennlp.common import Params
    from allennlp.data import Vocabulary
    from allennlp.models import Model
    from allennlp.training.optimizers import HuggingfaceAdamWOptimizer

    import declutr.plugin  # noqa: F401

    unpadding = way.split()[-1]
    _as_on_a_gpu()
    if unpadding != "packed":
        stubbed_kernels.stub_dense_attention()
    with tempfile.TemporaryDirectory() as folder:
        inputs.save_checkpoint(folder, "narrow", ["some words of some text"] * 2)
        embedder = {"type": "pretrained_transformer_mlm", "model_name": folder}
        config = {
            "type": "declutr",
            "text_field_embedder": {
                "type": "mlm",
                "token_embedders": {"tokens": {**embedder, "unpadding": unpadding}},
            },
            "loss": {"type": "nt_xent", "temperature": 0.05},
            "precision": "bfloat16",
        }
        model = Model.from_params(Params(config), vocab=Vocabulary()).train()
    optimizer = HuggingfaceAdamWOptimizer(
        [(name, p) for name, p in model.named_parameters() if p.requires_grad],
        parameter_groups=[(["bias", "[Nn]orm\\d*\\.weight"], {"weight_decay": 0.0})],
        lr=5e-5,
        weight_decay=0.1,
        correct_bias=False,
    )
    fields = batch.text_fields()

    def parts(times: PartTimes) -> None:
        from declutr.models import contrastive_term, encoding, metrics, training_step
        from declutr.modules import masked_lm
        from declutr.transformer import packed_attention
        from declutr.transformer import unpadding as unpadded

        embedder: Any = model._text_field_embedder
        token_embedder = embedder.token_embedder
        times.of_layers()
        times.replace(token_embedder.encoder, "forward", "layers: all else")
        attending = packed_attention.PackedAttention
        if unpadding != "packed":
            times.replace(torch.nn.functional, "scaled_dot_product_attention", "layers: attention")
        times.replace(attending, "_attend", "layers: attention")
        times.replace(unpadded.UnpaddedPass, "__call__", "packing, padding again")
        times.replace(masked_lm, "masked_lm_logits", "head of masked language modelling")
        times.replace(type(token_embedder), "masked_lm", "choice and loss of masked positions")
        times.replace(training_step.BatchViews, "masked", "masking")
        times.replace(training_step.BatchViews, "__call__", "joining views")
        times.replace(encoding, "joined", "joining views")
        times.replace(contrastive_term.ContrastiveTerm, "__call__", "around the objective")
        times.replace(encoding, "pooled", "pooling")
        times.replace(model._loss, "forward", "objective")
        times.replace(metrics.StepRecord, "geometry", "metrics")
        times.replace(metrics.RunningMeans, "record", "metrics")

    return _step(model, optimizer, lambda: model(**fields)["loss"]), parts


def _as_on_a_gpu() -> None:
    """Take on CPU tensors what our code does with CUDA tensors."""
    from declutr.system.host_memory import HEAP
    from declutr.transformer import packed_attention
    from declutr.transformer import unpadding as unpadded

    attention: Any = packed_attention
    if hasattr(attention, "attention_of_nested"):  # until 1.6.0

        class Nested:
            apply = staticmethod(attention.attention_of_nested)

        attention._TextByText = Nested
    else:
        assert attention._WITHOUT_KERNELS == ("cpu",)
        attention._WITHOUT_KERNELS = ()
    attention._drop = torch.nn.functional.dropout
    # Zeros of kernels that compute nothing would not agree.
    unpadded.UnpaddedPass._try_packing = lambda *args: True  # type: ignore[method-assign,assignment]
    HEAP.settle = lambda *args: None  # type: ignore[method-assign]


# ------------------------------------------------------------------------------------------- steps


def _step(model: torch.nn.Module, optimizer: Any, loss_of: Callable[[], torch.Tensor]) -> Step:
    parameters = list(model.parameters())

    def step(times: PartTimes) -> None:
        with times.part("zero_grad"):
            optimizer.zero_grad()
        with times.part("forward: all else"):
            loss = loss_of()
        with times.part("backward pass"):
            loss.backward()
        with times.part("clipping of gradients"):
            torch.nn.utils.clip_grad_norm_(parameters, reference.GRADIENT_NORM)
        with times.part("optimizer"):
            optimizer.step()

    return step


WAYS: dict[str, Callable[[str, inputs.SpansBatch], tuple[Step, Any]]] = {
    "reference": _reference,
    "reference, foreach": _reference,
    "reference, one pass": _reference,
    "ours, packed": _ours,
    "ours, grouped": _ours,
    "ours, none": _ours,
}
"""By name, what makes a step and what names its parts."""
