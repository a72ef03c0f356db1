#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=1
# Flags of a release before 0.10.2, submitted inside a container.
nodes=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
nodes_array=( $nodes )
head=${nodes_array[0]}
LOG="job-$SLURM_JOB_ID.log"

srun --nodes=1 --ntasks=1 -w "$head" bash -c \
  "pip install ray[default] && ray start --head --port=6379 --block" &>> ${LOG} &
sleep 10

srun --overlap --nodes=1 --ntasks=1 -w "$head" --container-image="image" bash -c \
"ray job submit --address=http://localhost:8265 \
    --runtime-env-json='{\"working_dir\": \"/code\"}' \
    -- python3 -m openrlhf.cli.train_ppo_ray \
    --pretrain meta-llama/Llama-3.1-8B-Instruct \
    --train_batch_size 1024 \
    --rollout_batch_size 128 \
    --n_samples_per_prompt 8 \
    --max_samples 25600 \
    --num_episodes 1 \
    --prompt_max_len 1024 \
    --generate_max_len 2048 \
    --actor_learning_rate 5e-7 \
    --advantage_estimator group_norm \
    --init_kl_coef 1e-3 \
    --use_kl_loss" &>> ${LOG}
