"""The house's rules about its own files: each returns its complaints, none where all is well.

Called by the tests beside it with this checkout, and with small broken examples that prove each rule can
complain. Rules look at files and modules only; they never import what they judge by name alone.
"""

import ast
import inspect
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
LARGEST_BYTES: Final = 1 << 20
COMMAND_PAGES: Final = ("README.md", "CONTRIBUTING.md")

# Written so that these lines do not offend against themselves.
MACHINE_PATH: Final = re.compile(r"(?<![\w.*])/(?:work|root|home/\w+|Users/\w+)/")
REGISTRY: Final = re.compile(
    r"--(?:(?:extra-)?index-url|find-links|trusted-host)|https?://[\w.-]*(?:artifactory|nexus)"
)
UNFINISHED: Final = re.compile(r"\b(?:TO(?:DO)|FIX(?:ME))\b")


def tracked_files(root: Path = ROOT) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True, text=True, timeout=60
    )
    files = (root / name for name in listing.stdout.split("\0") if name)
    # A file that someone is just deleting or moving is no longer ours to judge.
    return [file for file in files if file.is_file()]


def lines_that_match(files: Iterable[Path], pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` of every line of text that matches."""
    return [
        f"{file}:{number}: {line.strip()[:120]}"
        for file in files
        for number, line in enumerate(file.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]


def large_files(files: Iterable[Path], largest_bytes: int = LARGEST_BYTES) -> list[str]:
    return [f"{file}: {size} bytes" for file in files if (size := file.stat().st_size) > largest_bytes]


def commands_not_named(root: Path = ROOT) -> list[str]:
    """Programs in scripts/ that neither README nor CONTRIBUTING speaks of."""
    pages = "\n".join((root / page).read_text() for page in COMMAND_PAGES)
    commands = sorted(command.name for command in (root / "scripts").iterdir() if command.is_file())
    return [name for name in commands if not re.search(rf"scripts/{re.escape(name)}(?![\w-])", pages)]


def commands_that_do_not_exist(root: Path = ROOT) -> list[str]:
    """Commands that README or CONTRIBUTING promises and scripts/ does not hold."""
    pages = "\n".join((root / page).read_text() for page in COMMAND_PAGES)
    promised = sorted(set(re.findall(r"(?<![\w/])scripts/([\w-]+)", pages)))
    return [name for name in promised if not (root / "scripts" / name).is_file()]


def modules_without_docstring(source: Path) -> list[str]:
    return [
        str(file.relative_to(source))
        for file in sorted(source.rglob("*.py"))
        if is_public(file.relative_to(source)) and not (ast.get_docstring(ast.parse(file.read_text())) or "").strip()
    ]


def is_public(module: Path) -> bool:
    return not any(part.startswith("_") and part != "__init__.py" for part in module.parts)


# --- glossary ---------------------------------------------------------------------------------------------


def glossary(page: str) -> dict[str, str]:
    """The words and meanings of the table under `## Glossary`."""
    section = re.search(r"^## Glossary\s*$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    if section is None:
        return {}
    rows = [row.strip().strip("|").split("|", 1) for row in section[1].splitlines() if row.strip().startswith("|")]
    cells = [(row[0].strip(" `*"), row[1].strip()) for row in rows if len(row) == 2]
    # The first two rows are the header and its rule.
    return dict(cells[2:])


def words_without_meaning(words: Mapping[str, str]) -> list[str]:
    return [word for word, meaning in words.items() if not meaning]


def words_not_used(words: Iterable[str], source: Path) -> list[str]:
    """Glossary words that occur nowhere in the code, be it as a name, in snake_case, in CamelCase or in prose."""
    text = "\n".join(file.read_text() for file in sorted(source.rglob("*.py")))
    spoken = " " + re.sub(r"[\W_]+", " ", re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text)).lower() + " "
    return [word for word in words if not any(f" {form} " in spoken for form in forms(word))]


def forms(word: str) -> Iterator[str]:
    plain = re.sub(r"[\W_]+", " ", word).strip().lower()
    yield from (plain, f"{plain}s", f"{plain}es")
    if plain.endswith("y"):
        yield f"{plain[:-1]}ies"


# --- registries -------------------------------------------------------------------------------------------


def registry_entries(registry: ModuleType) -> Iterator[tuple[str, str, Any]]:
    """(table, name, entry) of every public dict of the module."""
    for table, entries in vars(registry).items():
        if isinstance(entries, dict) and not table.startswith("_"):
            for name, entry in entries.items():
                yield table, name, entry


def entries_not_documented(entries: Iterable[tuple[str, str, Any]], pages: str) -> list[str]:
    """Entries that neither a page names nor a docstring describes, and rules that refuse without a reason."""
    complaints = []
    for table, name, entry in entries:
        if not re.search(rf"(?<!\w){re.escape(str(name))}(?!\w)", pages) and not described(entry):
            complaints.append(f"{table}[{name!r}]: on no page, without a docstring")
        if hasattr(entry, "reason") and not (isinstance(entry.reason, str) and entry.reason.strip()):
            complaints.append(f"{table}[{name!r}]: refuses without a reason")
    return complaints


def described(entry: Any) -> bool:
    """A docstring of its own, not one of its kind's or its parent's; or of a module that holds nothing else public."""
    thing = entry if inspect.isclass(entry) or inspect.isroutine(entry) else type(entry)
    own = vars(thing).get("__doc__") if inspect.isclass(thing) else thing.__doc__
    if (own or "").strip():
        return True
    home = sys.modules.get(thing.__module__)
    return home is not None and bool((home.__doc__ or "").strip()) and public_names(home) == [thing.__name__]


def public_names(module: ModuleType) -> list[str]:
    """Classes and functions that the module defines itself."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == module.__name__
    ]


# --- tests ------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef
ASKING_CALLS: Final = frozenset({"pytest.raises", "pytest.warns", "pytest.fail"})


def empty_tests(folder: Path) -> list[str]:
    """Tests without an assertion: their own, a `pytest.raises`, or one of a function they call by its name.

    A wait that times out does not count: it says what is waited for, not what must hold.
    """
    modules = {file: _functions(ast.parse(file.read_text())) for file in sorted(folder.rglob("*.py"))}
    return [
        f"{file.relative_to(folder)}::{name}"
        for file, functions in modules.items()
        if file.name.startswith("test_")
        for name, function in functions.items()
        if name.startswith("test_") and not _asks(function, _within_reach(file, folder, modules), set())
    ]


def writes_nobody_checks(folder: Path) -> list[str]:
    """Writes to a rig whose answer is thrown away: a refusal would show up later, as a wait that ends in vain."""
    return [
        f"{file.relative_to(folder)}:{call.lineno}"
        for file in sorted(folder.rglob("*.py"))
        for statement in ast.walk(ast.parse(file.read_text()))
        if isinstance(statement, ast.Expr)
        for call in ast.walk(statement)
        if isinstance(call, ast.Call) and re.search(r"\brig\.request(?:\(|, )'(?:POST|PUT|PATCH)'", ast.unparse(call))
    ]


def _functions(module: ast.Module) -> dict[str, Function | ast.ImportFrom]:
    """What a module defines at its top, and what it imports by name, with where from."""
    found: dict[str, Function | ast.ImportFrom] = {}
    for each in module.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found[each.name] = each
        elif isinstance(each, ast.ImportFrom):
            found |= {alias.asname or alias.name: each for alias in each.names}
    return found


def _within_reach(
    file: Path, folder: Path, modules: Mapping[Path, Mapping[str, Function | ast.ImportFrom]]
) -> dict[str, Function]:
    found: dict[str, Function] = {}
    for name, each in modules[file].items():
        if isinstance(each, ast.ImportFrom):
            home = folder.parent.joinpath(*(each.module or "").split(".")).with_suffix(".py")
            meant = modules.get(home, {}).get(name)
            if isinstance(meant, ast.FunctionDef | ast.AsyncFunctionDef):
                found[name] = meant
        else:
            found[name] = each
    return found


def _asks(function: Function | ast.ImportFrom, known: Mapping[str, Function], seen: set[str]) -> bool:
    for each in ast.walk(function):
        if isinstance(each, ast.Assert):
            return True
        if isinstance(each, ast.Call):
            called = ast.unparse(each.func)
            if called in ASKING_CALLS:
                return True
            if called in known and called not in seen and _asks(known[called], known, seen | {called}):
                return True
    return False


# --- words ------------------------------------------------------------------------------------------------

PARTICIPLES: Final = frozenset({"told", "said", "asked", "meant", "made", "wanted", "found", "seen", "spoken"})
"""Participles of everyday verbs: they say that something happened, not what a thing is or does."""
EVERYDAY_VERBS: Final = frozenset({"say", "says", "tell", "tells", "met", "untold", "unsaid"})
"""Everyday verbs where Kubernetes or Python has an ordinary word: report, record, notify, log, message, event."""
LOCAL_WORDS: Final = frozenset({"found", "seen", "made"})
"""Participles that variables, parameters and attributes may be named with."""
ASYNCIO_NAMES: Final = frozenset({"connection_made"})
"""What a protocol of asyncio must be called by."""
KUBERNETES_WORDS: Final = frozenset({"not_found"})
"""Kubernetes' own names that hold such a word: the reason NotFound."""


COINED: Final = re.compile(
    r"(?<![a-z])(?:desks?|workshop|keeper|shelf|shelves|seats?|furnish\w*|immortal|upstairs|promis\w+)(?![a-z])",
    re.IGNORECASE,
)
"""Words of our own for what Kubernetes or Python has an ordinary word for; they were renamed."""


@cache
def participle_names(source: Path) -> tuple[str, ...]:
    """`file::name` of names that hold a participle or an everyday verb.

    Variables, parameters and attributes may be named found, seen or made, and those that are true or false say so with
    a verb (`is_wanted`).
    """
    complaints = []
    for file in sorted(source.rglob("*.py")):
        module = ast.parse(file.read_text())
        names = {
            name
            for name in {file.stem, *_declared_names(module)} - ASYNCIO_NAMES
            if _has_word(name, PARTICIPLES | EVERYDAY_VERBS)
        }
        names |= {
            name
            for name in _variable_names(module)
            if not name.startswith(("is_", "has_")) and _has_word(name, PARTICIPLES - LOCAL_WORDS | EVERYDAY_VERBS)
        }
        complaints += [f"{file.relative_to(source).as_posix()}::{name}" for name in sorted(names)]
    return tuple(complaints)


def _declared_names(module: ast.Module) -> Iterator[str]:
    for each in ast.walk(module):
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith(
            "test_"
        ):
            yield each.name
    for statement in module.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def _variable_names(module: ast.Module) -> Iterator[str]:
    """Parameters, local variables, fields, attributes and names of imports, where they are set."""
    for each in ast.walk(module):
        if isinstance(each, ast.arg):
            yield each.arg
        elif isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
            yield each.id
        elif isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store):
            yield each.attr
        elif isinstance(each, ast.alias) and each.asname:
            yield each.asname


