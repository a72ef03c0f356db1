"""Tasks without downloads: generated arithmetic and a tiny model, warmed up in seconds and saved to a folder.

`prepare` makes a task, or reuses the one in the folder; on the command line, `python -m isocompute_torch.tasks FOLDER`
does the same. Importing this package loads no torch.
"""

from isocompute_torch.tasks.arithmetic import (
    FAMILIES,
    KINDS,
    Kind,
    ModelShape,
    PreparedTask,
    TaskSettings,
    WarmUp,
    load,
    prepare,
)

__all__ = ["FAMILIES", "KINDS", "Kind", "ModelShape", "PreparedTask", "TaskSettings", "WarmUp", "load", "prepare"]
