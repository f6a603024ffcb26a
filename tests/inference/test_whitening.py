"""Tests of whitening against golden numbers, plain numpy and the properties that define it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from declutr.inference.whitening import FILE, FLOOR, Whitening, WhiteningError

FIXTURES = Path(__file__).parents[1] / "fixtures"
GOLDEN = json.loads((FIXTURES / "golden_whitening.json").read_text())["whitening"]
X = np.array(GOLDEN["inputs"]["x"])


def correlated(n: int, d: int, seed: int = 0, mean: float = 3.0) -> np.ndarray:
    """Return rows `(n, d)` with a mean and a covariance far from 0 and I."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + mean * rng.normal(size=d)


def cosines(rows: np.ndarray) -> np.ndarray:
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def test_golden_numbers() -> None:
    whitening, values = Whitening.fit([X]), GOLDEN["values"]
    np.testing.assert_allclose(whitening.mean, values["mean"], atol=1e-12)
    np.testing.assert_allclose(whitening.variances, values["singular_values"], atol=1e-12)
    assert whitening.texts == 5
    y = whitening.transform(X)
    np.testing.assert_allclose(np.cov(y.T), values["cov_after"], atol=1e-12)
    assert cosines(X)[0, 1] == pytest.approx(values["cos_0_1_before"], abs=1e-9)
    assert cosines(y)[0, 1] == pytest.approx(values["cos_0_1_after"], abs=1e-9)
    assert cosines(y)[0, 4] == pytest.approx(values["cos_0_4_after"], abs=1e-9)
    y = Whitening.fit([X], 1).transform(X)
    assert y.shape == (5, 1)
    np.testing.assert_allclose(np.abs(y[:, 0]), values["k1_abs"], atol=1e-9)


