"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import hashlib
import html
import importlib.util
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from isocompute_sdk.cli import main
from tests.processes import QUICK_SECONDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Machines differ: a slow one must not fail a property that holds.
slow_is_fine = [HealthCheck.too_slow]
settings.register_profile(
    "default",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    max_examples=15,
    suppress_health_check=slow_is_fine,
)
# New examples, many of them: HYPOTHESIS_PROFILE=nightly.
settings.register_profile("nightly", deadline=None, max_examples=400, suppress_health_check=slow_is_fine)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

# One worker for each core fills the machine: threads of libraries would only wait for each other.
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(threads, "1")
# Of which there is none: to look for one takes a fifth of the start of a program.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
# Tests start hundreds of short programs, which would compile the same modules again and again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# What is imported while tests are collected stays: to look through it for garbage takes seconds and finds none.
gc.disable()
# Runs that tests start live in sessions of their own: they end when this process has.
os.environ["TESTS_PROCESS"] = str(os.getpid())

REPOSITORY = Path(__file__).resolve().parents[1]
FITS_KEPT = {"assistant", "auditing", "campaigns", "cli", "documents", "paper", "planning", "plots", "reporting"}
"""Folders of tests of what is made of fits."""


def pytest_collection_finish() -> None:
    """From here on garbage is collected: of tests only, and less often than by default, which takes 4 % of the time."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool, bool]:
    """A test that waits for what never comes (a process, a lock, a pipe, a notebook) fails and shows where it waits."""

    def end(*_: object) -> None:
        pytest.fail(f"hung for {QUICK_SECONDS:g} s")

    if any(map(item.get_closest_marker, ("slow", "gpu", "vllm"))):
        return (yield)
    before = signal.signal(signal.SIGALRM, end)
    # Again and again: what takes a test down may hang as well.
    signal.setitimer(signal.ITIMER_REAL, QUICK_SECONDS, QUICK_SECONDS)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="session", autouse=True)
def default_signals() -> None:
    """Undo what nohup and a script's background job ignore: programs that tests start would inherit it."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        # A handler is not inherited. This process itself still outlives its terminal, as nohup promises.
        signal.signal(signal.SIGHUP, lambda *_: None)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    """Root of the checkout."""
    return REPOSITORY


@pytest.fixture(scope="session")
def benchmark_module() -> Callable[[str], ModuleType]:
    """A program of benchmarks/ as a module, by its name."""

    def load(name: str) -> ModuleType:
        label = f"{name}_benchmark"
        if label not in sys.modules:
            (program,) = (REPOSITORY / "benchmarks").rglob(f"{name}.py")
            spec = importlib.util.spec_from_file_location(label, program)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            # Benchmarks import each other by name, and dataclasses look their module up by name.
            sys.path.append(str(program.parent))
            sys.modules[label] = module
            spec.loader.exec_module(module)
        return sys.modules[label]

    return load


@pytest.fixture(scope="session")
def fitted_once() -> dict[str, Callable[..., object]]:
    """What fits by where it stands: what was fitted to the same numbers, options and random state is kept.

    That such fits are the same bits is for tests of fits, which do not use this.
    """
    # Numpy is loaded after the number of threads is set.
    from isocompute_sdk import api
    from isocompute_sdk.fitting.run_surface import RunSurface

    kept: dict[bytes, object] = {}

    def once(method: Callable[..., object]) -> Callable[..., object]:
        def fit(*arguments: Any) -> object:
            given = [getattr(one, "bit_generator", one) for one in arguments]
            key = hashlib.sha256(
                pickle.dumps((method.__name__, [getattr(one, "state", one) for one in given]))
            ).digest()
            if key not in kept:
                kept[key] = method(*arguments)
            return kept[key]

        return fit

    return {
        "isocompute_sdk.api.fit_joint": once(api.fit_joint),
        "isocompute_sdk.api.fit_paper": once(api.fit_paper),
        "isocompute_sdk.fitting.run_surface.RunSurface.of_all": once(RunSurface.of_all),
    }


@pytest.fixture(autouse=True)
def fits_kept(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, fitted_once: dict[str, Callable[..., object]]
) -> None:
    """Tests of what is made of fits do not fit the same runs again."""
    if request.path.parent.name in FITS_KEPT:
        for name, fit in fitted_once.items():
            monkeypatch.setattr(name, fit)


@pytest.fixture(autouse=True)
def pictures_plain(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of what stands beside pictures do not lay them out, and pages show only their texts beside few budgets.

    Layout and all budgets are for tests of figures, and for the pages that tests of the report share.
    """
    if request.path.parent.name in {"auditing", "campaigns", "cli", "integration", "reporting"}:

        def unlaid(size: tuple[float, float]) -> object:
            from matplotlib.figure import Figure

            return Figure(figsize=size)

        def texts(drawn: Axes) -> str:
            from matplotlib.text import Text

            found = {html.escape(text.get_text()) for text in drawn.figure.findobj(Text)}  # type: ignore[arg-type]
            return f"<svg>{' '.join(sorted(found))}</svg>"

        monkeypatch.setattr("isocompute_sdk.plots.style.as_svg", texts)
        monkeypatch.setattr("isocompute_sdk.plots.style._figure", unlaid)
        monkeypatch.setattr("isocompute_sdk.reporting.material.STEPS", 9)


@pytest.fixture
def isocompute(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in a folder outside the repository, without a process of its own: whatever is no error raises."""

    def run(*arguments: object, columns: int = 120) -> subprocess.CompletedProcess[str]:
        words = list(map(str, arguments))
        with monkeypatch.context() as changed:
            changed.chdir(tmp_path)
            changed.setattr(sys, "argv", ["isocompute", *words])
            for name, value in {"COLUMNS": str(columns), "NO_COLOR": "1", "TERM": "dumb"}.items():
                changed.setenv(name, value)
            capfd.readouterr()
            with pytest.raises(SystemExit) as ended:
                main()
        out, err = capfd.readouterr()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), out, err)

    return run


@pytest.fixture
def shell(tmp_path: Path) -> Callable[[str], subprocess.CompletedProcess[str]]:
    """A line of bash in an empty folder, as a user types it."""

    def run(line: str) -> subprocess.CompletedProcess[str]:
        # Without PYTHONUNBUFFERED, which would hide output that is lost when the interpreter ends.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
        return subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )

    return run
