"""Every file in specs/ loads, and expands to the grid it stands for."""

from pathlib import Path

import pytest

from isocompute_sdk.campaigns.executors import Job
from isocompute_sdk.campaigns.executors import registry as executors
from isocompute_sdk.campaigns.executors.cluster import ClusterExecutor
from isocompute_sdk.campaigns.executors.ray import GPUS, RayEngine
from isocompute_sdk.campaigns.executors.slurm import SlurmEngine
from isocompute_sdk.specs import Allocation, RunSpec, dump_spec, load_study, parse_spec
from isocompute_sdk.specs.study import Study
from isocompute_sdk.training import registry
from isocompute_sdk.training.backend import Launch, needs_of, run_folder
from tests.parameters import few

FOLDER = Path(__file__).parents[2] / "specs"
FILES = sorted(path for path in FOLDER.glob("*.yaml") if path.stem != "campaign")
"""Studies with a sweep; campaign.yaml chooses its runs while it goes on."""
GROUP_SIZES = [2**e for e in range(3, 12)]
PROBLEMS = [2**e for e in range(5, 11)]


def cells(name: str) -> set[tuple[int, int]]:
    return {(run.group_size, run.problems_per_batch) for run in load_study(FOLDER / name).expand()}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_example_loads_expands_and_survives_being_written(path: Path) -> None:
    study = load_study(path)
    runs = study.expand()
    assert len({run.run_id for run in runs}) == len(runs) >= 3
    assert all(isinstance(run, RunSpec) and run.update_steps >= 20 for run in runs)
    assert parse_spec(dump_spec(study), Study) == study


def test_the_campaign_has_a_budget_for_runs_that_are_chosen_on_the_way() -> None:
    study = load_study(FOLDER / "campaign.yaml")
    assert study.designed is not None
    assert study.budget is not None
    assert parse_spec(dump_spec(study), Study) == study
    backend = registry.load(study.backend)
    backend.script(study.run_of(Allocation(group_size=64, problems_per_batch=32, update_steps=20), "sample"))


def test_all_examples_are_there() -> None:
    papers = ["paper_easy", "paper_fixed_batch", "paper_hard"]
    assert [path.stem for path in FILES] == ["closed_loop", "local", *papers, "quick", "ray", "slurm"]


@pytest.mark.parametrize(
    "path",
    few(FILES, {path for path in FILES if path.stem not in ("paper_easy", "paper_fixed_batch")}),
    ids=lambda path: path.stem,
)
def test_every_run_of_an_example_becomes_a_script_and_a_request_to_its_engine(path: Path) -> None:
    study = load_study(path)
    backend, executor = registry.load(study.backend), executors.load(study.executor)
    assert executor.name == (path.stem if path.stem in ("ray", "slurm") else "local")
    for run in study.expand():
        needs = needs_of(backend, run)
        job = Job(run.run_id, Launch(Path("/shared") / run_folder(run), (), ("bash", "launch.sh")), Path("/"), needs)
        backend.script(run)
        engine = executor.engine if isinstance(executor, ClusterExecutor) else None
        if isinstance(engine, SlurmEngine):
            assert {"--gpus-per-node=8", "--time=1-00:00:00"} <= set(engine.request(job, 1, ("true",)))
        elif isinstance(engine, RayEngine):
            request = engine.request(job, 1, ("true",))
            assert (request["entrypoint_num_gpus"], request["metadata"][GPUS]) == (0, "16")


def test_easy_sweep_is_the_papers_grid_up_to_65536_rollouts() -> None:
    expected = {(n, bp) for n in GROUP_SIZES for bp in PROBLEMS if n * bp <= 65_536}
    assert cells("paper_easy.yaml") == expected
    assert len(expected) == 39


def test_hard_sweep_is_the_papers_grid_up_to_16384_rollouts() -> None:
    expected = {(n, bp) for n in GROUP_SIZES for bp in PROBLEMS if n * bp <= 16_384}
    assert cells("paper_hard.yaml") == expected
    assert len(expected) == 27


def test_fixed_batch_sweep_holds_three_batches_down_to_eight_problems() -> None:
    expected = {(n, bp) for n in GROUP_SIZES for bp in [8, 16, *PROBLEMS] if n * bp in {4096, 8192, 16_384}}
    assert cells("paper_fixed_batch.yaml") == expected
    assert {bp for _, bp in expected} >= {8, 16}


def test_paper_examples_use_the_recipe_of_their_difficulty() -> None:
    easy, hard = load_study(FOLDER / "paper_easy.yaml").recipe, load_study(FOLDER / "paper_hard.yaml").recipe
    assert (easy.kl_coef, easy.entropy_coef, easy.min_problems_per_batch) == (1e-3, 1e-3, 32)
    assert (hard.kl_coef, hard.entropy_coef, hard.min_problems_per_batch) == (0, 0, 64)


def test_quick_sweep_is_three_short_runs() -> None:
    runs = load_study(FOLDER / "quick.yaml").expand()
    assert [(run.run_id, run.update_steps) for run in runs] == [
        ("n4-bp32-seed0", 160),
        ("n8-bp32-seed0", 80),
        ("n16-bp32-seed0", 40),
    ]
