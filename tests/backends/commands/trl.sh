# In the style of TRL's own examples.
accelerate launch --config_file zero3.yaml --num_processes 8 grpo_agent.py \
    --model_name_or_path Qwen/Qwen2.5-7B-Instruct \
    --num_generations 8 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps 8 \
    --max_steps 500 \
    --learning_rate 1e-5 \
    --beta 0.04 \
    --max_completion_length 256 \
    --loss_type grpo
