"""Registers everything this package adds to AllenNLP: its components, and its commands.

The bridge makes the `allennlp` command import this module. Elsewhere, `import declutr.plugin` does.
As every command does so before it computes, threads are kept to the quota of a container here.
"""

import declutr.commands.embed
import declutr.commands.evaluate_embeddings
import declutr.commands.export
import declutr.commands.index
import declutr.commands.sample_spans
import declutr.commands.search
import declutr.commands.split_sentences
import declutr.commands.whiten
import declutr.components  # noqa: F401
from declutr.system.torch_threads import keep_to_quota

keep_to_quota()
