"""What is deprecated: each earlier name, what to use in its place, and the release that removes it.

Whoever uses an earlier name gets one `FutureWarning` a process, at the line that used it. It is no
`DeprecationWarning`, as Python shows those of the main script only, and plugins of AllenNLP are
imported by a command. Registered names, configuration keys and the import paths of the original
package stay: none of them is here. What goes in 3.0 is printed into docs/MIGRATION.md.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from itertools import pairwise
from types import FunctionType
from typing import NamedTuple

PACKAGE = "declutr"

# Current modules, and the earlier modules that are in them, all relative to the package: `*` stands
# for the earlier name, and a word that ends with a dot for the package of the words after it.
_MOVED = """
archives = bounded_json safe_archives. refusal
archives.* = sentence_transformers_folder
archives.configuration = trained_configuration
archives.safety = safe_archives safe_archives. content
archives.safety.building = untrusted_parts safe_archives. bounded_building registered_names
archives.safety.configuration = safe_archives. plain_json remote_code
archives.safety.files = safe_archives. tensor_files transformer_files
archives.tar_members = archive_members
bridge.repairs = bridge. children
commands.command = commands. separate_places user_errors
corpus.* = file_digests sentence_splitting text_pairs token_store
corpus.documents = sources
corpus.tables = table_rows
corpus.text_inputs = text_blocks
data.* = augmentations augmented_reader collation data_loader numbered_texts pair_reader
    sentence_reader synonyms word_edits
data.codecs = text_codecs
data.collation = content_ids
data.fields = span_fields
evaluation.classifiers.* = evaluation. cross_validation features networks relatedness_regressor
evaluation.classifiers.networks = evaluation. optimizers
evaluation.report.* = evaluation. averages comparison dimensions plots
evaluation.report.plots.embeddings = evaluation.plots. plane ridges scatter
evaluation.report.plots.scores = evaluation.plots. dimensions task_bars
evaluation.tasks.* = evaluation. caption_retrieval classification embedding_map geometry
    labelled_text probing relatedness relevance_sets retrieval scored_pairs span_retrieval
evaluation.tasks.classification = evaluation. pairs
export.exportable = export. errors
export.exporting = export. hugging_face
inference.* = encoder_processes official_protocols whitening text_models. special_tokens
    text_model trained_model transformer_model
inference.bulk = bulk_embedding
inference.bulk.manifest = bulk_embedding. output_folder
inference.fingerprints = text_models. file_fingerprints
inference.open_text_model = text_models inference. devices text_models. devices
inference.sources = encoder_sources
inference.sources.trained_models = encoder_sources. from_sentence_transformers own_encoder
inference.sources.word_vectors = encoder_sources. word_averages
inference.text_embedding = text_pieces truncation_warnings
models.* = cutoff metrics views
models = models. recorded_model
models.encoding = gradient_caching
models.parts = model_parts
models.predictor = reclaim_predictor
models.reclaim.* = submodule_features
models.reclaim.model = reclaim_model
modules.* = embedders heads ngram_pooler precision text_batches
modules.heads = momentum modules. momentum
modules.text_batches = text_field_masks text_keys
objectives.library.* = objectives. library_parts pytorch_metric_learning
objectives.library.pytorch_metric_learning = objectives. miners
objectives.memories.* = objectives. bank_search feature_bank hard_negative_mixing instance_bank
    lipschitz_critic momentum_contrast reclaim
objectives.nt_xent = objectives. sup_con
objectives.numerics = objectives. checks full_precision reductions settings views
objectives.pairs.* = objectives. debiased noise_contrastive quick_thoughts sentence_bert triplet
objectives.pairs.metric_learning = objectives. contrastive lifted_structured
    soft_nearest_neighbours
objectives.without_negatives.* = objectives. alignment_uniformity bootstrap decorrelation
    mutual_information swapped_prediction
pretrained_parts.modules = pretrained_parts. pooler text_field_embedder token_embedder
    trained_part
