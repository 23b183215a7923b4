"""Names say what a thing is or does, and a stranger finds the file that answers a question."""

from pathlib import Path
from typing import Final

import pytest

from tests.house.questions import QUESTIONS
from tests.house.rules import (
    COINED,
    ROOT,
    docstring_of,
    files_named_in_vain,
    lines_that_match,
    missing_files,
    participle_names,
    question_table,
    too_long,
    unused_names,
)

SOURCE: Final = ROOT / "src" / "fairlead"


def test_no_name_is_a_participle_or_an_everyday_verb() -> None:
    assert participle_names(SOURCE) == ()


def test_no_coined_word_comes_back() -> None:
    assert lines_that_match(sorted(SOURCE.rglob("*.py")), COINED) == []


def test_no_file_and_no_function_is_too_long() -> None:
    assert too_long(SOURCE) == []


def test_everything_that_is_defined_is_used() -> None:
    assert unused_names(SOURCE, ROOT / "bench") == []


def test_there_are_twenty_questions() -> None:
    assert len(QUESTIONS) >= 20
    assert len({file for file, _ in QUESTIONS.values()}) == len(QUESTIONS)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_leads_to_the_file_that_is_about_it(question: str) -> None:
    file, word = QUESTIONS[question]
    assert f"`{file}`" in question_table((ROOT / "ARCHITECTURE.md").read_text())[question]
    assert word.lower() in docstring_of(SOURCE / file).lower()


def test_every_file_in_the_question_table_exists() -> None:
    table = question_table((ROOT / "ARCHITECTURE.md").read_text())
    assert len(table) >= len(QUESTIONS)
    assert missing_files("\n".join(table.values()), SOURCE) == []


def test_every_file_that_a_docstring_names_exists(tmp_path: Path) -> None:
    assert files_named_in_vain(SOURCE) == []
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "routes.py").write_text("# see `guard.py`, `routes.py` and `web/routes.py`\n")
    (tmp_path / "app.py").write_text('"""As `web/routes.py` does, and `routes.py`."""\n')
    assert files_named_in_vain(tmp_path) == ["app.py:1: routes.py", "web/routes.py:1: guard.py"]


@pytest.mark.parametrize(("page", "lines"), [("README.md", 150), ("ARCHITECTURE.md", 200)])
def test_a_page_for_strangers_stays_short(page: str, lines: int) -> None:
    assert len((ROOT / page).read_text().splitlines()) < lines


# --- the rules themselves ---------------------------------------------------------------------------------

OFFENDING = """
from a import b as asked
TOLD_BY: int = 1
first, _seen = 1, 2
class SeenPod:
    def was_asked(self): ...
def not_found(): ...
def founder(made, said):
    found = made
    self.told, is_wanted = 1, 2
    async def _wanted(): ...
def tell(): ...
def test_a_base_says_why(): ...
"""


def test_participles_and_everyday_verbs_are_found_in_names(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(OFFENDING)
    (tmp_path / "as_told.py").write_text("")
    names = ("SeenPod", "TOLD_BY", "_seen", "_wanted", "asked", "said", "tell", "told", "was_asked")
    assert participle_names(tmp_path) == (*(f"a.py::{name}" for name in names), "as_told.py::as_told")


def test_coined_words_are_found(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("# at the Desk\nunseated = 1\nkept_promises = 2\n")
    assert lines_that_match([file], COINED) == [f"{file}:1: # at the Desk", f"{file}:3: kept_promises = 2"]


def test_long_files_and_functions_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    x = 1\n    return x\n")
    assert too_long(tmp_path, most=3, most_of_a_function=3) == []
    assert too_long(tmp_path, most=2, most_of_a_function=2) == ["a.py: 3 lines", "a.py::f: 3 lines"]


UNUSED = """
log = get_logger()
MOST: Final = 3
LEAST = 2
class Used:
    def method(self): return MOST
    async def forgotten(self): ...
    def error_received(self): ...
Used().method()
"""


def test_names_that_nobody_uses_are_found(tmp_path: Path) -> None:
    source, bench = tmp_path / "src", tmp_path / "bench"
    for file, text in (("a.py", UNUSED), ("testing/kit.py", "class Kit: ...\n"), ("b.py", "class Measured: ...\n")):
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text(text)
    bench.mkdir()
    (bench / "it.py").write_text("Measured()\n")
    assert unused_names(source, bench) == ["a.py::LEAST", "a.py::forgotten", "a.py::log"]
    assert "b.py::Measured" in unused_names(source)


def test_files_that_are_not_there_are_found(tmp_path: Path) -> None:
    source = tmp_path / "src" / "fairlead"
    (source / "web").mkdir(parents=True)
    (source / "web" / "routes.py").touch()
    page = (
        "| question | file |\n|---|---|\n| where? | `web/routes.py`, `web/gone.py`, `old/`, `app.py` |\n\n| a | b |\n"
    )
    table = question_table(page)
    assert list(table) == ["where?"]
    assert missing_files(table["where?"], source) == ["app.py", "old/", "web/gone.py"]
