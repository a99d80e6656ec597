"""AddRaftVoter (80), RemoveRaftVoter (81), UnregisterController (94): of nodes that are not there."""

from __future__ import annotations

from isthmus.protocol.messages import add_raft_voter, remove_raft_voter, unregister_controller

from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
NOBODY, DIRECTORY = 4711, bytes(range(16))


@SCENARIOS.error(80)
def voters_for_another_cluster(case: Case) -> None:
    listener = add_raft_voter.Listener(name="CONTROLLER", host="127.0.0.1", port=1)
    case.compare(
        add_raft_voter.Request(
            cluster_id="AAAAAAAAAAAAAAAAAAAAAg",
            timeout_ms=1_000,
            voter_id=NOBODY,
            voter_directory_id=DIRECTORY,
            listeners=[listener],
        )
    )


@SCENARIOS.error(81)
def a_voter_of_another_cluster(case: Case) -> None:
    case.compare(
        remove_raft_voter.Request(cluster_id="AAAAAAAAAAAAAAAAAAAAAg", voter_id=NOBODY, voter_directory_id=DIRECTORY)
    )


@SCENARIOS.error(94)
def controllers_that_are_not_there(case: Case) -> None:
    for controller_id in (NOBODY, -1):
        case.compare(unregister_controller.Request(controller_id=controller_id))
