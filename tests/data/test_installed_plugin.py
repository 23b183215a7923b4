"""A plugin of another package: a wheel that is installed as any other, found by its entry point, run by a profile."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

MODULE = '''
from fairlead.data.draft import Draft, PluginError
from fairlead.data.plugin import BadArguments, PluginContext


class Colour:
    """Asks for nodes of one colour, and says why."""

    name = "Colour"
    policy = "ignore"

    def __init__(self, arguments):
        self._colour = (arguments or {}).get("colour")
        if not self._colour:
            raise BadArguments("colour: must be a colour")

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        if self._colour == "none":
            draft.annotate("half", "done")
            raise PluginError("no colour today")
        for dataset in context.datasets:
            draft.prefer(5, [{"key": "colour", "operator": "In", "values": [self._colour]}], dataset.dataset.key)
        return False
'''
PROGRAM = """
import asyncio, json, sys
from prometheus_client import CollectorRegistry
from fairlead.data.profile import BadProfile, parse
from fairlead.data.running import installed
from tests.data.objects import reader, whole
from tests.data.test_webhook import Shell, review

text = "plugins: {serverful: {withDataset: [DatasetUsageInjector, Colour]}}\\n"
found = {}
for colour in ("red", "none", ""):
    try:
        profile = parse(text + "pluginConfig: [{name: Colour, args: {colour: %s}}]" % json.dumps(colour), installed)
    except BadProfile as problem:
        found[colour] = str(problem)
        continue
    shell = Shell(whole("hbase"), [])
    shell.profile.current = profile
    verdict = asyncio.run(shell.webhook.by_label(review(reader("hbase"))))
    found[colour] = [verdict.allowed, json.dumps(verdict.patch), list(verdict.warnings)]
print(json.dumps(found))
"""


def wheel(folder: Path) -> Path:
    """A package of somebody else's, in the form that installers take."""
    files = {
        "colour_plugin.py": MODULE,
        "colour_plugin-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: colour-plugin\nVersion: 1.0\n",
        "colour_plugin-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "colour_plugin-1.0.dist-info/entry_points.txt": "[fairlead.data.plugins]\nColour = colour_plugin:Colour\n",
    }
    record = "".join(f"{name},,\n" for name in files) + "colour_plugin-1.0.dist-info/RECORD,,\n"
    made = folder / "colour_plugin-1.0-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in {**files, "colour_plugin-1.0.dist-info/RECORD": record}.items():
            archive.writestr(name, text)
    return made


def test_a_plugin_of_an_installed_package_runs_in_a_profile(tmp_path: Path) -> None:
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    done = subprocess.run([*install, str(wheel(tmp_path))], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    root = str(Path(__file__).parents[2])
    environment = {"PYTHONPATH": f"{target}:{root}", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    allowed, patch, warnings = found["red"]
    assert (allowed, warnings) == (True, [])
    assert '"key": "colour"' in patch
    allowed, patch, warnings = found["none"]
    assert (allowed, warnings) == (True, ["plugin Colour was left out: no colour today"])
    assert "half" not in patch, "nothing of a plugin that failed stays"
    assert "fluid.io/datasets-in-use" in patch, "what the others did stays"
    assert found[""] == "pluginConfig: Colour: colour: must be a colour"
