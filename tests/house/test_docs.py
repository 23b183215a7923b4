"""What the house says about itself is true and whole; and each rule complains where it should."""

import importlib
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tests.house.rules import (
    MACHINE_PATH,
    REGISTRY,
    ROOT,
    UNFINISHED,
    changes_given_twice,
    commands_not_named,
    commands_that_do_not_exist,
    empty_tests,
    entries_not_documented,
    glossary,
    large_files,
    lines_that_match,
    modules_without_docstring,
    registry_entries,
    tracked_files,
    words_not_used,
    words_without_meaning,
    writes_nobody_checks,
)

SOURCE = ROOT / "src" / "fairlead"


@pytest.fixture(scope="module")
def words() -> dict[str, str]:
    return glossary((ROOT / "ARCHITECTURE.md").read_text())


def pages() -> str:
    return "\n".join(file.read_text() for file in tracked_files() if file.suffix == ".md")


# --- this checkout ----------------------------------------------------------------------------------------


def test_every_command_is_named_where_a_newcomer_reads() -> None:
    assert commands_not_named() == []


def test_every_command_a_newcomer_reads_of_exists() -> None:
    assert commands_that_do_not_exist() == []


def test_no_change_is_in_the_changelog_twice() -> None:
    assert changes_given_twice((ROOT / "CHANGELOG.md").read_text()) == []
    assert changes_given_twice("- A\n- B\n- A\n") == ["- A"]


def test_every_public_module_says_what_it_holds() -> None:
    assert modules_without_docstring(SOURCE) == []


def test_every_glossary_word_has_a_meaning_and_is_used(words: dict[str, str]) -> None:
    assert len(words) >= 10, "ARCHITECTURE.md needs a table under `## Glossary`"
    assert words_without_meaning(words) == []
    assert words_not_used(words, SOURCE) == []


def test_every_registry_entry_is_documented() -> None:
    entries = list(registry_entries(importlib.import_module("fairlead.engine.registry")))
    assert entries, "the registry is empty"
    assert entries_not_documented(entries, pages()) == []


def test_no_tracked_file_knows_this_machine() -> None:
    assert lines_that_match(tracked_files(), MACHINE_PATH) == []


def test_no_tracked_file_names_a_package_registry() -> None:
    assert lines_that_match(tracked_files(), REGISTRY) == []


def test_nothing_is_left_unfinished() -> None:
    assert lines_that_match(tracked_files(), UNFINISHED) == []


def test_no_tracked_file_is_large() -> None:
    assert large_files(tracked_files()) == []


def test_every_test_asks_something() -> None:
    assert empty_tests(ROOT / "tests") == []


def test_no_refused_write_to_a_rig_passes_unseen() -> None:
    assert writes_nobody_checks(ROOT / "tests" / "kube") == []


# --- the rules themselves ---------------------------------------------------------------------------------


