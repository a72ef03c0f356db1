"""The recipe of a plan from that of its runs, and what differs between runs, plan and launch script.

A prediction holds for what was measured: a plan from runs trains as they did. For every value the order is: what a
person gave, what the runs record, a preset that somebody asked for, and else an assumption that is named as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from isocompute_sdk.errors import PlanError, SpecError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.metrics import average_of
from isocompute_sdk.notes import Note
from isocompute_sdk.records.comparable import (
    RULE_TOLERANCE,
    RULES,
    LearningRates,
    RunSettings,
    Value,
    learning_rates_of,
    staleness_of,
    values_of,
)
from isocompute_sdk.specs import Evaluation, Recipe

FITTED = ("surface", "paper")
"""Methods that fit the user's own runs."""
RECIPE_FIELDS = {
    "max_tokens": "max_response_tokens",
    "temperature": "temperature",
    "kl_coef": "kl_coef",
    "entropy_coef": "entropy_coef",
    "algorithm": "algorithm",
    "updates_per_batch": "updates_per_batch",
    "max_prompt_tokens": "max_prompt_tokens",
    "top_p": "top_p",
}
"""Context field of runs -> field of a recipe."""
FILTERS = ("zero_variance_filter_policy", "zero_variance_filter_kl", "zero_variance_filter_entropy")
ANCHOR = ("learning_rate_anchor", "learning_rate_anchor_batch")
CHANGES_NO_MEANING = ("eval_samples",)
"""Fields that change the noise of an evaluation, not its mean."""
OWN_NOTES = ("off_policy", "problems_per_batch")
"""Fields whose differences have notes of their own."""
STALEST = 1.0
"""Updates that the weights behind a rollout may be old for a plan without `allow_off_policy`."""

Source = Literal["runs", "given", "preset", "assumed"]
"""Where a plan's value comes from: `preset` is one that somebody asked for by name, `assumed` one that nobody asked
for. Either, although the runs record a value: plans cannot carry that value."""


@dataclass(frozen=True)
class Setting:
    """One value of the recipe, side by side."""

    name: str
    """Column of a `RunSet`."""
    runs: tuple[Value, ...]
    """Values of the runs, that of the most runs first; empty if they record none."""
    plan: Value | None
    """Value of the plan; None if unknown."""
    source: Source
    differs: bool
    """Whether the plan trains or measures otherwise than some run did. Rates that follow one rule do not differ."""

    @property
    def described(self) -> str:
        """Runs and plan in one line."""
        whence = "from the runs" if self.source == "runs" else self.source
        return f"{shown(self.runs)} in the runs, {shown((self.plan,))} in the plan ({whence})"


