"""The built-in forecaster's arithmetic: better than seasonal-naive, and not led astray."""

import subprocess
import sys

import numpy as np
import pytest

from bench.forecast import Case, series
from fairlead.engine.axes import Floats
from fairlead.placement.forecasts.smoothing import Ahead, forecast_series, seasonal_naive

SEASON, STEPS = 48, 4


def a_series(
    shape: str = "two-peaks", shift: str = "none", seed: int = 0, noise: float = 0.1, days: int = 10
) -> Floats:
    return series(Case(shape, noise, shift, seed), days, SEASON, 0.5)


def ahead(seen_T: Floats) -> Ahead:
    found = forecast_series(seen_T, SEASON, STEPS)
    assert isinstance(found, Ahead), found
    return found


def errors(value_T: Floats) -> tuple[float, float]:
    """Ours and seasonal-naive's, summed over moments of the last day."""
    ours = naive = 0.0
    for origin in range(len(value_T) - SEASON, len(value_T) - STEPS + 1, STEPS):
        came_H = value_T[origin : origin + STEPS]
        ours += float(np.abs(np.array(ahead(value_T[:origin]).steps) - came_H).sum())
        naive += float(np.abs(seasonal_naive(value_T[:origin], SEASON, STEPS) - came_H).sum())
    return ours, naive


@pytest.mark.parametrize("shift", ["none", "early", "yesterday", "today"])
@pytest.mark.parametrize("shape", ["sine", "office", "spike"])
def test_it_beats_seasonal_naive_whenever_the_level_shifts(shape: str, shift: str) -> None:
    both = [errors(a_series(shape, shift, seed)) for seed in range(3)]
    assert sum(ours for ours, _ in both) <= 0.9 * sum(naive for _, naive in both)


def test_a_pattern_without_noise_is_continued() -> None:
    value_T = a_series(noise=0.0)
    found = ahead(value_T[:-STEPS])
    assert np.allclose(found.steps, value_T[-STEPS:], rtol=0.01)
    assert found.baseline == pytest.approx(value_T[-STEPS - 1], rel=0.01)


def test_a_shift_of_an_hour_ago_is_half_followed() -> None:
    value_T = a_series(noise=0.02)
    usual = ahead(value_T).steps[0]
    value_T[-6:] += 10.0
    assert ahead(value_T).steps[0] > usual + 5.0


@pytest.mark.parametrize("gaps", ["scattered", "a night", "the last hour"])
def test_gaps_hardly_matter(gaps: str) -> None:
    whole_T = a_series()
    holed_T = whole_T.copy()
    if gaps == "scattered":
        holed_T[np.random.default_rng(1).choice(len(holed_T), len(holed_T) // 5, replace=False)] = np.nan
    elif gaps == "a night":
        holed_T[-70:-50] = np.nan
    else:
        holed_T[-2:] = np.nan
    assert np.allclose(ahead(holed_T).steps, ahead(whole_T).steps, atol=0.8)


@pytest.mark.parametrize(
    ("seen_T", "said"),
    [
        (np.ones(2 * SEASON - 1), "95 steps of history are fewer than 2 seasons of 48"),
        (np.concatenate([np.full(200, np.nan), np.ones(50)]), "50 steps of history are fewer than 2 seasons of 48"),
        (np.zeros(0), "0 steps of history are fewer than 2 seasons of 48"),
        (np.full(200, np.nan), "0 steps of history are fewer than 2 seasons of 48"),
        (np.concatenate([np.ones(10), np.full(80, np.nan), np.ones(40)]), "80 of 130 steps of history are missing"),
        (np.concatenate([np.ones(100), np.full(30, np.nan), np.ones(10)]), "30 of the last 48 steps are missing"),
    ],
)
def test_too_little_history_is_said(seen_T: Floats, said: str) -> None:
    assert forecast_series(seen_T, SEASON, STEPS) == said


@pytest.mark.parametrize("level", [0.0, 1e-9, 3.0, 1e12])
def test_what_never_changes_goes_on_at_any_size(level: float) -> None:
    found = ahead(np.full(3 * SEASON, level))
    assert np.allclose((found.baseline, *found.steps), level, rtol=1e-6, atol=0)


def test_nothing_falls_below_zero_and_nonsense_is_not_seen() -> None:
    value_T = np.maximum(a_series() - 12.0, 0.0)
    value_T[5], value_T[60], value_T[100] = -7.0, np.inf, np.nan
    assert min(ahead(value_T).steps) >= 0.0


def test_the_heavy_library_is_not_imported_with_the_module() -> None:
    look = (
        "import sys, fairlead.placement.forecasts.compose, fairlead.placement.forecasts.smoothing\n"
        "print([name for name in ('statsmodels', 'elasticsearch') if name in sys.modules])"
    )
    seen = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    assert seen.stdout.strip() == "[]"
