"""Metrics report what their names say by the switches, and only by them."""

import math
from typing import Any

import pytest
import torch
import torch.distributed
from allennlp.data import Vocabulary
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import roc_auc_score

from declutr.bridge import metrics
from tests import two_processes

METRICS = "allennlp.training.metrics"
POSITIONS = {"0-fscore": 0, "1-fscore": 1}


def test_masked_pairs_are_left_out(bare: Any) -> None:
    module = bare(f"{METRICS}.spearman_correlation")
    generator = torch.Generator().manual_seed(0)
    first, second = torch.rand(2, 4, 10, generator=generator)
    mask = torch.rand(4, 10, generator=generator) < 0.5
    expected = pytest.approx(spearmanr(first[mask], second[mask])[0])

    def correlation() -> float:
        metric = module.SpearmanCorrelation()
        for rows in (slice(0, 1), slice(1, 4)):
            metric(first[rows], second[rows], mask[rows])
        return metric.get_metric(reset=True)

    assert correlation() != expected
    metrics.masked_pairs(module)
    assert correlation() == expected
    mask = mask.long()
    assert correlation() == expected
    metric = module.SpearmanCorrelation()
    for rows in (slice(0, 1), slice(1, 4)):
        metric(first[rows], second[rows])
    assert metric.get_metric() == pytest.approx(spearmanr(first.flatten(), second.flatten())[0])


def figures() -> list[float]:
    """Return metrics of two processes, over three batches each."""
    from allennlp.fairness.fairness_metrics import Separation, Sufficiency
    from allennlp.training.metrics import AttachmentScores, Auc, SpearmanCorrelation

    correlation, area, attachment = SpearmanCorrelation(), Auc(), AttachmentScores()
    rank = torch.distributed.get_rank()
    for batch in pairs()[rank]:
        correlation(batch[0], batch[1])
        area(batch[0], (batch[1] > 0.5).long())
        attachment(*heads(rank))
    found = [correlation.get_metric(), area.get_metric(), attachment.get_metric()["UAS"]]
    for metric in (Separation(3, 2), Sufficiency(3, 2)):
        for batch in classes()[rank]:
            metric(*batch)
        found += [float(d) for by_label in metric.get_metric().values() for d in by_label.values()]
    return found


def classes() -> torch.Tensor:
    """Return predicted and true classes, and protected labels: `(2, 3, 3, 40)`, by process."""
    generator = torch.Generator().manual_seed(3)
    drawn = torch.randint(3, (2, 3, 3, 40), generator=generator)
    drawn[1, :, 0] = drawn[1, :, 1]  # the second process has no errors
    drawn[:, :, 2] %= 2
    return drawn


def divergences(given: list[int], counted: list[int], labels: list[int]) -> list[float]:
    """Return KL(P(counted | given, label) | P(counted | given)), for each given and label."""
    found = []
    for one in range(3):
        rows = [(c, label) for g, c, label in zip(given, counted, labels, strict=True) if g == one]
        for wanted in range(2):
            own = [c for c, label in rows if label == wanted]
            terms = []
            for number in range(3):
                p = own.count(number) / len(own)
                q = sum(c == number for c, _ in rows) / len(rows)
                terms.append(p * math.log(p / q))
            found.append(sum(terms))
    return found


def heads(rank: int) -> list[torch.Tensor]:
    """Return heads and labels as predicted, and as they are, of five tokens or of eight."""
    tokens = torch.arange(5 + 3 * rank).expand(2, -1)
    return [tokens % 3, tokens, tokens % 2, tokens]


def pairs() -> torch.Tensor:
    """Return what two processes get in three batches: `(2, 3, 2, 4)`, of two lists of numbers."""
    return torch.rand(2, 3, 2, 4, generator=torch.Generator().manual_seed(3))


@pytest.mark.slow
def test_several_processes_count_every_pair_once() -> None:
    """Also each token, of which they have different numbers, and each class."""
    first, second = pairs().transpose(1, 2).transpose(0, 1).reshape(2, -1)
    right = sum(int((predicted == gold).sum()) for predicted, _, gold, _ in map(heads, (0, 1)))
    tokens = sum(heads(rank)[0].numel() for rank in (0, 1))
    expected = [spearmanr(first, second)[0], roc_auc_score(second > 0.5, first), right / tokens]
    predicted, gold, labels = classes().transpose(1, 2).transpose(0, 1).reshape(3, -1).tolist()
    distances = divergences(gold, predicted, labels) + divergences(predicted, gold, labels)
    for found in two_processes.run(figures):
        assert found[:3] == pytest.approx(expected)
        assert found[3:] == pytest.approx(distances, abs=1e-6)