@dataclass(frozen=True)
class Inheritance:
    """The recipe that a planner uses, and where its values come from."""

    recipe: Recipe
    """At the plan's own batch see `recipe_for`."""
    floor: int
    """Smallest B_p to plan."""
    settings: tuple[RunSettings, ...]
    """What the runs were trained with; empty without runs."""
    sources: Mapping[str, Source]
    """By context field."""
    recorded: Mapping[str, tuple[Value, ...]]
    """What the runs record, by column; that of the most runs first."""
    rates: LearningRates | None
    """Their learning rates; None if they record none."""

    def recipe_for(self, group_size: int, problems_per_batch: int) -> Recipe:
        """The recipe at n and B_p: learning rates without a rule are those of the nearest runs."""
        rates = self._rates_near((group_size, problems_per_batch))
        if rates is None or rates.agree or self.sources.get("learning_rate") != "runs":
            return self.recipe
        return _with_anchor(self.recipe, rates.rate, rates.batch)

    def _rates_near(self, size: tuple[int, int]) -> LearningRates | None:
        """Learning rates at n and B_p; those that follow a rule are the same everywhere."""
        agree = self.rates is None or self.rates.agree
        return self.rates if agree else learning_rates_of(self.settings, size)

    def evaluation(self, given: Evaluation | None, default: Evaluation) -> Evaluation:
        """How a plan's run is evaluated: as given, else with temperature and samples of most runs."""
        chosen = default if given is None else given
        known: dict[str, Value] = {}
        for column, field in (("eval_temperature", "temperature"), ("eval_samples", "samples")):
            values = self.recorded.get(column, ())
            if values and (given is None or field not in given.model_fields_set):
                known[field] = values[0]
        return chosen.replace(**known) if known else chosen

    def rows(
        self,
        recipe: Recipe,
        size: tuple[int, int],
        evaluation: Evaluation,
        n_problems: int | None,
        model: str | None,
    ) -> tuple[Setting, ...]:
        """Runs and plan side by side."""
        planned = planned_values(recipe, size, evaluation, n_problems, model)
        return tuple(
            Setting(
                name,
                runs := self.recorded.get(name, ()),
                plan,
                self._source(name, runs, plan),
                self._differs(name, runs, plan, recipe, size),
            )
            for name, plan in planned.items()
        )

    def _source(self, name: str, runs: tuple[Value, ...], plan: Value | None) -> Source:
        """Of a value that is no part of a recipe: a person gave it if the runs have another one."""
        if name in self.sources or not runs or plan is None:
            return self.sources.get(name, "preset")
        return "runs" if any(_same(name, value, plan) for value in runs) else "given"

    def _differs(
        self, name: str, runs: tuple[Value, ...], plan: Value | None, recipe: Recipe, size: tuple[int, int]
    ) -> bool:
        if not runs or plan is None or name == "learning_rate_rule":
            return False
        if name == "learning_rate":
            rates = self._rates_near(size)
            if rates is None or not rates.agree:
                return rates is not None
            power = RULES[rates.rule or recipe.learning_rate_rule]
            scale = 1.0 if rates.batch is None else (size[0] * size[1] / rates.batch) ** power
            return abs(math.log(float(plan) / (rates.rate * scale))) > RULE_TOLERANCE
        if name == "problems_per_batch":
            return plan not in runs
        if name == "n_problems" and len(runs) > 1:
            # Then it is an input of the fit.
            return False
        return any(not _same(name, value, plan) for value in runs)

    def notes(self, rows: Sequence[Setting], *, timed: bool) -> list[Note]:
        """What the plan took from its runs, what differs, and what the runs do not say."""
        notes = list[Note]()
        if matter := [row for row in rows if row.differs and row.name not in (*CHANGES_NO_MEANING, *OWN_NOTES)]:
            listed = "; ".join(f"{row.name}: {row.described}" for row in matter)
            text = (
                f"The plan differs from some of its runs: {listed}. "
                "Curves and predicted reward are those of the runs. Train as the runs did, fit runs of one recipe, or "
                "run one configuration with the new values and fit it."
            )
            fields = {row.name: {"runs": list(row.runs), "plan": row.plan, "source": row.source} for row in matter}
            notes.append(Note("recipe-differs-from-runs", "warning", text, {"fields": fields}))
        stale = _stale(next(row.runs for row in rows if row.name == "off_policy"))
        return notes + ([_off_policy(stale, timed=timed)] if stale else [])

    def refuse_stale_runs(self) -> None:
        """Raise on runs whose rollouts may come from weights that are more than `STALEST` updates old."""
        older = [v for v in _stale(self.recorded.get("off_policy", ())) if (staleness_of(v) or 0.0) > STALEST]
        if older:
            remedy = "Run the sweep synchronously, or with rollouts at most one update old; or accept the risk with "
            raise PlanError(
                f"these runs are asynchronous (off_policy: {', '.join(older)}): rollouts may be more than {STALEST:g} "
                "update old. Their curves do not hold for the script of a plan, which samples after every update",
                f"{remedy}<--allow-off-policy | allow_off_policy=True>.",
            )


