"""Tests of the flow of BERT-flow: its determinant, its inverse, its likelihood, and its file."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

from declutr.inference.fitted_map import FILE, load_map
from declutr.inference.flow import Flow
from declutr.inference.flow_network import FlowNetwork
from declutr.inference.whitening import Whitening, WhiteningError
from tests.inference.test_whitening import correlated


def network_of(dimension: int = 8, levels: int = 3, depth: int = 2, seed: int = 0) -> FlowNetwork:
    """A network whose parameters are all away from where training begins."""
    network = FlowNetwork(dimension, levels, depth, 4).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.normal_(0, 0.2, generator=generator)
    return network


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize(("dimension", "levels"), [(8, 3), (8, 1), (11, 2), (9, 3), (2, 1)])
def test_the_determinant_is_that_of_the_jacobian(dimension: int, levels: int) -> None:
    network, x = network_of(dimension, levels), normal(3, dimension)
    for row in x:
        jacobian = torch.autograd.functional.jacobian(lambda r: network(r[None])[0], row)
        expected = torch.linalg.slogdet(jacobian).logabsdet
        torch.testing.assert_close(network.log_determinant, expected, rtol=0, atol=1e-12)
    back = network.inverse(network(x))
    torch.testing.assert_close(back, x, rtol=0, atol=1e-12)


def test_one_step_by_hand() -> None:
    """Loops over floats: actnorm, the reversed order, and what the first half adds to the rest."""
    network, x = network_of(4, 1, 1), normal(2, 4)
    step = network.levels[0][0]  # type: ignore[index]
    p = {name: value.tolist() for name, value in step.state_dict().items()}

    def normed(name: str, row: list[float]) -> list[float]:
        shift, scale = p[f"{name}.shift"], p[f"{name}.log_scale"]
        return [(v + b) * math.exp(3 * s) for v, b, s in zip(row, shift, scale, strict=True)]

    def product(name: str, row: list[float]) -> list[float]:
        return [sum(w * v for w, v in zip(line, row, strict=True)) for line in p[f"{name}.weight"]]

    for row, found in zip(x.tolist(), network(x).tolist(), strict=True):
        turned = normed("norm", row)[::-1]
        hidden = turned[:2]
        for number in ("first", "second"):
            hidden = normed(f"shift.{number}_norm", product(f"shift.{number}", hidden))
            hidden = [max(v, 0) for v in hidden]
        last = product("shift.last", hidden)
        for i in range(2):
            scale = math.exp(3 * p["shift.log_scale"][i])
            turned[2 + i] += (last[i] + p["shift.last.bias"][i]) * scale
        assert found == pytest.approx(turned, abs=1e-12)


def test_bits_are_those_of_the_density() -> None:
    """Of one dimension a level and no shift, a flow is a normal distribution with known moments."""
    network = FlowNetwork(2, 1, 1, 1).double()
    norm = network.levels[0][0].norm  # type: ignore[index, union-attr]
    with torch.no_grad():
        network.levels[0][0].shift.last.weight.zero_()  # type: ignore[index, union-attr]
        network.levels[0][0].shift.last.bias.zero_()  # type: ignore[index, union-attr]
        norm.shift.copy_(torch.tensor([-1.0, 2.0]))
        norm.log_scale.copy_(torch.tensor([0.1, -0.3]))
    x = normal(5, 2)
    deviations = torch.exp(-3 * norm.log_scale.detach())
    density = torch.distributions.Normal(-norm.shift.detach(), deviations)
    expected = -density.log_prob(x).sum(dim=1) / (2 * math.log(2))
    torch.testing.assert_close(network.bits(x).detach(), expected)


def test_the_first_batch_sets_every_actnorm() -> None:
    network = FlowNetwork(12, 3, 3, 5).double()
    network.draw(torch.Generator().manual_seed(0))
    x = torch.from_numpy(correlated(64, 12))
    z = network(x)
    assert not any(getattr(module, "starts", False) for module in network.modules())
    # Shifts are 0 at first, so all that is left is the scale of each coordinate.
    torch.testing.assert_close(z.mean(0), torch.zeros(12).double(), rtol=0, atol=1e-6)
    torch.testing.assert_close(z.var(0, correction=0), torch.ones(12).double(), atol=1e-4, rtol=0)


def bent(n: int = 640, seed: int = 0) -> np.ndarray:
    """Rows whose second half is a curve of the first: covariance says nothing about it."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(n, 4))
    second = first**2 - 1 + 0.1 * rng.normal(size=(n, 4))
    return np.concatenate([second, first], axis=1).astype(np.float32)


def with_column(column: np.ndarray) -> np.ndarray:
    """Rows of `bent` with one more dimension."""
    return np.column_stack([bent(len(column)), column])


