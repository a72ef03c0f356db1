"""Which n of a group is best: odds and paired differences at computes that several n reached."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isocompute_sdk.auditing.result import RunAudit, SizeAudit, SizeComparison, SizeVerdict
from isocompute_sdk.auditing.standing import SEEN, SURE, Field, place
from isocompute_sdk.fitting.fit_parts import Configuration
from isocompute_sdk.fitting.surface.answers import difference, draws_at, estimate
from isocompute_sdk.phrases import short


def compare_sizes(known: Field, runs: Sequence[RunAudit]) -> tuple[SizeComparison, ...]:
    """Comparisons at the largest compute that two n reached and, if smaller, at the largest that all n reached."""
    last: dict[int, float] = {}
    for (n, _), (_, end) in known.reach.items():
        last[n] = max(last.get(n, 0.0), end)
    ends = sorted(last.values(), reverse=True)
    if len(ends) < 2:
        return ()
    at = [ends[1]]
    if ends[-1] * SEEN < ends[1]:
        at.append(ends[-1])
    return tuple(_compare(known, runs, compute) for compute in at)


def _compare(known: Field, runs: Sequence[RunAudit], compute: float) -> SizeComparison:
    there = {key for key, (first, end) in known.reach.items() if end * SEEN >= compute >= first * 0.95}
    best: dict[int, Configuration] = {}
    means = {key: float(draws_at(known.surface, place(key, compute, None)).mean()) for key in there}
    for key in sorted(there, key=lambda k: (k[0], k[1] or 0)):
        if key[0] not in best or means[key] > means[best[key[0]]]:
            best[key[0]] = key
    top = max(best.values(), key=lambda key: round(means[key], 12))
    drawn_DK = np.stack([draws_at(known.surface, place(key, compute, None)) for key in best.values()], axis=1)
    odds = np.bincount(np.argmax(drawn_DK, axis=1), minlength=len(best)) / len(drawn_DK)
    sizes = tuple(
        SizeAudit(
            group_size=n,
            problems_per_batch=key[1],
            runs=sum(run.group_size == n and run.rollouts * SEEN >= compute for run in runs),
            reward=estimate(drawn_DK[:, i], known.level),
            behind=difference(known.surface, place(top, compute, None), place(key, compute, None), known.level),
            probability_best=float(odds[i]),
        )
        for i, (n, key) in enumerate(best.items())
    )
    verdict, sentence = _verdict(sizes, top[0], compute, known)
    return SizeComparison(compute, sizes, verdict, sentence)


def _verdict(sizes: Sequence[SizeAudit], top: int, compute: float, known: Field) -> tuple[SizeVerdict, str]:
    others = [one for one in sizes if one.group_size != top]
    at = f"at {short(compute)} rollouts"
    if len({bp for _, bp in known.reach}) > 1:
        at += ", each n at its best B_p,"
    measure = known.fits.metric
    if not others:
        return "one-size", f"{at} only n = {top} was run"
    worst = max(others, key=lambda one: one.behind.mean)
    furthest = max(one.behind.high for one in others)
    if worst.behind.mean <= known.tie and furthest <= SURE * known.tie:
        return "hardly-matters", (
            f"{at} n hardly matters: from n = {sizes[0].group_size} to {sizes[-1].group_size} expected {measure} "
            f"differs by {worst.behind.mean:.3f}, at most by {furthest:.3f}; choose what suits the hardware"
        )
    rivals = [one for one in others if one.behind.low <= 0]
    beaten = [one for one in others if one not in rivals]
    ahead_of = ", ".join(f"n = {one.group_size} by {_by(one)}" for one in beaten)
    if not rivals:
        return "ahead", f"{at} n = {top} is ahead of {ahead_of}"
    names = ", ".join(str(one.group_size) for one in rivals)
    rest = f"; it is ahead of {ahead_of}" if ahead_of else ""
    if all(one.behind.mean <= known.tie and one.behind.high <= SURE * known.tie for one in rivals):
        return "tie", f"{at} n = {top} and n = {names} tie, within {known.tie:g} of {measure}{rest}"
    close = ", ".join(f"n = {one.group_size} (ahead by {_by(one)})" for one in rivals)
    return "undecided", f"{at} n = {top} looks best, but these runs cannot tell it from {close}{rest}"


def _by(one: SizeAudit) -> str:
    return f"{one.behind.mean:.3f} [{one.behind.low:.3f}, {one.behind.high:.3f}]"
