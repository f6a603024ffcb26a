"""The registered names of this package, by base class, with the places of their classes.

Importing this module makes all of them known to AllenNLP. The module of a class is imported only
when its name is requested, so that an archive, a recipe or a command loads nothing that it does not
use. The table itself is `declutr.bridge.component_names`.
"""

from typing import Optional

from allennlp.common import Registrable

from declutr.bridge.component_names import COMPONENTS
from declutr.bridge.registry import Names, extend

__all__ = ["COMPONENTS", "registered_name"]


def registered_name(base: type[Registrable], registered: type) -> Optional[str]:
    """Return the name that a class was first registered under, without importing anything.

    # Parameters

    base : the registrable base class, such as `Model`.
    registered : the class to look up.

    # Returns

    The registered name, or `None` if the class is not registered under `base`.
    """
    names = Registrable._registry[base]
    known = names.imported if isinstance(names, Names) else names
    return next((name for name, (cls, _) in known.items() if cls is registered), None)


extend()