def _has_word(name: str, words: frozenset[str]) -> bool:
    plain = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().strip("_")
    return plain not in KUBERNETES_WORDS and not words.isdisjoint(plain.split("_"))


# --- sizes ------------------------------------------------------------------------------------------------

MOST_LINES: Final = 700
MOST_LINES_OF_A_FUNCTION: Final = 80


def too_long(source: Path, most: int = MOST_LINES, most_of_a_function: int = MOST_LINES_OF_A_FUNCTION) -> list[str]:
    """Files and functions that hold more than one idea can."""
    complaints = []
    for file in sorted(source.rglob("*.py")):
        text, name = file.read_text(), file.relative_to(source).as_posix()
        if (lines := len(text.splitlines())) > most:
            complaints.append(f"{name}: {lines} lines")
        for each in ast.walk(ast.parse(text)):
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (each.end_lineno or each.lineno) - each.lineno + 1
                if lines > most_of_a_function:
                    complaints.append(f"{name}::{each.name}: {lines} lines")
    return complaints


# --- what nobody uses -------------------------------------------------------------------------------------

CALLED_BY_OTHERS: Final = frozenset(
    {"connection_lost", "datagram_received", "error_received", "handle_async_request", "ignore_aliases"}
)
"""Methods that asyncio, httpx and PyYAML call."""
FOR_TESTS: Final = frozenset({"compact"})
"""What tests alone call because nothing else can bring it about: a store that has forgotten old revisions."""
_DEFINITION: Final = re.compile(r"^ *(?:async +)?(?:def|class) +(\w+)|^([A-Za-z]\w*)(?:: [^=\n]+)? = ", re.MULTILINE)


