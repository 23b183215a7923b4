"""GPUs as arrays: what is free on every device of every node, in thousandths of a device.

The node table holds one GpuTable beside its other columns and asks it for fit, allocate and release; the fragmentation
measure reads its arrays. Nothing here may choose a node, and no device may ever go below zero or above whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from fairlead.engine.axes import Bools, Ints

WHOLE_MILLI: Final = 1000
ANY_MODEL: Final[frozenset[str]] = frozenset()
# Models without a node that stay known, beside as many as were in use.
FEW_MODELS: Final = 64
NO_MODEL: Final = -1  # the node names no model: it serves only requests that do not ask for one
REFUSED_MILLI: Final = WHOLE_MILLI + 1  # more than any device has, so that the ordinary comparison refuses


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """`count` different devices with `milli` of each, or with `memory_mib` of each where sharing goes by memory."""

    count: int = 0
    milli: int = WHOLE_MILLI
    memory_mib: int = 0
    models: frozenset[str] = ANY_MODEL

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError(f"GPU count must not be negative, got {self.count}")
        if self.count and not self.memory_mib and not 0 < self.milli <= WHOLE_MILLI:
            raise ValueError(f"a share of a GPU is 1..{WHOLE_MILLI} milli, got {self.milli}")
        if self.memory_mib < 0:
            raise ValueError(f"GPU memory must not be negative, got {self.memory_mib}")

    @property
    def is_shared(self) -> bool:
        """One device, and room beside it for others: the only case in which the choice of device matters."""
        return self.count == 1 and (self.memory_mib > 0 or self.milli < WHOLE_MILLI)

    def in_milli(self, device_memory_mib: int) -> "GpuRequest":
        """The same on devices of this memory, which must fit it: for those who compare by milli alone."""
        if not self.memory_mib:
            return self
        return replace(self, milli=-(-self.memory_mib * WHOLE_MILLI // device_memory_mib), memory_mib=0)


NO_GPU: Final = GpuRequest(count=0, milli=0)


@dataclass(frozen=True, slots=True)
class GpuHold:
    """What one allocation took: give it back to `release` unchanged."""

    devices: tuple[int, ...] = ()
    milli: int = 0


def fits_devices(free_NG: Ints, milli_N: Ints, count: int) -> Bools:
    """Nodes with at least `count` devices that each have the milli asked of that node."""
    if count == 0:
        return np.ones(len(free_NG), dtype=np.bool_)
    fits: Bools = np.count_nonzero(free_NG >= milli_N[:, None], axis=1) >= count
    return fits


def tightest_devices(free_G: Ints, milli: int, count: int) -> tuple[int, ...]:
    """The devices that keep the least beside the request, lowest index first among equals; () when they do not fit."""
    order_G = np.argsort(free_G, kind="stable")
    fitting = [int(device) for device in order_G if free_G[device] >= milli][:count]
    return tuple(sorted(fitting)) if len(fitting) == count else ()


@dataclass(slots=True)
class GpuTable:
    """Rows are the node table's rows; a device that a node does not have is one without anything free."""

    free_milli_NG: Ints
    device_count_N: Ints
    model_N: Ints
    memory_mib_N: Ints  # of one device; 0 when the node does not tell
    model_ids: dict[str, int] = field(default_factory=dict)
    models_version: int = 0
    _models_kept: int = 0

    @classmethod
    def empty(cls, rows: int = 0, devices: int = 8) -> "GpuTable":
        return cls(
            free_milli_NG=np.zeros((rows, devices), dtype=np.int64),
            device_count_N=np.zeros(rows, dtype=np.int64),
            model_N=np.full(rows, NO_MODEL, dtype=np.int64),
            memory_mib_N=np.zeros(rows, dtype=np.int64),
        )

    def grow(self, rows: int, devices: int = 0) -> None:
        """Room for `rows` nodes of up to `devices` devices; what is there stays where it is."""
        more_rows = max(0, rows - len(self.free_milli_NG))
        more_devices = max(0, devices - self.free_milli_NG.shape[1])
        if not more_rows and not more_devices:
            return
        self.free_milli_NG = np.pad(self.free_milli_NG, ((0, more_rows), (0, more_devices)))
        self.device_count_N = np.pad(self.device_count_N, (0, more_rows))
        self.model_N = np.pad(self.model_N, (0, more_rows), constant_values=NO_MODEL)
        self.memory_mib_N = np.pad(self.memory_mib_N, (0, more_rows))

    def set_node(self, row: int, devices: int, model: str = "", memory_mib: int = 0) -> None:
        """A node with all its devices free. Pods that are already there are allocated again by the caller."""
        self.grow(row + 1, devices)
        self.free_milli_NG[row] = 0
        self.free_milli_NG[row, :devices] = WHOLE_MILLI
        self.device_count_N[row] = devices
        self.model_N[row] = self.model_id(model) if model else NO_MODEL
        self.memory_mib_N[row] = memory_mib

    def clear_node(self, row: int) -> None:
        self.set_node(row, devices=0)

    def model_id(self, model: str) -> int:
        number = self.model_ids.get(model)
        if number is None:
            if len(self.model_ids) > 2 * self._models_kept + FEW_MODELS:
                self._forget_models()
            number = self.model_ids[model] = len(self.model_ids)
        return number

    def _forget_models(self) -> None:
        """Number anew the models that nodes still have; `models_version` tells those who remember numbers."""
        used, new_N = np.unique(np.append(self.model_N, NO_MODEL), return_inverse=True)
        names = {number: model for model, number in self.model_ids.items()}
        self.model_N = new_N[:-1] + NO_MODEL
        self.model_ids = {names[number]: place for place, number in enumerate(used[1:].tolist())}
        self._models_kept = len(self.model_ids)
        self.models_version += 1

    def milli_of(self, request: GpuRequest) -> Ints:
        """What the request costs on each node's devices: a share by memory is rounded up, never down."""
        if not request.memory_mib:
            return np.full(len(self.model_N), request.milli, dtype=np.int64)
        milli_N = -(-request.memory_mib * WHOLE_MILLI // np.maximum(self.memory_mib_N, 1))
        return np.where(self.memory_mib_N > 0, np.minimum(milli_N, REFUSED_MILLI), REFUSED_MILLI)

    def allows_model(self, models: frozenset[str]) -> Bools:
        if not models:
            return np.ones(len(self.model_N), dtype=np.bool_)
        allowed = [self.model_ids[model] for model in models if model in self.model_ids]
        return np.isin(self.model_N, allowed)

    def fits(self, request: GpuRequest) -> Bools:
        """The mask of the GPU predicate. A request without GPUs fits everywhere, whatever models it names."""
        if request.count == 0:
            return np.ones(len(self.model_N), dtype=np.bool_)
        milli_N = self.milli_of(request)
        return fits_devices(self.free_milli_NG, milli_N, request.count) & self.allows_model(request.models)

    def allocate(self, row: int, request: GpuRequest, devices: Sequence[int] = ()) -> GpuHold:
        """Take the request on `row`, on the given devices (a policy's choice) or on the tightest that fit."""
        if request.count == 0:
            return GpuHold()
        milli = int(self.milli_of(request)[row]) if request.memory_mib else request.milli
        free_G = self.free_milli_NG[row]
        chosen = tuple(devices) or tightest_devices(free_G, milli, request.count)
        if len(set(chosen)) != request.count:
            raise ValueError(f"row {row} has no {request.count} devices with {milli} milli free: {free_G.tolist()}")
        if any(not self._has(row, device) or free_G[device] < milli for device in chosen):
            raise ValueError(f"row {row} would be oversold on devices {chosen}: {free_G.tolist()} free, {milli} asked")
        free_G[list(chosen)] -= milli
        return GpuHold(chosen, milli)

    def release(self, row: int, hold: GpuHold) -> None:
        """The exact inverse of `allocate`."""
        free_G = self.free_milli_NG[row]
        if any(not self._has(row, device) or free_G[device] + hold.milli > WHOLE_MILLI for device in hold.devices):
            raise ValueError(f"row {row} never held {hold}: {free_G.tolist()} free")
        free_G[list(hold.devices)] += hold.milli

    def _has(self, row: int, device: int) -> bool:
        return 0 <= device < int(self.device_count_N[row])
