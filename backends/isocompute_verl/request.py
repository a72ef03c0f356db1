"""request.json of a veRL run."""

from __future__ import annotations

from dataclasses import dataclass

from isocompute_sdk.documents import Document
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training.request_file import Request, identity
from isocompute_verl.flags import VERSION, nodes
from isocompute_verl.options import VeRLOptions

REQUEST = "request.json"
KIND = "verl-run"


@dataclass(frozen=True, kw_only=True)
class VeRLRequest(Request):
    """Content of request.json."""


REQUEST_DOCUMENT = Document(
    KIND, 1, VeRLRequest, signed=False, remedy="Run launch.sh again in the same place; it rewrites the file."
)


def request_of(run: RunSpec, options: VeRLOptions) -> VeRLRequest:
    """The request of a run.

    Its identity has no options that only affect speed and memory, so a run can be resumed with others. It has the
    GPUs, because a sharded checkpoint loads only with the same number.
    """
    return VeRLRequest(
        framework="verl",
        version=VERSION,
        run=run,
        identity=identity(run, version=VERSION, nodes=nodes(run, options), gpus=max(run.hardware.gpu_counts)),
    )