def unused_names(source: Path, *users: Path) -> list[str]:
    """Functions, methods, classes and constants of the source that neither it nor the users' folders name again.

    Not those of the testing kit, and not commands, which their decorators register.
    """
    texts = {file: file.read_text() for file in sorted(source.rglob("*.py"))}
    others = [file.read_text() for folder in users for file in sorted(folder.rglob("*.py"))]
    words = Counter(word for text in (*texts.values(), *others) for word in re.findall(r"\w+", text))
    defined = {file: [one or other for one, other in _DEFINITION.findall(text)] for file, text in texts.items()}
    times = Counter(name for names in defined.values() for name in names)
    complaints = []
    for file, names in defined.items():
        place = file.relative_to(source)
        if place.parts[0] in ("testing", "cli"):
            continue
        for name in sorted(set(names) - CALLED_BY_OTHERS - FOR_TESTS):
            is_unused = words[name] <= times[name] and not name.startswith("__")
            if is_unused or (name == "log" and _has_idle_logger(texts[file])):
                complaints.append(f"{place.as_posix()}::{name}")
    return complaints


def _has_idle_logger(text: str) -> bool:
    return bool(re.search(r"^log = ", text, re.MULTILINE)) and not re.search(r"\blog\.", text)


# --- questions --------------------------------------------------------------------------------------------


