"""Paths that other people's code imports: of release 1.5.0, and of the original package."""

import importlib
import subprocess
import sys

import pytest

PATHS = {
    "declutr": "Encoder DeCLUTR",
    "declutr.encoder": "Encoder",
    "declutr.__main__": "main",
    "declutr.bridge": "install",
    "declutr.archives": "archive_transformer",
    "declutr.safe_archives": "opened_archive UnsafeArchive",
    "declutr.objectives": "Objective NTXent Reclaim",
    "declutr.objectives.reclaim": "Reclaim",
    "declutr.sampling": "SpanSampler document_rng",
    "declutr.data_loader": "DeCLUTRDataLoader",
    "declutr.model": "DeCLUTR",
    "declutr.dataset_reader": "DeCLUTRDatasetReader",
    "declutr.predictor": "DeCLUTRPredictor",
    "declutr.callbacks": "ExactResume RunRecord",
    "declutr.training.callbacks": "ExactResume RunRecord",
    "declutr.undisturbed": "undisturbed",
    "declutr.semantic_search.errors": "SearchError",
    "declutr.search.with_numpy": "ExactNumpy",
    "declutr.reclaim_model": "ReclaimModel",
    "declutr.glue": "GlueReader",
    "declutr.evaluation.suite": "all_tasks evaluate",
    "declutr.evaluation.report": "Report",
    "declutr.bulk_embedding": "StoredEmbeddings",
    "declutr.semantic_search": "SearchIndex",
    "declutr.semantic_search.index": "SearchIndex",
    "declutr.encoder_sources": "open_encoder",
    "declutr.official_protocols": "",
    "declutr.text_models": "open_text_model",
    "declutr.text_models.devices": "chosen_device",
    "declutr.text_models.dtype_report": "dtype_report",
    # The original package (github.com/JohnGiorgi/DeCLUTR).
    "declutr.losses": "PyTorchMetricLearningLoss NTXentLoss CrossBatchMemory",
    "declutr.miners": "PyTorchMetricLearningMiner PairMarginMiner",
    "declutr.modules.token_embedders": "PretrainedTransformerEmbedderMLM",
    "declutr.modules.text_field_embedders": "MLMTextFieldEmbedder",
}


@pytest.mark.parametrize("path", PATHS)
def test_can_be_imported(path: str) -> None:
    module = importlib.import_module(path)
    for name in PATHS[path].split():
        assert hasattr(module, name), f"{path}.{name}"


@pytest.mark.parametrize(
    ("earlier", "today"),
    [
        ("declutr.model", "declutr.models.declutr"),
        ("declutr.semantic_search.index", "declutr.search.index"),
        ("declutr.safe_archives.content", "declutr.archives.safety"),
        ("declutr.safe_archives.refusal", "declutr.archives"),
        ("declutr.text_models.devices", "declutr.inference.devices"),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_is_the_same_module(earlier: str, today: str, first: bool) -> None:
    """Whichever is imported first: a class that is there twice would be two classes."""
    order = (earlier, today) if first else (today, earlier)
    code = (
        f"import importlib, {order[0]}, {order[1]}\n"
        f"one, other = map(importlib.import_module, {order!r})\n"
        f"assert one is other and one.__name__ == one.__spec__.name == {today!r}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_never_was_is_not_there() -> None:
    for path in (
        "declutr.nothing",
        "declutr.text_models.nothing",
        "declutr.semantic_search.nothing",
    ):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(path)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from declutr.sampling import nothing")
