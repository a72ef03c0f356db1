"""`Planner`: fits, hardware and recipe in; the best executable allocation for a budget out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from isocompute_sdk.errors import PlanError
from isocompute_sdk.fitting.fits import Fits
from isocompute_sdk.fitting.fits_set import FitsSet
from isocompute_sdk.fitting.surface.model import OCTAVES_ABOVE
from isocompute_sdk.notes import unique
from isocompute_sdk.planning import against, caveats, inverse, marginal
from isocompute_sdk.planning.against import Against, Configuration
from isocompute_sdk.planning.answer import notes_on, plan_of, same_model
from isocompute_sdk.planning.candidates import Fixed, Limits
from isocompute_sdk.planning.choice import LawPreference, Mode, Preference, RewardPreference
from isocompute_sdk.planning.inverse import BudgetFor
from isocompute_sdk.planning.marginal import Marginal
from isocompute_sdk.planning.optima import find_optima
from isocompute_sdk.planning.plan import Plan
from isocompute_sdk.planning.pricing import DEFAULT_EVALUATION, Pricing
from isocompute_sdk.planning.question import Question, refusal, worthwhile
from isocompute_sdk.planning.request import Request, whole
from isocompute_sdk.planning.schedule import EVALUATION_SHARE
from isocompute_sdk.planning.settings import choose_setting
from isocompute_sdk.specs import Budget, Evaluation, Hardware, Recipe, Throughput
from isocompute_sdk.specs.budget import Unit


class Planner:
    """Answers how to spend a budget, from fits of one metric (or of several, where the first decides).

    Args:
        fits: `fit(...)`, `published(...)`, `published_prior()` or a `FitsSet`.
        hardware: batch limits and GPUs to choose from; none by default.
        recipe: training recipe; by default the paper's for the kind of problems the fits come from.
        throughput: seconds and tokens per rollout, for budgets that are not in rollouts, and for deadlines.
        evaluation: how runs are measured: plans then pay for it in hours and money. None: 300 problems x 4, which
            hours and money pay for where the throughput knows how fast evaluations are.
        model: the model to be trained, where it is not the one of the fits.
        allow_other_model: plan from a published law although the model is another one.

    Raises:
        PlanError: a published law of one model for another model, without `allow_other_model`; an argument of
            another type.
    """

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
    ) -> None:
        _check_kinds(fits, hardware, recipe, throughput, evaluation, model)
        self.others = dict(list(fits.items())[1:]) if isinstance(fits, FitsSet) else {}
        self.fits = fits.first if isinstance(fits, FitsSet) else fits
        self.hardware = hardware if hardware is not None else Hardware()
        self.recipe = recipe if recipe is not None else Recipe.preset(_recipe_name(self.fits))
        self.recipe_given = recipe is not None
        self.throughput = throughput
        self.evaluation = evaluation
        self.model = model
        self.allow_other_model = allow_other_model
        borrowed = model is not None and not same_model(model, self.fits.model)
        if self.fits.method == "published" and borrowed and not allow_other_model:
            raise PlanError(
                f"{self.fits.source} is the law of {self.fits.model}, and the plan is for {model}; "
                "published plateaus differ up to 32-fold between models",
                "Fit a pilot of your own, use published_prior(), or accept the risk with allow_other_model=True.",
            ).in_shell("Fit a pilot of your own, plan with --prior, or accept the risk with --allow-other-model.")

    def allocate(
        self,
        budget: Budget | float | str,
        *,
        problems_per_batch: int | None = None,
        update_steps: int | None = None,
        rollouts_per_batch: int | None = None,
        mode: Mode = "expected",
        beyond_grid: int | Literal["auto"] = "auto",
        n_problems: int | None = None,
        min_update_steps: int | None = None,
        spend: Literal["worthwhile", "all"] = "worthwhile",
        powers_of_two: bool = True,
        evaluation_share: float = EVALUATION_SHARE,
    ) -> Plan:
        """The best executable allocation within the budget.

        A budget in GPU-hours or money, or with a deadline, is planned in time: n, B_p and the number of GPUs are
        chosen together by the reward predicted for what each can afford.

        Args:
            budget: a `Budget`, a number of rollouts, or text such as `"3M"`.
            problems_per_batch: fix B_p (the paper's setting 1).
            update_steps: fix M; with `rollouts_per_batch` the paper's setting 2.
            rollouts_per_batch: fix B = n B_p.
            mode: `expected`, or `conservative`. Of a surface, large expected reward (less half a standard deviation
                where conservative) near to the n that its draws call good; of a law, its n (its lower end); of a
                prior, least expected (least bad) regret.
            beyond_grid: octaves above the largest n that was run; `auto` is none, and for a surface one where the best
                n on the grid is its largest. Even then an n that nobody ran must be ahead by a clear margin.
            n_problems: distinct training problems D, for epochs and warnings.
            min_update_steps: fewest updates allowed; twice the recipe's warm-up by default.
            spend: `worthwhile` stops where the curves are seen to be flat, `all` uses everything.
            powers_of_two: group sizes are powers of two.
            evaluation_share: largest cost of the run's evaluations, as a share of that of its training.

        Raises:
            PlanError: nothing fits, with the smallest budget that would.
        """
        fixed = Fixed(
            whole("problems_per_batch", problems_per_batch),
            whole("update_steps", update_steps),
            whole("rollouts_per_batch", rollouts_per_batch),
        )
        return self._answer(
            Request(
                budget=Budget.parse(budget),
                fixed=fixed,
                mode=mode,
                beyond_grid=beyond_grid,
                n_problems=whole("n_problems", n_problems),
                min_update_steps=whole("min_update_steps", min_update_steps),
                spend=spend,
                powers_of_two=powers_of_two,
                evaluation_share=evaluation_share,
            )
        )

    def _answer(self, request: Request) -> Plan:
        if request.n_problems is not None and self.fits.surface is not None:
            return self._for_problem_set(request.n_problems)._answer(replace(request, n_problems=None))
        asked = self._question(request)
        sizes = _group_sizes(self.fits, self._octaves(request.beyond_grid), request.powers_of_two)
        counts = self._gpu_counts(request.budget)
        setting = choose_setting(asked, sizes, counts)
        question = setting.question
        if not setting.candidates:
            raise refusal(question, setting.rejections)
        chosen, spending = worthwhile(question, setting.best(), setting.candidates, request.spend)
        plan = plan_of(self, setting, chosen, request.n_problems)
        notes = [*notes_on(self, question, plan, chosen), *spending]
        others: dict[str, int] = {}
        for metric, other in self.others.items():
            try:
                # Another metric may go on rising where the first has flattened: it is told nothing of what suffices.
                alike = replace(request, n_problems=None, spend="worthwhile")
                others[metric] = self._like_this_one(other)._answer(alike).group_size
            except PlanError as error:
                notes.append(caveats.no_answer(metric, error.message))
        notes += caveats.metrics_disagree(plan.group_size, others)
        optima = find_optima(asked, question.pricing, chosen, sizes, counts)
        return replace(plan, notes=unique(notes), other_metrics=others, optima=optima)

    def _gpu_counts(self, budget: Budget) -> list[int | None]:
        """Numbers of GPUs to choose from; None where only the throughput's own is known."""
        throughput, counts = self.throughput, sorted(self.hardware.gpu_counts)
        given = "gpus" in self.hardware.model_fields_set
        if throughput is None or throughput.gpu_exponent is None or not given or not (budget.timed or len(counts) == 1):
            return [None]
        return [*counts]

    def _for_problem_set(self, n_problems: int) -> Planner:
        """The same planner for D training problems."""

        def adapted(fits: Fits) -> Fits:
            return replace(fits.for_problem_set(n_problems), n_problems=n_problems)

        planner = self._like_this_one(adapted(self.fits))
        planner.others = {metric: adapted(fits) for metric, fits in self.others.items()}
        planner.recipe_given = self.recipe_given
        return planner

    def _octaves(self, beyond_grid: int | Literal["auto"]) -> int:
        """Octaves above the grid; a surface cannot be asked further than it has knots."""
        passport = self.fits.passport
        if beyond_grid == "auto":
            return 0 if passport is None else passport.beyond_grid_octaves
        return beyond_grid if passport is None else min(beyond_grid, OCTAVES_ABOVE)

    def _like_this_one(self, fits: Fits) -> Planner:
        return Planner(
            fits,
            self.hardware,
            self.recipe,
            self.throughput,
            evaluation=self.evaluation,
            model=self.model,
            allow_other_model=self.allow_other_model,
        )

    def _pricing(self, request: Request) -> Pricing:
        throughput = self.throughput
        timed = throughput is not None and throughput.evaluation_rollouts_per_second is not None
        return Pricing(
            request.budget,
            throughput,
            self.evaluation or DEFAULT_EVALUATION,
            request.evaluation_share,
            evaluation_counts=throughput is not None and (timed or self.evaluation is not None),
        )

    def _question(self, request: Request) -> Question:
        pricing, fixed, min_steps = self._pricing(request), request.fixed, request.min_update_steps
        wanted = 2 * self.recipe.warmup_steps if min_steps is None else min_steps
        wanted = max(wanted, 1)
        if fixed.update_steps is not None and fixed.update_steps < wanted:
            raise PlanError(
                f"update_steps = {fixed.update_steps} is below {wanted}, twice the warm-up of "
                f"{self.recipe.warmup_steps} steps"
                if min_steps is None
                else f"update_steps = {fixed.update_steps} is below min_update_steps = {wanted}",
                f"Pass min_update_steps={fixed.update_steps} to plan it all the same.",
            ).in_shell(f"Add --min-update-steps {fixed.update_steps} to plan it all the same.")
        smallest, largest = self.fits.group_size_range
        return Question(
            pricing=pricing,
            limits=Limits(pricing, self.hardware, fixed, self.recipe.min_problems_per_batch, wanted),
            preference=self._preference(pricing, fixed, request.mode),
            fits=self.fits,
            can_predict=bool(self.fits.curves) and (self.model is None or same_model(self.model, self.fits.model)),
            largest=largest,
            smallest=smallest,
        )

    def _preference(self, pricing: Pricing, fixed: Fixed, mode: Mode) -> Preference:
        def compute(rollouts: float) -> float:
            return pricing.compute(rollouts, self.fits.compute)

        if self.fits.surface is not None:
            return RewardPreference(self.fits, mode, compute)
        return LawPreference(self.fits, self._law(fixed), mode, compute)

    def _law(self, fixed: Fixed) -> str:
        """The law that decides: the one in steps for a fixed batch, where there is one for that batch."""
        laws, batch = self.fits.laws, fixed.rollouts_per_batch
        in_steps = "group_size_vs_steps"
        if (
            in_steps in laws
            and batch is not None
            and (batch == self.fits.rollouts_per_batch or "group_size" not in laws)
        ):
            return in_steps
        if "group_size" in laws:
            return "group_size"
        if in_steps in laws:
            raise PlanError(
                f"these fits hold only laws in steps, fitted at rollouts_per_batch = {self.fits.rollouts_per_batch}",
                f"Pass rollouts_per_batch={self.fits.rollouts_per_batch}, or use fits with a law in compute.",
            ).in_shell(f"Add --rollouts-per-batch {self.fits.rollouts_per_batch}, or use fits with a law in compute.")
        raise PlanError(
            "these fits hold no allocation law: " + self.fits.unsupported.get("group_size", "none was fitted"),
            "See fits.notes for what is missing.",
        )

    def budget_for(self, reward: float, *, level: float = 0.8, unit: Unit = "rollouts", **options: Any) -> BudgetFor:
        """The smallest budget whose plan is predicted to reach a reward.

        Args:
            reward: of the best checkpoint, averaged over runs.
            level: coverage of the interval behind the optimistic and the conservative answer.
            unit: of the answer; others than rollouts need a throughput.
            **options: as of `allocate`; all of a budget is spent unless they say otherwise.

        Raises:
            PlanError: fits without rewards, or a reward outside the metric's range.
        """
        return inverse.budget_for(self, reward, level, unit, options)

    def marginal(self, budget: Budget | float | str, *, level: float = 0.8, **options: Any) -> Marginal:
        """What more budget would buy, with intervals, and whether it is worth it.

        Args:
            budget: as of `allocate`.
            level: coverage of the intervals, which are paired: what two plans share cancels.
            **options: as of `allocate`.

        Raises:
            PlanError: fits without rewards, or a budget too small for a plan.
        """
        return marginal.marginal(self, budget, level, options)

    def compare(
        self, configuration: Configuration, budget: Budget | float | str, *, level: float = 0.8, **options: Any
    ) -> Against:
        """The best plan against a configuration: reward at this budget, cost of equal reward, GPU-hours saved.

        Args:
            configuration: (n, B_p), which gets all steps that the budget buys, or (n, B_p, M); also a mapping, text
                such as `"n=16,bp=32"` or an `Allocation`.
            budget: as of `allocate`.
            level: coverage of the intervals, which are paired.
            **options: as of `allocate`.

        Raises:
            PlanError: fits without rewards, or a configuration that they cannot predict.
        """
        return against.against(self, configuration, budget, level, options)


def _check_kinds(fits: object, *others: object) -> None:
    """Refuse arguments of another type, such as the path of saved fits."""
    if not isinstance(fits, Fits | FitsSet):
        raise PlanError(
            f"fits: received {' '.join(repr(fits).split()):.60} ({type(fits).__name__}); accepted: Fits or a FitsSet",
            "Give what fit(runs), Fits.load(path), published(name) or published_prior() returned.",
        )
    kinds = {"hardware": Hardware, "recipe": Recipe, "throughput": Throughput, "evaluation": Evaluation, "model": str}
    for (name, kind), value in zip(kinds.items(), others, strict=True):
        if value is not None and not isinstance(value, kind):
            raise PlanError(
                f"{name}: received {value!r:.60}; accepted: {'text' if kind is str else f'a {kind.__name__}'}, or None",
                f"Give {name}=" + ("the name of the model." if kind is str else f"{kind.__name__}(...)."),
            )


def _group_sizes(fits: Fits, octaves: int, powers_of_two: bool) -> list[int]:
    smallest, largest = fits.group_size_range
    smallest, largest = max(smallest, 2), largest * 2**octaves
    if not powers_of_two:
        return list(range(smallest, largest + 1))
    powers = [2**i for i in range(1, 31) if smallest <= 2**i <= largest]
    # A grid such as n = 5, 6, 7 holds no power of two: then the levels themselves are the choice.
    return powers or [n for n in fits.group_sizes if n >= 2]


def _recipe_name(fits: Fits) -> Literal["easy", "hard"]:
    return "hard" if fits.source is not None and "hard" in fits.source else "easy"
