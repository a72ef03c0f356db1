"""All notes on an OpenRLHF run before it starts.

Notes on the recipe are in recipe_notes.py, those on GPUs and batches in placement.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from isocompute_openrlhf.flags import MISREAD_IN_PATHS
from isocompute_openrlhf.options import OpenRLHFOptions
from isocompute_openrlhf.payload.supervise import log_spaced
from isocompute_openrlhf.placement import Placement, place
from isocompute_openrlhf.recipe_notes import recipe_notes
from isocompute_sdk.errors import SpecError
from isocompute_sdk.notes import Note, unique
from isocompute_sdk.specs import RunSpec
from isocompute_sdk.training import checks
from isocompute_sdk.training.backend import invalid_option, read_options
from isocompute_sdk.training.request_file import checkpoint_interval


def examine(run: RunSpec) -> tuple[tuple[Note, ...], OpenRLHFOptions | None, Placement | None]:
    """All notes on a run, with its options and placement (None if refused)."""
    options, notes = read_options(run, OpenRLHFOptions)
    placement = None
    if options is not None:
        placement, placed = place(run, options)
        notes += (*placed, *_checkpoints(run, options), *_early_stop(run, options))
    files, misnamed = _problem_files(run, options)
    notes += (*misnamed, *recipe_notes(run), *_evaluation(run), *checks.data_formats(files), *_amounts(run))
    notes += (*_paths(run, files), *_seed(run, placement))
    nodes = checks.several_nodes(placement.nodes, placement.gpus_per_node) if placement is not None else []
    return unique((*run.recipe.notes(), *notes, *_order(run), *nodes)), options, placement


def _evaluation(run: RunSpec) -> list[Note]:
    evaluation, notes = run.evaluation, [*checks.evaluation_top_p(run, "OpenRLHF"), *checks.best_reward(run)]
    if evaluation.every_steps > run.update_steps:
        message = (
            f"evaluation every {evaluation.every_steps} steps, but the run has only {run.update_steps}: it is never "
            f"evaluated. Set evaluation.every_steps to about {max(1, run.update_steps // 10)}."
        )
        return [*notes, Note("never-evaluated", "warning", message)]
    message = "OpenRLHF does not evaluate the base model before the first update step."
    rest = run.update_steps % evaluation.every_steps
    if rest:
        message += f" The last {rest} of {run.update_steps} steps have no evaluation."
    return [*notes, Note("evaluation-gaps", "info", message, {"steps_after_last_evaluation": rest})]


def _checkpoints(run: RunSpec, options: OpenRLHFOptions) -> list[Note]:
    interval = checkpoint_interval(run, options.save_every_steps)
    spaced = len(log_spaced(interval, run.update_steps))
    copies = spaced + options.keep_checkpoints + options.save_best
    best = ", and the best" if options.save_best else ""
    critic = ", and as much again for the value model" if run.recipe.algorithm == "ppo" else ""
    message = (
        f"a checkpoint every {interval} steps; the newest {options.keep_checkpoints} are kept, those at 1, 2, 4 ... "
        f"times {interval} steps{best}: up to {copies + 1} on disk, about 14 bytes per parameter each{critic}. A "
        "resumed run continues from the last one with the same order of problems, but other random numbers."
    )
    data = {"every_steps": interval, "newest": options.keep_checkpoints, "log_spaced": spaced, "most": copies + 1}
    return [Note("checkpoints", "info", message, data)]


def _early_stop(run: RunSpec, options: OpenRLHFOptions) -> list[Note]:
    """Notes on the option stop_after_steps."""
    wanted = options.stop_after_steps
    if wanted is None:
        return []
    data = {"stop_after_steps": wanted, "update_steps": run.update_steps}
    if wanted >= run.update_steps:
        message = (
            f"option stop_after_steps = {wanted} has no effect: the run ends after {run.update_steps} update steps. "
            "Set update_steps to the longest length you may want, and stop_after_steps below it."
        )
        return [Note("option-without-effect", "refuse", message, data)]
    interval = checkpoint_interval(run, options.save_every_steps)
    end = min(-(-wanted // interval) * interval, run.update_steps)
    message = (
        f"written for {run.update_steps} update steps, stopped after {end} (first checkpoint at or beyond {wanted}). "
        "Rows, warm-up and learning rate are those of the long run, so it can be continued later."
    )
    return [Note("stops-early", "info", message, {**data, "ends_after": end})]


def _problem_files(run: RunSpec, options: OpenRLHFOptions | None) -> tuple[dict[str, str], list[Note]]:
    """Every file of problems by field of the spec, and refusals of names of evaluation sets."""
    files = checks.problem_files(run)
    try:
        further = {} if options is None else options.evaluation_files()
    except SpecError as error:
        return files, [invalid_option(error)]
    return files | {f"evaluation set {name}": file for name, file in further.items()}, []


def _amounts(run: RunSpec) -> list[Note]:
    """Notes on the number of training problems and the length of prompts."""
    notes = checks.problems_per_batch(run)
    known = run.data.n_problems
    rows = run.problems_per_batch * run.update_steps
    if known is not None and run.problems_per_batch <= known < rows:
        message = (
            f"{rows} rows from {known} problems ({rows / known:.1f} epochs): OpenRLHF shuffles the rows across epochs, "
            "so a batch can contain a problem twice."
        )
        notes.append(Note("epochs-are-mixed", "info", message, {"epochs": rows / known}))
    message = (
        f"prompts longer than {run.recipe.max_prompt_tokens} tokens (recipe.max_prompt_tokens) are cut at the "
        "beginning, with only a warning in the log. Remove such problems first."
    )
    return [*notes, Note("long-prompts-cut", "info", message)]


def _paths(run: RunSpec, files: Mapping[str, str]) -> list[Note]:
    """Refusals of paths that bash or OpenRLHF would misread."""
    named = checks.named_paths(run, files)
    notes = [
        Note("nul-character", "refuse", f"{field} = {value!r} contains a NUL character. Remove it.")
        for field, value in named.items()
        if "\0" in value
    ]
    notes += checks.home_folders(named)
    bad = [mark for mark in MISREAD_IN_PATHS if mark in run.output_dir]
    if bad:
        message = (
            f"output_dir = {run.output_dir!r} contains {', '.join(map(repr, bad))}: OpenRLHF splits paths at ',' and "
            "'@', and its data loader reads the others as a pattern or an address. Choose another folder."
        )
        notes.append(Note("path-misread", "refuse", message, {"characters": bad}))
    return notes


def _seed(run: RunSpec, placement: Placement | None) -> list[Note]:
    engines = placement.engines if placement is not None else 1
    if run.seed + engines <= 2**32:
        return []
    message = f"seed = {run.seed}: engine i uses seed + i, which must stay below 2^32 = {2**32} for {engines} engines."
    return [Note("seed-too-large", "refuse", message)]


def _order(run: RunSpec) -> list[Note]:
    message = (
        f"seed = {run.seed} fixes rows, workers and sampling, but OpenRLHF shuffles the rows again without a seed: "
        "two runs with the same seed see the problems in different orders. The number of rows is exact "
        f"({run.problems_per_batch * run.update_steps}), so there are {run.update_steps} update steps."
    )
    return [Note("problem-order-unseeded", "info", message)]
