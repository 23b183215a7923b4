"""tests/README.md names what there is; and its rules complain where they should."""

from pathlib import Path

import pytest

from tests.house.rules import folders_of_tests_not_named, paths_of_tests_that_do_not_exist, rows_given_twice


def test_every_file_the_readme_of_tests_names_exists() -> None:
    assert paths_of_tests_that_do_not_exist() == []


def test_every_folder_of_tests_is_named() -> None:
    assert folders_of_tests_not_named() == []


def test_nothing_has_two_rows() -> None:
    assert rows_given_twice() == []


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    for name in ("web", "model/deep"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "test_it.py").touch()
    (tmp_path / "README.md").write_text("`web/`, `web/test_it.py`, `web/test_gone.py`, `gone/`, `src/fairlead/`")
    return tmp_path


def test_a_file_that_is_gone_is_found(tests: Path) -> None:
    assert paths_of_tests_that_do_not_exist(tests) == ["web/test_gone.py", "gone/"]


def test_a_folder_that_is_not_named_is_found(tests: Path) -> None:
    assert folders_of_tests_not_named(tests) == ["model"]


def test_a_row_that_is_given_twice_is_found(tests: Path) -> None:
    rows = "| `web/` `model/` | one |\n| `model/` | two |\n| probes | a |\n| probes | b |\n| routes | c |\n"
    (tests / "README.md").write_text(rows)
    assert rows_given_twice(tests) == ["model/", "probes"]
