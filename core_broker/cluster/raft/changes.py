"""Whether and how the voters of the metadata quorum may change (KIP-853). The leader decides; all is pure.

One change at a time, and none before a record of the leader's own epoch is committed: then any majority of the voters
before a change and any after it have a voter in common.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from .leader import Leader
from .messages import ProbeAnswer, RemoveVoter, Response, UpdateVoter
from .voters import ReplicaKey, Voter, VoterHistory, VoterSet

CAUGHT_UP_WITHIN_MS = 3_600_000  # an observer that once was, and has fetched since then, may be a voter, as in Kafka
RECONFIGURABLE = 1  # the kraft.version from which on voters are in the log


class Refused(Exception):
    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


def check_possible(role: Leader, voters: VoterHistory, high_watermark: int | None) -> None:
    """Raises Refused if no change may begin now."""
    if role.change is not None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way: try again")
    if high_watermark is None:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the leader has just been elected, nothing is committed: try again")
    if voters.kraft_version < RECONFIGURABLE:
        reason = f"kraft.version is {voters.kraft_version}: the voters are configured on each node"
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, reason)
    if voters.last_offset >= high_watermark:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, "the last change of the voters is not committed yet: try again")


def check_new(voters: VoterSet, key: ReplicaKey) -> None:
    if voters.get(key.id) is not None:
        raise Refused(ErrorCode.DUPLICATE_VOTER, f"node {key.id} is a voter already; the voters are {voters}")


def probed(role: Leader, voter: Voter, answer: Response | None, kraft_version: int, now_ms: int) -> Voter:
    """A node that is to be a voter, as it should be in the record, by its answer. Raises Refused if it may be none."""
    name = f"node {voter.key.id}"
    if not isinstance(answer, ProbeAnswer) or answer.error != ErrorCode.NONE:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"{name} does not answer at its endpoints")
    versions = answer.kraft_versions
    if versions is None or not versions[0] <= kraft_version <= versions[1]:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} does not support kraft.version {kraft_version}")
    progress = role.observers.get(voter.key)
    if progress is None or progress.caught_up_ms < 0 or progress.fetched_ms < now_ms - CAUGHT_UP_WITHIN_MS:
        raise Refused(ErrorCode.REQUEST_TIMED_OUT, f"{name} has not fetched all of the log yet: try again")
    return Voter(voter.key, voter.endpoints, versions)


def voters_after(voters: VoterSet, request: RemoveVoter | UpdateVoter, kraft_version: int) -> VoterSet:
    """The voters that a request asks for. Raises Refused."""
    key = request.voter if isinstance(request, RemoveVoter) else request.voter.key
    known = voters.get(key.id)
    if known is None or not known.key.matches(key):
        raise Refused(ErrorCode.VOTER_NOT_FOUND, f"{key} is no voter; the voters are {voters}")
    if isinstance(request, UpdateVoter):
        lowest, highest = request.voter.kraft_versions
        if not lowest <= kraft_version <= highest:
            raise Refused(ErrorCode.INVALID_REQUEST, f"{key} does not support kraft.version {kraft_version}")
        return voters.with_voter(request.voter)
    if len(voters) == 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{key} is the only voter")
    return voters.without(key)
