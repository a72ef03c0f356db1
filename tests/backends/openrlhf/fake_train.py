"""Stands in for `train(args)` of OpenRLHF's cli/train_ppo_ray.py in test_end_to_end.py.

Everything around it is the real program: its parser and checks, and its executor, which loads the reward
file and calls it. What is imitated here is the order of steps of trainer/ppo_trainer.py: shuffled rows,
batches of rollout.batch_size prompts, n samples each, an evaluation and a checkpoint at their intervals,
and resuming after `latest`. Responses are the answer of the problem for every second sample.
"""

import asyncio
import itertools
import json
import os
import random
import types


class Characters:
    def __call__(self, text, add_special_tokens, return_tensors):
        return {"input_ids": [types.SimpleNamespace(tolist=lambda: [ord(c) for c in text])]}

    def decode(self, tokens, skip_special_tokens):
        return "".join(map(chr, tokens))


class Engine:
    def __init__(self, text):
        self.text = text

    async def generate(self, tokens, params, multi_modal_data=None):
        output = types.SimpleNamespace(
            token_ids=[ord(c) for c in self.text], text=self.text, finish_reason="stop", logprobs=None
        )
        return types.SimpleNamespace(outputs=[output])


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train(args):
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(args.reward.remote_url)

    def rollout(rows, n):
        outputs = []
        for row, sample in itertools.product(rows, range(n)):
            answer = json.loads(row["label"])["answer"]
            text = f"{answer if sample % 2 == 0 else 'wrong'}<|im_end|>"
            params = types.SimpleNamespace(max_tokens=args.rollout.max_new_tokens, logprobs=None)
            prompt = f"<|user|>{row['input']}<|assistant|>"
            call = executor.execute(prompt, row["label"], params, args.data.max_len, Characters(), Engine(text))
            outputs.append(asyncio.run(call))
        return outputs

    def save(tag):
        folder = os.path.join(args.ckpt.path, "_actor", tag)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(args.ckpt.path, "_actor", "latest"), "w") as file:
            file.write(tag)
        with open(os.path.join(folder, "metric.json"), "w") as file:
            file.write("{}")

    rows = read(args.data.prompt_dataset)
    random.shuffle(rows)
    step = 0
    latest = os.path.join(args.ckpt.path, "_actor", "latest")
    if args.ckpt.load_enable and os.path.exists(latest):
        with open(latest) as file:
            step = int(file.read().rpartition("global_step")[2])
    started = step
    rewards = []
    while (step + 1) * args.rollout.batch_size <= len(rows):
        batch = rows[step * args.rollout.batch_size : (step + 1) * args.rollout.batch_size]
        rewards.append([output["reward"] for output in rollout(batch, args.rollout.n_samples_per_prompt)])
        step += 1
        if step % args.ckpt.save_steps == 0:
            save(f"global_step{step}")
        if step % args.eval.steps == 0:
            rollout(read(args.eval.dataset), args.eval.n_samples_per_prompt)
        if str(step) == os.environ.get("STOP_AFTER_STEP"):
            os._exit(9)
    os.makedirs(args.ckpt.output_dir, exist_ok=True)
    with open(os.path.join(args.ckpt.output_dir, "summary.json"), "w") as file:
        json.dump({"started": started, "steps": step, "rows": len(rows), "rewards": rewards}, file)
