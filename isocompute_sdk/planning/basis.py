"""`Basis`: fits, hardware, recipe and speed, from which every step of planning takes what it needs."""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Self

from isocompute_sdk.errors import PlanError, typed_value
from isocompute_sdk.fitting.fits import Fits, FitsSet
from isocompute_sdk.phrases import counted, listed
from isocompute_sdk.planning.inheritance import FITTED, inherit, same_model
from isocompute_sdk.planning.pricing import DEFAULT_EVALUATION, EVALUATION_SHARE, Pricing
from isocompute_sdk.records.columns import DEFAULT_EVAL_SET
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Throughput
from isocompute_sdk.specs.base import holds_login

if TYPE_CHECKING:
    from isocompute_sdk.planning.plan import Plan
    from isocompute_sdk.specs import Study


class Basis:
    """What plans of one planner rest on: fits, hardware, recipe and speed. The arguments are those of `Planner`."""

    def __init__(
        self,
        fits: Fits | FitsSet,
        hardware: Hardware | None = None,
        recipe: Recipe | None = None,
        throughput: Throughput | None = None,
        *,
        evaluation: Evaluation | None = None,
        model: str | None = None,
        allow_other_model: bool = False,
        allow_off_policy: bool = False,
    ) -> None:
        _check_kinds(fits, hardware, recipe, throughput, evaluation, model)
        self.others = dict(list(fits.items())[1:]) if isinstance(fits, FitsSet) else {}
        self.fits = _of_commonest_set(fits.first if isinstance(fits, FitsSet) else fits)
        self.hardware = hardware if hardware is not None else Hardware()
        hard = self.fits.source is not None and "hard" in self.fits.source
        self.inheritance = inherit(self.fits, recipe, Recipe(based_on="hard") if hard else Recipe())
        self.throughput = throughput
        self.evaluation = evaluation
        self.model = model
        self.allow_other_model = allow_other_model
        self.allow_off_policy = allow_off_policy
        borrowed = model is not None and not same_model(model, self.fits.model)
        if self.fits.method == "published" and borrowed and not allow_other_model:
            raise PlanError(
                f"{self.fits.source} is the law of {self.fits.model}, and the plan is for {model}; "
                "published plateaus differ up to 32-fold between models",
                "Fit your own pilot, use <--prior | fits=published_prior>, or accept the risk: "
                "<--allow-other-model | allow_other_model=True>.",
            )

    @classmethod
    def of(cls, plan: Plan, **changes: Any) -> Self:
        """The planner that made a plan, as far as the plan says.

        Args:
            plan: the plan.
            changes: arguments of `Planner` that replace the plan's; of a throughput only the fields that were given.

        Raises:
            PlanError: a plan that was saved without its fits.
        """
        if plan.fits is None:
            raise PlanError("this plan holds no fits", "Save it with them, or recreate it from its runs.")
        given = any(row.source == "given" for row in plan.settings)
        speed: Throughput | None = changes.get("throughput")
        if speed is not None and plan.throughput is not None:
            changes["throughput"] = plan.throughput.replace(**{f: getattr(speed, f) for f in speed.model_fields_set})
        made: dict[str, Any] = {
            "hardware": plan.hardware,
            "recipe": plan.recipe if given or plan.fits.method not in FITTED else None,
            "throughput": plan.throughput,
            "evaluation": plan.asked_evaluation,
            "model": plan.model,
            "allow_other_model": True,
            "allow_off_policy": True,
        }
        planner = cls(plan.fits, **(made | changes))
        known = planner.inheritance.sources
        sources = {row.name: row.source for row in plan.settings if row.name in known}
        planner.inheritance = replace(planner.inheritance, sources={**known, **sources})
        return planner

    @classmethod
    def for_study(
        cls, fits: Fits | FitsSet, study: Study, throughput: Throughput | None = None, **changes: Any
    ) -> Self:
        """The planner of a study; `throughput` and other arguments of `Planner` take the place of the study's."""
        speed = study.throughput if throughput is None else throughput
        first = fits.first if isinstance(fits, FitsSet) else fits
        # What a study's own runs trained is what it plans for, also where they are simulated.
        model = first.model if first.method in FITTED and first.model is not None else study.model
        recipe, run = study.recipe, first.problems_per_batch if first.method in FITTED else ()
        if run and run[0] < recipe.min_problems_per_batch and "min_problems_per_batch" not in recipe.given:
            # Runs below the floor of the preset were wanted.
            recipe = recipe.replace(min_problems_per_batch=run[0])
        made: dict[str, Any] = {"hardware": study.hardware, "recipe": recipe, "throughput": speed}
        made |= {"evaluation": study.evaluation, "model": model}
        return cls(fits, **(made | changes))

    @property
    def recipe(self) -> Recipe:
        """The recipe of its plans, with what it takes from the runs."""
        return self.inheritance.recipe

    def pricing(self, budget: Budget, evaluation_share: float = EVALUATION_SHARE) -> Pricing:
        """Prices of updates and evaluations for a budget.

        Args:
            budget: the budget.
            evaluation_share: as of `allocate`.

        Raises:
            PlanError: a budget in a unit that the throughput does not convert.
        """
        given, evaluation = self.evaluation, self.inheritance.evaluation(self.evaluation, DEFAULT_EVALUATION)
        if given is None or given.n_problems is None or "n_problems" not in given.model_fields_set:
            # A file may hold fewer problems than the usual number.
            whole = self._evaluated(evaluation.samples)
            evaluation = evaluation if whole is None else evaluation.replace(n_problems=whole)
        try:
            return Pricing(budget, self._speed(budget), evaluation, evaluation_share)
        except PlanError as error:
            raise self._naming_columns(error) from None

    def _naming_columns(self, error: PlanError) -> PlanError:
        """The error about what is unknown, with the columns of the runs that nothing uses and that may hold it."""
        import polars as pl

        from isocompute_sdk.ingest.formats.registry import unknown

        table = self.fits.table
        unread = [] if table is None else unknown(name for name in table.metrics if name != self.fits.metric)
        held = {
            "--tokens-per-rollout": ("response_length", "tokens"),
            "--rollouts-per-second": ("step_seconds", "timestamp"),
        }
        ours = [names for flag, names in held.items() if any(option.startswith(flag) for option in error.options)]
        if table is None or not (unread and ours):
            return error
        change = pl.col("value").diff().over("metric", "run_id", "eval_set")
        rows = table.to_polars().with_columns(change=change).filter(pl.col("metric").is_in(unread))
        # What never changes in a run is a setting or a seed.
        moving = rows.filter(pl.col("change") != 0)["metric"].unique().sort().to_list()
        falling = {*rows.filter(pl.col("change") < 0)["metric"]}
        hint, in_shell = error.hint or "", error.shell_hint or ""
        for name, grows in zip(ours[0], (False, True), strict=True):
            columns = [one for one in moving if (one not in falling) == grows]
            if columns:
                theirs = columns[0] if len(columns) == 1 else "THEIRS"
                more = f" If {listed(columns, 3)} holds {'its total so far' if grows else 'it'}, read the runs with "
                hint += f"{more}rename={{{theirs!r}: {name!r}}}."
                in_shell += f"{more}--rename {quote(f'{theirs}={name}')}."
        return PlanError(error.message, hint).in_shell(in_shell, error.options)

    def _evaluated(self, samples: int) -> int | None:
        """Problems of an evaluation, by the samples that the runs logged of theirs; None if they logged none."""
        from isocompute_sdk.ingest.formats.log_format import EVALUATION_ROLLOUTS

        table = self.fits.table
        if table is None or EVALUATION_ROLLOUTS not in table.metrics:
            return None
        where = self.fits.eval_set or DEFAULT_EVAL_SET
        drawn = {value for one in table.series(EVALUATION_ROLLOUTS, where) for value in one.value_T.tolist()}
        return round(drawn.pop() / samples) if len(drawn) == 1 else None

    def _speed(self, budget: Budget) -> Throughput | None:
        """The throughput: on the GPUs that were stated, and completed from what the runs logged."""
        given = self.throughput
        counts = self.hardware.gpu_counts if "gpus" in self.hardware.model_fields_set else ()
        stated = [budget.gpus] if budget.gpus is not None else list(counts)
        if not stated and self.fits.table is not None:
            (first, *others) = {run.gpus for run in self.fits.table.runs()}
            stated = [first] if first is not None and not others else []
        if given is not None and given.rollouts_per_second is not None and stated:
            # It raises if nothing says how fast so many are.
            given = given.at_gpus(stated[0]) if given.on_any_gpus or (budget.timed and budget.gpus) else given
        if self.fits.table is not None:
            from isocompute_sdk.timing.measuring import complete

            given = complete(given, self.fits.table, budget, stated[0] if len(stated) == 1 else None)
        if len(stated) > 1 and budget.timed and given is not None and given.rollouts_per_second and given.gpus is None:
            raise PlanError(
                f"the runs log their seconds but not their GPUs, and {' or '.join(map(str, stated))} GPUs are offered",
                "Say how many GPUs the runs had: gpus=... of `read`.",
            ).in_shell("Say how many GPUs the runs had: --set gpus=NUMBER.", ["--set gpus=NUMBER"])
        if stated and budget.timed and (given is None or given.rollouts_per_second is None):
            # It prices nothing yet: what is missing is named without the GPUs.
            given = (given or Throughput()).replace(gpus=stated[0])
        return given

    def on_gpus_of(self, budget: Budget) -> Self:
        """This planner on the GPUs that the budget names.

        Raises:
            PlanError: the hardware has another number.
            SpecError: the speed is that of another number, and nothing says how it grows.
        """
        speed, counts = self.throughput, self.hardware.gpu_counts if "gpus" in self.hardware.model_fields_set else ()
        if speed is not None and speed.rollouts_per_second is not None and counts and speed.gpus not in counts:
            speed.at_gpus(counts[0])
        if budget.gpus is None or self.hardware.gpu_counts == (budget.gpus,):
            return self
        if "gpus" in self.hardware.model_fields_set:
            raise PlanError(
                f"the budget is for {counted(budget.gpus, 'GPU')} and the hardware has "
                f"{', '.join(map(str, self.hardware.gpu_counts))}; accepted: one number",
                "Leave one of the two out.",
            )
        return self.on(self.hardware.replace(gpus=budget.gpus))

    def on(self, hardware: Hardware) -> Self:
        """This planner on other hardware."""
        other = copy(self)
        other.hardware = hardware
        return other

    def with_fits(self, fits: Fits) -> Self:
        """This planner with other fits, and the same recipe."""
        planner = type(self)(
            fits,
            self.hardware,
            self.recipe,
            self.throughput,
            evaluation=self.evaluation,
            model=self.model,
            allow_other_model=self.allow_other_model,
            allow_off_policy=self.allow_off_policy,
        )
        planner.inheritance = self.inheritance
        return planner

    def for_problem_set(self, n_problems: int) -> Self:
        """This planner for D training problems."""

        def adapted(fits: Fits) -> Fits:
            return replace(fits.for_problem_set(n_problems), n_problems=n_problems)

        planner = self.with_fits(adapted(self.fits))
        planner.others = {metric: adapted(fits) for metric, fits in self.others.items()}
        return planner