class TestFit:
    def test_the_likelihood_rises_beyond_that_of_a_whitening(self) -> None:
        x = bent()
        flow = Flow.fit(np.split(x, 4), epochs=6, learning_rate=5e-3)
        assert flow.texts == 640 and flow.dimension == flow.input_dimension == 8
        z = flow.transform(x)
        assert z.dtype == np.float32 and z.shape == x.shape
        np.testing.assert_allclose(flow.inverse(z.astype(np.float64)), x, atol=1e-4)
        # The best normal distribution has log det(cov)/2 + d log(2 pi e)/2 nats.
        nats = np.linalg.slogdet(np.cov(x.T.astype(np.float64)))[1] / 2 + 4 * math.log(
            2 * math.pi * math.e
        )
        assert flow.bits is not None and flow.bits < nats / (8 * math.log(2)) - 0.3
        assert flow.mean_bits(torch.from_numpy(bent(seed=1))) < nats / (8 * math.log(2)) - 0.3

    def test_the_same_rows_and_seed_give_the_same_bytes(self) -> None:
        x, state = bent(200), torch.get_rng_state()
        one, other = Flow.fit([x]), Flow.fit(np.split(x, [3, 90]))
        assert torch.equal(state, torch.get_rng_state())
        assert one.to_bytes() == other.to_bytes() != Flow.fit([x], seed=1).to_bytes()

    @pytest.mark.parametrize(
        ("blocks", "settings", "told"),
        [
            ([bent(63)], {}, "at least as many texts as a batch takes, 64, got 63"),
            ([], {}, "64, got 0"),
            ([bent(70), bent(70)[:, :5]], {}, r"\(70, 5\), expected \(n, 8\)"),
            ([bent(70)[0]], {}, r"\(8,\), expected \(n, d\)"),
            ([bent(70), np.full((2, 8), np.nan)], {}, "not finite, within the 2 rows after 70"),
            ([np.ones((70, 8))], {}, "The 70 embeddings are all equal"),
            ([bent(70)], {"levels": 4}, "4 levels needs embeddings of at least 16 dimensions, got"),
            ([bent(70)], {"width": 0}, "at least 1, got 3, 3 and 0"),
            ([bent(70)], {"epochs": 0}, "epochs of at least 1 and batch_size of at least 2, got 0"),
            ([bent(70)], {"learning_rate": 1e30}, "not finite.*lower learning_rate"),
            ([with_column(np.ones(70))], {}, "1 of 9 dimensions are the same in all 70 embeddings"),
            ([with_column(np.eye(1, 640)[0])], {}, "Dimensions that hardly differ between texts"),
        ],
    )
    def test_what_cannot_be_fitted_is_told(self, blocks, settings, told) -> None:
        with pytest.raises(ValueError, match=told):
            Flow.fit(blocks, **settings)


class TestFile:
    def test_a_flow_is_stored_to_the_bit(self, tmp_path: Path) -> None:
        x = bent(100)
        flow = Flow.fit([x]).with_digest("sha256:1")
        flow.save(tmp_path)
        found = load_map(tmp_path, (Whitening, Flow))
        assert isinstance(found, Flow)
        assert (found.texts, found.digest, found.bits) == (100, "sha256:1", flow.bits)
        assert found.told() == flow.told() and "3 levels of 3 steps" in flow.told()
        np.testing.assert_array_equal(found.transform(x), flow.transform(x))
        assert found.to_bytes() == flow.to_bytes()
        assert found.description == ["flow", 8]

    def test_embeddings_of_another_width_are_refused(self) -> None:
        with pytest.raises(WhiteningError, match=r"This flow is for embeddings \(n, 8\), got"):
            Flow(network_of()).transform(np.zeros((2, 7)))

    def test_a_flow_is_no_linear_whitening(self, tmp_path: Path) -> None:
        Flow(network_of()).save(tmp_path)
        with pytest.raises(WhiteningError, match="format is 'flow-1', expected '1'"):
            Whitening.load(tmp_path)

    @pytest.mark.parametrize(
        ("change", "told"),
        [
            ({"levels": 10**12}, "lacks layers of a flow of"),
            ({"width": 10**9}, "not those of the flow it describes"),
            ({"depth": 1}, "not those of the flow it describes"),
            ({"dimension": None}, "does not hold a whitening"),
        ],
    )
    def test_a_file_that_claims_something_else_is_refused(self, change, told, tmp_path) -> None:
        Flow(network_of()).save(tmp_path)
        with safe_open(tmp_path / FILE, framework="numpy") as stored:
            about = json.loads(stored.metadata()["whitening"])
            arrays = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        del about["checksum"]
        save_file(arrays, tmp_path / FILE, {"whitening": json.dumps(about | change)})
        with pytest.raises(WhiteningError, match=told):
            load_map(tmp_path, (Whitening, Flow))

    def test_a_damaged_file_is_refused(self, tmp_path: Path) -> None:
        file = Flow(network_of()).save(tmp_path)
        content = bytearray(file.read_bytes())
        content[-5] ^= 1
        file.write_bytes(content)
        with pytest.raises(WhiteningError, match="damaged"):
            load_map(tmp_path, (Whitening, Flow))
