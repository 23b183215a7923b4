"""DatasetUsageInjector: the annotation `fluid.io/datasets-in-use` names the pod's datasets."""

from typing import Any, Final

from fairlead.data.draft import Draft
from fairlead.data.plugin import PluginContext, Policy

ANNOTATION: Final = "fluid.io/datasets-in-use"


class DatasetUsage:
    name = "DatasetUsageInjector"
    policy: Policy = "ignore"

    def __init__(self, arguments: Any = None) -> None:
        pass

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        if context.datasets:
            listed = {name.strip() for name in draft.annotations.get(ANNOTATION, "").split(",")} - {""}
            names = {each.dataset.name for each in context.datasets}
            draft.annotate(ANNOTATION, ",".join(sorted(listed | names)))
            draft.note("annotation", f"datasets of the pod: {', '.join(sorted(names))}")
        return False
