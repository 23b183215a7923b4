"""ImageLocality: prefer nodes that already hold much of what the pod's images weigh.

An image that few nodes hold counts for less, so that its first holders do not draw every later pod.
"""

from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints
from fairlead.engine.request import Request
from fairlead.engine.rule import Priority
from fairlead.engine.view import View

MB: Final = 2**20
LEAST: Final = 23 * MB
MOST_PER_CONTAINER: Final = 1000 * MB


class ImageLocality(Priority):
    name = "ImageLocality"

    def raw(self, view: View, request: Request, feasible_V: Bools) -> Ints:
        table = view.table
        held_V = np.zeros(view.size, dtype=np.int64)
        for name in request.images:
            image = table.images.get(name)
            if image is not None:
                spread = len(image.rows) / table.node_count
                held_V += int(image.size * spread) * view.among(image.rows)
        most = MOST_PER_CONTAINER * (request.containers + request.init_containers)
        np.clip(held_V, LEAST, max(most, LEAST), out=held_V)
        return 100 * (held_V - LEAST) // max(most - LEAST, 1)
