"""What is logged of a simulated run: noisy evaluations, vitals, and seconds per step."""
