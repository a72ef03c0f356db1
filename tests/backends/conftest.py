"""What tests of several backends share."""

from __future__ import annotations

from pathlib import Path

import pytest

from isocompute_sdk.specs import Evaluation, RunSpec
from tests.backends.framework_runs import contract_run
from tests.backends.openrlhf.inputs import start, write_inputs, write_site
from tests.backends.openrlhf.real_parser import VERSION, RealParser
from tests.backends.wheels import ANY_LINUX, cached_wheel

OF_OPENRLHF = contract_run(
    backend="openrlhf",
    group_size=2,
    problems_per_batch=3,
    update_steps=7,
    evaluation=Evaluation(every_steps=3, samples=4, n_problems=2),
    options={"save_every_steps": 2},
)


@pytest.fixture(scope="session")
def real_parser() -> RealParser:
    return RealParser(cached_wheel("openrlhf", VERSION, *ANY_LINUX))


@pytest.fixture(scope="session")
def resumed_openrlhf(real_parser: RealParser, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSpec, Path]:
    """A run with OpenRLHF's own parser, logger and TensorBoard writer around the script's programs, and its folder.

    It was killed after step 5, where its newest checkpoint is of step 4, and went on to step 7.
    """
    top = tmp_path_factory.mktemp("openrlhf")
    site, work = write_site(top / "site", real_parser), write_inputs(top / "work", OF_OPENRLHF)
    assert start(OF_OPENRLHF, site, work, LOGGING="real", STOP_AFTER_STEP="5").returncode == 9
    finished = start(OF_OPENRLHF, site, work, LOGGING="real")
    assert finished.returncode == 0, finished.stderr
    return OF_OPENRLHF, work / "runs" / "contract"
