"""Redirects from the module paths of earlier releases and of the original package.

Modules can still be imported by their earlier paths, which give the same module objects. Only
Python code needs this: recipes and archives contain registered names, not module paths.
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
    # (earlier package, current package): names of the modules that moved
    ("", "archives"): "sentence_transformers_folder",
    ("", "corpus"): "file_digests sentence_splitting text_pairs token_store",
    ("", "data"): (
        "augmentations augmented_reader collation data_loader numbered_texts pair_reader "
        "sentence_reader synonyms word_edits"
    ),
    ("", "inference"): "encoder encoder_processes official_protocols whitening",
    ("", "models"): "cutoff metrics predictor views",
    ("", "models.reclaim"): "submodule_features",
    ("", "modules"): "embedders heads ngram_pooler precision text_batches",
    ("", "quickstart"): "docstrings",
    ("", "sampling"): "document_selection masking token_budget",
    ("", "system"): "distributed worker_processes",
    ("", "task_models"): "glue image_text text_vae",
    ("", "training"): "checkpointer evaluation_callback sharding",
    ("", "transformer"): "packed_attention packing repeatable_dropout",
    ("evaluation", "evaluation.classifiers"): (
        "cross_validation features networks relatedness_regressor"
    ),
    ("evaluation", "evaluation.report"): "averages comparison dimensions plots",
    ("evaluation", "evaluation.tasks"): (
        "caption_retrieval classification embedding_map geometry labelled_text probing "
        "relatedness relevance_sets retrieval scored_pairs span_retrieval"
    ),
    ("objectives", "objectives.library"): "library_parts pytorch_metric_learning",
    ("objectives", "objectives.memories"): (
        "bank_search feature_bank hard_negative_mixing instance_bank lipschitz_critic "
        "momentum_contrast reclaim"
    ),
    ("objectives", "objectives.pairs"): (
        "debiased noise_contrastive quick_thoughts sentence_bert triplet"
    ),
    ("objectives", "objectives.without_negatives"): (
        "alignment_uniformity bootstrap decorrelation mutual_information swapped_prediction"
    ),
    ("text_models", "inference"): ("special_tokens text_model trained_model transformer_model"),
    ("text_models", "transformer"): "pooling",
}
_RENAMED = {
    "archive_members": "archives.tar_members",
    "bounded_json": "archives",
    "bridge.children": "bridge.repairs",
    "bulk_embedding": "inference.bulk",
    "bulk_embedding.output_folder": "inference.bulk.manifest",
    "checkpoints": "quickstart.small_checkpoints",
    "commands.separate_places": "commands.command",
    "commands.user_errors": "commands.command",
    "content_ids": "data.collation",
    "dataset_reader": "data.span_reader",
    "dropout_rates": "transformer.architectures",
    "embedding_layers": "transformer.architectures",
    "encoder_sources": "inference.sources",
    "encoder_sources.from_sentence_transformers": "inference.sources.trained_models",
    "encoder_sources.own_encoder": "inference.sources.trained_models",
    "encoder_sources.word_averages": "inference.sources.word_vectors",
    "evaluation.optimizers": "evaluation.classifiers.networks",
    "evaluation.pairs": "evaluation.tasks.classification",
    "evaluation.plots.dimensions": "evaluation.report.plots.scores",
    "evaluation.plots.plane": "evaluation.report.plots.embeddings",
    "evaluation.plots.ridges": "evaluation.report.plots.embeddings",
    "evaluation.plots.scatter": "evaluation.report.plots.embeddings",
    "evaluation.plots.task_bars": "evaluation.report.plots.scores",
    "export.errors": "export.exportable",
    "export.hugging_face": "export.exporting",
    "file_modes": "system.files",
    "glue.label_fractions": "task_models.glue.labelled_rows",
    "glue.label_values": "task_models.glue.layouts",
    "glue.senteval_files": "task_models.glue.labelled_rows",
    "gradient_caching": "models.encoding",
    "heap": "system.host_memory",
    "image_text.matching_loss": "task_models.image_text.matching",
    "image_text.retrieval": "task_models.image_text.matching",
    "inference.devices": "inference.open_text_model",
    "masked_lm_head": "transformer.architectures",
    "model": "models.declutr",
    "model_parts": "models.parts",
    "models.recorded_model": "models",
    "modules.momentum": "modules.heads",
    "momentum": "modules.heads",
    "modules_from_here": "system",
    "objectives.checks": "objectives.numerics",
    "objectives.contrastive": "objectives.pairs.metric_learning",
    "objectives.full_precision": "objectives.numerics",
    "objectives.lifted_structured": "objectives.pairs.metric_learning",
    "objectives.miners": "objectives.library.pytorch_metric_learning",
    "objectives.reductions": "objectives.numerics",
    "objectives.settings": "objectives.numerics",
    "objectives.soft_nearest_neighbours": "objectives.pairs.metric_learning",
    "objectives.sup_con": "objectives.nt_xent",
    "objectives.views": "objectives.numerics",
    "pretrained_parts.pooler": "pretrained_parts.modules",
    "pretrained_parts.text_field_embedder": "pretrained_parts.modules",
    "pretrained_parts.token_embedder": "pretrained_parts.modules",
    "pretrained_parts.token_indexer": "pretrained_parts.tokens",
    "pretrained_parts.tokenizer": "pretrained_parts.tokens",
    "pretrained_parts.trained_part": "pretrained_parts.modules",
    "quiet_loggers": "system",
    "reclaim_model": "models.reclaim.model",
    "reclaim_predictor": "models.predictor",
    "safe_archives": "archives.safety",
    "safe_archives.bounded_building": "archives.safety.building",
    "safe_archives.content": "archives.safety",
    "safe_archives.plain_json": "archives.safety.configuration",
    "safe_archives.refusal": "archives",
    "safe_archives.registered_names": "archives.safety.building",
    "safe_archives.remote_code": "archives.safety.configuration",
    "safe_archives.tensor_files": "archives.safety.files",
    "safe_archives.transformer_files": "archives.safety.files",
    "semantic_search": "search",
    "semantic_search.description": "search.index_files",
    "semantic_search.errors": "search.index_files",
    "semantic_search.recall": "search.searcher",
    "semantic_search.searchable_rows": "search.searcher",
    "semantic_search.with_faiss": "search.backends",
    "semantic_search.with_hnswlib": "search.backends",
    "semantic_search.with_numpy": "search.searcher",
    "sources": "corpus.documents",
    "span_fields": "data.fields",
    "system.imports": "system",
    "table_rows": "corpus.tables",
    "text_blocks": "corpus.text_inputs",
    "text_codecs": "data.codecs",
    "text_field_masks": "modules.text_batches",
    "text_keys": "modules.text_batches",
    "text_models": "inference.open_text_model",
    "text_models.devices": "inference.open_text_model",
    "text_models.file_fingerprints": "inference.fingerprints",
    "text_models.quantization": "transformer.int8_product",
    "text_pieces": "inference.text_embedding",
    "text_vae.decoder": "task_models.text_vae.layers",
    "text_vae.kl_weight": "task_models.text_vae.layers",
    "text_vae.latent_code": "task_models.text_vae.layers",
    "trained_configuration": "archives.configuration",
    "trained_texts": "training.model_in_training",
    "truncation_warnings": "inference.text_embedding",
    "undisturbed": "training.model_in_training",
    "unpadded": "transformer.unpadding",
    "untrusted_parts": "archives.safety.building",
}

# Modules of the original package (Giorgi et al., 2021).
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
# Modules whose names are in several modules now.
_NAMES["callbacks"] = {
    "ExactResume": "training.exact_resume:ExactResume",
    "RunRecord": "training.run_record:RunRecord",
}
_NAMES["objectives.metric_learning"] = {
    "CrossBatchMemory": "objectives:CrossBatchMemory",
    "LibraryObjective": "objectives:LibraryObjective",
    "MetricLearningObjective": "objectives:MetricLearningObjective",
    "NTXent": "objectives:NTXent",
}
# Modules named like a function that the package has now. Importing them hides the function, so the
# module objects can be called like it.
_NAMES["objectives.info_nce"] = {
    name: f"objectives.pairs.info_nce:{name}"
    for name in ("InfoNCE", "NPair", "info_nce", "n_pair_loss")
}
_NAMES["objectives.jensen_shannon"] = {
    "jensen_shannon": "objectives.distances:jensen_shannon",
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
    """Install the finder that lets modules be imported by their earlier paths, once."""
    if not any(isinstance(finder, _EarlierPaths) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EarlierPaths())


def place_of(path: str) -> str | None:
    """Return the current path of a module that has moved, or `None` if it has not.

    Both paths are dotted and relative to `declutr`. A module inside a package that has moved is
    found by the path of the package. So `"model"` gives `"models.declutr"`.
    """
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        place = _PLACES.get(".".join(parts[:count]))
        if place is not None:
            return ".".join([place, *parts[count:]])
    return None


def names_of(*modules: str) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that looks names up in other modules.

    It is for a package that was a module in earlier releases, and for modules that were split.

    # Parameters

    modules : full paths of the modules that contain the names, in the order of the search.
    """

    def __getattr__(name: str) -> Any:
        if not name.startswith("__"):
            for module in modules:
                found = getattr(importlib.import_module(module), name, None)
                if found is not None:
                    return found
        raise AttributeError(f"module {modules[0].rpartition('.')[0]!r} has no attribute {name!r}")

    return __getattr__


class _EarlierPaths(MetaPathFinder):
    """A finder for earlier module paths, to be asked before the finders that search folders."""

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
    """A loader that returns the current module for an earlier path.

    # Parameters

    place : full path of the current module.
    held : whether the earlier path was a package whose modules have moved elsewhere. Then the
        loader makes a package of its own, which has the names of the current module.
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
            module.__spec__ = self._spec  # the import system has replaced it by the earlier path's


class _Names(Loader):
    """A loader of a module whose names are in other modules now.

    # Parameters

    names : maps each earlier name to its current place, `module:name`.
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
        if module.__name__.rpartition(".")[2] in self._names:
            module.__class__ = _NamedAsAFunction


class _NamedAsAFunction(ModuleType):
    """A callable module that stands in for the function of the same name that it hides."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, self.__name__.rpartition(".")[2])(*args, **kwargs)
