"""What a series of usage will do next: seasonal exponential smoothing by statsmodels, made robust around it.

A series on a regular grid goes in, with gaps as NaN, and the next steps come out, or a sentence why not. Gaps are
filled, what lies before a great jump of the level is let go of where enough comes after it, and the season to start
from is a mean that no single day can spoil. Pure; the library is an extra (`fairlead[forecast]`), heavy, and imported
only when the first series is forecast.
"""

import warnings
from typing import Final

import msgspec
import numpy as np

from fairlead.engine.axes import Floats

# Less than two seasons say nothing about a season.
FEWEST_SEASONS: Final = 2
# Of the seasons looked at, and of the last one, so much must have been seen.
KNOWN_SHARE: Final = 0.5
# The level always follows a little, so that no past, however quiet, makes it deaf; and never so fast that the noise
# of one step is taken for a new level an hour later.
LEVEL: Final = (0.05, 0.25)
SEASONAL: Final = (0.0, 0.5)
# A great jump: the medians of so many steps, as they differ from a season ago, part by so many times the usual error.
# Noise that lingers from step to step reaches a few; a jump that deserves to end the past reaches dozens.
AROUND: Final = 12
JUMP: Final = 20.0
# From so many seasons on, the mean season leaves out the strangest on each side.
TRIMMED_FROM: Final = 4
# A median of absolute deviations times this is a standard deviation.
SIGMA: Final = 1.4826


class Ahead(msgspec.Struct, frozen=True):
    """What is used now, freed of noise, and the steps that follow; never below zero."""

    baseline: float
    steps: tuple[float, ...]


def forecast_series(seen_T: Floats, season: int, steps: int) -> Ahead | str:
    """The next steps of a series, or why there are none. `season` is how many steps one takes."""
    seen_T = _history(np.asarray(seen_T, dtype=np.float64))
    reason = _too_little(seen_T, season)
    if reason:
        return reason
    scale = float(np.nanmean(seen_T))
    if scale == 0.0:
        return Ahead(0.0, (0.0,) * steps)
    value_T = _filled(seen_T / scale, season)
    value_T = value_T[_great_jump(value_T, season) :]
    now_and_next = _smoothed(value_T, season, steps) * scale
    if not np.isfinite(now_and_next).all():
        return "the smoothing did not settle"
    now, *following = np.maximum(now_and_next, 0.0).tolist()
    return Ahead(now, tuple(following))


def seasonal_naive(seen_T: Floats, season: int, steps: int) -> Floats:
    """As one season ago: what every forecast is measured against."""
    return np.resize(seen_T[-season:], steps)


def _smoothed(value_T: Floats, season: int, steps: int) -> Floats:
    """The present and the next steps."""
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    profile_S = _profile(value_T, season)
    model = ExponentialSmoothing(
        value_T,
        seasonal="add",
        seasonal_periods=season,
        initialization_method="known",
        initial_level=float(np.median(value_T[:season] - profile_S)),
        initial_seasonal=profile_S,
        bounds={"smoothing_level": LEVEL, "smoothing_seasonal": SEASONAL},
    )
    with warnings.catch_warnings():
        # Parameters at a bound are answers, and what did not settle is seen in the numbers.
        warnings.simplefilter("ignore")
        fit = model.fit(use_brute=False)
        return np.array([fit.level[-1] + fit.season[-1], *fit.forecast(steps)])


# -- what is there ------------------------------------------------------------------------------------------------


def _history(seen_T: Floats) -> Floats:
    """Infinite or negative is as good as not seen, and what comes before the first sample is no history."""
    seen_T = np.where(np.isfinite(seen_T) & (seen_T >= 0), seen_T, np.nan)
    known_T = np.isfinite(seen_T)
    return seen_T[int(known_T.argmax()) :] if known_T.any() else seen_T[:0]


