"""Registers everything this package adds to AllenNLP.

The bridge makes the `allennlp` command import this module. Elsewhere, `import declutr.plugin` does.
"""

import declutr.callbacks
import declutr.checkpointer
import declutr.commands.sample_spans
import declutr.data_loader
import declutr.dataset_reader
import declutr.embedders
import declutr.model
import declutr.objectives
import declutr.predictor
import declutr.sharding  # noqa: F401
