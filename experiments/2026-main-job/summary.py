"""Gather the seeds of the main job into one table, and check its claims.

.venv/bin/python experiments/2026-main-job/summary.py runs/main-job [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

LEARN_NOTHING = ("untrained", "random", "shuffled", "redrawn", "unigram", "bigram")
ROWS = (*LEARN_NOTHING, "embeddings", "found", "dense")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, help="write the numbers of the table here")
    options = parser.parse_args()
    paths = sorted(options.folder.glob("seed*.ticket.run/results.json"))
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    if not runs:
        parser.error(f"{options.folder} has no finished run; start with ./run")
    table = {row: [test_bits(run, row) for run in runs] for row in ROWS}
    gaps = [run["gap_closed"] for run in runs]
    print(f"{len(runs)} seeds; bits per byte on the test split: mean (sd)")
    for row, values in table.items():
        print(f"{row:12} {statistics.mean(values):.3f} ({statistics.stdev(values):.3f})")
    each = ", ".join(f"{gap:.1%}" for gap in gaps)
    print(f"gap closed   {statistics.mean(gaps):.1%}, by seed {each}")
    for claim, shown in claims(table, gaps).items():
        print(f"{'shown' if shown else 'NOT SHOWN':10} {claim}")
    if options.json:
        arms = [run["arms"] for run in runs]
        rates = {row: [arm[row]["tried"] for arm in arms] for row in ("embeddings", "dense")}
        held = {"test_bits_per_byte": table, "gap_closed": gaps, "valid_by_rate": rates}
        held |= {"settings": runs[0]["settings"], "versions": runs[0]["versions"]}
        options.json.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")


def test_bits(run: dict[str, Any], row: str) -> float:
    """Bits per byte of one row of one run, on the test split."""
    bits: float = (run["arms"] | run["baselines"])[row]["bits_per_byte"]["test"]
    return bits


def claims(table: dict[str, list[float]], gaps: list[float]) -> dict[str, bool]:
    """What the runs show, over three seeds or more."""
    enough = len(gaps) >= 3
    best_other = [min(pair) for pair in zip(table["bigram"], table["embeddings"], strict=True)]
    beaten = all(found < other for found, other in zip(table["found"], best_other, strict=True))
    return {
        "masks alone close at least 50 % of the gap from bigram to dense, on average": enough
        and statistics.mean(gaps) >= 0.5,
        "masks alone close at least 80 % of it": enough and statistics.mean(gaps) >= 0.8,
        "masks alone beat bigram and trained embeddings on every seed": enough and beaten,
    }


if __name__ == "__main__":
    main()