@pytest.fixture
def house(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    for name in ("run", "test", "test-all"):
        (tmp_path / "scripts" / name).touch()
    (tmp_path / "README.md").write_text("Type `scripts/run`, then `scripts/test-all` or `scripts/vanished`.")
    (tmp_path / "CONTRIBUTING.md").write_text("See also bench/scripts/other.")
    return tmp_path


def test_an_unnamed_command_is_found_even_where_a_longer_one_is_named(house: Path) -> None:
    assert commands_not_named(house) == ["test"]


def test_a_promised_command_that_is_not_there_is_found(house: Path) -> None:
    assert commands_that_do_not_exist(house) == ["vanished"]


def test_a_module_without_a_docstring_is_found(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text('"""Says so."""\n')
    (tmp_path / "_private.py").write_text("x = 1\n")
    (tmp_path / "bad.py").write_text("# not a docstring\nx = 1\n")
    (tmp_path / "__init__.py").write_text("")
    assert modules_without_docstring(tmp_path) == ["__init__.py", "bad.py"]


GLOSSARY = """\
# A page
| word | meaning |
|---|---|
| elsewhere | another table |

## Glossary
| word | meaning |
|---|---|
| unit | what is placed at once |
| `priority` | a taste |
| carrier kind | |
| phlogiston | what burns |

## After
| word | meaning |
|---|---|
| later | another table |
"""


def test_the_glossary_is_the_table_under_its_heading() -> None:
    assert glossary(GLOSSARY) == {
        "unit": "what is placed at once",
        "priority": "a taste",
        "carrier kind": "",
        "phlogiston": "what burns",
    }
    assert glossary("# no glossary\n| a | b |\n|---|---|\n| c | d |\n") == {}


def test_words_without_use_or_meaning_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class CarrierKind: ...\nunits_N = 1  # priorities, and many communities\n")
    words = glossary(GLOSSARY)
    assert words_not_used(words, tmp_path) == ["phlogiston"]
    assert words_not_used(["unity", "kin"], tmp_path) == ["unity", "kin"], "part of a word is not the word"
    assert words_without_meaning(words) == ["carrier kind"]


class Documented:
    """Says what it does."""

    reason = "did not fit"


class Silent(Documented):
    reason = " "


def test_an_entry_without_words_is_found() -> None:
    registry = ModuleType("registry")
    registry.PREDICATES = {"Good": Documented, "Paged": SimpleNamespace(), "Bad": Silent}  # type: ignore[attr-defined]
    registry._PRIVATE = {"Hidden": Silent}  # type: ignore[attr-defined]
    assert entries_not_documented(registry_entries(registry), "`Paged` is on a page, NotBad too") == [
        "PREDICATES['Bad']: on no page, without a docstring",
        "PREDICATES['Bad']: refuses without a reason",
    ]


@pytest.mark.parametrize(
    ("pattern", "line", "found"),
    [
        pytest.param(MACHINE_PATH, f"see {'/wo' + 'rk'}/shared/x", True, id="a checkout's place"),
        pytest.param(MACHINE_PATH, f"cd {'/ro' + 'ot'}/.cache", True, id="a home of root"),
        pytest.param(MACHINE_PATH, f"{'/ho' + 'me'}/carol/src", True, id="a home"),
        pytest.param(MACHINE_PATH, f"docs{'/wo' + 'rk'}/notes.md", False, id="a relative path"),
        pytest.param(REGISTRY, "--index" + "-url https://example.org/simple", True, id="an index"),
        pytest.param(REGISTRY, "https://pypi.org/project/x", False, id="a link to a project's page"),
        pytest.param(UNFINISHED, "# TO" + "DO: later", True, id="a note to self"),
    ],
)
def test_lines_that_give_away(tmp_path: Path, pattern: object, line: str, found: bool) -> None:
    file = tmp_path / "a.md"
    file.write_text(f"first line\n{line}\n")
    assert lines_that_match([file], pattern) == ([f"{file}:2: {line}"] if found else [])  # type: ignore[arg-type]


def test_a_large_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * 10)
    (tmp_path / "large").write_bytes(b"x" * 11)
    assert large_files(sorted(tmp_path.iterdir()), largest_bytes=10) == [f"{tmp_path / 'large'}: 11 bytes"]


TESTS = """
import pytest
from tests.kit import checked, waited

def test_asserts(): assert True
async def test_raises():
    with pytest.raises(ValueError): int("x")
def test_by_a_helper(): own()
def test_by_a_helper_of_another_module(): checked()
def own(): deeper()
def deeper(): assert True
def test_asks_nothing(): print("all is well")
def test_only_waits(): waited()
def test_goes_round(): round()
def round(): round()
def test_calls_a_method_of_that_name(thing): thing.own()
"""


def test_a_test_that_asks_nothing_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "kit.py").write_text("def checked(): assert True\ndef waited(): print()\ndef test_no_test(): ...\n")
    (folder / "test_it.py").write_text(TESTS)
    wanted = ("test_asks_nothing", "test_only_waits", "test_goes_round", "test_calls_a_method_of_that_name")
    assert empty_tests(folder) == [f"test_it.py::{name}" for name in wanted]


def test_a_write_whose_answer_nobody_reads_is_found(tmp_path: Path) -> None:
    lines = (
        'rig.request("POST", "/x", {})',
        'self.rig.request("PATCH", "/x", {})',
        'await asyncio.to_thread(rig.request, "PUT", "/x", {})',
        'assert rig.request("POST", "/x", {}).status == 201',
        'rig.write("POST", "/x", {})',
        'rig.request("DELETE", "/x")',
    )
    (tmp_path / "test_it.py").write_text("".join(f"{line}\n" for line in lines))
    assert writes_nobody_checks(tmp_path) == ["test_it.py:1", "test_it.py:2", "test_it.py:3"]