pretrained_parts.tokens = pretrained_parts. token_indexer tokenizer
quickstart.* = docstrings
quickstart.small_checkpoints = checkpoints
sampling.* = document_selection masking token_budget
search = semantic_search
search.backends = semantic_search. with_faiss with_hnswlib
search.index_files = semantic_search. description errors
search.searcher = semantic_search. recall searchable_rows with_numpy
system.* = distributed worker_processes
system = modules_from_here quiet_loggers system. imports
system.files = file_modes
system.host_memory = heap
task_models.* = glue image_text text_vae
task_models.glue.labelled_rows = glue. label_fractions senteval_files
task_models.glue.layouts = glue. label_values
task_models.image_text.matching = image_text. matching_loss retrieval
task_models.text_vae.layers = text_vae. decoder kl_weight latent_code
training.* = checkpointer evaluation_callback sharding
training.model_in_training = trained_texts undisturbed
transformer.* = packed_attention packing repeatable_dropout text_models. pooling
transformer.architectures = dropout_rates embedding_layers masked_lm_head
transformer.int8_product = text_models. quantization
transformer.unpadding = unpadded
"""

SPLIT = {
    "callbacks": "training.exact_resume training.run_record",
    "objectives.info_nce": "objectives.pairs.info_nce",
    "objectives.jensen_shannon": "objectives.distances",
    "objectives.metric_learning": "objectives",
}
"""The modules that have the names of an earlier module today, searched in this order."""

PACKAGES = {
    "archives": "archives.carried",
    "corpus": "corpus.tokenized",
    "evaluation.classifiers": "evaluation.classifiers.classifiers",
    "evaluation.report": "evaluation.report.report",
    "quickstart": "quickstart.whole_way",
    "sampling": "sampling.spans sampling.row_draws sampling.span_geometry",
}
"""The modules that have the names of a package that was a module, searched in this order."""


def _modules() -> Iterator[tuple[str, str]]:
    new = package = ""
    for word, following in pairwise([*_MOVED.split(), ""]):
        if following == "=":
            new, package = word, ""
        elif word.endswith("."):
            package = word
        elif word != "=":
            yield f"{package}{word}", new.replace("*", word)


MODULES = dict(_modules())
"""The current path of every module that has moved, by its earlier path."""


class Deprecated(NamedTuple):
    """A deprecated name, the first release that warns of it and the first that lacks it."""

    old: str
    new: str
    since: str = "2.0"
    removed: str = "3.0"

    def __str__(self) -> str:
        return (
            f"{self.old} is deprecated since declutr {self.since} and goes in {self.removed}: "
            f"use {self.new}."
        )


OBJECTIVE_ATTRIBUTES = ("needs", "takes", "compares", "uses_projections", "uses_targets")
"""Class attributes by which an objective of releases up to 1.8 declares what it takes."""

OBJECTIVE_ARGUMENTS = "the names of the arguments of forward"
"""What an objective declares it by today."""


def table() -> list[Deprecated]:
    """Return everything in this package that is deprecated, sorted by kind and name.

    `*` stands for the names of a module. Recipes at earlier paths say themselves that they moved
    (`declutr.recipes`).
    """
    return [
        *sorted(Deprecated(f"{PACKAGE}.{old}", f"{PACKAGE}.{new}") for old, new in MODULES.items()),
        *(
            Deprecated(
                f"{PACKAGE}.{old}.*", ", ".join(f"{PACKAGE}.{new}.*" for new in places.split())
            )
            for old, places in {**SPLIT, **PACKAGES}.items()
        ),
        *(Deprecated(f"Objective.{name}", OBJECTIVE_ARGUMENTS) for name in OBJECTIVE_ATTRIBUTES),
    ]


def warn(deprecated: Deprecated, function: FunctionType | None = None) -> None:
    """Warn of the use of a deprecated name, once a process.

    # Parameters

    deprecated : the name.
    function : the function that the warning points to; by default the line that is running outside
        of the import system and of this package's redirects.
    """
    if deprecated.old in _told:
        return
    _told.add(deprecated.old)
    if function is not None:
        code = function.__code__
        place = code.co_filename, code.co_firstlineno, function.__module__
    else:
        frame = sys._getframe(1)
        while frame.f_globals["__name__"] in _BETWEEN and frame.f_back is not None:
            frame = frame.f_back
        place = frame.f_code.co_filename, frame.f_lineno, frame.f_globals["__name__"]
    warnings.warn_explicit(str(deprecated), FutureWarning, *place)


_told: set[str] = set()
_BETWEEN = {
    *("declutr.earlier_paths", "importlib", "importlib._bootstrap"),
    "importlib._bootstrap_external",
}
