"""Another text that says about the same: one end of the views of CERT (Fang et al., 2020)."""

import inspect
import pkgutil
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

from declutr.system.imports import NoSuchModule, module_from_here


class Augmentation(Registrable):
    """A text in, a text out: `augmentation(text, rng) -> str`.

    All that is random about it comes from `rng`, so that a text of a given seed, epoch and row is
    augmented alike wherever that happens (`declutr.sampling.row_draws.document_rng`). It goes to
    worker processes, so it must pickle.

    Archives name it too, and whoever embeds with one has neither the files nor the modules that
    training had: files are read, and functions imported, when the first text comes.
    """

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        raise NotImplementedError


@Augmentation.register("callable")
class CallableAugmentation(Augmentation):
    """A function of the user's own, such as one that looks up back-translations.

    # Parameters

    function : `"package.module:function"`; the module may lie in the current folder.
    random : call `function(text, rng)`, with a numpy Generator, rather than `function(text)`.

    # Raises

    `ConfigurationError` : a name of another form; with the first text, one that leads to nothing
        callable; with any text, something else than a string in return.
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
        return {**vars(self), "_function": None}  # found again by its name

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
        except ValueError:  # of builtins there is no telling
            pass


def _named(name: str) -> Callable[..., Any]:
    try:
        module_from_here(name.partition(":")[0], f"the augmentation '{name}'")
    except NoSuchModule as error:
        raise ConfigurationError(str(error)) from error
    try:
        found = pkgutil.resolve_name(name)
    except (AttributeError, ValueError) as error:
        raise ConfigurationError(f"The augmentation '{name}' does not exist: {error}.") from error
    if not callable(found):
        raise ConfigurationError(
            f"Expected the augmentation '{name}' to be a function, got {type(found).__name__}."
        )
    return found
