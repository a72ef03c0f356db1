"""Drawing rollouts from the policy: in torch, beside the trained weights, or in a vLLM engine."""
