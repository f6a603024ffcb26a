"""The AllenNLP plugin: importing this module registers all components and commands of the package.

The bridge makes the `allennlp` command import this module; other programs use
`import declutr.plugin`. Because every command imports it before it computes anything, the number of
threads is also limited here to the processor quota of a container, and a release of transformers
that was not tested is told.
"""

import declutr.components  # noqa: F401
from declutr.system.processors import keep_to_quota
from declutr.system.releases import warn_of_untested_releases

keep_to_quota()
warn_of_untested_releases()
