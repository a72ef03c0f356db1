"""The options of commands that plan."""

from __future__ import annotations

import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

from isocompute_sdk.cli.shared import options as opt
from isocompute_sdk.cli.shared.display import print_notes, print_plan
from isocompute_sdk.cli.shared.following import say_first
from isocompute_sdk.cli.shared.output import emit_json, say
from isocompute_sdk.cli.shared.typed import Typed, filled
from isocompute_sdk.errors import SpecError
from isocompute_sdk.phrases import joined

if TYPE_CHECKING:
    from isocompute_sdk.fitting.fits import Fits, FitsSet
    from isocompute_sdk.planning import BudgetFor, Marginal, Plan, PlanComparison, Planner
    from isocompute_sdk.specs import Budget, Hardware, Recipe, Study, Throughput

_ASK = "Other questions"
_FIX, _HARDWARE, _UNITS = "What to fix", "Hardware and recipe", "Budgets in hours, tokens or money"


Compare = Annotated[
    str | None,
    opt.option("Ask what the plan gains over what you run today: n=16,bp=32[,m=500].", _ASK, "--compare", "--against"),
]


@dataclass(frozen=True, kw_only=True)
class BorrowedOptions:
    """The law of a plan without runs, as typed on the command line."""

    published: Annotated[str | None, opt.option("Name of a published law; see `isocompute list published`.")] = None
    prior: Annotated[
        bool, opt.option("The prior over all published laws (the default for other models).", None, "--prior")
    ] = False

    def law(self, model: str | None, recipe: str | None) -> Fits:
        """The published law that was named, else that of the model, by the recipe for a hard set, or the prior."""
        from isocompute_sdk import api
        from isocompute_sdk.laws.catalogue import of_model

        if self.published is not None and self.prior:
            raise SpecError("received --published and --prior; accepted: one of the two", "Keep one of them.")
        if self.published is not None:
            return api.published(self.published)
        if self.prior or model is None:
            return api.published_prior()
        return of_model(model, hard={"easy": False, "hard": True, "mixture": True}.get(recipe or ""))


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """Hardware, its speed and the deadline, as typed on the command line."""

    max_rollouts_per_batch: Annotated[
        int | None, opt.count("--max-rollouts-per-batch", "Largest batch B_max, e.g. 16k.", _HARDWARE)
    ] = None
    gpus: Annotated[
        str | None,
        opt.option("Number of GPUs; divides every batch. Given several (8,16,32), the plan chooses.", _HARDWARE),
    ] = None
    step_overhead_seconds: Annotated[
        float | None,
        opt.quantity("--step-overhead-seconds", "Fixed seconds per step; 0 by default.", _UNITS, least=0),
    ] = None
    rollouts_per_second: Annotated[
        float | None, opt.quantity("--rollouts-per-second", "Rollouts per second, sampling and training.", _UNITS)
    ] = None
    tokens_per_rollout: Annotated[
        float | None, opt.quantity("--tokens-per-rollout", "Mean tokens per rollout, at the start.", _UNITS)
    ] = None
    usd_per_gpu_hour: Annotated[float | None, opt.quantity("--usd-per-gpu-hour", "Price in dollars.", _UNITS)] = None
    gpu_exponent: Annotated[float | None, opt.option("Speed grows with GPUs to this power; 1 is ideal.", _UNITS)] = None
    throughput: Annotated[Path | None, opt.option("Speed file of `isocompute run --probe` (YAML).", _UNITS)] = None
    deadline: Annotated[
        str | None,
        opt.option("Deadline: hours, '3 days', Friday, 2026-12-04, '2026-12-04 09:00'.", _UNITS),
    ] = None

    @property
    def names_day(self) -> bool:
        """Whether the deadline is a day, which stays where it is while hours pass."""
        return self.deadline is not None and (
            not self.deadline[:1].isdigit() or "-" in self.deadline or self.deadline.count(".") > 1
        )

    def in_time(self, budget: Budget) -> Budget:
        """A budget with the deadline."""
        if self.deadline is None:
            return budget
        with of_option("--deadline", "For example 36, '3 days', Friday or 2026-12-04."):
            return budget.replace(deadline_hours=self.deadline)

    def say_deadline(self, budget: Budget) -> None:
        """Print the deadline of a budget, if it was typed, as the hours that it leaves."""
        if self.deadline is None:
            return
        hours = budget.deadline_hours or 0.0
        left = f"{hours:,.1f}" if hours >= 1 else f"{hours:.2g}"
        # They are rounded down to a hundredth.
        ends = datetime.now() + timedelta(hours=hours + 0.01)
        day = f", {ends:%A %Y-%m-%d %H:%M}" if self.names_day else ""
        say(f"deadline {self.deadline}: {left} hours from now{day}")

    def words(self) -> list[str]:
        """These options as they are typed, quoted for a shell."""
        values = {one.name: getattr(self, one.name) for one in fields(SpeedOptions)}
        given = {name: value for name, value in values.items() if value is not None}
        return [f"--{name.replace('_', '-')} {quote(str(value))}" for name, value in given.items()]

    def hardware(self, budget: Budget | None) -> Hardware:
        """Batch limit and GPUs as typed, those that a budget names among them."""
        from isocompute_sdk.specs import Hardware

        gpus = {} if self.gpus is None else {"gpus": [part.strip() for part in self.gpus.split(",")]}
        if budget is not None and budget.gpus is not None:
            gpus = gpus or {"gpus": [budget.gpus]}
        return Hardware.model_validate({"max_rollouts_per_batch": self.max_rollouts_per_batch, **gpus})

    def speed(self) -> Throughput | None:
        """The throughput of --throughput, changed by single options, or made of them; None without any."""
        from isocompute_sdk.specs import Throughput, load_spec

        names = ("step_overhead_seconds", "rollouts_per_second", "tokens_per_rollout", "usd_per_gpu_hour")
        given = {name: getattr(self, name) for name in (*names, "gpu_exponent") if getattr(self, name) is not None}
        if self.throughput is not None:
            return load_spec(self.throughput, Throughput).replace(**given)
        if not given:
            return None
        if "step_overhead_seconds" in given and "rollouts_per_second" not in given:
            raise SpecError(
                "--step-overhead-seconds without --rollouts-per-second; accepted: both of these, or --throughput FILE",
                "Give both, or measure the speed: isocompute doctor LOGS --speed --gpus N.",
            )
        return Throughput.model_validate(given)


