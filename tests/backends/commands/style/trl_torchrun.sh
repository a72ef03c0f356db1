#!/usr/bin/env bash
GPUS=${GPUS:-8}
NODES=${NODES:-2}
GROUP=${GROUP:-8}

torchrun --nproc_per_node="$GPUS" --nnodes "$NODES" --rdzv-backend=c10d \
  examples/scripts/grpo.py \
  --model_name_or_path Qwen/Qwen2.5-0.5B-Instruct \
  --output_dir out --dataset_name trl-lib/DeepMath-103K \
  --num_generations "$GROUP" \
  --per_device_train_batch_size=$((GROUP * 2)) \
  --gradient_accumulation_steps 4 \
  --num_iterations 2 \
  --max_steps 600 \
  --learning_rate 1e-5 \
  --max_completion_length 1024 \
  --top_p 0.95