def inherit(fits: Fits, given: Recipe | None, default: Recipe) -> Inheritance:
    """The recipe of plans from these fits.

    Args:
        fits: the fits; only those of own runs have a recipe to inherit.
        given: a recipe that a person gave; its `given` fields win.
        default: the recipe for what neither a person nor the runs say.
    """
    base, chosen = (default, frozenset[str]()) if given is None else (given, given.given)
    named = given is not None and "based_on" in given.model_fields_set
    rest: Source = "preset" if named else "assumed"
    settings = fits.settings
    recorded, rates = _recorded(settings, fits.metric), learning_rates_of(settings)
    recipe, sources = base, dict[str, Source]()
    # A filter on a term needs the term.
    needed = {f"{term}_coef" for term in ("kl", "entropy") if getattr(base, f"zero_variance_filter_{term}")}
    for column, field in RECIPE_FIELDS.items():
        found, values = recipe, recorded.get(column, ())
        if field in chosen | needed:
            sources[column] = "given"
            continue
        if values and not _same(column, values[0], getattr(base, field)):
            found = _replaced(recipe, {field: values[0]})
        sources[column] = "runs" if values and found is not None else rest
        recipe = found or recipe
    if recipe.kl_coef == 0 and sources["kl_coef"] == "runs" and sources["entropy_coef"] == "assumed":
        # An entropy bonus goes with a KL term (paper, section 3).
        recipe = recipe.replace(entropy_coef=0.0)
    recipe, filtered = _with_filter(recipe, recorded.get("filter", ()), chosen)
    recipe, rate, rule = _with_learning_rate(recipe, settings, rates, chosen)
    sources |= {"filter": filtered or rest, "learning_rate": rate or rest, "learning_rate_rule": rule or rest}
    sources["off_policy"] = "preset"
    floor = recipe.min_problems_per_batch
    levels = fits.problems_per_batch if fits.method in FITTED else ()
    if levels and (named or "min_problems_per_batch" in chosen):
        floor = min((bp for bp in levels if bp >= floor), default=floor)
    elif levels:
        floor = levels[0]
        recipe = recipe if floor == recipe.min_problems_per_batch else recipe.replace(min_problems_per_batch=floor)
    taken = {field for field in Recipe.model_fields if getattr(recipe, field) != getattr(base, field)}
    if taken - {"min_problems_per_batch"} and base.name == base.based_on:
        recipe = recipe.replace(name="runs")
    return Inheritance(recipe, floor, settings, sources, recorded, rates)


def again(fits: Fits, recipe: Recipe, rows: Sequence[Setting], changed: Iterable[str]) -> Inheritance:
    """The inheritance of a plan whose recipe a person changed."""
    sources: dict[str, Source] = {row.name: row.source for row in given_by_hand(rows, changed)}
    settings = fits.settings if rows else ()
    rates = learning_rates_of(settings)
    recorded = _recorded(settings, fits.metric)
    return Inheritance(recipe, recipe.min_problems_per_batch, settings, sources, recorded, rates)


def _recorded(settings: tuple[RunSettings, ...], metric: str) -> dict[str, tuple[Value, ...]]:
    """Values of the runs by column of a plan's settings; avg@k was measured with k samples, if with no more."""
    names = {name for one in settings for name in one.values}
    found = {name: values_of(settings, name) for name in sorted(names)}
    known = {one.problems_per_batch for one in settings if one.problems_per_batch is not None}
    found["problems_per_batch"] = tuple(sorted(known))
    rates = learning_rates_of(settings)
    if rates is not None and rates.rule is not None:
        found["learning_rate_rule"] = (rates.rule,)
    if settings and (k := average_of(metric)):
        samples = found.get("eval_samples", (0,))
        if k in samples or k > max(map(int, samples)):
            found["eval_samples"] = (k, *(one for one in samples if one != k and k in samples))
    return found


def given_by_hand(rows: Sequence[Setting], changed: Iterable[str]) -> tuple[Setting, ...]:
    """Rows whose values a person changed, by field of the recipe, come from there."""
    columns = {field: column for column, field in RECIPE_FIELDS.items()} | dict.fromkeys(FILTERS, "filter")
    given = {columns.get(name, name) for name in changed}
    given |= {"learning_rate_rule"} if "learning_rate" in given else set()
    return tuple(replace(row, source="given") if row.name in given else row for row in rows)


def assumed(rows: Sequence[Setting]) -> list[Setting]:
    """Values that neither the runs nor a person gave, and with which a plan trains all the same."""
    found = [row for row in rows if row.source == "assumed" and not row.runs]
    # Of a rate that is unknown the rule means nothing.
    unknown = any(row.name == "learning_rate" for row in found)
    return [row for row in found if not (unknown and row.name == "learning_rate_rule")]


def planned_values(
    recipe: Recipe, size: tuple[int, int], evaluation: Evaluation, n_problems: int | None, model: str | None
) -> dict[str, Value | None]:
    """What a plan or a run trains and measures with, by column of a `RunSet`."""
    filters = any(getattr(recipe, name) for name in FILTERS)
    return {
        "model": model,
        "learning_rate": recipe.learning_rate(size[0] * size[1]),
        "learning_rate_rule": recipe.learning_rate_rule,
        **{column: cast("Value", getattr(recipe, field)) for column, field in RECIPE_FIELDS.items()},
        "filter": "zero-variance" if filters else "none",
        "off_policy": "none",
        "eval_temperature": evaluation.temperature,
        "eval_samples": evaluation.samples,
        "problems_per_batch": size[1],
        "n_problems": n_problems,
    }


