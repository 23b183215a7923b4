"""NodeName: a pod that names its node goes there or nowhere."""

from collections.abc import Sequence

from fairlead.engine.request import Request
from fairlead.engine.rule import Failed, Predicate
from fairlead.engine.table import NodeTable
from fairlead.engine.view import View


class NodeName(Predicate):
    name = "NodeName"
    reason = "node(s) didn't match the requested node name"

    def applies(self, table: NodeTable, request: Request) -> bool:
        return bool(request.node_name)

    def refusals(self, view: View, request: Request) -> Sequence[Failed]:
        row = view.table.row_of.get(request.node_name)
        return (Failed(self.reason, ~view.among(set() if row is None else {row}), True),)
