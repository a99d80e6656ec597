"""UpdateFeatures (key 57): raises or lowers the finalized levels of features. v1: the kind of update, a trial.

v2: one error for all; before, each feature has a row, too, but only if all went well.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.update_features import Request, Response, UpdatableFeatureResult
from ...cluster.controller.common import Item
from ...cluster.controller.update_features import UpdateFeatures
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit

LAST_WITH_ROWS = 1


def handle(request: Request, context: Context) -> Pending:
    updates = [(each.feature, each.max_version_level, each.upgrade_type) for each in request.feature_updates]
    with_rows = context.version <= LAST_WITH_ROWS
    raft = context.services.quorum.raft
    kraft_version = 0 if raft is None else raft.voters.kraft_version

    def answer(result: Item) -> Response:
        if result.error_code:
            reason = result.error_message
            if result.error_code == ErrorCode.INVALID_UPDATE_VERSION:
                reason = f"The update failed for all features since the following feature had an error: {reason}"
            return Response(error_code=result.error_code, error_message=reason)
        rows = [UpdatableFeatureResult(feature=name, error_message="NONE") for name, _, _ in updates if with_rows]
        return Response(error_message=None, results=rows)

    command = UpdateFeatures(updates, request.validate_only, kraft_version)
    return submit(command, CONTROLLER_TIMEOUT_MS, answer, context)