def _of_commonest_set(fits: Fits) -> Fits:
    """Fits of runs of several D predict for that of the most runs, the larger of two, until another is asked for."""
    runs = Counter[int]()
    for one in fits.settings:
        if (size := one.values.get("n_problems")) is not None:
            runs[int(size)] += one.runs
    if len(runs) < 2 or fits.surface is None or fits.surface.n_problems is not None:
        return fits
    return fits.for_problem_set(max(runs, key=lambda size: (runs[size], size)))


def _check_kinds(fits: object, *others: object) -> None:
    """Raise on arguments of another type, such as the path of saved fits."""
    if not isinstance(fits, Fits | FitsSet):
        raise PlanError(
            f"fits: received {typed_value(fits)}; accepted: Fits or a FitsSet",
            "Give what fit(runs), Fits.load(path), published(name) or published_prior() returned.",
        )
    kinds = {"hardware": Hardware, "recipe": Recipe, "throughput": Throughput, "evaluation": Evaluation, "model": str}
    for (name, kind), value in zip(kinds.items(), others, strict=True):
        if value is not None and not isinstance(value, kind):
            raise PlanError(
                f"{name}: received {value!r:.60}; accepted: {'text' if kind is str else f'a {kind.__name__}'}, or None",
                f"Give {name}=" + ("the name of the model." if kind is str else f"{kind.__name__}(...)."),
            )
        if isinstance(value, str) and holds_login(value):
            raise PlanError(
                f"{name}: received a URL with a login in it; accepted: a hub name or a path",
                "Remove what stands before the @: plans and scripts would show it.",
            )