def test_logits_whose_sum_is_zero_are_predictions(bare: Any) -> None:
    module = bare(f"{METRICS}.fbeta_measure")
    logits = torch.tensor([[1.0, -1.0], [-2.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    gold = torch.tensor([0, 1, 0, 0])

    def recalls() -> list[float]:
        metric = module.FBetaMeasure()
        metric(logits, gold, torch.tensor([True, True, True, True]))
        return metric.get_metric()["recall"]

    assert recalls() == pytest.approx([1 / 3, 0])
    metrics.predicted_classes(module)
    assert recalls() == pytest.approx([2 / 3, 1])  # a row of zeros alone predicts nothing


@pytest.mark.parametrize("threshold", [0.0, 0.5, -1.5])
def test_labels_whose_logits_have_no_sum_are_predictions(threshold: float, bare: Any) -> None:
    module = bare(f"{METRICS}.fbeta_multi_label_measure")
    logits = torch.tensor([[1.0, -1.0], [-2.0, 2.0], [0.0, 0.0], [3.0, 1.0]])
    gold = torch.tensor([[1, 0], [0, 1], [1, 0], [1, 1]])

    def recalls() -> list[float]:
        metric = module.FBetaMultiLabelMeasure(threshold=threshold)
        metric(logits, gold)
        assert metric._threshold == threshold
        return metric.get_metric()["recall"]

    assert recalls() == pytest.approx([1 / 3, 1 / 2])
    metrics.predicted_labels(module)
    assert recalls() == pytest.approx([2 / 3, 1])


@pytest.mark.parametrize("names", [{0: "O", 1: "PER", 2: "LOC"}, None])
def test_chosen_classes_keep_their_names(names: dict[int, str] | None, bare: Any) -> None:
    """Without names, scores are called by their position, which AllenNLP's own tests expect."""
    module = bare(f"{METRICS}.fbeta_verbose_measure")

    def scores() -> dict[str, float]:
        metric = module.FBetaVerboseMeasure(labels=[2, 1], index_to_label=names)
        metric(torch.eye(3)[[0, 1, 0]], torch.tensor([0, 1, 2]))
        found = {name: score for name, score in metric.get_metric().items() if "fscore" in name}
        return dict(list(found.items())[:2])

    assert scores() == ({"O-fscore": 0, "PER-fscore": 1} if names else POSITIONS)
    metrics.names_of_classes(module)
    assert scores() == ({"LOC-fscore": 0, "PER-fscore": 1} if names else POSITIONS)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_a_correlation_does_not_depend_on_the_scale(scale: float, bare: Any) -> None:
    module = bare(f"{METRICS}.pearson_correlation")
    first = torch.rand(3, 50, generator=torch.Generator().manual_seed(0)) * scale
    second = first + torch.rand(3, 50, generator=torch.Generator().manual_seed(1)) * scale
    expected = pearsonr(first.flatten(), second.flatten())[0]

    def correlation(predictions: torch.Tensor) -> float:
        metric = module.PearsonCorrelation()
        for batch in zip(predictions, second, strict=True):
            metric(*batch)
        kept = metric.get_metric()
        assert metric.get_metric(reset=True) == kept
        assert metric._labels_variance._total_count == 0
        return kept

    if scale == 1e-3:
        assert correlation(first) == 0
    metrics.small_numbers(module)
    assert correlation(first) == pytest.approx(expected, abs=1e-4)
    for constant in (0.0, 0.1 * scale, -7.7 * scale):
        assert correlation(torch.full((3, 50), constant)) == 0


def test_a_correlation_of_several_processes_is_refused(bare: Any, monkeypatch: Any) -> None:
    module = bare(f"{METRICS}.pearson_correlation")
    metrics.small_numbers(module)
    monkeypatch.setattr(module, "is_distributed", lambda: True)
    with pytest.raises(RuntimeError, match="not supported"):
        module.PearsonCorrelation().get_metric()


def test_a_continued_span_is_joined_with_its_own_label_alone(bare: Any) -> None:
    module = bare(f"{METRICS}.span_based_f1_measure")
    labels = ("ARG1", "C-ARG1", "R-ARG1", "ARG10", "V")
    vocab = Vocabulary()
    tags = ["O", *(f"{place}-{label}" for label in labels for place in "BI")]
    vocab.add_tokens_to_namespace(tags, "tags")
    words = [
        "B-ARG1",
        "I-ARG1",
        "O",
        "B-R-ARG1",
        "B-V",
        "B-ARG10",
        "I-ARG10",
        "B-C-ARG1",
        "I-C-ARG1",
    ]
    gold = torch.tensor([[vocab.get_token_index(word, "tags") for word in words]])

    def scores() -> dict[str, float]:
        metric = module.SpanBasedF1Measure(vocab)
        metric(torch.nn.functional.one_hot(gold, len(tags)).float(), gold)
        found = metric.get_metric()
        return {name[11:]: round(f1) for name, f1 in found.items() if name.startswith("f1-")}

    assert scores().keys() == {"ARG1", "V", "overall"}
    metrics.continued_spans(module)
    assert scores() == dict.fromkeys(("ARG1", "R-ARG1", "ARG10", "V", "overall"), 1)
    spans = [("ARG1", (0, 1)), ("C-ARG1", (7, 8)), ("R-ARG1", (3, 3)), ("C-ARG2", (5, 6))]
    joined = module.SpanBasedF1Measure._handle_continued_spans(spans)
    assert sorted(joined) == [("ARG1", (0, 8)), ("ARG2", (5, 6)), ("R-ARG1", (3, 3))]
