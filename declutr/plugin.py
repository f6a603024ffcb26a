"""The AllenNLP plugin: importing this module registers all components and commands of the package.

The `allennlp` command knows their names by the bridge, and imports this module before the first
class of this package; other programs use `import declutr.plugin`. Because it is imported before
anything is computed, the number of threads is also limited here to the processor quota of a
container, and a release of transformers that was not tested is told.
"""

import declutr.components  # noqa: F401
from declutr.system.processors import keep_to_quota
from declutr.system.releases import warn_of_untested_releases

keep_to_quota()
warn_of_untested_releases()
