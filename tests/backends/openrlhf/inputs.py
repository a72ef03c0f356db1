"""Problem files, and a place where a launch script runs up to OpenRLHF's own parser, executor and logger."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from isocompute_openrlhf import OpenRLHFBackend
from isocompute_sdk.specs import RunSpec
from tests.backends.openrlhf import fake_train
from tests.backends.openrlhf.real_parser import RealParser, function, main_block

REWARD = "def reward(prompt, response, answer):\n    return float(response == answer)\n"
TEXT_REWARD = "def reward(prompt, response, answer):\n    return float(response == str(answer))\n"


def problems(count: int, name: str = "p") -> list[dict[str, Any]]:
    return [{"id": f"{name}{i}", "prompt": f"what is {name}{i}?", "answer": i} for i in range(count)]


def write_jsonl(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_site(folder: Path, parser: RealParser) -> Path:
    """A package `openrlhf` of the wheel's own files, with `train` replaced."""
    package = folder / "openrlhf"
    block = ast.Module(main_block(parser.source["cli/train_ppo_ray.py"]), type_ignores=[])
    program = "import argparse\nfrom datetime import datetime\n" + ast.unparse(block)
    files = {name: parser.source[name] for name in ("utils/config.py", "utils/agent.py", "utils/logging_utils.py")}
    metrics = function(parser.source["trainer/ppo_trainer.py"], "compute_eval_metrics")
    files |= {"eval_metrics.py": f"import torch\n{metrics}"}
    files |= {"cli/train_ppo_ray.py": Path(fake_train.__file__).read_text() + program}
    files |= {"__init__.py": "", "cli/__init__.py": "", "utils/__init__.py": "", "../aiohttp.py": ""}
    # supervise.py looks once a second.
    files |= {"../sitecustomize.py": "import time\nsleep = time.sleep\ntime.sleep = lambda _: sleep(0.02)\n"}
    files |= {"../openrlhf-0.11.2.dist-info/METADATA": "Metadata-Version: 2.1\nName: openrlhf\nVersion: 0.11.2\n"}
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package.parent


def write_inputs(folder: Path, run: RunSpec) -> Path:
    """Problems and reward function of a run; two prompts are in both files."""
    folder.mkdir()
    for name, first, count in ((run.data.train, 2, 5), (run.data.validation, 0, 4)):
        rows = [
            {"id": f"{name[:3]}{i}", "question": f"{first + i} + 1?", "answer": first + i + 1} for i in range(count)
        ]
        write_jsonl(folder / name, rows)
    (folder / run.data.reward).write_text(TEXT_REWARD)
    return folder


def start(run: RunSpec, site: Path, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "launch.sh").write_text(OpenRLHFBackend().script(run))
    env = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(site), **environment}
    return subprocess.run(["bash", "launch.sh"], cwd=folder, env=env, capture_output=True, text=True, check=False)
