"""The closed loop in Python: pilot sweep, fit, plan, train the plan, compare, fit again. Needs the extra torch."""

from pathlib import Path

import isocompute_sdk as iso
from isocompute_torch.tasks import prepare

prepare("closed-loop/task", family="mul31", kind="easy", seed=0)
study = iso.load_study(Path(__file__).parents[1] / "specs" / "closed_loop.yaml")
loop = iso.Campaign(study, "closed-loop")
print(loop.fit().summary())  # trains the pilot sweep first
print(loop.allocate().summary())
print(loop.compare().summary())  # trains the plan first; started again after a stop, everything goes on where it was
print(loop.refit().summary())
