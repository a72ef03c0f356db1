"""Further questions to a planner: what a reward costs, what more budget buys, how a configuration compares."""
