"""Where modules of earlier releases, and of the original package, are today.

They can be imported by their earlier paths as well, and are the same modules then. Recipes and
archives hold registered names and configuration keys, and no paths.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = "declutr"

_MOVED = {
    # from, to: which
    ("", "archives"): "sentence_transformers_folder",
    ("", "corpus"): (
        "content_ids delimited_rows earlier_reading file_digests named_files sentence_splitting "
        "text_blocks text_encodings text_files text_inputs text_pairs token_store"
    ),
    ("", "data"): (
        "augmented_reader collation data_loader numbered_texts pair_reader sentence_reader"
    ),
    ("", "data.augmentation"): "synonyms word_edits",
    ("", "inference"): (
        "encoder encoder_processes official_protocols text_pieces truncation_warnings whitening"
    ),
    ("", "models"): "cutoff predictor views",
    ("", "models.reclaim"): "submodule_features",
    ("", "modules"): (
        "embedders gradient_caching heads metrics momentum ngram_pooler precision text_batches "
        "text_field_masks text_keys"
    ),
    ("", "quickstart"): "docstrings",
    ("", "sampling"): "document_selection masking span_coverage text_calls token_budget",
    ("", "system"): (
        "bounded_json cache_folder checksums distributed host_copies kernel_choices processors "
        "quiet_loggers torch_files torch_threads untrusted_parts worker_processes"
    ),
    ("", "task_models"): "glue image_text text_vae",
    ("", "training"): (
        "callbacks checkpointer epoch_figures evaluation_callback linear_decay loss_sums "
        "metric_readers metric_states sharding start_validation trained_texts trainer "
        "undisturbed weight_decay"
    ),
    ("", "transformer"): "dropout_rates embedding_layers masked_lm_head packing",
    ("", "transformer.attention"): "repeatable_dropout variable_length_kernels whole_masks",
    ("", "transformer.linear"): "training_speed",
    ("evaluation", "evaluation.classifiers"): (
        "cross_validation features networks relatedness_regressor"
    ),
    ("evaluation", "evaluation.report"): "averages comparison dimensions plots",
    ("evaluation", "evaluation.tasks"): (
        "caption_retrieval classification embedding_map geometry labelled_text probing "
        "relatedness relevance_sets retrieval scored_pairs span_retrieval"
    ),
    ("objectives", "objectives.library"): (
        "library_parts metric_learning miners pytorch_metric_learning"
    ),
    ("objectives", "objectives.memories"): (
        "bank_search cross_batch_memory feature_bank hard_negative_mixing instance_bank "
        "instance_ids lipschitz_critic momentum_contrast reclaim whole_bank"
    ),
    ("objectives", "objectives.pairs"): (
        "contrastive debiased lifted_structured noise_contrastive nt_xent "
        "quick_thoughts sentence_bert soft_nearest_neighbours sup_con triplet"
    ),
    ("objectives", "objectives.without_negatives"): (
        "alignment_uniformity bootstrap decorrelation mutual_information swapped_prediction"
    ),
    ("text_models", "inference"): (
        "devices dtype_report errors prompted_tokens prompts special_tokens text_model "
        "trained_model transformer_model"
    ),
    ("text_models", "transformer"): "pooling",
    ("text_models", "transformer.linear"): (
        "activations dtype_speed float_products int8_product linear_layers prepared_linear"
    ),
}
_RENAMED = {
    "archive_members": "archives.tar_members",
    "archives.safety.refusal": "archives.refusal",
    "augmentations": "data.augmentation.augmentation",
    "bulk_embedding": "inference.bulk",
    "checkpoints": "quickstart.small_checkpoints",
    "dataset_reader": "data.span_reader",
    "encoder_sources": "inference.sources",
    "evaluation.optimizers": "evaluation.classifiers.networks",
    "evaluation.pairs": "evaluation.tasks.classification",
    "evaluation.plots.dimensions": "evaluation.report.plots.scores",
    "evaluation.plots.plane": "evaluation.report.plots.embeddings",
    "evaluation.plots.ridges": "evaluation.report.plots.embeddings",
    "evaluation.plots.scatter": "evaluation.report.plots.embeddings",
    "evaluation.plots.task_bars": "evaluation.report.plots.scores",
    "export.hugging_face": "export.exporting",
    "file_modes": "system.umask",
    "heap": "system.cpu_memory",
    "linear_products": "transformer.linear.training_products",
    "model": "models.declutr",
    "model_parts": "models.fit",
    "modules_from_here": "system.user_modules",
    "packed_attention": "transformer.attention.packed",
    "reclaim_model": "models.reclaim.model",
    "reclaim_predictor": "models.reclaim.predictor",
    "safe_archives": "archives.safety",
    "search.errors": "search.description",
    "search.with_numpy": "search.searcher",
    "semantic_search": "search",
    "sources": "corpus.documents",
    "span_fields": "data.fields",
    "table_rows": "corpus.tables",
    "text_by_text_attention": "transformer.attention.text_by_text",
    "text_codecs": "data.codecs",
    "text_models.file_fingerprints": "inference.fingerprints",
    "trained_configuration": "archives.configuration",
    "training.trained_texts": "training.model_in_training",
    "training.undisturbed": "training.model_in_training",
    "unpadded": "transformer.unpadding",
    "text_models": "inference.open_text_model",
}

# Of the original package (Giorgi et al., 2021), whose modules these were.
_RENAMED |= {
    "modules.text_field_embedders": "modules.embedders",
    "modules.text_field_embedders.mlm_text_field_embedder": "modules.embedders",
    "modules.token_embedders": "modules.embedders",
    "modules.token_embedders.pretrained_transformer_embedder_mlm": "modules.embedders",
}
_NAMES = {
    "losses": {
        "CrossBatchMemory": "objectives:CrossBatchMemory",
        "NTXentLoss": "objectives:NTXent",
        "PyTorchMetricLearningLoss": "objectives:Objective",
    },
    "miners": {
        "PairMarginMiner": "objectives:PairMarginMiner",
        "PyTorchMetricLearningMiner": "objectives:Miner",
    },
}
# What is in several modules today.
_NAMES["training.callbacks"] = {
    "ExactResume": "training.exact_resume:ExactResume",
    "RunRecord": "training.run_record:RunRecord",
}
_PLACES = {
    **{
        f"{old}.{name}".lstrip("."): f"{new}.{name}"
        for (old, new), names in _MOVED.items()
        for name in names.split()
    },
    **_RENAMED,
}


def install() -> None:
    """Let modules be imported by their earlier paths, from now on."""
    if not any(isinstance(finder, _EarlierPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EarlierPaths())


def place_of(path: str) -> str | None:
    """Return today's path of what was at a dotted path below `declutr`, or `None` if it is there.

    What was in a package that moved is found by the place of the package.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        place = _PLACES.get(".".join(parts[:count]))
        if place is not None:
            return ".".join([place, *parts[count:]])
    return None


