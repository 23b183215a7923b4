"""Installs the servers once into a cache outside the checkout, by package name, through the ordinary clients.

Called by the fixtures; run by hand (`python -m tests.rigs.install`) it prints the folders. Nothing is installed into
the system and no service is started. What cannot be had is an error that says what to do, never a skip.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

ELASTICSEARCH: Final = "8.8.2"
ARTEFACT: Final = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{ELASTICSEARCH}:zip"
# The whole of one installation must end within a test's own timeout.
INSTALL_S: Final = 240.0


class ServerUnavailable(Exception):
    """A server cannot be installed here; the message says what is missing and how to get it."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairlead"


def ensure_prometheus() -> Path:
    """The folder with `prometheus` and `promtool`: Debian's package, unpacked."""
    on_path = shutil.which("prometheus"), shutil.which("promtool")
    if on_path[0] and on_path[1]:
        return Path(on_path[0]).parent
    return ensure_debian("prometheus", "usr/bin/prometheus").parent


def ensure_debian(package: str, program: str) -> Path:
    """A program of a Debian package: from the PATH, or of the package unpacked into the cache."""
    on_path = shutil.which(Path(program).name)
    if on_path:
        return Path(on_path)
    home = _once(package, Path(program), lambda staging, into: _unpack_debian(package, staging, into))
    return home / program


def ensure_unbound() -> tuple[Path, dict[str, str]]:
    """The resolver, and the environment it needs: a library that not every machine has."""
    return ensure_debian("unbound", "usr/sbin/unbound"), _libraries({"libprotobuf-c1": "libprotobuf-c.so.1"})


def ensure_mosquitto() -> tuple[Path, dict[str, str]]:
    """The MQTT broker, and the environment it needs."""
    program = ensure_debian("mosquitto", "usr/sbin/mosquitto")
    return program, _libraries({"libwrap0": "libwrap.so.0", "libdlt2": "libdlt.so.2"})


def _libraries(wanted: Mapping[str, str]) -> dict[str, str]:
    """Libraries by their package: where the machine lacks some, the variable that leads to unpacked ones."""
    folder = Path("usr/lib") / (sysconfig.get_config_var("MULTIARCH") or "x86_64-linux-gnu")
    absent = [(package, folder / name) for package, name in wanted.items() if not Path("/", folder / name).exists()]
    folders = [str(ensure_debian(package, str(library)).parent) for package, library in absent]
    return {"LD_LIBRARY_PATH": ":".join(folders)} if folders else {}


JAVA_BASE: Final = Path(__file__).parent / "java_base"
JAVA_MODULES: Final = {
    "plain": ("Plain", ("1.0.0", "2.0.0")),
    "slow": ("Slow", ("1.0.0",)),
    "failing": ("Failing", ("1.0.0",)),
    "leaking": ("Leaking", ("1.0.0",)),
}
LEAKING_CLASSES: Final = 300


def ensure_java_bases() -> Path:
    """A folder with `base.jar` and `web-base.jar` (SOFAArk with arklet) and module jars; built once by Maven."""
    sources = sorted(path for path in JAVA_BASE.rglob("*") if path.is_file())
    known = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    return _once(f"java-bases-{known}", Path("leaking-1.0.0.jar"), _build_java_bases)


def _build_java_bases(staging: Path, into: Path) -> None:
    hint = "Java bases are built by Maven: install `maven` and a JDK 17 (Debian, Ubuntu: apt install maven)"
    maven, javac, jar = (_program(name, hint) for name in ("mvn", "javac", "jar"))
    shutil.copytree(JAVA_BASE, staging / "source")
    # What was fetched before is not fetched again when a source changes.
    command = [maven, "-q", "-B", f"-Dmaven.repo.local={cache() / 'maven'}", "package"]
    for is_last in (False, False, True):  # hundreds of files are fetched, and one may fail
        try:
            _run(command, staging / "source", hint)
            break
        except ServerUnavailable:
            if is_last:
                raise
    into.mkdir()
    for built in ("base/target/base.jar", "web-base/target/web-base.jar", "web-module/target/web-1.0.0-ark-biz.jar"):
        shutil.copy(staging / "source" / built, into / Path(built).name)
    with zipfile.ZipFile(into / "base.jar") as base:
        common = next(name for name in base.namelist() if "/koupleless-common-" in name)
        base.extract(common, staging)
    _write_leaking_classes(staging / "source" / "modules" / "LeakingParts.java")
    files = [str(path) for path in sorted((staging / "source" / "modules").glob("*.java"))]
    classes = staging / "classes"
    _run([javac, "--release", "17", "-cp", str(staging / common), "-d", str(classes), *files], staging, hint)
    for name, (main, versions) in JAVA_MODULES.items():
        for version in versions:
            manifest = staging / "manifest"
            head = f"Ark-Biz-Name: {name}\nArk-Biz-Version: {version}\nweb-context-path: /{name}\n"
            manifest.write_text(f"{head}Main-Class: fairlead.module.{main}\npriority: 100\n")
            target = str(into / f"{name}-{version}.jar")
            parts = sorted(path.name for path in (classes / "fairlead" / "module").glob(f"{main}*.class"))
            picked = [argument for part in parts for argument in ("-C", str(classes), f"fairlead/module/{part}")]
            _run([jar, "cfm", target, str(manifest), *picked], staging, hint)


