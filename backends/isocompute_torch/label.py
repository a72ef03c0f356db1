"""How often a base model solves each problem: `python -m isocompute_torch.label REQUEST OUTPUT`.

REQUEST is a JSON object with the fields of `Asked`; `isocompute problems FILE --label MODEL` writes it.

OUTPUT receives every problem of the file with `passes`, `samples` and `pass_rate` among its keys, in one step when all
are sampled. Until then OUTPUT.passes, which begins with what was asked, holds one line per `CHUNK` problems: the same
command goes on from there, with the same result as if it had never been stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError
from isocompute_sdk.files import write_text
from isocompute_sdk.phrases import printable
from isocompute_sdk.run_folders.run_journal import append_line
from isocompute_sdk.specs import Evaluation
from isocompute_sdk.training.payload.problem_files import json_lines
from isocompute_sdk.training.payload.run_files import digest_of, split_target
from isocompute_torch.configuration import InputError, chosen_sampler, derive_seed
from isocompute_torch.problems import read_problems

CHUNK = 32
"""Problems that are sampled together; the draws of a problem depend on it."""


@dataclass(frozen=True)
class Asked:
    """What decides the labels."""

    problems: str
    model: str
    reward: str
    samples: int
    temperature: float
    max_tokens: int
    """Longest response, its end token included."""
    seed: int
    prompt_key: str | None = None
    answer_key: str | None = None


def label(asked: Asked, output: Path) -> None:
    """Sample all problems, or those that are left, and write the output.

    Raises:
        InputError: a file or the model cannot be used, or OUTPUT.passes holds the passes of another request.
        RunFailed: the reward function failed.
    """
    problems = read_problems(asked.problems, prompt_key=asked.prompt_key, answer_key=asked.answer_key)
    kept = output.with_name(f"{output.name}.passes")
    chunks = _begun(kept, _request(asked))
    if sum(len(chunk["passes"]) for chunk in chunks) < len(problems):
        with ExitStack() as stack:
            _sample(asked, problems, kept, chunks, stack)
    passes = [count for chunk in chunks for count in chunk["passes"]]
    rows: list[str] = []
    for (_, row), problem, count in zip(json_lines(Path(asked.problems)), problems, passes, strict=True):
        found = {"passes": count, "samples": asked.samples, "pass_rate": count / asked.samples}
        rows.append(json.dumps({**row, "id": problem.id, **found}, ensure_ascii=False) + "\n")
    write_text(output, "".join(rows))
    share = sum(chunk["truncated"] for chunk in chunks) / len(chunks)
    if share > 0.05:
        sys.stderr.write(f"note: {share:.0%} of the responses ended at --max-tokens {asked.max_tokens}\n")


def _sample(asked: Asked, problems: list[Any], kept: Path, chunks: list[dict[str, Any]], stack: ExitStack) -> None:
    """Sample the problems that no chunk has, and add them to the chunks and to the file."""
    import torch

    from isocompute_torch.loop import PromptSet, evaluate
    from isocompute_torch.policy import choose_device, choose_dtype, load_config, load_policy
    from isocompute_torch.rewards import RewardPool
    from isocompute_torch.sampler import TorchSampler

    torch.set_num_threads(min(max(1, len(os.sched_getaffinity(0)) // 2), torch.get_num_threads()))
    reward = stack.enter_context(RewardPool(asked.reward))
    device = choose_device("auto")
    policy = load_policy(asked.model, device, choose_dtype("auto", device, load_config(asked.model)))
    prompts = PromptSet.encode(policy.codec, problems, max_tokens=sys.maxsize, name=asked.problems)
    sampler: Any = TorchSampler(policy)
    if chosen_sampler("auto", device.type)[0] == "vllm":
        from isocompute_torch.vllm_sampler import VLLMSampler

        sampler = VLLMSampler(policy, asked.model, longest=max(map(len, prompts.ids)) + asked.max_tokens)
    stack.callback(sampler.close)
    plan = Evaluation(samples=asked.samples, temperature=asked.temperature)
    passes = [count for one in chunks for count in one["passes"]]
    for first in range(len(passes), len(problems), CHUNK):
        chunk = prompts.subset(range(first, min(first + CHUNK, len(problems))))
        seed = derive_seed(asked.seed, "label", first)
        found = evaluate(chunk, sampler, reward, plan, top_p=1.0, max_tokens=asked.max_tokens, seed=seed)
        found.scores.check(f"problems {first + 1} to {first + len(chunk.ids)}", limit=0.0)
        chunks.append({"first": first, "passes": found.pass_counts, "truncated": found.metrics["truncated_share"]})
        append_line(kept, json.dumps(chunks[-1]), durable=True)
        passes += found.pass_counts
        rate = sum(passes) / len(passes) / asked.samples
        sys.stderr.write(f"labelled {len(passes):,} of {len(problems):,}: pass rate {rate:.3f}\n")


def _request(asked: Asked) -> dict[str, Any]:
    """Everything that decides the passes, files by their content."""
    weights = sorted(Path(asked.model).glob("*.safetensors"))
    reward = Path(split_target(asked.reward, Path())[0])
    inputs = [Path(asked.problems), *([reward] if reward.is_file() else []), *weights]
    digest = hashlib.sha256(" ".join(map(digest_of, inputs)).encode()).hexdigest()
    return {"asked": asdict(asked), "inputs": digest}


def _begun(kept: Path, request: dict[str, Any]) -> list[dict[str, Any]]:
    """What an earlier start left: passes of each chunk of problems, and its share of truncated responses."""
    text = kept.read_text(encoding="utf-8") if kept.exists() else ""
    if not text.endswith("\n"):
        # There is nothing yet, or a write was cut short.
        text = text[: text.rfind("\n") + 1] or json.dumps(request) + "\n"
        write_text(kept, text)
    first, *chunks = [json.loads(line) for line in text.splitlines()]
    if first != request:
        raise InputError(
            f"{kept} holds the passes of another model, file, reward or setting",
            "Remove it to begin again, or name another --output.",
        )
    # Two processes at once draw the same.
    return list({chunk["first"]: chunk for chunk in chunks}.values())


def main(arguments: list[str]) -> int:
    """Label the problems of a request; 0 on success, 2 on unusable input, 130 if interrupted."""
    try:
        label(Asked(**json.loads(arguments[0])), Path(arguments[1]))
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: --label needs {error.name}: pip install 'isocompute[torch]'\n")
        return 2
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(printable(f"error: {error}\n", keep="\n"))
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command resumes\n")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
