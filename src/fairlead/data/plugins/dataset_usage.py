"""DatasetUsageInjector: the annotation `fluid.io/datasets-in-use` names the pod's datasets."""

from typing import Final

from fairlead.data.draft import Draft
from fairlead.data.plugin import PlainPlugin, PluginContext, Policy

ANNOTATION: Final = "fluid.io/datasets-in-use"


class DatasetUsage(PlainPlugin):
    name = "DatasetUsageInjector"
    policy: Policy = "ignore"

    def mutate(self, draft: Draft, context: PluginContext) -> bool:
        if context.datasets:
            listed = {name.strip() for name in draft.annotations.get(ANNOTATION, "").split(",")} - {""}
            names = {each.dataset.name for each in context.datasets}
            draft.annotate(ANNOTATION, ",".join(sorted(listed | names)))
            draft.note("annotation", f"datasets of the pod: {', '.join(sorted(names))}")
        return False
