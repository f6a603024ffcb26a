"""Checks of the settings that objectives share."""

from __future__ import annotations

from collections.abc import Collection

from allennlp.common.checks import ConfigurationError


def above_zero(name: str, value: float) -> float:
    """`value` if it is above 0.

    # Raises

    `ConfigurationError` : it is not.
    """
    if not value > 0:
        raise ConfigurationError(f"{name} must be above 0, got {value}.")
    return value


def at_least_zero(name: str, value: float) -> float:
    """`value` if it is 0 or above.

    # Raises

    `ConfigurationError` : it is not.
    """
    if not value >= 0:
        raise ConfigurationError(f"{name} must be 0 or above, got {value}.")
    return value


def one_of(name: str, value: str, known: Collection[str]) -> str:
    """`value` if it is known.

    # Raises

    `ConfigurationError` : it is not.
    """
    if value not in known:
        raise ConfigurationError(f"Unknown {name} '{value}': expected one of {', '.join(known)}.")
    return value


def scalar_reduction(value: str) -> str:
    """`"mean"` or `"sum"`: an objective returns a scalar.

    # Raises

    `ConfigurationError` : another reduction.
    """
    return one_of("reduction", value, ("mean", "sum"))
