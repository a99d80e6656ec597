"""Rules of the controller that are left out: who may lead, who is in sync, which epoch counts."""

from __future__ import annotations

from tests.mutants import Mutant

CONTROLLER = "core_broker/cluster/controller/"
CHANGE, LEADERSHIP = f"{CONTROLLER}partition_change.py", f"{CONTROLLER}leadership.py"
ALTER, REGISTER = f"{CONTROLLER}alter_partition.py", f"{CONTROLLER}register_broker.py"
HEARTBEAT, SESSIONS = f"{CONTROLLER}broker_heartbeat.py", f"{CONTROLLER}sessions.py"
TESTS = "tests/core_broker/cluster/"
ALTERED = f"{TESTS}test_alter_partition.py"
COME_AND_GO = f"{TESTS}test_brokers_come_and_go.py"
HISTORIES = f"{TESTS}test_histories.py"
WATCH = f"{TESTS}test_watch.py"
PLACEMENT = f"{TESTS}test_placement.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a fenced broker may lead",
        LEADERSHIP,
        "not (broker.is_active or broker_id == added)",
        "False",
        (HISTORIES,),
    ),
    Mutant(
        "the broker that goes may stay the leader",
        LEADERSHIP,
        "broker is None or broker_id == removed or",
        "broker is None or",
        (COME_AND_GO,),
    ),
    Mutant(
        "a fence leaves the broker in the ISR",
        LEADERSHIP,
        "each for each in partition.isr if each not in gone",
        "each for each in partition.isr",
        (COME_AND_GO,),
    ),
    Mutant(
        "every topic allows an unclean leader",
        LEADERSHIP,
        "election = ElectionPolicy.UNCLEAN if allows_unclean(self._view, topic) else ElectionPolicy.ONLINE",
        "election = ElectionPolicy.UNCLEAN",
        (COME_AND_GO,),
    ),
    Mutant(
        "an unclean stop leaves the replica eligible",
        REGISTER,
        "was_clean = existing is not None and self.previous_epoch == existing.epoch",
        "was_clean = True",
        (COME_AND_GO,),
    ),
    Mutant(
        "a second process takes the place of one that lives",
        REGISTER,
        "if existing is not None and not is_same and view.sessions.is_valid(existing, view.now_ms):",
        "if False:",
        (COME_AND_GO,),
    ),
    Mutant(
        "a broker that lacks a finalized level is let in",
        REGISTER,
        "            if name not in self.features:\n",
        "            if False:\n",
        (COME_AND_GO,),
    ),
    Mutant(
        "a broker is unfenced before it knows of its registration",
        HEARTBEAT,
        "knows = is_caught_up and",
        "knows =",
        (COME_AND_GO,),
    ),
    Mutant(
        "a broker is unfenced before it knows that it was fenced",
        HEARTBEAT,
        " and self.metadata_offset >= broker.fenced_at",
        "",
        (COME_AND_GO,),
    ),
    Mutant(
        "a broker may stop before the others know who leads now",
        HEARTBEAT,
        "all_know = offset is not None and offset <= _known_to_all(view)",
        "all_know = True",
        (COME_AND_GO,),
    ),
    Mutant(
        "a stale broker epoch is taken",
        f"{CONTROLLER}common.py",
        "    if broker.epoch != broker_epoch:\n",
        "    if False:\n",
        (COME_AND_GO, ALTERED),
    ),
    Mutant(
        "a fence meant for an earlier process hits the next one",
        f"{CONTROLLER}fence_broker.py",
        "or broker.epoch != self.broker_epoch or broker.fenced",
        "or broker.fenced",
        (COME_AND_GO,),
    ),
    Mutant(
        "an old partition epoch is taken",
        ALTER,
        "            return ErrorCode.INVALID_UPDATE_VERSION\n",
        "            pass\n",
        (ALTERED,),
    ),
    Mutant(
        "an old leader epoch is taken",
        ALTER,
        "            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "            pass\n",
        (ALTERED,),
    ),
    Mutant(
        "a fenced replica joins the ISR",
        ALTER,
        "broker is not None and broker.is_active and epoch in",
        "broker is not None and epoch in",
        (ALTERED,),
    ),
    Mutant(
        "a replica of an earlier process joins the ISR",
        ALTER,
        " and epoch in (ANY_EPOCH, broker.epoch)",
        "",
        (ALTERED,),
    ),
    Mutant(
        "others are in sync while the leader recovers",
        ALTER,
        "            len(isr) > 1 or partition.leader_recovery_state == RECOVERED\n",
        "            partition.leader_recovery_state == RECOVERED\n",
        (ALTERED,),
    ),
    Mutant(
        "a reassignment ends before the new replica is in sync",
        CHANGE,
        "return (staying, in_sync) if all(each in in_sync for each in needed) else None",
        "return staying, in_sync",
        (ALTERED,),
    ),
    Mutant(
        "the last replica leaves the ISR without ELR",
        CHANGE,
        "isr != partition.isr and (isr or rules.has_elr)",
        "isr != partition.isr",
        (COME_AND_GO, HISTORIES),
    ),
    Mutant(
        "the ELR is kept when enough are in sync",
        CHANGE,
        "if len(isr) < rules.min_isr else ()",
        "if True else ()",
        (COME_AND_GO,),
    ),
    Mutant(
        "who leads out of the ELR stays in it",
        CHANGE,
        "            elr = tuple(each for each in elr if each != leader)\n",
        "",
        (HISTORIES,),
    ),
    Mutant(
        "the ELR keeps what is no replica any more",
        CHANGE,
        "each for each in candidates if each in replicas and each not in isr",
        "each for each in candidates if each not in isr",
        (HISTORIES,),
    ),
    Mutant(
        "another leader does not raise the epoch",
        "core_broker/cluster/partition_image.py",
        "self.leader_epoch + 1 if new_leader else self.leader_epoch",
        "self.leader_epoch",
        (COME_AND_GO, HISTORIES),
    ),
    Mutant(
        "the index forgets who left the ISR",
        "core_broker/cluster/partition_index.py",
        "            del keys[key]\n",
        "            pass\n",
        (HISTORIES,),
    ),
    Mutant(
        "a snapshot leaves out the ELR",
        "core_broker/cluster/metadata_snapshot.py",
        "eligible_leader_replicas=list(partition.elr) or None",
        "eligible_leader_replicas=None",
        (HISTORIES,),
    ),
    Mutant(
        "a heartbeat does not clear a lost connection",
        SESSIONS,
        "session.heard_ms, session.via, session.soon_ms, session.is_gone = now_ms, via, math.inf, False",
        "session.heard_ms, session.via, session.is_gone = now_ms, via, False",
        (WATCH,),
    ),
    Mutant(
        "brokers of Kafka have short deadlines, too",
        SESSIONS,
        "is_ours = OUR_VERSION in broker.features",
        "is_ours = True",
        (WATCH,),
    ),
    Mutant(
        "records have their newest versions whatever the level is",
        "core_broker/cluster/features.py",
        "if since <= metadata_version:",
        "if True:",
        (f"{TESTS}test_feature_levels.py",),
    ),
    Mutant(
        "a new controller takes brokers for silent that had no time to find it",
        SESSIONS,
        "_session(each, now_ms, now_ms + self.certain_ms)",
        "_session(each, now_ms, -9e9)",
        (WATCH,),
    ),
    Mutant(
        "a controller that nobody follows answers what needs no write",
        "core_broker/cluster/quorum/quorum.py",
        "now_ms() - role.majority_heard_ms <= CONFIRMED_MS",
        "True",
        ("tests/core_broker/server/test_cut_off.py",),
    ),
    Mutant(
        "replicas of a partition are in one rack",
        f"{CONTROLLER}placement.py",
        "            turn = (turn + 1) % len(racks)\n",
        "            turn = (turn + (found == NONE_LEFT if not skips_first else 1)) % len(racks)\n",
        (PLACEMENT,),
    ),
)
