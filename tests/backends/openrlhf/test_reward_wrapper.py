"""The reward wrapper against users' functions, in threads, and inside OpenRLHF's own executor."""

from __future__ import annotations

import asyncio
import json
import math
import sys
import types
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isocompute_openrlhf import payload
from tests.backends.openrlhf.fake_train import Characters, Engine
from tests.backends.openrlhf.real_parser import RealParser
from tests.backends.programs import SHARED, load

Install = Callable[..., Path]
load("reward_calls")
reward_wrapper = load("reward_wrapper", payload)
LABEL = json.dumps({"id": "p1", "split": "train", "answer": "42"})
PROMPT = "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture
def install(tmp_path: Path) -> Install:
    """A prepared run folder around a user's reward file; returns the wrapper in it."""

    def make(source: str, function: str | None = None) -> Path:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        (tmp_path / "user_reward.py").write_text(source)
        inputs = {"reward": {"path": str(tmp_path / "user_reward.py"), "function": function}}
        (folder / "inputs.json").write_text(json.dumps(inputs))
        row = json.dumps({"input": "what?", "label": LABEL, "datasource": "train"}) + "\n"
        (folder / "train_rows.jsonl").write_text(row)
        (folder / "evaluation_rows.jsonl").write_text(row)
        wrapper = folder / "reward_wrapper.py"
        wrapper.write_bytes(Path(reward_wrapper.__file__).read_bytes())
        for name in ("run_files.py", "reward_calls.py"):
            (folder / name).write_bytes((SHARED / name).read_bytes())
        return wrapper

    return make


def as_openrlhf_loads_it(wrapper: Path) -> Callable[..., dict[str, Any]]:
    """The import of utils/agent.py, SingleTurnAgentExecutor.__init__."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("reward_func", wrapper)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.reward_func


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("raise ValueError('odd answer')", "ValueError: odd answer"),
        ("return float('nan')", "ValueError: the reward is nan; accepted: a finite number"),
        ("return [1.0, 2.0]", "TypeError: the reward is [1.0, 2.0]; accepted: a number"),
    ],
)
def test_what_is_no_reward_scores_zero_and_is_counted(
    install: Install, capsys: pytest.CaptureFixture[str], body: str, error: str
) -> None:
    wrapper = install(f"def reward(prompt, response, answer):\n    {body}\n")
    result = as_openrlhf_loads_it(wrapper)([PROMPT + "x"], [PROMPT], [LABEL])
    assert result["rewards"] == 0.0
    assert result["extra_logs"]["reward_error"] == 1.0
    said = capsys.readouterr().err
    assert "'p1'" in said
    assert error in said


@pytest.mark.parametrize(
    ("source", "function", "message"),
    [
        ("x = 1\n", None, "reward.*none"),
        ("def reward(p): return 0.0\n", None, r"reward\(p\).*\(prompt, response, answer\)"),
        ("def reward(:\n", None, "SyntaxError"),
    ],
)
def test_a_reward_file_that_cannot_work_stops_the_run_at_its_start(
    install: Install, source: str, function: str | None, message: str
) -> None:
    wrapper = install(source, function)
    with pytest.raises(Exception, match=message) as caught:
        as_openrlhf_loads_it(wrapper)
    assert type(caught.value).__name__ == "RewardFileError"


def test_threads_count_every_failure(install: Install) -> None:
    source = "def reward(prompt, response, answer):\n    if response == '7': raise KeyError(response)\n    return 0.5\n"
    score = as_openrlhf_loads_it(install(source))

    def one(i: int) -> float:
        return score([f"{PROMPT}{i % 10}"], [PROMPT], [LABEL])["extra_logs"]["reward_error"]

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(one, range(200))) == 20


TEXT = st.text(st.characters(exclude_characters="<>|", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60)


@given(TEXT, TEXT)
def test_the_response_is_what_follows_the_prompt(prompt: str, response: str) -> None:
    assert reward_wrapper.split_response(prompt + response, prompt) == (response, True)


@given(TEXT, TEXT, st.integers(1, 300))
def test_the_response_is_found_behind_a_prompt_that_lost_its_beginning(text: str, response: str, cut: int) -> None:
    prompt = "<|im_start|>user\n" + text * 8 + "<|im_end|>\n<|im_start|>assistant\n"
    query = prompt[min(cut, len(prompt) - 30) :] + response
    assert reward_wrapper.split_response(query, prompt) == (response, True)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("42<|im_end|>", "42"),
        ("42<|im_end|>\n<|endoftext|>", "42"),
        ("42</s>", "42"),
        ("42<end_of_turn>\n", "42"),
        ("42<\uff5cend\u2581of\u2581sentence\uff5c>", "42"),
        ("42 ", "42 "),
        ("<b>42</b>", "<b>42</b>"),
        ("<|im_end|> 42", "<|im_end|> 42"),
        ("", ""),
    ],
)
def test_only_end_marks_at_the_end_are_removed(text: str, clean: str) -> None:
    assert reward_wrapper.without_end_marks(text) == clean


def test_openrlhf_s_own_executor_gets_a_float_for_every_sample(install: Install, real_parser: RealParser) -> None:
    """The wheel's utils/agent.py, with a tokenizer and an engine that work on characters."""
    wrapper = install("def reward(prompt, response, answer):\n    return {'42': 1, 'nan': float('nan')}[response]\n")
    agent = load_agent(real_parser)
    executor = agent.SingleTurnAgentExecutor([str(wrapper)])
    outputs = [
        asyncio.run(executor.execute(PROMPT, LABEL, sampling(64), 1000, Characters(), Engine(text)))
        for text in ("42<|im_end|>", "nan<|im_end|>", "other<|im_end|>")
    ]
    assert [output["reward"] for output in outputs] == [1.0, 0.0, 0.0]
    assert all(type(output["reward"]) is type(output["scores"]) is float for output in outputs)
    assert [output["extra_logs"]["reward_error"] for output in outputs] == [0.0, 1.0, 1.0]
    assert all(math.isfinite(value) for output in outputs for value in output["extra_logs"].values())


def test_a_prompt_cut_by_openrlhf_still_gives_the_response(install: Install, real_parser: RealParser) -> None:
    wrapper = install("def reward(prompt, response, answer): return float(response == '42')\n")
    executor = load_agent(real_parser).SingleTurnAgentExecutor([str(wrapper)])
    call = executor.execute("x" * 500 + PROMPT, LABEL, sampling(64), 264, Characters(), Engine("42<|im_end|>"))
    output = asyncio.run(call)
    assert len(output["observation_tokens"]) == 200 + len("42<|im_end|>")
    assert output["reward"] == 1.0
    assert output["extra_logs"]["prompt_unmatched"] == 0.0


def load_agent(real_parser: RealParser) -> types.ModuleType:
    """utils/agent.py of the wheel; only its HTTP client, which is not used here, is missing."""
    agent, logging_utils = types.ModuleType("agent"), types.ModuleType("openrlhf.utils.logging_utils")
    exec(real_parser.source["utils/logging_utils.py"], logging_utils.__dict__)
    modules = {**real_parser.modules, logging_utils.__name__: logging_utils, "aiohttp": types.ModuleType("aiohttp")}
    with mock.patch.dict(sys.modules, modules):
        exec(real_parser.source["utils/agent.py"], agent.__dict__)
    return agent


def sampling(max_tokens: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(max_tokens=max_tokens, logprobs=None)
