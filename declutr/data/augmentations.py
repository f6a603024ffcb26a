"""Text augmentations, which turn a text into another one of about the same meaning."""

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

from declutr.system import NoSuchModule, module_from_here, raised_as


class Augmentation(Registrable):
    """A registrable base class for functions that turn a text into an augmented text.

    An augmentation is called as `augmentation(text, rng) -> str`. It may draw random numbers from
    `rng` only: the reader seeds `rng` by its seed, the epoch and the row
    (`declutr.sampling.row_draws.document_rng`), so that a text is augmented alike in every process.
    An augmentation is sent to worker processes, so it must pickle.

    The configuration in an archive names the augmentation too, although a machine that only embeds
    texts may have neither its files nor its modules. Subclasses therefore read files and import
    functions when the first text comes, not in their constructor.
    """

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        """Return the augmented text.

        # Parameters

        text : a text as it stands in its row.
        rng : the only source of random numbers.
        """
        raise NotImplementedError


@Augmentation.register("callable")
class CallableAugmentation(Augmentation):
    """An augmentation that calls a user's function, such as one that looks up translations.

    # Parameters

    function : `"package.module:function"`; the module may lie in the current folder.
    random : whether to call `function(text, rng)`, with a numpy Generator, instead of
        `function(text)`.

    # Raises

    `ConfigurationError` : if the name has another form. When the first text is augmented: if the
        name does not lead to a callable that takes these arguments. For any text: if the function
        returns something other than a string.
    """

    def __init__(self, function: str, random: bool = False) -> None:
        module, colon, attribute = function.partition(":")
        if not (module and colon and attribute):
            raise ConfigurationError(
                f"Expected function to be 'module:function', got '{function}'."
            )
        self._name = function
        self._random = random
        self._function: Optional[Callable[..., Any]] = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_function": None}  # A worker looks it up again by its name.

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        if self._function is None:
            self._function = _named(self._name)
            self._require_arguments()
        augmented = self._function(text, rng) if self._random else self._function(text)
        if not isinstance(augmented, str):
            raise ConfigurationError(
                f"Expected '{self._name}' to return a string, got {type(augmented).__name__} for "
                f"the text {text[:60]!r}."
            )
        return augmented

    def _require_arguments(self) -> None:
        given = ("text", "rng") if self._random else ("text",)
        try:
            inspect.signature(self._function).bind(*given)  # type: ignore[arg-type]
        except TypeError as error:
            raise ConfigurationError(
                f"'{self._name}' cannot be called with {' and '.join(given)}: {error}. Set random "
                "to true for a function of a text and a numpy Generator, to false for one of a "
                "text."
            ) from error
        except ValueError:  # Some builtins have no signature to check.
            pass


def _named(name: str) -> Callable[..., Any]:
    with raised_as(ConfigurationError, NoSuchModule):
        module_from_here(name.partition(":")[0], f"the augmentation '{name}'")
    try:
        found = pkgutil.resolve_name(name)
    except (AttributeError, ValueError) as error:
        raise ConfigurationError(f"The augmentation '{name}' does not exist: {error}.") from error
    if not callable(found):
        raise ConfigurationError(
            f"Expected the augmentation '{name}' to be a function, got {type(found).__name__}."
        )
    return found
