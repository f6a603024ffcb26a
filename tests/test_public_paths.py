"""Module paths of release 1.5.0 and of the original package can still be imported."""

import importlib
import os

import pytest

from tests.forked_commands import ForkedCommand

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated since declutr:FutureWarning")

PATHS = {
    "declutr": "Encoder DeCLUTR",
    "declutr.encoder": "Encoder",
    "declutr.__main__": "main",
    "declutr.bridge": "install",
    "declutr.archives": "archive_transformer",
    "declutr.safe_archives": "opened_archive UnsafeArchive",
    "declutr.objectives": "Objective NTXent Reclaim",
    "declutr.objectives.reclaim": "Reclaim reclaim_loss",
    "declutr.objectives.contrastive": "Contrastive contrastive_loss",
    "declutr.objectives.distances": "unit squared_distances same_label",
    "declutr.objectives.full_precision": "full_precision",
    "declutr.objectives.info_nce": "InfoNCE NPair info_nce n_pair_loss",
    "declutr.objectives.jensen_shannon": "jensen_shannon",
    "declutr.objectives.lifted_structured": "LiftedStructured lifted_structured_loss",
    "declutr.objectives.metric_learning": (
        "CrossBatchMemory LibraryObjective MetricLearningObjective NTXent"
    ),
    "declutr.objectives.miners": "Miner PairMarginMiner PytorchMetricLearningMiner",
    "declutr.objectives.reductions": "nothing reduced",
    "declutr.objectives.settings": "above_zero at_least_zero one_of scalar_reduction",
    "declutr.objectives.soft_nearest_neighbours": "DISTANCES SoftNearestNeighbours",
    "declutr.objectives.sup_con": "SupCon sup_con_loss",
    "declutr.objectives.views": "check_views check_width",
    "declutr.sampling": "SpanSampler document_rng",
    "declutr.data_loader": "DeCLUTRDataLoader",
    "declutr.model": "DeCLUTR",
    "declutr.dataset_reader": "DeCLUTRDatasetReader",
    "declutr.predictor": "DeCLUTRPredictor",
    "declutr.callbacks": "ExactResume RunRecord",
    "declutr.undisturbed": "undisturbed",
    "declutr.semantic_search.errors": "SearchError",
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
    # Paths of the original package (github.com/JohnGiorgi/DeCLUTR).
    "declutr.losses": "PyTorchMetricLearningLoss NTXentLoss CrossBatchMemory",
    "declutr.miners": "PyTorchMetricLearningMiner PairMarginMiner",
    "declutr.modules.token_embedders": "PretrainedTransformerEmbedderMLM",
    "declutr.modules.text_field_embedders": "MLMTextFieldEmbedder",
}


@pytest.mark.parametrize("path", PATHS)
def test_earlier_paths_can_be_imported(path: str) -> None:
    module = importlib.import_module(path)
    for name in PATHS[path].split():
        assert hasattr(module, name), f"{path}.{name}"


SAME = {
    "declutr.model": "declutr.models.declutr",
    "declutr.semantic_search.index": "declutr.search.index",
    "declutr.safe_archives.content": "declutr.archives.safety",
    "declutr.safe_archives.refusal": "declutr.archives",
    "declutr.text_models.devices": "declutr.inference.open_text_model",
}


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1])
def test_earlier_paths_are_the_same_modules(first: int) -> None:
    """Import either path first, because importing a module twice would give two classes."""
    code = f"""
import importlib
for pair in {list(SAME.items())!r}:
    modules = {{path: importlib.import_module(path) for path in (pair[{first}], pair[{1 - first}])}}
    one, other = map(modules.get, pair)
    assert one is other and one.__name__ == one.__spec__.name == pair[1], pair
"""
    ForkedCommand(code, environment=dict(os.environ), program="-c").finished()


@pytest.mark.slow
def test_functions_named_like_modules_can_be_called() -> None:
    """Call the function before and after the import of the module that takes its place."""
    code = """
import importlib, torch, declutr.objectives as room
rows = torch.eye(3)
for name in ("info_nce", "jensen_shannon"):
    before = getattr(room, name)(rows, rows)
    module = importlib.import_module(f"declutr.objectives.{name}")
    assert getattr(room, name)(rows, rows) == getattr(module, name)(rows, rows) == before
"""
    ForkedCommand(code, environment=dict(os.environ), program="-c").finished()


def test_unknown_paths_are_not_found() -> None:
    for path in (
        "declutr.nothing",
        "declutr.text_models.nothing",
        "declutr.semantic_search.nothing",
    ):
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(path)
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from declutr.sampling import nothing")
