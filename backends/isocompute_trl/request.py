"""request.json of a TRL run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from isocompute_sdk.documents import Document
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.request_file import Request, identity
from isocompute_trl.flags import VERSION, processes
from isocompute_trl.options import TRLOptions

REQUEST = "request.json"


@dataclass(frozen=True, kw_only=True)
class TRLRequest(Request):
    """Content of request.json."""

    chat_template: bool
    eval_samples_per_pass: Annotated[int, Field(ge=1)]
    context: dict[str, Any]
    """Context of the run, for its journal."""


REQUEST_DOCUMENT = Document(
    "trl-run", 1, TRLRequest, signed=False, remedy="Run launch.sh again in the same place; it rewrites the file."
)


def request_of(run: RunSpec, options: TRLOptions) -> TRLRequest:
    """The request of a run.

    Its identity has no options that only affect speed and memory, so a run can be resumed with others.
    """
    count = processes(run, options)
    return TRLRequest(
        framework="trl",
        version=VERSION,
        run=run,
        identity=identity(
            run,
            version=VERSION,
            chat_template=options.chat_template,
            sampler=options.sampler,
            sharding=options.sharding if count > 1 else None,
            processes=count,
        ),
        chat_template=options.chat_template,
        eval_samples_per_pass=options.eval_samples_per_pass,
        context=dict(run.context()),
    )
