#!/bin/bash
# A job on a running Ray cluster; sizes come from the environment, with defaults.
set -euxo pipefail

MODEL="${MODEL:-Qwen/Qwen2.5-7B-Instruct}"
N=${N:-16}          # rollouts per problem
PROMPTS=${PROMPTS:-64}
export VLLM_USE_V1=1

ray job submit --address="http://127.0.0.1:8265" \
   --runtime-env-json='{"working_dir": "/openrlhf", "env_vars": {"TRAIN": "a=b"}}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --actor.model_name_or_path "$MODEL" \
   --actor.num_nodes 1 \
   --actor.num_gpus_per_node 8 \
   --ref.num_nodes 1 \
   --ref.num_gpus_per_node 8 \
   --vllm.num_engines 4 \
   --vllm.tensor_parallel_size 2 \
   --train.colocate_all \
   --vllm.enable_sleep \
   --ds.enable_sleep \
   --reward.remote_url /openrlhf/reward.py \
   --data.prompt_dataset /data/math.jsonl \
   --data.input_key problem \
   --data.label_key answer \
   --data.apply_chat_template \
   --data.max_samples 6400 \
   --data.max_len 4096 \
   --rollout.batch_size $PROMPTS \
   --rollout.n_samples_per_prompt ${N} \
   --rollout.max_new_tokens 3072 \
   --train.batch_size $((N * PROMPTS)) \
   --train.num_episodes 2 \
   --actor.adam.lr 1e-6 \
   --algo.advantage.estimator dr_grpo \
   --algo.kl.init_coef 0 \
   --eval.steps 20
