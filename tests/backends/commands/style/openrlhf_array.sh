#!/usr/bin/env bash
# Flags in arrays, one topic each.
N=8
PROMPTS=128
if [[ "${DEBUG:-0}" == 1 ]]; then
  PROMPTS=8
fi

DATA=(
  --data.prompt_dataset prompts.jsonl
  --data.input_key prompt   # a chat
  --data.label_key label
  --data.max_samples "$((PROMPTS * 300))"
  --data.max_len 9216
)
ROLLOUT=(
  --rollout.batch_size "$PROMPTS"
  --rollout.n_samples_per_prompt "$N"
  --rollout.max_new_tokens 8192
  --rollout.temperature 1.0
)
LOSS=(
  --algo.advantage.estimator group_norm
  # --algo.kl.use_loss
  --algo.kl.init_coef 0
  --actor.eps_clip_low_high 0.2 0.27
  --algo.dynamic_filtering_enable
  --algo.dynamic_filtering_range 0 1
)
LOSS+=(--actor.adam.lr 5e-7)

python -m openrlhf.cli.train_ppo_ray \
  --actor.model_name_or_path Qwen/Qwen3-4B \
  --actor.num_nodes 1 --actor.num_gpus_per_node 8 --ref.num_nodes 1 --ref.num_gpus_per_node 8 \
  --vllm.num_engines 8 --train.colocate_all --vllm.enable_sleep --reward.remote_url reward.py \
  "${DATA[@]}" "${ROLLOUT[@]}" "${LOSS[@]}" \
  --train.batch_size $((PROMPTS * N / 2)) "$@" 2>&1 | tee train.log
