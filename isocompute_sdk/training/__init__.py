"""Backends: the protocol, the registry, and the launch scripts that backends write.

These names are what a backend needs; `checks` holds the notes that the built-in backends share, `payload` the programs
that a launch script carries.
"""

from isocompute_sdk.training import checks
from isocompute_sdk.training.backend import (
    Backend,
    BackendInfo,
    BackendOption,
    FrameworkOptions,
    Launch,
    Needs,
    describe_options,
    invalid_option,
    read_options,
    run_folder,
)
from isocompute_sdk.training.framework import ScriptBackend
from isocompute_sdk.training.payload import programs
from isocompute_sdk.training.rendering import comment, heredoc, render, sh

__all__ = [
    "Backend",
    "BackendInfo",
    "BackendOption",
    "FrameworkOptions",
    "Launch",
    "Needs",
    "ScriptBackend",
    "checks",
    "comment",
    "describe_options",
    "heredoc",
    "invalid_option",
    "programs",
    "read_options",
    "render",
    "run_folder",
    "sh",
]
