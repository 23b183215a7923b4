"""Label keys: Fluid's, ours, and those that cannot be."""

import pytest

from fairlead.data.names import DatasetName, NoSuchKey

UID = "11111111-2222-4333-8444-555555555555"


def test_s25_a_key_is_readable_up_to_51_characters_and_has_the_uid_beyond() -> None:
    readable, long = DatasetName("default", "d" * 43, UID), DatasetName("default", "d" * 44, UID)
    assert readable.common_key() == f"fluid.io/s-default-{'d' * 43}"
    assert long.common_key() == f"fluid.io/s-{UID}"


def test_s25_an_unknown_uid_gives_a_legal_key_or_none() -> None:
    assert DatasetName("default", "d" * 44).common_key() == f"fluid.io/s-default-{'d' * 44}"
    with pytest.raises(NoSuchKey, match="longer than Kubernetes allows"):
        DatasetName("default", "d" * 54).common_key()


def test_s26_our_own_labels_do_not_collide() -> None:
    one, other = DatasetName("a-b", "c"), DatasetName("a", "b-c")
    assert one.common_key() == other.common_key()
    assert one.level_key() != other.level_key()
    assert one.scale_in_key() == other.scale_in_key(), "both keep away from a drain of either"


def test_a_scale_in_key_is_readable_up_to_63_characters_after_the_slash() -> None:
    assert DatasetName("default", "d" * 39, UID).scale_in_key() == f"data.fluid.io/storage-scalein-default-{'d' * 39}"
    assert DatasetName("default", "d" * 42, UID).scale_in_key() == f"data.fluid.io/storage-scalein-{UID}"
