"""Stands in for `train(args)` of OpenRLHF's cli/train_ppo_ray.py in the tests that run the whole script.

Everything around it is the real program: its parser and checks, and its executor, which loads the reward
file and calls it. What is imitated here is the order of steps of trainer/ppo_trainer.py: shuffled rows,
batches of rollout.batch_size prompts, n samples each, an evaluation and a checkpoint at their intervals,
and resuming after `latest`. Responses are the answer of the problem for every second sample.

With LOGGING=real, responses are right at random, ever more often, and the program logs as the real one does: with its
own logger, its own TensorboardLogger (torch's SummaryWriter) and its own compute_eval_metrics.
"""

import asyncio
import itertools
import json
import os
import random
import time
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


class Silent:
    def train(self, step, outputs):
        """Log nothing."""

    def evaluation(self, step, rows, outputs):
        """Log nothing."""

    def close(self):
        """Nothing to close."""


class Real:
    """Logs as trainer/ppo_trainer.py does."""

    def __init__(self, args):
        import torch
        from openrlhf.eval_metrics import compute_eval_metrics
        from openrlhf.utils.logging_utils import TensorboardLogger, init_logger

        self.torch, self.metrics, self.samples = torch, compute_eval_metrics, args.eval.n_samples_per_prompt
        self.logger, self.board = init_logger("openrlhf.trainer.ppo_trainer"), TensorboardLogger(args)

    def train(self, step, outputs):
        rewards = self.torch.tensor([output["reward"] for output in outputs])
        status = {
            "policy_loss": float("nan") if step == 2 else -0.25 * step,
            "kl": 0.001 * step,
            "entropy_loss": 1.0 / step,
            "actor_grad_norm": random.SystemRandom().uniform(0.4, 0.6),  # no two attempts measure the same
            "reward_error": 0.0,
            "timing/generation": 0.5,
            "timing/step_total": 1.25,
            "rollout/reward_mean": rewards.float().mean().item(),
            "rollout/response_length_mean": 10.0,
            "rollout/truncated_rate": 0.125,
            "rollout/num_samples": float(len(rewards)),
        }
        self.logger.info(f"✨ Global step {step}: {status}")
        self.board.log_train(step, {**status, "generated_samples": ["a text", rewards[0].item()]})

    def evaluation(self, step, rows, outputs):
        prompts = [f"<|user|>{row['input']}<|assistant|>" for row in rows]
        loader = [([row["datasource"]], [prompt], [""], [None]) for row, prompt in zip(rows, prompts, strict=True)]
        samples = [
            types.SimpleNamespace(
                prompts=[prompts[index // self.samples]],
                rewards=self.torch.tensor([output["reward"]]),
                response_length=self.torch.tensor([7]),
                truncated=self.torch.tensor([False]),
            )
            for index, output in enumerate(outputs)
        ]
        logs = self.metrics(loader, samples, self.samples)
        self.board.log_eval(step, logs)
        self.logger.info(f"✨ Evaluation completed in 0:00:01, global_step {step}, eval_metrics: {logs}")

    def close(self):
        self.board.close()


def read(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def train(args):
    from openrlhf.utils.agent import SingleTurnAgentExecutor

    executor = SingleTurnAgentExecutor(args.reward.remote_url)
    log = Real(args) if os.environ.get("LOGGING") == "real" else Silent()
    draw = random.Random(f"{os.getpid()}-{time.time()}")

    def is_right(sample):
        return draw.random() < 0.3 + 0.05 * step if isinstance(log, Real) else sample % 2 == 0

    def rollout(rows, n):
        outputs = []
        for row, sample in itertools.product(rows, range(n)):
            answer = json.loads(row["label"])["answer"]
            text = f"{answer if is_right(sample) else 'wrong'}<|im_end|>"
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
        outputs = rollout(batch, args.rollout.n_samples_per_prompt)
        rewards.append([output["reward"] for output in outputs])
        step += 1
        log.train(step, outputs)
        if step % args.ckpt.save_steps == 0:
            save(f"global_step{step}")
        if step % args.eval.steps == 0:
            evaluated = read(args.eval.dataset)
            log.evaluation(step, evaluated, rollout(evaluated, args.eval.n_samples_per_prompt))
        if str(step) == os.environ.get("STOP_AFTER_STEP"):
            os._exit(9)
        while str(step) == os.environ.get("HOLD_AT_STEP"):
            time.sleep(0.02)
    log.close()
    os.makedirs(args.ckpt.output_dir, exist_ok=True)
    with open(os.path.join(args.ckpt.output_dir, "summary.json"), "w") as file:
        json.dump({"started": started, "steps": step, "rows": len(rows), "rewards": rewards}, file)
