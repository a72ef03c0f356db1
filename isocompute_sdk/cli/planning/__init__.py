"""Commands that fit runs, plan a budget, and write what the plan needs."""
