"""Registers what configurations and archives name: readers, models, callbacks and the rest."""

import declutr.callbacks
import declutr.checkpointer
import declutr.data_loader
import declutr.dataset_reader
import declutr.embedders
import declutr.evaluation_callback
import declutr.model
import declutr.objectives
import declutr.predictor
import declutr.pretrained_parts
import declutr.sharding  # noqa: F401
