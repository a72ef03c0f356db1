"""Tasks that need no download: generated arithmetic with a tiny model, warmed up in seconds and kept on disk.

`prepare` makes one or takes the one that is there; `python -m isocompute_torch.tasks FOLDER` is the same on the command
line. Importing this loads no torch.
"""

from isocompute_torch.tasks.families import FAMILIES
from isocompute_torch.tasks.prepare import PreparedTask, load, prepare
from isocompute_torch.tasks.settings import KINDS, Kind, ModelShape, TaskSettings, WarmUp

__all__ = ["FAMILIES", "KINDS", "Kind", "ModelShape", "PreparedTask", "TaskSettings", "WarmUp", "load", "prepare"]
