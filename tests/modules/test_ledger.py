"""The ledger of a base: what is written is read again, and what cannot be read names nothing."""

import pytest

from fairlead.modules import ledger
from fairlead.modules.spec import Module


def test_what_is_written_is_read_again() -> None:
    installed = {"cart:2": "b", "cart:1": "a", "shop:1": "a"}
    text = ledger.write_installed(installed)
    assert text == '{"a":["cart:1","shop:1"],"b":["cart:2"]}'
    assert ledger.read_installed(text) == installed
    begun = {"cart:2": ("cart:1",)}
    assert ledger.read_begun(ledger.write_begun(begun)) == begun


@pytest.mark.parametrize("text", ["", "{", "7", '["cart:1"]', '{"a":7}', '{"a":[7]}', "[" * 5000])
def test_what_cannot_be_read_names_nothing(text: str) -> None:
    assert ledger.read_installed(text) == {}
    assert ledger.read_begun(text) == {}


def test_whoever_holds_the_very_module_already_goes_on() -> None:
    both = {"cart:1": "a", "cart:2": "b"}
    assert ledger.other_holder(both, Module("cart", "1", ""), "a") == ""
    assert ledger.other_holder(both, Module("cart", "3", ""), "a") == "b"
