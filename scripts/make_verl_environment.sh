#!/usr/bin/env bash
# An environment with veRL 0.9.1 on a CPU, for the slow tests that run its own checks and loggers:
#
#   bash scripts/make_verl_environment.sh FOLDER
#   ISOCOMPUTE_VERL_PYTHON=FOLDER/bin/python python -m pytest -m slow tests/backends/verl
#
# veRL needs an environment of its own because it requires transformers below 5.11. PYTHON selects the interpreter
# (default: python3).
set -euo pipefail

if (( $# != 1 )); then
  echo "usage: make_verl_environment.sh FOLDER" >&2
  exit 2
fi
"${PYTHON:-python3}" -m venv "$1"
"$1/bin/python" -m pip install torch==2.13.0 verl==0.9.1 "transformers<5.11"
