"""The short form of `scripts/soak reviews`."""

import json
import random

from bench.admission import review
from tests.soak.reviews import Reviews, errors_of


async def test_s32_s56_s59_fuzzed_reviews_are_answered_with_their_uid_and_a_patch_that_applies() -> None:
    soak = Reviews(300, seed=7)
    await soak.run()
    assert (soak.passed, soak.problems) == (300, [])


def test_a_patched_pod_is_really_judged() -> None:
    pod = json.loads(review(random.Random(1), 1))["request"]["object"]
    assert errors_of(pod) == set()
    pod["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 101, "preference": {"matchExpressions": [{"key": "x", "operator": "Exists"}]}}]}}  # fmt: skip
    assert "must be in the range 1-100" in str(errors_of(pod))
