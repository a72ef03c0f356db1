"""Figures in a notebook that names no backend."""

from __future__ import annotations

import os

import nbformat
from nbclient import NotebookClient

from tests.processes import HANG_SECONDS

CELLS = (
    "import isocompute_sdk as iso\nfits = iso.published('qwen2.5-7b-instruct/guru-math-easy')\niso.plot(fits)",
    "axes = iso.plot(fits)",
    "from isocompute_sdk import plots\nplots.figure_of(plots.allocation(fits))",
    "import matplotlib.pyplot as plt\nfigure, mine = plt.subplots()\niso.plot(fits, ax=mine)",
)


def test_every_plot_shows_once_in_a_fresh_notebook() -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    environment = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    NotebookClient(notebook, timeout=HANG_SECONDS, kernel_name="python3").execute(env=environment)
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in notebook.cells]
    assert pictures == [1] * len(CELLS)
