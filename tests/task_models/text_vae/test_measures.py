"""Compare metrics over a set of texts with naive loops and with known values."""

import math
from itertools import pairwise

import pytest
import torch
from torch.distributions import MultivariateNormal, Normal

from declutr.task_models.text_vae.layers import Code
from declutr.task_models.text_vae.measures import VaeMeasures, importance_weighted_nll
from declutr.task_models.text_vae.posterior import mutual_information


def codes(rows: int, dims: int = 3, seed: int = 0, spread: float = 1.0) -> Code:
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance, noise = torch.randn(3, rows, dims, generator=generator).double()
    mean = spread * mean
    return Code(mean + noise * (log_variance / 2).exp(), mean, log_variance)


def rows_of(code: Code, start: int, stop: int) -> Code:
    return Code(*(part[start:stop] for part in code))


def test_mutual_information_equals_a_naive_loop() -> None:
    code = codes(70)  # more than are compared at a time

    def log_q(i: int, j: int) -> torch.Tensor:
        normal = Normal(code.mean[j], (code.log_variance[j] / 2).exp())
        return normal.log_prob(code.sample[i]).sum()

    prior = Normal(0.0, 1.0)
    to_prior, of_aggregate = 0.0, 0.0
    for i in range(70):
        log_p = prior.log_prob(code.sample[i]).sum()
        aggregate = sum(math.exp(log_q(i, j)) for j in range(70)) / 70
        to_prior += float(log_q(i, i) - log_p) / 70
        of_aggregate += float(math.log(aggregate) - log_p) / 70
    assert float(mutual_information(code)) == pytest.approx(to_prior - of_aggregate)


def test_mutual_information_of_known_codes() -> None:
    """Codes that are far apart give log n, and codes that are all alike give 0."""
    far = codes(8, spread=1000)
    assert float(mutual_information(far)) == pytest.approx(math.log(8))
    alike = Code(torch.randn(8, 3), torch.ones(8, 3), torch.zeros(8, 3))
    assert float(mutual_information(alike)) == pytest.approx(0, abs=1e-6)
    assert float(mutual_information(rows_of(far, 0, 1))) == 0


def test_means_do_not_depend_on_the_batches() -> None:
    code = codes(10)
    code.mean[:, 1] = 0.5 + 0.05 * torch.arange(10) / 10  # varies, but too little
    reconstruction, kl = torch.rand(2, 10).double() * 5
    tokens = torch.arange(1, 11)
    for cuts in ([0, 10], [0, 3, 4, 10]):
        measures, shared = VaeMeasures(), 0.0
        for start, stop in pairwise(cuts):
            part = slice(start, stop)
            batch = rows_of(code, start, stop)
            information = mutual_information(batch)
            shared += float(information) * (stop - start) / 10
            measures(batch, reconstruction[part], kl[part], tokens[part], information)
        found = measures.get_metric(training=False)
        assert found == {
            "negative_elbo": pytest.approx(float((reconstruction + kl).mean())),
            "reconstruction": pytest.approx(float(reconstruction.mean())),
            "kl": pytest.approx(float(kl.mean())),
            "perplexity": pytest.approx(math.exp(float((reconstruction + kl).sum()) / 55)),
            "mutual_information": pytest.approx(shared),
            "active_units": 2,
        }


@pytest.mark.parametrize("exact", [True, False])
def test_the_importance_weighted_bound_of_a_linear_model(exact: bool) -> None:
    """z ~ N(0, I), x ~ N(A z, 0.25 I): the likelihood of x and the posterior are known."""
    torch.manual_seed(0)
    weights, texts = torch.randn(4, 2).double(), torch.randn(6, 4).double()
    eye = torch.eye(4).double()
    likelihood = MultivariateNormal(torch.zeros(4).double(), weights @ weights.T + 0.25 * eye)
    precision = torch.eye(2).double() + weights.T @ weights / 0.25
    mean = texts @ weights @ precision.inverse() / 0.25
    covariance = precision.inverse()
    if not exact:
        mean, covariance = mean + 0.3, 1.5 * covariance + 0.1 * torch.eye(2).double()

    def score(codes: torch.Tensor) -> torch.Tensor:
        return MultivariateNormal(codes @ weights.T, 0.25 * eye).log_prob(texts)

    def bound(samples: int) -> torch.Tensor:
        noise = torch.randn(samples, 6, 2).double()
        return importance_weighted_nll(score, mean, torch.linalg.cholesky(covariance), noise)

    nll = -likelihood.log_prob(texts)
    if exact:  # every sample has the same weight
        assert torch.allclose(bound(1), nll) and torch.allclose(bound(3), nll)
        return
    means = [torch.stack([bound(n) for _ in range(60)]).mean(dim=0) for n in (1, 20)]
    assert (means[0] > means[1]).all() and (means[1] > nll - 0.05).all()
    assert torch.allclose(bound(500), nll, atol=0.2)


def test_a_collapsed_posterior_has_no_active_units() -> None:
    collapsed = Code(torch.randn(6, 3), torch.zeros(6, 3), torch.zeros(6, 3))
    measures = VaeMeasures()
    ones = torch.ones(6)
    measures(collapsed, ones, 0 * ones, ones, mutual_information(collapsed))
    found = measures.get_metric(training=False)
    assert found["active_units"] == found["kl"] == 0
    assert found["mutual_information"] == pytest.approx(0, abs=1e-6)


def test_metrics_in_training_after_reset_and_without_texts() -> None:
    measures, ones = VaeMeasures(), torch.ones(2)
    assert measures.get_metric(training=False) == {}
    measures(codes(2), ones, ones, ones)
    assert measures.get_metric(training=True) == {
        "negative_elbo": 2,
        "reconstruction": 1,
        "kl": 1,
        "perplexity": pytest.approx(math.e**2),
    }
    measures.reset()
    assert measures.get_metric(training=True) == {}


def test_one_text_has_no_active_units() -> None:
    measures, ones = VaeMeasures(), torch.ones(1)
    measures(codes(1), ones, ones, ones)
    assert measures.get_metric(training=False)["active_units"] == 0
