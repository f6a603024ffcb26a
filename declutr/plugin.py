"""Makes known to AllenNLP what this package adds to it: its components, and its commands.

The bridge makes the `allennlp` command import this module. Elsewhere, `import declutr.plugin` does.
As every command does so before it computes, threads are kept to the quota of a container here.
"""

import declutr.components  # noqa: F401
from declutr.system.processors import keep_to_quota

keep_to_quota()