def side_by_side(
    rows: Sequence[Setting], script: Mapping[str, Value | None]
) -> list[tuple[str, tuple[Value, ...], Value | None, Value | None]]:
    """Name, values of the runs, of the plan and of the script, where one of the three differs from another."""
    found: list[tuple[str, tuple[Value, ...], Value | None, Value | None]] = []
    for row in rows:
        written = script.get(row.name, row.plan)
        moved = written is not None and (row.plan is None or not _same(row.name, written, row.plan))
        unlike = any(written is not None and not _same(row.name, value, written) for value in row.runs)
        if row.differs or (moved and (row.plan is not None or unlike)):
            found.append((row.name, row.runs, row.plan, written))
    return found


def shown(values: Sequence[Value | None]) -> str:
    """Values for people."""
    known = [_shown(value) for value in values if value is not None]
    return ", ".join(known) if known else "unknown"


def _shown(value: Value) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return f"{value:,}" if isinstance(value, int) else value


def same_model(a: str | None, b: str | None) -> bool:
    """Whether two names mean one model: hub names and local folders are compared by their last part."""
    if a is None or b is None:
        return False
    return a.rstrip("/").rsplit("/", 1)[-1].lower() == b.rstrip("/").rsplit("/", 1)[-1].lower()


def _same(name: str, one: Value, other: Value) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return same_model(str(one), str(other)) if name == "model" else str(one) == str(other)
    return math.isclose(one, other, rel_tol=1e-6)


def _replaced(recipe: Recipe, changes: Mapping[str, Value]) -> Recipe | None:
    """The recipe with the values of runs; None if it cannot hold them."""
    try:
        return recipe.replace(**changes)
    except SpecError:
        return None


def _with_filter(recipe: Recipe, values: tuple[Value, ...], chosen: frozenset[str]) -> tuple[Recipe, Source | None]:
    if chosen.intersection(FILTERS):
        return recipe, "given"
    if values and values[0] == "none":
        return recipe, "runs"
    if values and values[0] == "zero-variance":
        return recipe.replace(zero_variance_filter_policy=True), "runs"
    return recipe, None


def _with_learning_rate(
    recipe: Recipe, settings: tuple[RunSettings, ...], rates: LearningRates | None, chosen: frozenset[str]
) -> tuple[Recipe, Source | None, Source | None]:
    """The recipe with the rate of the runs, and where rate and rule come from: None for neither runs nor a person."""
    rule: Source | None = "given" if "learning_rate_rule" in chosen else None
    if chosen.intersection(ANCHOR):
        return recipe, "given", rule
    if rates is None:
        return recipe, rule, rule
    known = [s for s in settings if "learning_rate" in s.values]
    kept = all(
        s.batch is not None and _same("", recipe.learning_rate(s.batch), s.values["learning_rate"]) for s in known
    )
    whence = rule or ("runs" if kept or rates.rule is not None or rates.batch is None else None)
    if kept:
        return recipe, "runs", whence
    if rule is None:
        recipe = recipe.replace(learning_rate_rule=rates.rule or recipe.learning_rate_rule)
    return _with_anchor(recipe, rates.rate, rates.batch), "runs", whence


def _with_anchor(recipe: Recipe, rate: float, batch: int | None) -> Recipe:
    """The recipe with a run's own rate at the batch of that run; without a batch the rate does not scale."""
    if batch is None:
        return recipe.replace(learning_rate_anchor=rate, learning_rate_rule="constant")
    return recipe.replace(learning_rate_anchor=rate, learning_rate_anchor_batch=batch)


def _stale(values: Iterable[Value]) -> list[str]:
    return [str(value) for value in values if staleness_of(value) != 0.0]


def _off_policy(values: Sequence[str], *, timed: bool) -> Note:
    hours = " The script's steps will not take the same time either." if timed else ""
    return Note(
        "off-policy-runs",
        "warning",
        f"The runs are asynchronous (off_policy: {', '.join(values)}); the plan's script samples after every update. "
        f"At equal C its reward may differ.{hours} Run one configuration synchronously and compare.",
        {"off_policy": list(values), "timed": timed},
    )
