"""Launch scripts: Jinja2 with strict undefined variables, every value quoted for the shell."""

from isocompute_sdk.launch.quoting import comment, heredoc, sh
from isocompute_sdk.launch.rendering import render
from isocompute_sdk.launch.script_backend import ScriptBackend

__all__ = ["ScriptBackend", "comment", "heredoc", "render", "sh"]
