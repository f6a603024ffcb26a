"""Tables of the switches that the bridge applies to each module of AllenNLP.

They are complete: the bridge changes nothing that is not listed here. `LENT` and `REPAIRS` serve
every pipeline. `ADDITIONS` serve this package, and are left out where `DECLUTR_PLUGIN=0` is set.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import ModuleType

from declutr.bridge import (
    additions,
    allennlp_models,
    archives,
    checkpoints,
    configurations,
    data_workers,
    deferral,
    evaluation,
    gradients,
    lending,
    metrics,
    module_weights,
    multitask,
    optional_packages,
    pretrained,
    publishing,
    readers,
    registry,
    repairs,
    resumption,
    saliency,
    schedules,
    tokenization,
    transformer_cache,
    undecayed,
    untrusted,
)

# Context managers in which the body of the module runs.
LENT: dict[str, tuple[Callable[[], AbstractContextManager[None]], ...]] = {
    "allennlp.data.image_loader": (lending.torchvision,),
    # The first module that imports a model of transformers.
    "allennlp.modules.transformer.activation_layer": (deferral.scipy_optimize,),
    "allennlp.modules.vision.grid_embedder": (lending.torchvision,),
    "allennlp.modules.vision.region_detector": (lending.torchvision,),
    "allennlp.nn.parallel.fairscale_fsdp_accelerator": (lending.fairscale,),
    "allennlp.nn.checkpoint.fairscale_checkpoint_wrapper": (lending.fairscale,),
    "allennlp.training.optimizers": (lending.adamw,),
    "allennlp.common.push_to_hf": (publishing.hub_names,),
    "allennlp.commands": (deferral.garbage,),
    "allennlp.training.metrics.evalb_bracketing_scorer": (optional_packages.nltk,),
    "allennlp.training.metrics.auc": (deferral.sklearn,),
    "allennlp.training.metrics.spearman_correlation": (deferral.scipy_stats,),
    "allennlp.fairness.fairness_metrics": (deferral.scipy_stats,),
    "allennlp.fairness.bias_direction": (deferral.sklearn,),
    "allennlp.fairness.bias_mitigators": (deferral.sklearn,),
    "allennlp": (optional_packages.spacy,),
    "allennlp.common.file_utils": (optional_packages.cached_path, optional_packages.lmdb),
    "allennlp.common.testing": (optional_packages.pytest,),
    "allennlp.common.util": (optional_packages.spacy,),
    "allennlp.data.fields.text_field": (optional_packages.spacy,),
    "allennlp.data.token_indexers.spacy_indexer": (optional_packages.spacy,),
    "allennlp.data.tokenizers.sentence_splitter": (optional_packages.spacy,),
    "allennlp.data.tokenizers.spacy_tokenizer": (optional_packages.spacy,),
    "allennlp.modules.elmo": (optional_packages.h5py,),
    "allennlp.modules.elmo_lstm": (optional_packages.h5py,),
    "allennlp.modules.token_embedders.embedding": (optional_packages.h5py,),
    "allennlp.training.callbacks.tensorboard": (optional_packages.tensorboard,),
    "rouge.rouge": (allennlp_models.pkg_resources,),
    "rouge.rouge_augmented": (allennlp_models.pkg_resources,),
}

Switch = Callable[[ModuleType], bool | None]
"""A function that is called with a module right after its body ran; False if it was not needed."""

REPAIRS: dict[str, tuple[Switch, ...]] = {
    "allennlp.common.util": (repairs.cuda_device_numbers, repairs.own_submodules),
    "allennlp.common.cached_transformers": (
        transformer_cache.cached_as_asked,  # first: it must see the arguments of the cache
        pretrained.tokenizer_arguments,
        pretrained.float32_checkpoints,
    ),
    "allennlp.common.file_utils": (
        checkpoints.tensor_caches,
        optional_packages.found_without_cache,
    ),
    "allennlp.common.push_to_hf": (publishing.hub_uploads,),
    "allennlp.common.registrable": (optional_packages.suggested_names,),
    "allennlp.commands._checklist_internal": (untrusted.trust_in_archives,),
    "allennlp.commands.evaluate": (
        untrusted.trust_in_archives,
        evaluation.whole_data,
        evaluation.metrics_of_files,
    ),
    "allennlp.commands.find_learning_rate": (
        untrusted.trust_in_archives,
        gradients.limited_in_search,
        gradients.accumulated_in_search,
    ),
    "allennlp.commands.predict": (untrusted.trust_in_archives,),
    "allennlp.commands.train": (
        repairs.spawned_training,
        repairs.ended_training,
        evaluation.whole_test,
        evaluation.whole_validation,
        resumption.special_tokens,
    ),
    "allennlp.data.data_loaders.data_collator": (pretrained.collator_arguments,),
    "allennlp.data.data_loaders.multiprocess_data_loader": (
        data_workers.shares_in_turn,  # first: it must be called last
        repairs.worker_processes,
        data_workers.numbers_of_epochs,
        data_workers.unsent_rows,
        data_workers.ended_workers,
    ),
    "allennlp.data.data_loaders.multitask_data_loader": (
        multitask.batches_of_tasks,
        multitask.shuffled_tasks,
    ),
    "allennlp.data.dataset_readers.dataset_reader": (
        readers.shares_of_processes,
        data_workers.numbers_of_shares,
    ),
    "allennlp.data.dataset_readers.interleaving_dataset_reader": (readers.shares_of_parts,),
    "allennlp.data.token_indexers.pretrained_transformer_indexer": (
        pretrained.empty_texts,
        pretrained.ids_of_the_tokenizer,
    ),
    "allennlp.data.tokenizers.pretrained_transformer_tokenizer": (tokenization.tokenizer_methods,),
    "allennlp.data.tokenizers.spacy_tokenizer": (tokenization.own_pipelines,),
    "allennlp.data.vocabulary": (tokenization.numbered_as_by_the_tokenizer,),
    "allennlp.evaluation.evaluator": (evaluation.predictions_in_order,),
    "allennlp.fairness.fairness_metrics": (metrics.counts_of_processes,),
    "allennlp.fairness.adversarial_bias_mitigator": (gradients.adversarial_gradients,),
    "allennlp.interpret.saliency_interpreters.simple_gradient": (saliency.products_with_inputs,),
    "allennlp.models.archival": (
        untrusted.archives_by_rules,
        archives.carried_transformers,
        archives.included_files,
    ),
    "allennlp.models.model": (module_weights.missing_weights, module_weights.gone_buffers),
    "allennlp.models.multitask": (multitask.inputs_of_heads,),
    "allennlp.modules.token_embedders.pretrained_transformer_embedder": (
        pretrained.gradient_checkpointing,
        pretrained.empty_beside_long,
        pretrained.same_pieces,
    ),
    "allennlp.modules.transformer.transformer_module": (module_weights.checkpoint_files,),
    "allennlp.nn.parallel.ddp_accelerator": (
        repairs.amp_names,
        gradients.sparse_norms,
        gradients.own_names,
    ),
    "allennlp.nn.util": (repairs.sent_from_pinned_memory, saliency.input_embeddings),
    "allennlp.predictors.multitask": (multitask.order_of_instances,),
    "allennlp.training.checkpointer": (
        checkpoints.checkpoint_globals,
        resumption.removed_checkpoints,
        resumption.found_checkpoints,
    ),
    "allennlp.training.util": (gradients.sparse_norms, evaluation.given_data),
    "allennlp.training.gradient_descent_trainer": (
        repairs.amp_names,
        repairs.device_numbers,
        gradients.sparse_norms,
        gradients.batches_of_processes,
        gradients.unscaled_norms,
        gradients.no_norms,
        gradients.whole_steps,
        gradients.frozen_names,
        gradients.settings_of_groups,
        schedules.steps_of_all,
        gradients.frozen_in_processes,  # later: it reads the settings of schedules
        checkpoints.callback_states,
        evaluation.some_batches,
        resumption.best_weights,
        resumption.kept_scales,
        resumption.mean_losses,
        resumption.steps_of_processes,
        resumption.stopped_runs,
        resumption.validation_draws,
        resumption.parameter_orders,
    ),
    "allennlp.training.learning_rate_schedulers.combined": (
        resumption.combined_schedules,
        schedules.combined_steps,
    ),
    "allennlp.training.learning_rate_schedulers.learning_rate_scheduler": (
        schedules.warmups_by_step,
    ),
    "allennlp.training.learning_rate_schedulers.pytorch_lr_schedulers": (
        repairs.plateau_verbose,
        schedules.plateaus,
    ),
    "allennlp.training.learning_rate_schedulers.slanted_triangular": (
        resumption.frozen_layers,
        schedules.unknown_lengths,
    ),
    "allennlp.training.metric_tracker": (schedules.undefined_metrics,),
    "allennlp.training.metrics.attachment_scores": (metrics.sums_of_processes,),
    "allennlp.training.metrics.auc": (metrics.pairs_of_processes,),
    "allennlp.training.metrics.fbeta_measure": (metrics.predicted_classes,),
    "allennlp.training.metrics.fbeta_multi_label_measure": (metrics.predicted_labels,),
    "allennlp.training.metrics.fbeta_verbose_measure": (metrics.names_of_classes,),
    "allennlp.training.metrics.pearson_correlation": (metrics.small_numbers,),
    "allennlp.training.metrics.span_based_f1_measure": (metrics.continued_spans,),
    "allennlp.training.metrics.spearman_correlation": (metrics.masked_pairs,),
    "allennlp.training.moving_average": (resumption.moving_averages,),
    "allennlp.training.optimizers": (gradients.listed_patterns, schedules.scheduled_groups),
    "allennlp.training.callbacks.backward": (gradients.means_of_batches,),
    "allennlp.training.callbacks.confidence_checks": (resumption.checks_at_the_start,),
    "allennlp.training.callbacks.log_writer": (
        resumption.logged_distributions,
        resumption.logged_batch_sizes,
    ),
    "allennlp.training.callbacks.should_validate": (resumption.validated_epochs,),
    "allennlp.training.callbacks.wandb": (repairs.named_runs,),
    "allennlp.training.callbacks.track_epoch": (resumption.tracked_epochs,),
    "allennlp_models.generation.models.bart": (allennlp_models.decoder_caches,),
    "allennlp_models.structured_prediction.dataset_readers.penn_tree_bank": (
        allennlp_models.named_treebanks,
    ),
    "allennlp_models.structured_prediction.dataset_readers.srl": (allennlp_models.wordpieces,),
}

# Like `REPAIRS`, and applied after them, unless `DECLUTR_PLUGIN=0` is set.
ADDITIONS: dict[str, tuple[Switch, ...]] = {
    "allennlp.common.params": (
        configurations.named_recipes,
        configurations.default_transformers,
    ),
    "allennlp.common.from_params": (additions.nearest_keys, additions.whole_lists),
    "allennlp.common.plugins": (additions.own_plugin,),
    "allennlp.common.registrable": (registry.yielding_names,),
    "allennlp.commands.predict": (additions.blank_lines,),
    "allennlp.commands.train": (
        configurations.told_errors,
        configurations.spelt_names,
        configurations.known_nodes,
        configurations.told_seeds,
        configurations.first_tables,
        configurations.alone_in_folder,
        untrusted.trust_in_archives,  # last: what it tells, told_errors has cleaned up after
    ),
    "allennlp.commands.find_learning_rate": (
        additions.rates_of_the_same_trainer,
        configurations.first_tables,
    ),
    "allennlp.data.data_loaders.multiprocess_data_loader": (additions.one_draw_warning,),
    "allennlp.models.archival": (
        archives.archived_transformers,
        archives.archived_names,
        archives.checked_extraction,
        archives.folders_as_vocabularies,
    ),
    "allennlp.training.util": (additions.moved_runs, configurations.noted_folders),
    "allennlp.training.gradient_descent_trainer": (
        additions.attached_models,
        additions.trainer_keys,
        undecayed.optimized_models,
    ),
    "allennlp.training.optimizers": (undecayed.groups_by_module,),
}
