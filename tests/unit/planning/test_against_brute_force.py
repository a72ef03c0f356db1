"""Plans against a plain enumeration of everything that is allowed: nothing executable is missed or invented."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import isocompute_sdk as iso
from isocompute_sdk import Budget, Fits, Hardware, PlanError, Planner, Recipe, Throughput
from isocompute_sdk.planning.pricing import evaluations, interval

EASY, HARD = "qwen2.5-7b-instruct/guru-math-easy", "qwen2.5-7b-instruct/guru-math-hard"
# B_p that were run.
LEVELS = {"data": (32,), "many": (32, 128, 1024)}


@dataclass(frozen=True)
class Case:
    """One call of `allocate`."""

    source: str
    unit: str
    amount: float
    deadline: float | None
    speed: Throughput
    machine: Hardware
    recipe: Recipe
    fixed: dict[str, int]
    min_steps: int | None
    floor: int

    def with_floor_of(self, fits: Fits) -> Case:
        """B_p starts at the smallest run that the recipe allows, or else at the recipe's floor."""
        own = self.recipe.min_problems_per_batch
        run = min((bp for bp in LEVELS.get(self.source, ()) if bp >= own), default=own)
        case = replace(self, floor=run)
        return case if any(case.allowed(n) for n in sizes(fits)) else replace(self, floor=own)

    def cost(self, batch: int, steps: int, unit: str | None = None) -> float:
        """From the definitions, not through the planner."""
        step = self.speed.step_overhead_seconds + batch / self.speed.rollouts_per_second
        # 300 x 4 responses every ten steps, or less often to stay within 5 % of training.
        evaluation = 1200 / self.speed.rollouts_per_second
        sampled = evaluations(steps, interval(10, steps, step, evaluation, 0.05))
        hours = (steps * step + sampled * evaluation) / 3600.0
        assert self.speed.tokens_per_rollout is not None
        assert self.speed.usd_per_gpu_hour is not None
        return {
            "rollouts": float(batch * steps),
            "tokens": self.speed.tokens_per_rollout * (batch * steps),
            "gpu_hours": self.speed.gpus * hours,
            "usd": self.speed.usd_per_gpu_hour * (self.speed.gpus * hours),
            "wall_hours": hours,
        }[unit or self.unit]

    def fits(self, batch: int, steps: int, slack: float = 1e-9) -> bool:
        """Within budget and deadline, but for rounding."""
        late = self.deadline is not None and self.cost(batch, steps, "wall_hours") > self.deadline * (1 + slack)
        return not late and self.cost(batch, steps) <= self.amount * (1 + slack)

    def runs_on(self, batch: int) -> bool:
        """Whether the machines take this batch."""
        limit = self.machine.max_rollouts_per_batch
        return (limit is None or batch <= limit) and batch % self.machine.divisor == 0

    @property
    def least_steps(self) -> int:
        """Fewest updates that the caller accepts."""
        return max(1, 2 * self.recipe.warmup_steps if self.min_steps is None else self.min_steps)

    def problems(self, n: int) -> int | None:
        """The smallest B_p that is allowed with n, None where there is none."""
        floor, batch = self.floor, self.fixed.get("rollouts_per_batch")
        wanted = self.fixed.get("problems_per_batch")
        if batch is not None:
            bp, rest = divmod(batch, n)
            ok = rest == 0 and bp >= 1 and (bp == wanted if wanted is not None else bp >= floor)
            return bp if ok and self.runs_on(batch) else None
        if wanted is not None:
            return wanted if self.runs_on(n * wanted) else None
        for bp in range(floor, floor + self.machine.divisor):
            if n * bp % self.machine.divisor == 0:
                return bp if self.runs_on(n * bp) else None
        return None

    def allowed(self, n: int) -> bool:
        """Whether any allocation with n can be carried out."""
        bp = self.problems(n)
        return bp is not None and self.fits(n * bp, self.fixed.get("update_steps", self.least_steps))

    def plan(self, fits: Fits, amount: float | None = None, **more: Any) -> iso.Plan:
        """The planner's answer, with another amount where given."""
        budget = Budget(**{self.unit: self.amount if amount is None else amount}, deadline_hours=self.deadline)
        planner = Planner(fits, self.machine, self.recipe, self.speed)
        return planner.allocate(budget, min_update_steps=self.min_steps, **self.fixed, **more)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    machine = Hardware(
        max_rollouts_per_batch=draw(st.one_of(st.none(), st.none(), st.integers(512, 65_536))),
        gpus=draw(st.one_of(st.sampled_from([1, 4, 8, 16]), st.integers(1, 24), st.just((4, 6)))),
        divisible_by=draw(st.one_of(st.none(), st.none(), st.none(), st.integers(1, 100))),
    )
    speed = Throughput(
        step_overhead_seconds=draw(st.floats(0, 200)),
        rollouts_per_second=draw(st.floats(1, 2000)),
        tokens_per_rollout=draw(st.floats(50, 5000)),
        gpus=draw(st.sampled_from(machine.gpu_counts)),
        usd_per_gpu_hour=draw(st.floats(0.5, 8)),
    )
    preset = draw(st.sampled_from(["easy", "hard", "mixture"]))
    # The floor is given: otherwise a plan takes B_p among those that were run.
    floor = Recipe.preset(preset).min_problems_per_batch
    warmup = draw(st.sampled_from([0, 3, 10, 40]))
    recipe = Recipe.preset(preset, warmup_steps=warmup, min_problems_per_batch=floor)
    setting = draw(st.sampled_from(["free", "free", "bp", "m", "m", "b", "b and m", "bp and m", "bp and b"]))
    fixed: dict[str, int] = {}
    if "bp" in setting:
        fixed["problems_per_batch"] = draw(st.one_of(st.sampled_from([16, 32, 64, 256]), st.integers(1, 512)))
    if setting.endswith("m"):
        fixed["update_steps"] = draw(st.integers(max(1, 2 * recipe.warmup_steps), 1000))
    if setting.startswith("b ") or setting == "b" or setting.endswith(" b"):
        fixed["rollouts_per_batch"] = draw(
            st.one_of(
                st.sampled_from([1024, 4096, 8192, 12_288]), st.sampled_from([2048, 16_384]), st.integers(64, 20_000)
            )
        )
    case = Case(
        source=draw(
            st.sampled_from([EASY, HARD, f"{EASY}:joint", f"{HARD}:joint", f"{EASY}:tokens", "prior", "data", "many"])
        ),
        unit=draw(st.sampled_from(["rollouts", "tokens", "gpu_hours", "usd"])),
        amount=1.0,
        deadline=draw(st.one_of(st.none(), st.none(), st.floats(1, 1e4))),
        speed=speed,
        machine=machine,
        recipe=recipe,
        fixed=fixed,
        min_steps=draw(st.one_of(st.none(), st.none(), st.integers(1, min(200, fixed.get("update_steps", 200))))),
        floor=floor,
    )
    rollouts = 10 ** draw(st.floats(3.5, 9))
    amount = case.cost(1024, max(1, round(rollouts / 1024)))
    return replace(case, amount=amount)