def question_table(page: str) -> dict[str, str]:
    """The rows of the table headed `| question | file |`."""
    table = re.search(r"^\| question \| file \|\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = [row.strip().strip("|").split("|", 1) for row in (table[1] if table else "").splitlines()]
    return {question.strip(): files.strip() for question, files in rows}


def missing_files(page: str, source: Path) -> list[str]:
    """Python files and folders of the source that a page names (`room/file.py`, `room/`) and that do not exist."""
    named = re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.py)?|[\w-]+\.py)`", page)
    return sorted({name for name in named if not any((root / name).exists() for root in (source, source.parents[1]))})


def files_named_in_vain(source: Path) -> list[str]:
    """`file:line: name` where a docstring or comment names a Python file that is neither beside it nor at that path."""
    files = {file.relative_to(source).as_posix() for file in source.rglob("*.py")}
    return [
        f"{file.relative_to(source).as_posix()}:{number}: {name}"
        for file in sorted(source.rglob("*.py"))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        for name in re.findall(r"`((?:[\w-]+/)*[\w-]+\.py)`", line)
        if not (file.parent / name).exists()
        and not any(f"/{each}".endswith(f"/{name}") for each in files if "/" in name)
        if name not in files
    ]


def docstring_of(module: Path) -> str:
    return ast.get_docstring(ast.parse(module.read_text())) or ""


def paths_of_tests_that_do_not_exist(tests: Path = ROOT / "tests") -> list[str]:
    """Files and folders that tests/README.md names and the tests do not have."""
    named = re.findall(r"`([\w./]+(?:/|\.py))`", (tests / "README.md").read_text())
    return [name for name in dict.fromkeys(named) if not name.startswith("src/") and not (tests / name).exists()]


def folders_of_tests_not_named(tests: Path = ROOT / "tests") -> list[str]:
    """Folders with tests that tests/README.md does not name."""
    text = (tests / "README.md").read_text()
    folders = sorted({file.relative_to(tests).parts[0] for file in tests.rglob("*/test_*.py")})
    return [name for name in folders if f"`{name}/`" not in text]


def rows_given_twice(tests: Path = ROOT / "tests") -> list[str]:
    """Folders and behaviours that tests/README.md has more than one row for, as a merge may leave them."""
    lines = (tests / "README.md").read_text().splitlines()
    cells = [line.split("|")[1].strip() for line in lines if line.startswith("| ")]
    behaviours = [cell for cell in cells if not cell.startswith("`")]
    folders = [name for cell in cells if cell.startswith("`") for name in re.findall(r"`(\w+/)`", cell)]
    return [name for names in (folders, behaviours) for name in dict.fromkeys(names) if names.count(name) > 1]


def changes_given_twice(page: str) -> list[str]:
    """Entries of the changelog that begin alike, as a merge of two wordings may leave them."""
    starts = [line[:80] for line in page.splitlines() if line.startswith("- ")]
    return [start for start in dict.fromkeys(starts) if starts.count(start) > 1]
