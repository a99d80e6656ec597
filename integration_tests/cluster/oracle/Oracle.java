package org.apache.kafka.controller;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.StaleBrokerEpochException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.metadata.*;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.ApiError;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.LogContext;
import org.apache.kafka.metadata.FinalizedControllerFeatures;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Kafka's own controller without its log and its clock, to be asked what it would decide. A line of JSON on stdin is a
 * command; a line on stdout is the answer: `records` (hex, as in __cluster_metadata), `answer`, or `error`, `message`.
 * It changes nothing by deciding: records are applied by the command `apply`.
 */
public final class Oracle {
    static final ObjectMapper JSON = new ObjectMapper();
    static final short REQUEST_VERSION = 3;

    static final class Clock implements Time {
        long ms = 0;

        @Override
        public long milliseconds() {
            return ms;
        }

        @Override
        public long nanoseconds() {
            return ms * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }
    }

    final Clock clock = new Clock();
    final FeatureControlManager features;
    final ConfigurationControlManager configs;
    final ClusterControlManager cluster;
    final ReplicationControlManager partitions;

    Oracle(String clusterId, long sessionTimeoutMs) {
        LogContext log = new LogContext();
        SnapshotRegistry registry = new SnapshotRegistry(log);
        ClusterControlManager[] self = new ClusterControlManager[1];
        features = new FeatureControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setQuorumFeatures(new QuorumFeatures(1, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(1)))
            .setClusterFeatureSupportDescriber(new ClusterFeatureSupportDescriber() {
                @Override
                public java.util.Iterator<Map.Entry<Integer, Map<String, org.apache.kafka.metadata.VersionRange>>> brokerSupported() {
                    return self[0].brokerSupportedFeatures();
                }

                @Override
                public java.util.Iterator<Map.Entry<Integer, Map<String, org.apache.kafka.metadata.VersionRange>>> controllerSupported() {
                    return self[0].controllerSupportedFeatures();
                }
            }).build();
        configs = new ConfigurationControlManager.Builder().setLogContext(log).setSnapshotRegistry(registry)
            .setKafkaConfigSchema(new KafkaConfigSchema(
                Map.of(ConfigResource.Type.BROKER, new ConfigDef(AbstractKafkaConfig.CONFIG_DEF),
                    ConfigResource.Type.TOPIC, LogConfig.configDefCopy()),
                ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS))
            .setStaticConfig(new HashMap<>()).setNodeId(1).setFeatureControl(features).build();
        ReplicationControlManager[] later = new ReplicationControlManager[1];
        cluster = new ClusterControlManager.Builder().setLogContext(log).setClusterId(clusterId).setTime(clock)
            .setSnapshotRegistry(registry).setSessionTimeoutNs(sessionTimeoutMs * 1_000_000)
            .setReplicaPlacer(new StripedReplicaPlacer(new Random(1))).setFeatureControlManager(features)
            .setBrokerShutdownHandler((id, isClean, records) -> later[0].handleBrokerShutdown(id, isClean, records))
            .build();
        self[0] = cluster;
        partitions = new ReplicationControlManager.Builder().setSnapshotRegistry(registry).setLogContext(log)
            .setDefaultReplicationFactor((short) 1).setDefaultNumPartitions(1).setMaxElectionsPerImbalance(1000)
            .setConfigurationControl(configs).setClusterControl(cluster).setFeatureControl(features).build();
        later[0] = partitions;
        cluster.activate();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Oracle oracle = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode command = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                if (command.get("do").asText().equals("new")) {
                    oracle = new Oracle(command.get("cluster_id").asText(), command.get("session_ms").asLong());
                } else {
                    oracle.run(command, answer);
                }
            } catch (ApiException error) {
                answer.put("error", Errors.forException(error).code());
                answer.put("message", error.getMessage());
            } catch (Exception error) {
                java.io.StringWriter trace = new java.io.StringWriter();
                error.printStackTrace(new java.io.PrintWriter(trace));
                answer.put("failure", trace.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    void run(JsonNode c, ObjectNode to) {
        switch (c.get("do").asText()) {
            case "apply" -> {
                long offset = c.get("offset").asLong();
                for (JsonNode each : c.get("records")) {
                    byte[] bytes = HexFormat.of().parseHex(each.asText());
                    replay(MetadataRecordSerde.INSTANCE.read(
                        new ByteBufferAccessor(ByteBuffer.wrap(bytes)), bytes.length).message(), offset++);
                }
            }
            case "time" -> clock.ms = c.get("ms").asLong();
            case "heard" -> cluster.trackBrokerHeartbeat(c.get("broker_id").asInt(), c.get("broker_epoch").asLong());
            case "shutting_down" -> cluster.heartbeatManager().maybeUpdateControlledShutdownOffset(
                c.get("broker_id").asInt(), c.get("offset").asLong());
            case "expire" -> {
                ControllerResult<Boolean> result = partitions.maybeFenceOneStaleBroker();
                decided(to, result.records());
                to.put("answer", result.response());
            }
            case "register" -> register(c, to);
            case "heartbeat" -> heartbeat(c, to);
            case "unregister" -> decided(to, partitions.unregisterBroker(c.get("broker_id").asInt()).records());
            case "alter_partition" -> alterPartition(c, to);
            case "reassign" -> reassign(c, to);
            case "elect" -> elect(c, to);
            case "balance" -> decided(to, partitions.maybeBalancePartitionLeaders().records());
            case "elect_unclean" -> decided(to, partitions.maybeElectUncleanLeaders().records());
            case "assign_dirs" -> assignDirs(c, to);
            case "update_features" -> updateFeatures(c, to);
            default -> throw new IllegalArgumentException(c.toString());
        }
    }

    void replay(ApiMessage record, long offset) {
        switch (MetadataRecordType.fromId(record.apiKey())) {
            case REGISTER_BROKER_RECORD -> cluster.replay((RegisterBrokerRecord) record, offset);
            case UNREGISTER_BROKER_RECORD -> cluster.replay((UnregisterBrokerRecord) record);
            case BROKER_REGISTRATION_CHANGE_RECORD -> cluster.replay((BrokerRegistrationChangeRecord) record);
            case TOPIC_RECORD -> partitions.replay((TopicRecord) record);
            case PARTITION_RECORD -> partitions.replay((PartitionRecord) record);
            case PARTITION_CHANGE_RECORD -> partitions.replay((PartitionChangeRecord) record);
            case REMOVE_TOPIC_RECORD -> partitions.replay((RemoveTopicRecord) record);
            case CLEAR_ELR_RECORD -> partitions.replay((ClearElrRecord) record);
            case CONFIG_RECORD -> configs.replay((ConfigRecord) record);
            case FEATURE_LEVEL_RECORD -> features.replay((FeatureLevelRecord) record);
            case REGISTER_CONTROLLER_RECORD -> cluster.replay((RegisterControllerRecord) record);
            default -> throw new IllegalArgumentException(record.toString());
        }
    }

    void register(JsonNode c, ObjectNode to) {
        BrokerRegistrationRequestData.FeatureCollection supported = new BrokerRegistrationRequestData.FeatureCollection();
        c.get("features").fields().forEachRemaining(each -> supported.add(new BrokerRegistrationRequestData.Feature()
            .setName(each.getKey()).setMinSupportedVersion((short) each.getValue().get(0).asInt())
            .setMaxSupportedVersion((short) each.getValue().get(1).asInt())));
        BrokerRegistrationRequestData.ListenerCollection listeners = new BrokerRegistrationRequestData.ListenerCollection();
        listeners.add(new BrokerRegistrationRequestData.Listener().setName("PLAINTEXT").setHost("h").setPort(9092));
        BrokerRegistrationRequestData request = new BrokerRegistrationRequestData()
            .setBrokerId(c.get("broker_id").asInt()).setClusterId(c.get("cluster_id").asText())
            .setIncarnationId(uuid(c.get("incarnation_id"))).setListeners(listeners).setFeatures(supported)
            .setRack(c.get("rack").isNull() ? null : c.get("rack").asText()).setLogDirs(uuids(c.get("log_dirs")))
            .setPreviousBrokerEpoch(c.get("previous_epoch").asLong());
        Map<String, Short> levels = new HashMap<>(features.finalizedFeatures(Long.MAX_VALUE).featureMap());
        var result = cluster.registerBroker(request, c.get("next_offset").asLong(),
            new FinalizedControllerFeatures(levels, Long.MAX_VALUE), true);
        decided(to, result.records());
        to.put("answer", result.response().epoch());
    }

    void heartbeat(JsonNode c, ObjectNode to) {
        int id = c.get("broker_id").asInt();
        long epoch = c.get("broker_epoch").asLong();
        cluster.trackBrokerHeartbeat(id, epoch);
        OptionalLong registered = cluster.registerBrokerRecordOffset(id);
        if (registered.isEmpty()) {
            throw new StaleBrokerEpochException(
                String.format("Receive a heartbeat from broker %d before registration", id));
        }
        var result = partitions.processBrokerHeartbeat(new BrokerHeartbeatRequestData().setBrokerId(id)
            .setBrokerEpoch(epoch).setCurrentMetadataOffset(c.get("metadata_offset").asLong())
            .setWantFence(c.get("want_fence").asBoolean()).setWantShutDown(c.get("want_shut_down").asBoolean())
            .setOfflineLogDirs(uuids(c.get("offline_log_dirs")))
            .setCordonedLogDirs(c.get("cordoned_log_dirs").isNull() ? null : uuids(c.get("cordoned_log_dirs"))),
            registered.getAsLong());
        decided(to, result.records());
        ArrayNode answer = to.putArray("answer");
        answer.add(result.response().isCaughtUp()).add(result.response().isFenced())
            .add(result.response().inControlledShutdown()).add(result.response().shouldShutDown());
    }

    void alterPartition(JsonNode c, ObjectNode to) {
        AlterPartitionRequestData request = new AlterPartitionRequestData().setBrokerId(c.get("broker_id").asInt())
            .setBrokerEpoch(c.get("broker_epoch").asLong());
        for (JsonNode topic : c.get("topics")) {
            var data = new AlterPartitionRequestData.TopicData().setTopicId(uuid(topic.get("topic_id")));
            for (JsonNode each : topic.get("partitions")) {
                List<AlterPartitionRequestData.BrokerState> isr = new ArrayList<>();
                each.get("isr").forEach(pair -> isr.add(new AlterPartitionRequestData.BrokerState()
                    .setBrokerId(pair.get(0).asInt()).setBrokerEpoch(pair.get(1).asLong())));
                data.partitions().add(new AlterPartitionRequestData.PartitionData()
                    .setPartitionIndex(each.get("index").asInt()).setLeaderEpoch(each.get("leader_epoch").asInt())
                    .setPartitionEpoch(each.get("partition_epoch").asInt()).setNewIsrWithEpochs(isr)
                    .setLeaderRecoveryState((byte) each.get("leader_recovery_state").asInt()));
            }
            request.topics().add(data);
        }
        var context = new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(REQUEST_VERSION), KafkaPrincipal.ANONYMOUS,
            OptionalLong.empty());
        var result = partitions.alterPartition(context, request);
        decided(to, result.records());
        ArrayNode answer = to.putArray("answer");
        for (var topic : result.response().topics()) {
            for (var each : topic.partitions()) {
                ArrayNode row = answer.addArray();
                row.add(each.partitionIndex()).add(each.errorCode());
                if (each.errorCode() == 0) {
                    ArrayNode isr = row.add(each.leaderId()).add(each.leaderEpoch()).add(each.partitionEpoch())
                        .add(each.leaderRecoveryState()).addArray();
                    each.isr().forEach(isr::add);
                }
            }
        }
    }

    void reassign(JsonNode c, ObjectNode to) {
        var request = new AlterPartitionReassignmentsRequestData()
            .setAllowReplicationFactorChange(c.get("may_change_factor").asBoolean());
        for (JsonNode topic : c.get("topics")) {
            var data = new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName(topic.get("name").asText());
            for (JsonNode each : topic.get("partitions")) {
                List<Integer> replicas = each.get("replicas").isNull() ? null : new ArrayList<>();
                each.get("replicas").forEach(id -> replicas.add(id.asInt()));
                data.partitions().add(new AlterPartitionReassignmentsRequestData.ReassignablePartition()
                    .setPartitionIndex(each.get("index").asInt()).setReplicas(replicas));
            }
            request.topics().add(data);
        }
        var result = partitions.alterPartitionReassignments(request);
        decided(to, result.records());
        ArrayNode answer = to.putArray("answer");
        result.response().responses().forEach(topic -> topic.partitions().forEach(
            each -> answer.addArray().add(each.partitionIndex()).add(each.errorCode()).add(each.errorMessage())));
    }

    void elect(JsonNode c, ObjectNode to) {
        var request = new ElectLeadersRequestData().setElectionType((byte) c.get("election").asInt());
        for (JsonNode topic : c.get("topics")) {
            List<Integer> indexes = new ArrayList<>();
            topic.get("partitions").forEach(each -> indexes.add(each.asInt()));
            request.topicPartitions().add(new ElectLeadersRequestData.TopicPartitions()
                .setTopic(topic.get("name").asText()).setPartitions(indexes));
        }
        var result = partitions.electLeaders(request);
        decided(to, result.records());
        ArrayNode answer = to.putArray("answer");
        result.response().replicaElectionResults().forEach(topic -> topic.partitionResult().forEach(
            each -> answer.addArray().add(each.partitionId()).add(each.errorCode())));
    }

    void assignDirs(JsonNode c, ObjectNode to) {
        var request = new AssignReplicasToDirsRequestData().setBrokerId(c.get("broker_id").asInt())
            .setBrokerEpoch(c.get("broker_epoch").asLong());
        for (JsonNode directory : c.get("directories")) {
            var data = new AssignReplicasToDirsRequestData.DirectoryData().setId(uuid(directory.get("id")));
            for (JsonNode topic : directory.get("topics")) {
                var rows = new AssignReplicasToDirsRequestData.TopicData().setTopicId(uuid(topic.get("topic_id")));
                topic.get("partitions").forEach(each -> rows.partitions().add(
                    new AssignReplicasToDirsRequestData.PartitionData().setPartitionIndex(each.asInt())));
                data.topics().add(rows);
            }
            request.directories().add(data);
        }
        var result = partitions.handleAssignReplicasToDirs(request);
        decided(to, result.records());
        ArrayNode answer = to.putArray("answer");
        result.response().directories().forEach(directory -> directory.topics().forEach(topic -> topic.partitions()
            .forEach(each -> answer.addArray().add(each.partitionIndex()).add(each.errorCode()))));
    }

    void updateFeatures(JsonNode c, ObjectNode to) {
        Map<String, Short> updates = new HashMap<>();
        Map<String, FeatureUpdate.UpgradeType> types = new HashMap<>();
        c.get("updates").forEach(each -> {
            updates.put(each.get(0).asText(), (short) each.get(1).asInt());
            types.put(each.get(0).asText(), FeatureUpdate.UpgradeType.fromCode(each.get(2).asInt()));
        });
        ControllerResult<ApiError> result = features.updateFeatures(updates, types, c.get("validate_only").asBoolean(), 0);
        decided(to, result.records());
        to.putArray("answer").add(result.response().error().code()).add(result.response().message());
    }

    void decided(ObjectNode to, List<ApiMessageAndVersion> records) {
        ArrayNode found = to.putArray("records");
        for (ApiMessageAndVersion each : records) {
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(each, cache));
            MetadataRecordSerde.INSTANCE.write(each, cache, new ByteBufferAccessor(buffer));
            found.add(HexFormat.of().formatHex(buffer.array()));
        }
    }

    static Uuid uuid(JsonNode hex) {
        ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(hex.asText()));
        return new Uuid(bytes.getLong(), bytes.getLong());
    }

    static List<Uuid> uuids(JsonNode list) {
        List<Uuid> found = new ArrayList<>();
        list.forEach(each -> found.add(uuid(each)));
        return found;
    }
}