class Sources(dict[str, Fits]):
    """Fits by name; short where a failing example is printed."""

    def __repr__(self) -> str:
        return f"Sources({', '.join(self)})"


@pytest.fixture(scope="module")
def source(fitted: Fits, fitted_many: Fits) -> Sources:
    named = {name: iso.published(name) for name in iso.list_published() if "fixed" not in name}
    return Sources(named | {"prior": iso.published_prior(), "data": fitted, "many": fitted_many})


def sizes(fits: Fits) -> list[int]:
    low, high = fits.group_size_range
    return [2**i for i in range(1, 20) if low <= 2**i <= high]


@given(case=cases(), mode=st.sampled_from(["expected", "conservative"]), spend=st.sampled_from(["worthwhile", "all"]))
@settings(max_examples=45)
def test_plans_are_what_an_enumeration_allows(source: dict[str, Fits], case: Case, mode: str, spend: str) -> None:
    fits = source[case.source]
    case = case.with_floor_of(fits)
    allowed = [n for n in sizes(fits) if case.allowed(n)]
    try:
        plan = case.plan(fits, mode=mode, spend=spend)
    except PlanError as refused:
        # Rounding may decide either way for a budget that is met exactly.
        exact = [
            n
            for n in allowed
            if case.fits(n * (case.problems(n) or 1), case.fixed.get("update_steps", case.least_steps), -1e-9)
        ]
        assert exact == []
        check_refusal(case, fits, refused)
        return
    n, bp, m = plan.group_size, plan.problems_per_batch, plan.update_steps
    assert {type(n), type(bp), type(m)} == {int}
    assert n in allowed
    assert plan.rollouts == n * bp * m
    assert case.runs_on(n * bp)
    assert plan.cost + plan.unused_share * plan.budget.available == pytest.approx(plan.budget.available)
    if "rollouts_per_batch" in case.fixed:
        assert n * bp == case.fixed["rollouts_per_batch"]
    if "problems_per_batch" in case.fixed:
        assert bp == case.fixed["problems_per_batch"]
    else:
        assert bp >= case.floor
    assert case.fits(n * bp, m)
    assert plan.cost == pytest.approx(case.cost(n * bp, m), rel=1e-12)
    assert plan.cost <= plan.budget.amount
    assert plan.costs[case.unit] == plan.cost
    if "update_steps" in case.fixed:
        assert m == case.fixed["update_steps"]
        if set(case.fixed) == {"update_steps"}:
            unit = case.machine.divisor // math.gcd(n, case.machine.divisor)
            limit = case.machine.max_rollouts_per_batch
            # The next larger B_p does not fit.
            assert not case.fits(n * (bp + unit), m, -1e-9) or (limit is not None and n * (bp + unit) > limit)
    else:
        assert m >= case.least_steps
        assert bp == case.problems(n)
        if plan.stopping is not None:
            assert spend == "worthwhile"
            assert plan.binding[-1] == "worthwhile"
        else:
            assert not case.fits(n * bp, m + 1, -1e-9)
            if m >= 40 and plan.binding[-1] == "budget":
                assert plan.cost >= 0.97 * plan.budget.amount
    assert plan.learning_rate == case.recipe.learning_rate(n * bp)
    for a in plan.alternatives:
        assert a.group_size in allowed
        assert case.fits(a.group_size * a.problems_per_batch, a.update_steps)
        assert case.runs_on(a.group_size * a.problems_per_batch)
    if plan.predicted_reward is not None:
        assert 0 <= plan.predicted_reward <= 1
    if plan.group_size_interval is not None:
        low, high = plan.group_size_interval
        assert 2 <= low <= high
        assert low & (low - 1) == high & (high - 1) == 0
    again = iso.Plan.from_dict(plan.to_dict())
    assert again == plan
    assert again.to_dict() == plan.to_dict()