def _write_leaking_classes(path: Path) -> None:
    lines = [
        "package fairlead.module;",
        "final class LeakingParts {",
        f"    static final int COUNT = {LEAKING_CLASSES};",
    ]
    for number in range(LEAKING_CLASSES):
        body = "".join(f"int f{each}(int x) {{ return x * {number} + {each}; }} " for each in range(8))
        lines.append(f"    static final class Part{number} {{ {body}}}")
    path.write_text("\n".join([*lines, "}", ""]))


def ensure_elasticsearch() -> Path:
    """The unpacked distribution."""
    return _once(f"elasticsearch-{ELASTICSEARCH}", Path("bin/elasticsearch"), _unpack_elasticsearch)


def _once(name: str, proof: Path, unpack: Callable[[Path, Path], None]) -> Path:
    home = cache() / name
    if (home / proof).exists():
        return home
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"{name}.installing-", dir=cache()) as staging:
        unpacked = Path(staging) / "unpacked"
        unpack(Path(staging), unpacked)
        if not (unpacked / proof).exists():
            raise ServerUnavailable(f"the package of {name} does not hold {proof}")
        # One rename makes the folder appear whole; a racing installer's identical result is as good as ours.
        try:
            unpacked.rename(home)
        except OSError:
            if not (home / proof).exists():
                raise
    return home


def _unpack_debian(package: str, staging: Path, into: Path) -> None:
    hint = f"install the package `{package}` (Debian, Ubuntu: apt install {package}), its service need not run"
    apt, dpkg = _program("apt-get", hint), _program("dpkg", hint)
    try:
        _run([apt, "download", package], staging, hint)
    except ServerUnavailable:
        # A fresh machine has no package lists, and the system's are root's: fetch our own, beside them.
        (staging / "lists").mkdir(exist_ok=True)
        own = ["-o", f"Dir::State::lists={staging}/lists", "-o", f"Dir::Cache={staging}/apt"]
        (staging / "apt" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        _run([apt, *own, "update"], staging, hint)
        _run([apt, *own, "download", package], staging, hint)
    packages = sorted(staging.glob(f"{package}_*.deb"))
    if not packages:
        raise ServerUnavailable(f"apt-get downloaded no package called {package}: {hint}")
    _run([dpkg, "-x", str(packages[-1]), str(into)], staging, hint)


def _unpack_elasticsearch(staging: Path, into: Path) -> None:
    hint = "Elasticsearch comes by Maven: install `maven` and a JDK 17 (Debian, Ubuntu: apt install maven)"
    maven = _program("mvn", hint)
    _program("java", hint)
    repository = staging / "repository"
    get = [maven, "-q", "-B", f"-Dmaven.repo.local={repository}", "dependency:get"]
    _run([*get, f"-Dartifact={ARTEFACT}", "-Dtransitive=false"], staging, hint)
    archives = list(repository.rglob(f"elasticsearch-{ELASTICSEARCH}.zip"))
    if not archives:
        raise ServerUnavailable(f"Maven fetched no {ARTEFACT}")
    shutil.unpack_archive(archives[0], staging / "zip")
    (staging / "zip" / f"elasticsearch-{ELASTICSEARCH}").rename(into)
    # Python's unzip forgets who may be run.
    for program in (into / "bin").iterdir():
        program.chmod(0o755)


def _program(name: str, hint: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise ServerUnavailable(f"there is no {name} on the PATH: {hint}")
    return found


def _run(command: Sequence[str], where: Path, hint: str) -> None:
    try:
        done = subprocess.run(
            command, cwd=where, capture_output=True, text=True, check=False, timeout=INSTALL_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise ServerUnavailable(f"`{' '.join(command[:4])} …` took more than {INSTALL_S:.0f} s: {hint}") from None
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-16:])
        raise ServerUnavailable(f"`{' '.join(command[:4])} …` failed: {hint}; it said:\n{tail}")


if __name__ == "__main__":
    try:
        print(ensure_prometheus())
        print(ensure_elasticsearch())
    except ServerUnavailable as problem:
        sys.exit(str(problem))
