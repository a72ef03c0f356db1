"""Fuzz as `fuzz.py` does, guided by coverage: a damaged file that reaches new code of ours is damaged further.

    pip install atheris
    python scripts/fuzz_guided.py --seconds 3600

shares the seconds among the kinds and runs each in a process of its own. Files that reached new code are kept under
`--corpus`, and the next run begins with them.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["isocompute_sdk"]) if "--one" in sys.argv else nullcontext():
    import fuzz

    def guided(name: str, corpus: Path, seconds: float, seed: int, keep: Path) -> None:
        """Fuzz one kind; the process ends with the time."""
        fuzz.limit()
        with tempfile.TemporaryDirectory() as scratch:
            kind = fuzz.kinds(Path(scratch))[name]
            clean = fuzz.checked(name, kind)
            before = (kind.path / kind.inside).read_bytes()
            target = Path(scratch) / "damaged" / kind.path.name
            tally, refused = fuzz.Tally(keep), set[int]()
            end = time.monotonic() + seconds

            def one(after: bytes) -> None:
                outcome = fuzz.outcome_of(kind, clean, target, before, after)
                tally.add(name, kind, outcome, after)
                if outcome == "refused":
                    refused.add(hash(after))
                if time.monotonic() > end:
                    tally.print()
                    os._exit(1 if tally.bad else 0)

            def mutate(data: bytes, limit: int, seed: int) -> bytes:
                # A refused file leads to refused ones only.
                base = before if not data or hash(data) in refused else data
                return fuzz.damaged(base, random.Random(seed))[:limit]

            corpus.mkdir(parents=True, exist_ok=True)
            (corpus / "clean").write_bytes(before)
            options = [f"-seed={seed + 1}", f"-max_len={4 * len(before)}", "-reduce_inputs=0", "-verbosity=0"]
            atheris.Setup([sys.argv[0], str(corpus), *options], one, custom_mutator=mutate)
            atheris.Fuzz()

    def main() -> int:
        """Fuzz every kind for its share of the time, or one."""
        parser = fuzz.parser(__doc__)
        parser.add_argument("--corpus", type=Path, default=Path("fuzz-corpus"))
        parser.add_argument("--one", help="the kind of this process")
        options = parser.parse_args()
        if options.one:
            place = options.corpus / options.one.replace(" ", "-")
            guided(options.one, place, options.seconds, options.seed, options.keep)
        with tempfile.TemporaryDirectory() as scratch:
            known = [name for name in fuzz.kinds(Path(scratch)) if name.startswith(tuple(options.kinds))]
        ends: list[int] = []
        for name in known:
            share = ["--one", name, "--seconds", str(options.seconds / len(known))]
            done = subprocess.run([sys.executable, *sys.argv, *share], stderr=subprocess.PIPE, text=True, check=False)
            ends.append(done.returncode)
            if done.returncode not in (0, 1):
                print(f"{name}: ended with {done.returncode}\n{done.stderr[-2000:]}", flush=True)
        return max(map(abs, ends), default=0)

    if __name__ == "__main__":
        sys.exit(main())