@dataclass(frozen=True, kw_only=True)
class BudgetOptions(SpeedOptions):
    """The same with budget, constraints and recipe."""

    budget: Annotated[
        str | None, opt.option("The budget: 3M (rollouts), '500 GPU-hours on 8xH100', '2B tokens', '$2000'.")
    ] = None
    model: Annotated[str | None, opt.option("Model to be trained: hub name or local folder.")] = None
    allow_other_model: Annotated[
        bool, opt.option("Use a published law for a different model.", None, "--allow-other-model")
    ] = False
    allow_off_policy: Annotated[
        bool,
        opt.option("Plan from asynchronous runs with rollouts more than one update old.", None, "--allow-off-policy"),
    ] = False
    problems_per_batch: Annotated[int | None, opt.count("--problems-per-batch", "Fix B_p.", _FIX)] = None
    update_steps: Annotated[int | None, opt.count("--update-steps", "Fix M.", _FIX)] = None
    rollouts_per_batch: Annotated[int | None, opt.count("--rollouts-per-batch", "Fix B = n * B_p.", _FIX)] = None
    mode: Annotated[str, opt.option("expected, or conservative: no n above those that were run.", _FIX)] = "expected"
    beyond_grid: Annotated[
        str, opt.option("How far n may exceed the largest that was run, in octaves, or auto.", _FIX)
    ] = "auto"
    n_problems: Annotated[int | None, opt.count("--n-problems", "Distinct training problems D.", _FIX)] = None
    min_update_steps: Annotated[
        int | None, opt.count("--min-update-steps", "Minimum M; twice the warm-up by default.", _FIX)
    ] = None
    spend: Annotated[str, opt.option("worthwhile (stop where more steps add almost nothing) or all.", _FIX)] = (
        "worthwhile"
    )
    any_group_size: Annotated[
        bool, opt.option("Allow any n: not only powers of two and those that were run.", _FIX, "--any-group-size")
    ] = False
    recipe: Annotated[
        str | None,
        opt.option("Preset easy, hard or mixture, or a YAML file. The rest comes from the runs.", _HARDWARE),
    ] = None
    recipe_value: Annotated[
        list[str] | None,
        opt.option(
            "Recipe values of the plan: learning_rate=2e-6, kl_coef=0, max_response_tokens=4096; repeatable.",
            _HARDWARE,
            "--recipe-value",
        ),
    ] = None
    evaluation: Annotated[str | None, opt.option("Evaluation to pay for: problems x samples, e.g. 300x4.", _UNITS)] = (
        None
    )
    evaluation_share: Annotated[float, opt.option("Largest cost of evaluations, as a share of training.", _UNITS)] = (
        0.05
    )
    spent: Annotated[
        list[str] | None,
        opt.option(
            "Already spent from the budget: pilot=20, labelling=3, probes=1, lost=4; repeatable.", _UNITS, "--spent"
        ),
    ] = None

    def amount(self) -> Budget:
        """The budget, with its deadline and what was spent of it."""
        from isocompute_sdk.specs import Budget

        assert self.budget is not None, "checked before"
        with of_option("--budget", "For example '3 million', '2B tokens', '500 GPU-hours on 8xH100' or '$2000'."):
            budget = Budget.parse(self.budget)
        budget = self.in_time(budget)
        return budget.replace(spent=opt.assignments(self.spent, "--spent")) if self.spent else budget

    def around(self, source: Sequence[Path] | None) -> tuple[Study, Path] | None:
        """The study whose folder is the source, which says what was not typed.

        Raises:
            RecordError: none of its runs has measured anything.
        """
        if source is None or len(source) != 1 or not source[0].is_dir():
            return None
        from isocompute_sdk.campaigns.overview import study_around

        return study_around(source[0])

    def question(
        self, fits: Fits | FitsSet, around: tuple[Study, Path] | None, amount: Budget | None
    ) -> tuple[Planner, Budget | None, dict[str, Any]]:
        """The planner, the budget and the arguments of `allocate`: as typed, and by the study around the runs."""
        if around is None:
            return self.planner(fits), amount, self.choices()
        from isocompute_sdk.campaigns.overview import question
        from isocompute_sdk.planning import Planner

        if amount is None and around[0].designed is not None:
            raise SpecError(
                f"--for-reward with {around[1]}, a campaign, whose spending and deadline it does not count; "
                "accepted: fits or runs",
                f"Ask fits of its runs: isocompute fit {quote(str(around[1]))} --output fits.json, then: "
                "isocompute allocate fits.json --for-reward REWARD",
            )
        if amount is None:
            return Planner.for_study(fits, around[0], **self.changed_arguments()), None, self.choices()
        own = question(*around, fits, amount, **self.changed_arguments())
        return own.planner, own.budget, {**own.options, **self.choices()}

    def to_go_on(self, study: Study, folder: Path | None, file: Path | None = None) -> str:
        """How a study that plans by itself goes on with what was typed, as a line of what to type next.

        Args:
            study: the study.
            folder: its folder; None before its first run.
            file: its file as typed; None for the one in the folder.
        """
        from isocompute_sdk.campaigns.campaign import STUDY
        from isocompute_sdk.campaigns.overview import to_go_on

        mine = BudgetOptions(**{one.name: getattr(self, one.name) for one in fields(BudgetOptions)})
        if others := [option for option in opt.changed_options(mine) if option != "--budget"]:
            named = file if folder is None or file is not None else folder / STUDY
            return f"isocompute run does not take {joined(others)}: change the study first, {quote(str(named))}"
        edit, own = "", study.budget
        if self.budget is not None and own is not None and (asked := self.amount().in_place_of(own)) != own:
            # A short form would drop what the study says beside the amount.
            edit = f"budget: {self.budget}"
            if asked.with_amount(own.amount) == own and (own.spent or own.deadline_hours is not None):
                edit = f"{own.unit}: {asked.amount:.12g} under budget:"
        return f"next: {to_go_on(folder, file, edit)}"

    def planner(self, fits: Fits | FitsSet) -> Planner:
        """The planner, with hardware, recipe and throughput as typed."""
        from isocompute_sdk.planning import Planner

        return Planner(fits, **self.planner_arguments())

    def planner_arguments(self) -> dict[str, Any]:
        """Arguments of `Planner` besides the fits."""
        from isocompute_sdk.specs import Evaluation

        evaluation = None
        if self.evaluation is not None:
            problems, _, samples = self.evaluation.partition("x")
            evaluation = Evaluation.model_validate({"n_problems": problems.strip(), "samples": samples.strip()})
        return {
            "hardware": self.hardware(None if self.budget is None else self.amount()),
            "recipe": _recipe(self.recipe, opt.assignments(self.recipe_value, "--recipe-value")),
            "throughput": self.speed(),
            "evaluation": evaluation,
            "model": self.model,
            "allow_other_model": self.allow_other_model,
            "allow_off_policy": self.allow_off_policy,
        }

    def changed_arguments(self) -> dict[str, Any]:
        """Those that were typed."""
        return opt.given_beside(self.planner_arguments(), _PLAIN.planner_arguments())

    def choices(self) -> dict[str, Any]:
        """Arguments of `Planner.allocate` besides the budget that are not the defaults."""
        from isocompute_sdk.ingest.stores.saved_config import scalar

        names = ("mode", "problems_per_batch", "update_steps", "rollouts_per_batch", "n_problems", "min_update_steps")
        names = (*names, "evaluation_share", "spend")
        found = {name: getattr(self, name) for name in names if getattr(self, name) != getattr(_PLAIN, name)}
        found |= {} if self.beyond_grid == _PLAIN.beyond_grid else {"beyond_grid": scalar(self.beyond_grid)}
        return found | ({"powers_of_two": False} if self.any_group_size else {})