def _too_little(seen_T: Floats, season: int) -> str:
    known = int(np.isfinite(seen_T).sum())
    if len(seen_T) < FEWEST_SEASONS * season:
        return f"{len(seen_T)} steps of history are fewer than {FEWEST_SEASONS} seasons of {season}"
    if known < KNOWN_SHARE * len(seen_T):
        return f"{len(seen_T) - known} of {len(seen_T)} steps of history are missing"
    recent = int(np.isfinite(seen_T[-season:]).sum())
    if recent < KNOWN_SHARE * season:
        return f"{season - recent} of the last {season} steps are missing"
    return ""


def _filled(seen_T: Floats, season: int) -> Floats:
    """A gap gets the usual of its hour, between the levels on its two sides."""
    known_T = np.isfinite(seen_T)
    if known_T.all():
        return seen_T
    usual_S = np.full(season, np.nan)
    for phase in range(season):
        of_phase = seen_T[phase::season]
        if np.isfinite(of_phase).any():
            usual_S[phase] = np.nanmedian(of_phase)
    usual_T = np.resize(_bridged(usual_S), len(seen_T))
    return usual_T + _bridged(seen_T - usual_T)


def _bridged(line_T: Floats) -> Floats:
    known_T = np.isfinite(line_T)
    return np.interp(np.arange(len(line_T)), np.flatnonzero(known_T), line_T[known_T])


def _great_jump(value_T: Floats, season: int) -> int:
    """Where the last great jump of the level is that still leaves enough seasons after it; 0 for none.

    It shows as a step in the difference from a season ago, and once more, turned, a season later.
    """
    apart_T = value_T[season:] - value_T[:-season]
    middle_T = np.median(np.lib.stride_tricks.sliding_window_view(apart_T, AROUND), axis=1)
    before_C, after_C = middle_T[:-AROUND], middle_T[AROUND:]
    if not len(before_C):
        return 0
    # The error of the median of w values is 1.25 σ/√w.
    usual = 1.25 * _noise(apart_T) * np.sqrt(2 / AROUND)
    height_C = np.abs(after_C - before_C)
    found = 0
    for at in np.flatnonzero(height_C > JUMP * max(usual, 1e-6)).tolist():
        if height_C[at] < height_C[max(0, at - AROUND) : at + AROUND + 1].max():
            continue
        is_turned = abs(before_C[at]) > abs(after_C[at])
        place = at + AROUND + (0 if is_turned else season)
        if len(value_T) - place >= FEWEST_SEASONS * season:
            found = max(found, place)
    return found


def _noise(apart_T: Floats) -> float:
    """The standard deviation of what is left beside steps, from how much neighbours differ."""
    return SIGMA * float(np.median(np.abs(np.diff(apart_T)))) / float(np.sqrt(2))


# -- the season to start from -------------------------------------------------------------------------------------


def _profile(value_T: Floats, season: int) -> Floats:
    """How each step of a season lies beside the level around it, on average over the seasons; phase 0 is the first."""
    around = np.full(season + 1, 1 / season)
    around[[0, -1]] /= 2
    level_T = np.convolve(value_T, around, "valid")
    half = season // 2
    apart_T = value_T[half : half + len(level_T)] - level_T
    profile_S = np.array([_middle(apart_T[(phase - half) % season :: season]) for phase in range(season)])
    profile_S -= profile_S.mean()
    # Neighbours are averaged where the noise that takes away outweighs the bends it takes off: the second difference
    # of the profile is its bend and six times its variance; averaging 1-2-1 costs a quarter of the bend and saves
    # five eighths of the variance.
    variance = (_noise(value_T[season:] - value_T[:-season]) ** 2 / 2) * season / len(apart_T)
    smoother_S = (np.roll(profile_S, 1) + 2 * profile_S + np.roll(profile_S, -1)) / 4
    bend = float(np.mean((4 * (smoother_S - profile_S)) ** 2))
    return smoother_S if bend < 16 * variance else profile_S


def _middle(values: Floats) -> float:
    ordered = np.sort(values)
    return float((ordered[1:-1] if len(ordered) >= TRIMMED_FROM else ordered).mean())
