"""Registers what configurations and archives name: readers, models, callbacks and the rest."""

from declutr.bridge.deferral import scipy_stats

with scipy_stats():  # pytorch_metric_learning imports them, for one loss
    import declutr.objectives

import declutr.augmentations
import declutr.augmented_reader
import declutr.callbacks
import declutr.checkpointer
import declutr.data_loader
import declutr.dataset_reader
import declutr.embedders
import declutr.evaluation_callback
import declutr.glue
import declutr.image_text
import declutr.linear_decay
import declutr.model
import declutr.ngram_pooler
import declutr.pair_reader
import declutr.predictor
import declutr.pretrained_parts
import declutr.reclaim_model
import declutr.reclaim_predictor
import declutr.sentence_reader
import declutr.sharding
import declutr.text_vae
import declutr.trainer
import declutr.word_edits  # noqa: F401