def names_of(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that was a module once: the names of that module."""

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            try:
                return getattr(importlib.import_module(module), name)
            except AttributeError:
                pass
        raise AttributeError(f"module {module.rpartition('.')[0]!r} has no attribute {name!r}")

    return __getattr__


class _EarlierPaths(MetaPathFinder):
    """Finds modules at their earlier paths, before anything looks into the folders of today."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inside = fullname.partition(".")
        if package != _PACKAGE or not inside:
            return None
        if inside in _NAMES:
            return ModuleSpec(fullname, _Names(_NAMES[inside]))
        place = place_of(inside)
        if place is None:
            return None
        held = any(other.startswith(f"{inside}.") for other in _PLACES)
        return ModuleSpec(fullname, _Moved(f"{_PACKAGE}.{place}", held), is_package=held)


class _Moved(Loader):
    """Gives the module of today in the place of an earlier one.

    # Parameters

    place : of the module.
    held : others, which are elsewhere today, were in it: it has to be a package of its own, with
        the names of the module.
    """

    def __init__(self, place: str, held: bool) -> None:
        self._place, self._held = place, held

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        self._module = importlib.import_module(self._place)
        self._spec = self._module.__spec__
        return None if self._held else self._module

    def exec_module(self, module: ModuleType) -> None:
        if self._held:
            module.__dict__["__getattr__"] = names_of(self._place)
        else:
            module.__spec__ = self._spec  # the import system has just set that of the earlier path


class _Names(Loader):
    """A module of names that are elsewhere today.

    # Parameters

    names : `module:name`, by what it was called.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        for called, place in self._names.items():
            where, _, name = place.partition(":")
            found = getattr(importlib.import_module(f"{_PACKAGE}.{where}"), name)
            setattr(module, called, found)
