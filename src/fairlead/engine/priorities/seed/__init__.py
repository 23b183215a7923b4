"""The seed's own score set, w1 to w5: ratios between 0 and 1, added with weights (see the placement spec, 4.4).

Kept as whole millionths, so that sums are exact and ties are ties.
"""

from typing import Final

ONE: Final = 10**6
