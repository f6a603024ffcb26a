"""Registers what configurations and archives name: readers, models, callbacks and the rest."""

from declutr.bridge.deferral import scipy_stats

with scipy_stats():  # pytorch_metric_learning imports them, for one loss
    import declutr.objectives

import declutr.data.augmentation.augmentation
import declutr.data.augmentation.word_edits
import declutr.data.augmented_reader
import declutr.data.data_loader
import declutr.data.pair_reader
import declutr.data.sentence_reader
import declutr.data.span_reader
import declutr.models.declutr
import declutr.models.predictor
import declutr.models.reclaim.model
import declutr.models.reclaim.predictor
import declutr.modules.embedders
import declutr.modules.ngram_pooler
import declutr.pretrained_parts
import declutr.task_models.glue
import declutr.task_models.image_text
import declutr.task_models.text_vae
import declutr.training.checkpointer
import declutr.training.evaluation_callback
import declutr.training.exact_resume
import declutr.training.linear_decay
import declutr.training.run_record
import declutr.training.sharding
import declutr.training.trainer  # noqa: F401