_PLAIN = BudgetOptions()


@dataclass(frozen=True, kw_only=True)
class PlanningOptions(BudgetOptions):
    """The same, other questions than a plan, and output."""

    compare: Compare = None
    for_reward: Annotated[float | None, opt.option("Ask what this reward costs, instead of a budget.", _ASK)] = None
    reward_unit: Annotated[str, opt.option("Unit of that cost: rollouts, gpu_hours, tokens or usd.", _ASK)] = "rollouts"
    marginal: Annotated[bool, opt.option("Ask what more budget would buy.", _ASK, "--marginal")] = False
    equal: Annotated[
        str | None,
        opt.option("What --compare holds equal, instead of the budget: rollouts, steps, time or batch.", _ASK),
    ] = None
    reference: Annotated[str | None, opt.option("Compare with this instead of the best plan: n=8,bp=32.", _ASK)] = None
    output: opt.Save = None
    plot: opt.Plot = None
    verbose: opt.Verbose = False
    json: opt.Json = False

    def answer(self, fits: Fits | FitsSet, around: tuple[Study, Path] | None = None) -> None:
        """Plan the budget from fits, or answer another question (--for-reward, --compare and so on), and print it.

        Args:
            fits: the fits.
            around: the study whose folder they were read from.
        """
        questions = {"--for-reward": self.for_reward, "--marginal": self.marginal or None, "--compare": self.compare}
        if len(asked := [option for option, value in questions.items() if value is not None]) > 1:
            raise SpecError(f"received {joined(asked)}; accepted: one question at a time", "Ask them one by one.")
        for option, value in (("--equal", self.equal), ("--reference", self.reference)):
            if value is not None and self.compare is None:
                raise SpecError(f"{option} works only with --compare", "Add --compare n=16,bp=32.")
        if self.budget is None and (self.deadline or self.spent):
            raise SpecError("--deadline and --spent work only with --budget", "Leave them out, or add --budget 3M.")
        of_study = around is not None and self.budget is None and self.for_reward is None
        budget = around[0].budget if around is not None and of_study else None if self.budget is None else self.amount()
        if (budget is None) == (self.for_reward is None):
            received = "neither --budget nor" if budget is None else "both --budget and"
            raise SpecError(
                f"received {received} --for-reward; accepted: one of the two",
                "For example --budget 3M, or --for-reward 0.65.",
            )
        planner, amount, choices = self.question(fits, around, budget)
        say_first(None if self.json else around)
        if amount is not None and not self.json:
            self.say_deadline(amount)
        # Questions decide themselves how much of a budget is spent.
        free = {name: value for name, value in choices.items() if name != "spend"}
        if amount is None:
            assert self.for_reward is not None, "checked above"
            unit: Any = self.reward_unit
            self._say(planner.budget_for(self.for_reward, unit=unit, **free))
        elif self.marginal:
            self._say(planner.marginal(amount, **free))
        elif self.compare is not None:
            equal: Any = self.equal
            asked = {"equal": equal, "reference": self.reference}
            given = free if self.reference is not None else choices
            found = planner.compare(self.compare, amount, **asked, **given)
            if found.against_plan and not self.json:
                self.show(replace(found.plan, compared_with=self.compare), found, around)
            else:
                self._say(found)
        else:
            plan = planner.allocate(amount, **choices)
            self.show(plan, around=around)

    def _say(self, found: PlanComparison | BudgetFor | Marginal) -> None:
        """Print an answer; save its plan with --output, draw it with --plot."""
        from isocompute_sdk.planning import BudgetFor
        from isocompute_sdk.reporting.wording import budget_option

        saved = [] if found.plan is None else self._saved(found.plan)
        if self.json:
            emit_json(found.to_dict())
            return
        say("\n".join(found.lines()))
        print_notes(found.notes)
        for path in saved:
            say(f"wrote {path}")
        typed = Typed(tuple(sys.argv[1:]))
        if isinstance(found, BudgetFor) and found.budget is not None:
            say(f"{'next' if found.reachable else 'to try it anyway'}: {typed.instead(budget_option(found.budget))}")
        if isinstance(found, BudgetFor) and (run := found.run_to_go_on) is not None:
            command = filled(f"isocompute forecast RUNS --run {quote(run)}", typed.words)
            say(f"or, to see what continuing {run} would reach: {command}")

    def _saved(self, plan: Plan) -> list[Path]:
        saved = [] if self.output is None else [plan.save(self.output)]
        return saved + ([] if self.plot is None else opt.save_pictures(plan, self.plot))

    def show(
        self, plan: Plan, comparison: PlanComparison | None = None, around: tuple[Study, Path] | None = None
    ) -> None:
        """Print the plan, and what it is compared with; save it with --output, draw it with --plot.

        Args:
            plan: the plan.
            comparison: what it is compared with.
            around: as for `answer`.
        """
        saved = self._saved(plan)
        if self.json:
            emit_json(plan.to_dict(with_fits=False))
            return
        study = None if around is None else around[0]
        typed = Typed(tuple(sys.argv[1:]), own=plan.verdict.kind != "borrowed", study=study)
        if around is not None and around[0].designed is not None:
            typed = replace(typed, campaign=self.to_go_on(*around))
        how: dict[str, Any] = {"verbose": self.verbose, "plan_file": self.output, "saved": saved}
        print_plan(plan, typed, comparison=comparison, **how)


@contextmanager
def of_option(option: str, example: str) -> Generator[None]:
    """Errors about a value as those of the option that it was typed for, and not of a class."""
    try:
        yield
    except SpecError as error:
        _, _, complaint = error.message.partition(": ")
        raise SpecError(f"{option}: {complaint}", example) from None


def _recipe(text: str | None, values: dict[str, Any]) -> Recipe | None:
    """The recipe as typed; `learning_rate` is one rate for every batch."""
    from isocompute_sdk.specs import Recipe, load_spec

    if "learning_rate" in values:
        rate = values.pop("learning_rate")
        values = {"learning_rate_anchor": rate, "learning_rate_rule": "constant"} | values
    if text is None:
        return Recipe(**values) if values else None
    chosen = load_spec(Path(text), Recipe) if text.endswith(opt.YAML) else Recipe.model_validate(text)
    return chosen.replace(**values) if values else chosen
