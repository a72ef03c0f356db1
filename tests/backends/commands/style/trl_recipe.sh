#!/bin/bash
# accelerate with a configuration of its own, a recipe in YAML, and a flag that changes it.
export ACCELERATE_LOG_LEVEL=info
CONFIG=${1:-trl_recipe.yaml}

accelerate launch --config_file trl_zero3.yaml \
    train_grpo.py --config "$CONFIG" \
    --learning_rate 2e-6 \
    --run_name "grpo-$(date +%s)"
