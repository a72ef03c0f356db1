# The command of TRL itself, then deepspeed; only the second trains with GRPO.
trl env
CUDA_VISIBLE_DEVICES=0,1,2,3 deepspeed --num_gpus=4 --module trl.scripts.grpo \
  --num_generations=4 --per_device_train_batch_size=4 --gradient_accumulation_steps=16 \
  --learning_rate=3e-6 --beta=0.001 --num_train_epochs=3 --temperature=1.0
