"""Load forecasts from outside, and our own: documents read from a source, kept for a while, and turned into numbers.

    source ──documents──▶ reader ──Forecast──▶ the table's catalog, once a round
    history ──samples──▶ forecaster ──the same documents──▶ where the source reads

`documents.py` is the arithmetic, `reader.py` what the loop asks, `sources.py` and its neighbours where documents come
from, `forecaster.py` and `smoothing.py` who writes them where nobody else does, `profiles.py` what a service is like.
"""
