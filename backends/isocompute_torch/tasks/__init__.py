"""Tasks without downloads: generated arithmetic and a tiny model, warmed up in seconds and saved to a folder.

`prepare` makes a task, or reuses the one in the folder; on the command line, `python -m isocompute_torch.tasks FOLDER`
does the same. Importing this package loads no torch.
"""

from isocompute_torch.tasks.prepare import PreparedTask, load, prepare
from isocompute_torch.tasks.problem_families import FAMILIES
from isocompute_torch.tasks.settings import KINDS, Kind, ModelShape, TaskSettings, WarmUp

__all__ = ["FAMILIES", "KINDS", "Kind", "ModelShape", "PreparedTask", "TaskSettings", "WarmUp", "load", "prepare"]
