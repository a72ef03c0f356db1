"""Backends: the protocol, the registry, and the launch scripts they write (rendering, quoting, carried programs)."""

from isocompute_sdk.training.quoting import comment, heredoc, sh
from isocompute_sdk.training.rendering import render
from isocompute_sdk.training.script_backend import ScriptBackend

__all__ = ["ScriptBackend", "comment", "heredoc", "render", "sh"]
