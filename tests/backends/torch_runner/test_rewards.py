"""A reward function can do anything; the run always gets one number or an account of why there is none."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isocompute_torch import rewards as function_module
from isocompute_torch import rewards as pool_module
from isocompute_torch.configuration import InputError, RunFailed
from isocompute_torch.rewards import RewardFunction, RewardPool
from tests.parameters import few
from tests.processes import HANG_SECONDS, Clock

Make = Callable[..., RewardFunction]


@pytest.fixture
def reward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """A reward function from source text, loaded in its own process."""
    monkeypatch.chdir(tmp_path)

    def make(source: str, target: str = "reward.py", timeout_seconds: float = HANG_SECONDS) -> RewardFunction:
        Path(target.partition(":")[0]).write_text(source)
        return RewardFunction(target, timeout_seconds=timeout_seconds)

    return make


CALLS = [("1+1=", str(i), {"value": i}) for i in range(6)]
LATE = "import signal, time; assert 500 < signal.getitimer(0)[0] <= 600; signal.setitimer(0, 0.01); "
"""Cuts the limit of this call short, which no other call then meets however slow the machine is."""


def test_it_is_called_with_prompt_response_and_answer_in_order(reward: Make) -> None:
    source = (
        "def reward(prompt, response, answer):\n    return len(prompt) * 100 + int(response) * 10 + answer['value']\n"
    )
    with reward(source) as function:
        assert function.score(CALLS).rewards == [400 + 11 * i for i in range(6)]
        assert function.score(CALLS[4:]).rewards == [444, 455]
        assert function.score([]).rewards == []


@pytest.mark.parametrize("target", ["reward.py:score", "package/grader.py:score"])
def test_it_is_named_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "package").mkdir()
    for file in ("reward.py", "package/grader.py"):
        (tmp_path / file).write_text("def score(prompt, response, answer):\n    return 3\n")
    with RewardFunction(target) as function:
        assert function.score(CALLS[:1]).rewards == [3.0]


def test_its_neighbours_are_importable_and_what_it_prints_does_no_harm(reward: Make, tmp_path: Path) -> None:
    (tmp_path / "journal.py").write_text("VALUE = 0.25\n")
    source = (
        "import sys, journal\nprint('loading')\n"
        "def reward(p, r, a):\n    print('x' * 100000)\n    sys.stdout.flush()\n    return journal.VALUE\n"
    )
    with reward(source) as function:
        assert function.score(CALLS).rewards == [0.25] * 6


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("raise ValueError('no digits')", "ValueError: no digits (reward.py:3)"),
        ("return None", "TypeError"),
        ("return float('nan')", "nan"),
        ("return 'high'", "'high'"),
        (LATE + "time.sleep(600)", "600 s"),
        (
            LATE + "\n        while True:\n            try:\n                1 / 0\n            except Exception:\n"
            "                pass",
            "600 s",
        ),
        ("import os; os._exit(3)", "status 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "status -11"),
    ],
)
def test_a_call_that_fails_has_no_reward_and_the_others_keep_theirs(reward: Make, body: str, says: str) -> None:
    source = f"def reward(prompt, response, answer):\n    if response in '24':\n        {body}\n    return 1.5\n"
    with reward(source) as function:
        scores = function.score(CALLS)
        assert [math.isnan(value) for value in scores.rewards] == [False, False, True, False, True, False]
        assert [value for value in scores.rewards if not math.isnan(value)] == [1.5] * 4
        assert scores.errors == 2
        assert any(says in message for message in scores.messages)
        assert function.score(CALLS[:2]).rewards == [1.5, 1.5], "the next batch is not touched"


class StuckClock(Clock):
    """Puts itself forward while the process that `stuck` names lives."""

    def monotonic(self) -> float:
        if Path("stuck").exists() and Path("/proc", Path("stuck").read_text() or "none").exists():
            self.pass_minutes(5)
        return super().monotonic()


def test_a_call_that_hears_no_alarm_is_ended_with_its_process(reward: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "import os, signal, time\ndef reward(prompt, response, answer):\n    if response == '2':\n"
        "        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])\n"
        "        open('stuck', 'w').write(str(os.getpid()))\n        time.sleep(600)\n    return 1.5\n"
    )
    with reward(source) as function:
        monkeypatch.setattr(function_module, "time", StuckClock())
        monkeypatch.setattr(function_module, "POLL_SECONDS", 0.02)
        scores = function.score(CALLS)
        assert [math.isnan(value) for value in scores.rewards] == [response == "2" for _, response, _ in CALLS]
        assert "no result within 600 s" in scores.messages[0]


@pytest.mark.parametrize(
    ("body", "says"),
    few([(LATE + "time.sleep(600)", "600 s"), ("os._exit(3)", "status 3")], 1),
)
def test_a_function_that_never_answers_is_given_up_after_ten_calls(reward: Make, body: str, says: str) -> None:
    source = f"import os, time\ndef reward(p, r, a):\n    if int(p) >= 5:\n        {body}\n    return 1\n"
    calls = [(str(i), "", "") for i in range(1000)]
    with reward(source) as function:
        with pytest.raises(RunFailed, match="10") as failed:
            function.score(calls)
        assert says in str(failed.value)
        assert function.score(calls[:5]).rewards == [1.0] * 5


def test_random_rewards_repeat_with_the_seed(reward: Make) -> None:
    with reward("import random\ndef reward(p, r, a):\n    return random.random()\n") as function:
        first, other, again = (function.score(CALLS, seed=seed).rewards for seed in (1, 2, 1))
        assert first == again != other


@pytest.mark.parametrize(
    ("target", "source", "says"),
    [
        ("reward.py", "def score(p, r, a):\n    return 1\n", "'reward'"),
        (
            "reward.py",
            "def reward(response, answer):\n    return 1\n",
            "(response, answer)",
        ),
        ("reward.py", "import nowhere_to_be_found\n", "ModuleNotFoundError"),
        ("reward.py", "def reward(:\n", "SyntaxError: invalid syntax (reward.py, line 1)\n"),
        ("reward.py", "import sys\nsys.exit('set KEY')\n", "SystemExit: set KEY (reward.py:2)"),
        ("reward.py", "import os\nos._exit(0)\n", "'reward.py'"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_at_the_start(
    reward: Make, target: str, source: str, says: str
) -> None:
    with pytest.raises(InputError) as refused:
        reward(source, target)
    assert says in str(refused.value)


def test_too_many_failures_stop_the_run(reward: Make) -> None:
    with reward("def reward(p, r, a):\n    return 1 / int(r)\n") as function:
        scores = function.score(CALLS)
        scores.check("step 3")
        with pytest.raises(RunFailed, match=r"step 3.* 1 of 6"):
            scores.check("step 3", limit=0.0)
        with pytest.raises(RunFailed, match="ZeroDivisionError"):
            function.score(CALLS[:3]).check("step 4")


def test_closing_ends_the_process(reward: Make) -> None:
    with reward("import os\ndef reward(p, r, a):\n    return os.getpid()\n") as function:
        pid = int(function.score(CALLS[:1]).rewards[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


MEETING = """
import os, random, time
from pathlib import Path

def reward(prompt, response, at_work):
    if at_work:
        Path(f"at-work-{os.getpid()}").touch()
        while len(list(Path().glob("at-work-*"))) < at_work:
            time.sleep(0.01)
    if response == "7":
        raise ValueError("seven")
    return int(response) + random.random()
"""


def test_a_slow_reward_gets_more_processes_and_the_same_rewards(reward: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    reward(MEETING).close()
    monkeypatch.setattr(pool_module, "LONG_SECONDS", 0)
    found: dict[int, list[float]] = {}
    for processes in (1, 4):
        with RewardPool("reward.py", timeout_seconds=HANG_SECONDS) as pool:
            pool.most = processes
            assert len(pool.functions) == 1
            pool.score([("", str(i), 0) for i in range(130)], seed=3)
            assert len(pool.functions) == processes
            # Of three groups of calls, each waits for the others.
            scores = pool.score([("", str(i), min(processes, 3)) for i in range(130)], seed=3)
        assert scores.errors == 1
        assert len(scores.messages) == 1
        found[processes] = scores.rewards
    assert math.isnan(found[1][7])
    assert found[1][:7] + found[1][8:] == found[4][:7] + found[4][8:]
