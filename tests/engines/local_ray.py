"""A real Ray cluster of several nodes on this machine: `python local_ray.py`.

Prints a line of JSON with its address and its nodes, then kills the node whose number it reads from its input, and ends
the cluster at the end of its input. The head has no GPU; each of the other nodes has two that are none.
"""

from __future__ import annotations

import json
import sys

from ray.cluster_utils import Cluster

NODES, CPUS, GPUS = 2, 4, 2


def main() -> None:
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": CPUS,
            "num_gpus": 0,
            "include_dashboard": True,
            "dashboard_host": "127.0.0.1",
            "dashboard_port": int(sys.argv[1]),
            "env_vars": {"TEST_NODE": "head"},
        },
    )
    nodes = [
        cluster.add_node(num_cpus=CPUS, num_gpus=GPUS, env_vars={"TEST_NODE": f"node{number}"})
        for number in range(NODES)
    ]
    print(json.dumps({"address": f"http://{cluster.head_node.webui_url}", "gcs": cluster.address}), flush=True)
    for line in sys.stdin:
        raylet = nodes[int(line)].all_processes["raylet"][0].process
        raylet.kill()
        # While it is not collected, its workers take it for alive.
        raylet.wait()
        print("killed", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