def check_refusal(case: Case, fits: Fits, refused: PlanError) -> None:
    """The smallest budget works, one per cent less does not; without one, no budget works."""
    smallest = refused.smallest_budget
    if smallest is not None:
        assert smallest > case.amount
        assert case.plan(fits, smallest).cost <= smallest
        with pytest.raises(PlanError) as less:
            case.plan(fits, 0.99 * smallest)
        assert less.value.smallest_budget == pytest.approx(smallest)
    else:
        with pytest.raises(PlanError) as more:
            case.plan(fits, 1e17)
        assert more.value.smallest_budget is None


@given(
    exponent=st.floats(4.5, 8.5),
    source_name=st.sampled_from([EASY, HARD, f"{EASY}:joint", "data", "prior"]),
    factor=st.floats(1, 20),
)
def test_more_rollouts_never_mean_a_smaller_group(
    source: dict[str, Fits], exponent: float, source_name: str, factor: float
) -> None:
    planner = Planner(source[source_name])
    small, large = (planner.allocate(10**exponent * f, spend="all").group_size for f in (1.0, factor))
    assert small <= large


@given(exponent=st.floats(4.5, 8.5), source_name=st.sampled_from(["prior", "data"]))
def test_conservative_plans_never_take_a_larger_group_than_expected_ones_of_data(
    source: dict[str, Fits], exponent: float, source_name: str
) -> None:
    planner = Planner(source[source_name])
    expected = planner.allocate(10**exponent)
    careful = planner.allocate(10**exponent, mode="conservative")
    if source_name == "data":
        assert careful.group_size <= expected.group_size
    if careful.group_size != expected.group_size:
        assert careful.group_size in {a.group_size for a in expected.alternatives if a.kind in ("near-tie", "other")}


@given(exponent=st.floats(5, 8), octaves=st.integers(0, 4))
def test_beyond_grid_opens_exactly_that_many_octaves(source: dict[str, Fits], exponent: float, octaves: int) -> None:
    plan = Planner(source["data"]).allocate(10**exponent, beyond_grid=octaves, spend="all")
    assert plan.group_size <= 512 * 2**octaves
    assert ("beyond-grid" in {n.code for n in plan.notes}) == (plan.group_size > 512)


@given(exponent=st.floats(5, 8))
@settings(max_examples=5)
def test_any_group_size_may_be_asked_for_and_the_law_then_decides_to_the_last_rollout(
    source: dict[str, Fits], exponent: float
) -> None:
    plan = Planner(source[EASY]).allocate(10**exponent, powers_of_two=False)
    assert plan.law_group_size is not None
    # The law is asked at the largest compute any n reaches, which differs from this one by less than a step.
    assert plan.group_size == pytest.approx(min(max(plan.law_group_size, 8), 2048), abs=1, rel=0.02)
    assert len(plan.alternatives) < 12
