"""Figures to verdicts: medians, spread, paired ratios with their interval, and the tables."""

import random
import statistics

from plan import ELSEWHERE, PAIRS_MIN, TARGETS

RESAMPLES = 4000


def good(runs, scenario, label):
    """The runs of one program in one scenario that came through, by repeat."""
    return {
        run["repeat"]: run
        for run in runs
        if run["scenario"] == scenario and run["label"] == label and "failed" not in run
    }


def failure(runs, scenario, label):
    """Why a program has no figure."""
    for run in runs:
        if run["scenario"] == scenario and run["label"] == label and "failed" in run:
            return run["failed"]
    return None


def interval(values):
    """95 % interval of the median, by bootstrap with a fixed seed."""
    rng = random.Random(1)
    medians = sorted(
        statistics.median(rng.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    return medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES) - 1]


def paired(runs, target):
    """The figure of each repeat: a ratio of two runs next to each other, or the figure itself."""
    ours = good(runs, target.scenario, target.ours)
    if target.reference is None:
        return [run[target.metric] for run in ours.values() if target.metric in run]
    reference = good(runs, target.scenario, target.reference)
    return [
        ours[repeat][target.metric] / reference[repeat][target.metric]
        for repeat in sorted(ours.keys() & reference.keys())
        if reference[repeat][target.metric] > 0
    ]


# An interval whose ends are further apart than this reaches any target by noise alone.
WIDE = 1.5


def judge(runs, target, missing, quick):
    """One row of the targets table, as a dict."""
    row = {
        "row": target.row,
        "target": ("at least " if target.at_least else "at most ") + f"{target.limit:.2f}",
    }
    if target.scenario in missing:
        return row | {"verdict": "COULD NOT RUN", "why": missing[target.scenario]}
    figures = paired(runs, target)
    if not figures:
        why = (
            failure(runs, target.scenario, target.ours)
            or failure(runs, target.scenario, target.reference)
            or f"no figure {target.metric}"
        )
        return row | {"verdict": "COULD NOT RUN", "why": why}
    low, high = interval(figures)
    median = statistics.median(figures)
    row |= {"pairs": len(figures), "median": median, "low": low, "high": high}
    if quick:
        return row | {"verdict": "NOT JUDGED", "why": "quick run"}
    if target.is_close() and len(figures) < PAIRS_MIN:
        return row | {"verdict": "NOT JUDGED", "why": f"{len(figures)} of {PAIRS_MIN} pairs"}
    if target.is_close() and high > WIDE * low:
        return row | {"verdict": "NOT JUDGED", "why": "the interval is too wide to say anything"}
    best = (high if target.at_least else low) if target.is_close() else median
    reached = best >= target.limit if target.at_least else best <= target.limit
    return row | {"verdict": "pass" if reached else "FALLS SHORT"}


def judge_all(runs, scenarios, missing, quick):
    """The rows of the scenarios that were asked for."""
    asked = {scenario.name for scenario in scenarios}
    return [judge(runs, target, missing, quick) for target in TARGETS if target.scenario in asked]


def spread(values, digits):
    """Median and range as text."""
    low, high = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def print_table(head, rows):
    """A Markdown table that is readable as text."""
    widths = [max(len(row[i]) for row in [head] + rows) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths]] + rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


def print_scenario(runs, scenario, phases):
    """All programs of a scenario, cheapest first."""
    print(f"\n## {scenario.title} ({scenario.name})\n")
    large = scenario.size >= 64 << 10
    base = good(runs, scenario.name, scenario.baseline)
    rows = []
    for program in scenario.programs:
        ok = list(good(runs, scenario.name, program.label).values())
        if not ok:
            why = failure(runs, scenario.name, program.label) or "not run"
            rows.append(
                (
                    float("inf"),
                    [program.label, f"FAILED: {why.splitlines()[-1] if why else ''}"] + [""] * 7,
                )
            )
            continue
        values = [run["cpu_us_op"] for run in ok]
        ratios = [
            run["cpu_us_op"] / base[run["repeat"]]["cpu_us_op"]
            for run in ok
            if run["repeat"] in base
        ]
        latency = any(run["latencies"] for run in ok)
        rows.append(
            (
                statistics.median(values),
                [
                    program.label,
                    spread(values, 1 if large else 3),
                    f"{statistics.median(ratios):.2f}" if ratios else "-",
                    spread([run["ops_s"] / 1e3 for run in ok], 1),
                    f"{statistics.median(run['cpu_share'] for run in ok):.2f}",
                    spread([run["p50_us"] for run in ok], 1) if latency else "-",
                    spread([run["p99_us"] for run in ok], 1) if latency else "-",
                    f"{max(run['max_us'] for run in ok):.1f}" if latency else "-",
                    str(len(ok)),
                ],
            )
        )
    head = [
        "program",
        "CPU us/command",
        f"x {scenario.baseline}",
        "k commands/s",
        "cpus used",
        "p50 us",
        "p99 us",
        "max us",
        "n",
    ]
    print_table(head, [row for _, row in sorted(rows, key=lambda row: row[0])])
    if len(phases) > 1:
        cost = spread(phases, 3)
        print(f"\nThe machine: one fixed short run before each repeat cost {cost} us/command.")


def print_targets(rows):
    """The verdicts, row by row."""
    print("\n## Targets\n")
    lines = []
    for row in rows:
        figure = (
            f"{row['median']:.3f} ({row['low']:.3f}-{row['high']:.3f})" if "median" in row else "-"
        )
        why = f" ({row['why'].splitlines()[-1][:100]})" if row.get("why") else ""
        lines.append(
            [row["row"], row["target"], figure, str(row.get("pairs", 0)), row["verdict"] + why]
        )
    lines += [[row, "-", "-", "-", where] for row, where in ELSEWHERE]
    print_table(["row", "target", "median of pairs (95 % interval)", "pairs", "verdict"], lines)
