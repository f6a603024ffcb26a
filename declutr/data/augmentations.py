"""Text augmentations, which turn a text into another one of about the same meaning."""

import inspect
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Optional

import numpy as np
from allennlp.common import Registrable
from allennlp.common.checks import ConfigurationError

from declutr.sampling.row_draws import DocumentRandom
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
        """Return the augmented text, with `rng` as the only source of random numbers."""
        raise NotImplementedError

    def of_many(self, texts: Iterable[tuple[str, np.random.Generator]]) -> list[str]:
        """Return the augmented texts of many, each as if it had been given alone.

        A subclass that computes faster for many texts at once overrides it, as `masked_lm` does.

        # Parameters

        texts : the texts, each with its source of random numbers, which is valid until the next
            pair is asked for.
        """
        return [self(text, rng) for text, rng in texts]


@Augmentation.register("chain")
class Chain(Augmentation):
    """An augmentation that applies several, each to what the one before it made.

    Each has random numbers of its own, so that what one draws does not depend on how much another
    one draws. A text that becomes blank is not edited further.

    # Parameters

    augmentations : at least one, in the order in which they are applied.

    # Raises

    `ConfigurationError` : if there are none.
    """

    def __init__(self, augmentations: list[Augmentation]) -> None:
        if not augmentations:
            raise ConfigurationError(
                "The augmentation 'chain' got no augmentations. Name at least one, such as "
                '{"type": "span_deletion"}.'
            )
        self._links = augmentations

    def __call__(self, text: str, rng: np.random.Generator) -> str:
        return self.of_many([(text, rng)])[0]

    def of_many(self, texts: Iterable[tuple[str, np.random.Generator]]) -> list[str]:
        made, seeds = [], []
        for text, rng in texts:
            made.append(text)
            seeds.append(rng.integers(2**63, size=len(self._links)).tolist())
        for place, link in enumerate(self._links):
            at, rows = DocumentRandom().at, [row for row, text in enumerate(made) if text.strip()]
            given = ((made[row], at(seeds[row][place], 0, 0)) for row in rows)
            for row, text in zip(rows, link.of_many(given), strict=True):
                made[row] = text
        return made


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
