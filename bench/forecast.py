"""The built-in forecaster beside seasonal-naive: `scripts/bench forecast [--seeds N] [--shapes …] [--noise …] …`.

Days with a pattern, noise and a level shift are generated; from many moments of the last day the next steps are
forecast and compared with what came. `mase` is the mean absolute error over that of seasonal-naive (as one day ago)
for the same moments; `mase_in_sample` is the textbook's, over seasonal-naive's error in the history, for the cases
whose shift lies in the history. Ends with exit code 1 if either is above 0.9.
"""

import argparse
import json
import statistics
import sys
import time
from typing import NamedTuple

import numpy as np

from fairlead.engine.axes import Floats
from fairlead.placement.forecasts.smoothing import forecast_series, seasonal_naive

BAR = 0.9
LEVEL = 10.0
SHAPES = ("sine", "two-peaks", "office", "spike", "saw")
SHIFTS = ("none", "early", "yesterday", "today")


class Case(NamedTuple):
    shape: str
    noise: float
    shift: str
    seed: int


class Errors(NamedTuple):
    ours: float
    naive: float
    in_history: float


def pattern(shape: str, phase_T: Floats) -> Floats:
    """−1 to about 1 over a day."""
    if shape == "sine":
        return np.sin(2 * np.pi * phase_T)
    if shape == "two-peaks":
        return (np.sin(2 * np.pi * phase_T) + 0.5 * np.sin(4 * np.pi * phase_T + 1)) / 1.3
    if shape == "office":
        return np.where((phase_T > 0.35) & (phase_T < 0.75), 1.0, -1.0)
    if shape == "spike":
        return 2 * np.exp(-(((phase_T - 0.5) / 0.04) ** 2)) - 1
    return 2 * phase_T - 1


def series(case: Case, days: int, season: int, height: float) -> Floats:
    rng = np.random.default_rng(case.seed)
    step_T = np.arange(days * season)
    value_T = LEVEL + 4.0 * pattern(case.shape, (step_T / season + rng.uniform()) % 1.0)
    at = {"none": days, "early": 0.25 * days, "yesterday": days - 1.3, "today": days - 0.5}[case.shift]
    value_T[int(at * season) :] += height * LEVEL
    noise_T = rng.normal(0.0, case.noise * 4.0, len(value_T))
    return np.maximum(value_T + noise_T, 0.0)


def judged(value_T: Floats, season: int, steps: int, every: int) -> Errors:
    ours, naive, history = [], [], []
    for origin in range(len(value_T) - season, len(value_T) - steps + 1, every):
        past_T, came_H = value_T[:origin], value_T[origin : origin + steps]
        ahead = forecast_series(past_T, season, steps)
        if isinstance(ahead, str):
            raise SystemExit(f"no forecast: {ahead}")
        ours.append(float(np.abs(np.array(ahead.steps) - came_H).mean()))
        naive.append(float(np.abs(seasonal_naive(past_T, season, steps) - came_H).mean()))
        history.append(float(np.abs(past_T[season:] - past_T[:-season]).mean()))
    return Errors(statistics.fmean(ours), statistics.fmean(naive), statistics.fmean(history))


def over(part: list[float], whole: list[float]) -> float:
    return round(sum(part) / sum(whole), 4) if sum(whole) else 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="so many seeds for each case")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--days", type=int, default=14, help="days of history, the judged one among them; 3 or more")
    parser.add_argument("--step-s", type=int, default=900, help="the grid")
    parser.add_argument("--horizon-s", type=int, default=3600)
    parser.add_argument("--every-s", type=int, default=4 * 3600, help="between the moments forecasts are made at")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--noise", nargs="+", type=float, default=[0.1, 0.3], help="sigma, as a share of the swing")
    parser.add_argument("--shifts", nargs="+", choices=SHIFTS, default=list(SHIFTS), help="when the level shifts")
    parser.add_argument("--shift", type=float, default=0.5, help="by how much, as a share of the level")
    args = parser.parse_args()
    if args.days < 3 or args.seeds < 1 or 86400 % args.step_s or args.horizon_s < args.step_s:
        parser.error("wanted 3 days or more, a seed, a step that divides a day and a horizon of a step or more")
    season, steps = 86400 // args.step_s, args.horizon_s // args.step_s
    every = max(1, args.every_s // args.step_s)

    started_s, forecasts = time.process_time(), 0
    by_case: dict[tuple[str, float, str], list[Errors]] = {}
    for shape in args.shapes:
        for noise in args.noise:
            for shift in args.shifts:
                for seed in range(args.first_seed, args.first_seed + args.seeds):
                    value_T = series(Case(shape, noise, shift, seed), args.days, season, args.shift)
                    by_case.setdefault((shape, noise, shift), []).append(judged(value_T, season, steps, every))
                    forecasts += len(range(len(value_T) - season, len(value_T) - steps + 1, every))
    cpu_ms = 1000 * (time.process_time() - started_s) / max(1, forecasts)

    worst, settled = 0.0, []
    print(f"{'shape':<10} {'noise':>6} {'shift':<10} {'MASE':>6} {'in-sample':>10}")
    for (shape, noise, shift), errors in by_case.items():
        mase = over([each.ours for each in errors], [each.naive for each in errors])
        in_sample = over([each.ours for each in errors], [each.in_history for each in errors])
        worst = max(worst, mase)
        if shift != "today":
            settled += errors
        print(f"{shape:<10} {noise:>6.2f} {shift:<10} {mase:>6.3f} {in_sample:>10.3f}")
    # Each case counts alike, whatever its unit: the mean of the cases' ratios.
    result = {
        "mase": round(statistics.fmean(over([e.ours], [e.naive]) for many in by_case.values() for e in many), 4),
        "mase_in_sample": round(statistics.fmean(over([e.ours], [e.in_history]) for e in settled), 4) if settled else 0,
        "worst_case_mase": worst,
        "bar": BAR,
        "cases": len(by_case),
        "seeds": args.seeds,
        "forecasts": forecasts,
        "cpu_ms_per_forecast": round(cpu_ms, 2),
    }
    print(json.dumps(result))
    return 0 if max(result["mase"], result["mase_in_sample"]) <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
