"""Launch scripts: Jinja2 with strict undefined variables, every value quoted for the shell."""

from isocompute_sdk.launch.quoting import comment, heredoc, sh
from isocompute_sdk.launch.rendering import render, render_resource

__all__ = ["comment", "heredoc", "render", "render_resource", "sh"]