class TestProperties:
    @settings(max_examples=30, deadline=None)
    @given(d=st.integers(2, 12), seed=st.integers(0, 1000), data=st.data())
    def test_covariance_is_one_however_rows_are_blocked(self, d, seed, data) -> None:
        cuts = data.draw(st.lists(st.integers(0, 40), max_size=5))
        x = correlated(40, d, seed)
        k = data.draw(st.integers(1, d))
        blocks = np.split(x, sorted(cuts))
        whitening = Whitening.fit(iter(blocks), k)
        y = whitening.transform(x)
        np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-6)
        np.testing.assert_allclose(np.cov(y.T).reshape(k, k), np.eye(k), atol=1e-6)

    def test_transform_equals_the_formula(self) -> None:
        x = correlated(50, 6)
        covariance = np.cov(x.T)
        u, s, _ = np.linalg.svd(covariance)
        expected = (x - x.mean(axis=0)) @ (u / np.sqrt(s))
        found = Whitening.fit([x[:7], x[7:]]).transform(x)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)

    def test_variances_fall_and_belong_to_their_directions(self) -> None:
        x = correlated(60, 8)
        whitening = Whitening.fit([x])
        assert (np.diff(whitening.variances) <= 0).all()
        directions = whitening.matrix / np.linalg.norm(whitening.matrix, axis=0)
        along = ((x - x.mean(axis=0)) @ directions).var(axis=0, ddof=1)
        np.testing.assert_allclose(along, whitening.variances, rtol=1e-9)

    def test_fewer_dimensions_are_the_first_of_all(self) -> None:
        x = correlated(60, 8)
        full = Whitening.fit([x])
        for k in range(1, 9):
            fitted, cut = Whitening.fit([x], k), full.truncated(k)
            np.testing.assert_array_equal(fitted.matrix, full.matrix[:, :k])
            np.testing.assert_array_equal(cut.transform(x), fitted.transform(x))
            assert fitted.dimension == k and fitted.input_dimension == 8
            share = full.variances[:k].sum() / full.variances.sum()
            assert fitted.kept_variance == cut.kept_variance == pytest.approx(share, abs=1e-12)
        assert full.kept_variance == pytest.approx(1)

    def test_unseen_rows_use_the_stored_mean(self) -> None:
        x, unseen = correlated(60, 4), correlated(9, 4, seed=1, mean=-5.0)
        whitening = Whitening.fit([x])
        expected = (unseen - x.mean(axis=0)) @ whitening.matrix
        np.testing.assert_allclose(whitening.transform(unseen), expected, atol=1e-9)
        layer = unseen @ whitening.matrix + whitening.bias  # a linear one
        np.testing.assert_allclose(layer, expected, atol=1e-9)
        alone = np.concatenate([whitening.transform(unseen[i : i + 1]) for i in range(9)])
        np.testing.assert_allclose(whitening.transform(unseen), alone, atol=1e-12)

    def test_the_same_rows_give_the_same_bytes(self) -> None:
        x = correlated(60, 8)
        assert Whitening.fit([x]).to_bytes() == Whitening.fit([x.copy()]).to_bytes()

    def test_a_mean_far_from_zero_loses_no_digits(self) -> None:
        """Fit rows for which E[xx'] - E[x]E[x]' would cancel all digits."""
        x = np.random.default_rng(0).normal(size=(1000, 3)) + 1e8
        y = Whitening.fit(np.array_split(x, 13)).transform(x)
        np.testing.assert_allclose(np.cov(y.T), np.eye(3), atol=1e-6)

    def test_rounding_errors_are_not_amplified(self) -> None:
        """Fit rows with a direction of rounding errors, which must stay small on unseen rows."""
        x = correlated(80, 4).astype(np.float32)
        # Rows sum to 0, except for rounding errors.
        x = np.concatenate([x, -x.sum(axis=1, keepdims=True)], axis=1)
        whitening = Whitening.fit([x[:60]])
        lengths = np.linalg.norm(whitening.matrix, axis=0)
        assert lengths[-1] == pytest.approx(1 / np.sqrt(FLOOR * whitening.variances[0]))
        assert np.abs(whitening.transform(x)[60:, -1]).max() < 0.01
        assert np.abs(whitening.transform(x)[60:, 0]).max() > 0.5

    def test_a_block_of_more_rows_than_are_converted_at_once(self) -> None:
        x = correlated(5000, 3)
        whitening = Whitening.fit([x])
        np.testing.assert_allclose(whitening.mean, x.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(np.cov(whitening.transform(x).T), np.eye(3), atol=1e-9)

    @pytest.mark.parametrize(
        "dtype, expected",
        [("float32", "float32"), ("float64", "float64"), ("float16", "float16"), ("i8", "f8")],
    )
    def test_the_dtype_of_the_input_is_kept(self, dtype: str, expected: str) -> None:
        x = (correlated(60, 4) * 10).astype(dtype)
        y = Whitening.fit([x]).transform(x)
        assert y.dtype == expected
        exact = Whitening.fit([x.astype(float)]).transform(x.astype(float))
        np.testing.assert_allclose(y, exact, atol=5e-3)

    def test_no_rows_are_whitened_to_no_rows(self) -> None:
        assert Whitening.fit([correlated(9, 4)], 2).transform(np.zeros((0, 4))).shape == (0, 2)


class TestErrors:
    @pytest.mark.parametrize(
        "blocks, dimension, message",
        [
            ([], None, "Got no texts to fit whitening on"),
            ([correlated(4, 4)], None, "to 4 dimensions needs more than 4 texts, got 4.*fewer"),
            ([correlated(3, 9)], 3, "to 3 dimensions needs more than 3 texts, got 3"),
            ([correlated(9, 4)], 5, "have 4 dimensions; whitening cannot keep 5"),
            ([correlated(9, 4)], 0, "at least 1 dimension, got 0"),
            ([correlated(9, 4), correlated(9, 3)], None, "3 dimensions after others of 4"),
            ([np.zeros(4)], None, r"embeddings \(4,\), expected \(n, d\)"),
            ([np.ones((9, 4)) / 3], None, "The 9 embeddings are all equal"),
            ([np.zeros((9, 4))], None, "The 9 embeddings are all equal"),
            (
                [correlated(9, 4), np.full((2, 4), np.nan)],
                None,
                "not finite, within the 2 rows after 9",
            ),
        ],
    )
    def test_a_fit_to_unsuitable_rows_is_refused(self, blocks, dimension, message) -> None:
        with pytest.raises(WhiteningError, match=message):
            Whitening.fit(blocks, dimension)

    def test_too_many_dimensions_are_refused_at_the_first_block(self) -> None:
        def blocks():
            yield correlated(2, 4)
            raise AssertionError("went on reading")

        with pytest.raises(WhiteningError, match="cannot keep 5"):
            Whitening.fit(blocks(), 5)

    @pytest.mark.parametrize("shape", [(4,), (2, 5), (1, 4, 1)])
    def test_embeddings_of_another_shape_are_refused(self, shape) -> None:
        with pytest.raises(WhiteningError, match=r"for embeddings \(n, 4\), got .*Fit it again"):
            Whitening.fit([correlated(9, 4)]).transform(np.zeros(shape))

    @pytest.mark.parametrize(
        "mean, matrix, message",
        [
            (np.zeros((2, 2)), np.eye(2), r"expected \(d,\) and \(d, k\)"),
            (np.zeros(2), np.eye(3), r"mean \(2,\) and matrix \(3, 3\)"),
            (np.zeros(2), np.zeros((2, 0)), r"expected \(d,\) and \(d, k\)"),
            (np.zeros(2), np.zeros((2, 3)), "k of at most d"),
            (np.zeros(2), np.full((2, 2), np.inf), "not finite"),
        ],
    )
    def test_mean_and_matrix_that_do_not_fit_are_refused(self, mean, matrix, message) -> None:
        with pytest.raises(WhiteningError, match=message):
            Whitening(mean, matrix)

    def test_variances_that_do_not_fit_are_refused(self) -> None:
        with pytest.raises(WhiteningError, match=r"variances \(3,\)"):
            Whitening(np.zeros(2), np.eye(2), np.zeros(3))

    @pytest.mark.parametrize("k", [0, 5])
    def test_truncation_out_of_range_is_refused(self, k) -> None:
        with pytest.raises(WhiteningError, match=f"keep 1 to 4 dimensions, got {k}"):
            Whitening.fit([correlated(9, 4)]).truncated(k)


ABOUT = '{"format": "1", "texts": 1, "digest": null}'


class TestFile:
    def test_a_saved_whitening_is_loaded_unchanged(self, tmp_path: Path) -> None:
        whitening = Whitening(*(getattr(Whitening.fit([X], 1), n) for n in ("mean", "matrix")))
        assert not Whitening.stored_in(tmp_path / "model")
        assert whitening.save(tmp_path / "model") == tmp_path / "model" / FILE
        assert Whitening.stored_in(tmp_path / "model")
        again = Whitening.load(tmp_path / "model")
        np.testing.assert_array_equal(again.mean, whitening.mean)
        np.testing.assert_array_equal(again.matrix, whitening.matrix)
        assert again.matrix.dtype == np.float64
        assert (again.variances, again.texts) == (None, 0)
        assert (again.digest, again.kept_variance) == (None, None)
        assert [file.name for file in (tmp_path / "model").iterdir()] == [FILE]

    def test_the_description_of_the_training_text_is_kept(self, tmp_path: Path) -> None:
        fitted = Whitening.fit([X])
        Whitening(fitted.mean, fitted.matrix, fitted.variances, 5, "sha256:abc").save(tmp_path)
        again = Whitening.load(str(tmp_path))
        assert (again.texts, again.digest) == (5, "sha256:abc")
        np.testing.assert_array_equal(again.variances, fitted.variances)
        assert again.to_bytes() == (tmp_path / FILE).read_bytes()

    def test_saving_replaces_an_older_whitening(self, tmp_path: Path) -> None:
        Whitening.fit([X]).save(tmp_path)
        Whitening.fit([X], 1).save(tmp_path)
        assert Whitening.load(tmp_path).dimension == 1

    def test_a_folder_without_whitening_is_reported(self, tmp_path: Path) -> None:
        message = r"No whitening\.safetensors in .*declutr whiten"
        with pytest.raises(FileNotFoundError, match=message):
            Whitening.load(tmp_path)

    @pytest.mark.parametrize(
        "about, tensors, message",
        [
            (None, {}, "'whitening'"),
            ("[]", {}, "list indices"),
            ("no JSON", {}, "Expecting value"),
            ('{"format": "9"}', {}, "its format is '9'"),
            (ABOUT, {}, "'matrix'"),
            (ABOUT, {"matrix": np.eye(3)}, r"mean \(2,\) and matrix \(3, 3\)"),
        ],
    )
    def test_a_file_with_other_content_is_refused(self, tmp_path, about, tensors, message) -> None:
        metadata = about and {"whitening": about}
        save_file({"mean": np.zeros(2), **tensors}, tmp_path / FILE, metadata)
        with pytest.raises(WhiteningError, match=f"does not hold a whitening .*{message}.*Fit it"):
            Whitening.load(tmp_path)

    def test_a_flipped_bit_is_refused_or_harmless(self, tmp_path: Path) -> None:
        rows = np.random.default_rng(0).normal(size=(30, 3))
        whitening = replace(Whitening.fit([rows]), digest="sha256:ab")
        path = whitening.save(tmp_path)
        sound, refused = path.read_bytes(), 0
        for number in range(0, 8 * len(sound), 19):
            damaged = bytearray(sound)
            damaged[number // 8] ^= 1 << number % 8
            path.write_bytes(damaged)
            try:
                read = Whitening.load(tmp_path)
                assert np.array_equal(read.matrix, whitening.matrix)
                assert np.array_equal(read.mean, whitening.mean)
                assert (read.texts, read.digest) == (30, "sha256:ab")
            except WhiteningError:
                refused += 1
        assert refused > 0.9 * 8 * len(sound) / 19

    def test_a_file_of_release_1_5_has_no_checksum(self, tmp_path: Path) -> None:
        whitening = Whitening(np.zeros(2), np.eye(2))
        about = {"format": "1", "version": "1.5.0", "texts": 0, "dimension": 2, "digest": None}
        tensors = {"mean": whitening.mean, "matrix": whitening.matrix}
        save_file(tensors, tmp_path / FILE, {"whitening": json.dumps(about)})
        assert np.array_equal(Whitening.load(tmp_path).matrix, np.eye(2))

    def test_a_file_that_is_cut_off_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / FILE).write_bytes(Whitening.fit([X]).to_bytes()[:-3])
        with pytest.raises(WhiteningError, match="does not hold a whitening"):
            Whitening.load(tmp_path)


@pytest.mark.slow
def test_whitening_imports_no_large_package() -> None:
    code = (
        "import sys, declutr.inference.whitening as w, numpy as np;"
        "w.Whitening.fit([np.eye(3)], 2).to_bytes();"
        "print(sorted({'torch', 'allennlp', 'transformers', 'scipy'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
