"""A training program that starts Ray itself, as OpenRLHF and veRL do: `own_ray.py FOLDER NODES GPUS`.

It joins the cluster of its job through RAY_ADDRESS, reserves the GPUs of its nodes in placement groups, as veRL does a
group for each node, uses them from actors for a while, and notes from when to when it had them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

SECONDS_TO_RESERVE, TRAINING_SECONDS = 60, 3


@ray.remote(num_cpus=0)
class Worker:
    def gpus(self) -> list[str]:
        return [f"{ray.get_runtime_context().get_node_id()[:8]}:{gpu}" for gpu in ray.get_gpu_ids()]


def main() -> None:
    folder, nodes, gpus = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    ray.init(runtime_env={"env_vars": {"NCCL_DEBUG": "WARN"}})
    groups = [placement_group([{"CPU": 1, "GPU": 1}] * gpus, strategy="STRICT_PACK") for _ in range(nodes)]
    for group in groups:
        if not group.wait(SECONDS_TO_RESERVE):
            sys.exit("no GPUs")
    begun = time.time()
    workers = [
        Worker.options(
            num_gpus=1,
            scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=index),
        ).remote()
        for group in groups
        for index in range(gpus)
    ]
    used = [gpu for found in ray.get([worker.gpus.remote() for worker in workers]) for gpu in found]
    time.sleep(TRAINING_SECONDS)
    (folder / "had.json").write_text(json.dumps({"begun": begun, "ended": time.time(), "gpus": used}))


if __name__ == "__main__":
    main()
