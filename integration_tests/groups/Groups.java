import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.re2j.Pattern;
import com.google.re2j.PatternSyntaxException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.common.runtime.CoordinatorMetadataImage;
import org.apache.kafka.coordinator.group.Utils;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * What Kafka's own coordinator of groups would decide: its assignors, its hashes of metadata, its regular expressions.
 * A line of JSON on stdin is a question, of which "ask" says the kind; a line on stdout is its answer.
 */
public class Groups {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            JsonNode question = JSON.readTree(line);
            answers.println(switch (question.get("ask").textValue()) {
                case "uniform" -> assign(new UniformAssignor(), question);
                case "range" -> assign(new RangeAssignor(), question);
                case "topic hash" -> hash(Utils.computeTopicHash(question.get("name").textValue(), image(question)));
                case "group hash" -> hash(Utils.computeGroupHash(hashes(question.get("topics"))));
                case "pattern" -> matches(question);
                default -> throw new IllegalArgumentException(line);
            });
        }
        answers.flush();
    }

    /** Members and partitions in maps of the kinds that the coordinator uses, since assignors follow their order. */
    private static ObjectNode assign(ConsumerGroupPartitionAssignor assignor, JsonNode question) {
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        question.get("members").properties().forEach(each -> {
            Map<Uuid, Set<Integer>> current = new HashMap<>();
            each.getValue().get("current").properties().forEach(topic -> {
                List<Integer> partitions = new ArrayList<>();
                topic.getValue().forEach(partition -> partitions.add(partition.intValue()));
                Uuid id = Uuid.fromString(topic.getKey());
                current.put(id, new HashSet<>(partitions));
                partitions.forEach(index -> owners.computeIfAbsent(id, x -> new HashMap<>()).put(index, each.getKey()));
            });
            Set<Uuid> topics = new HashSet<>();
            each.getValue().get("topics").forEach(topic -> topics.add(Uuid.fromString(topic.textValue())));
            members.put(each.getKey(), new MemberSubscriptionAndAssignmentImpl(
                text(each.getValue(), "rack"), text(each.getValue(), "instance"), topics, new Assignment(current)));
        });
        SubscriptionType type =
            question.get("homogeneous").booleanValue() ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        GroupSpec group = new GroupSpecImpl(members, type, owners);
        ObjectNode answer = JSON.createObjectNode();
        long start = System.nanoTime();
        Map<String, MemberAssignment> assigned = assignor.assign(group, describer(question.get("topics"))).members();
        answer.put("ns", System.nanoTime() - start);
        assigned.forEach((member, assignment) -> {
            ObjectNode topics = answer.withObject("/members").putObject(member);
            assignment.partitions().forEach((topic, partitions) -> {
                ArrayNode sorted = topics.putArray(topic.toString());
                new TreeSet<>(partitions).forEach(sorted::add);
            });
        });
        return answer;
    }

    private static Optional<String> text(JsonNode node, String field) {
        return Optional.ofNullable(node.path(field).textValue());
    }

    private static SubscribedTopicDescriber describer(JsonNode topics) {
        Map<Uuid, Integer> counts = new HashMap<>();
        topics.properties().forEach(each -> counts.put(Uuid.fromString(each.getKey()), each.getValue().intValue()));
        return new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return counts.getOrDefault(topic, -1);
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                throw new UnsupportedOperationException("an assignor asks for racks: ours has to, too");
            }
        };
    }

    /** A metadata image of one topic, of which the hash asks only this. */
    private static CoordinatorMetadataImage image(JsonNode question) {
        var topic = as(CoordinatorMetadataImage.TopicMetadata.class, (proxy, method, arguments) ->
            switch (method.getName()) {
                case "name" -> question.get("name").textValue();
                case "id" -> Uuid.fromString(question.get("id").textValue());
                case "partitionCount" -> question.get("racks").size();
                case "partitionRacks" -> {
                    List<String> racks = new ArrayList<>();
                    question.get("racks").get((int) arguments[0]).forEach(each -> racks.add(each.textValue()));
                    yield racks;
                }
                default -> throw new UnsupportedOperationException(method.getName());
            });
        return as(CoordinatorMetadataImage.class, (proxy, method, arguments) -> Optional.of(topic));
    }

    private static <T> T as(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    private static Map<String, Long> hashes(JsonNode topics) {
        Map<String, Long> byName = new HashMap<>();
        topics.properties().forEach(each -> byName.put(each.getKey(), each.getValue().longValue()));
        return byName;
    }

    private static ObjectNode hash(long value) {
        return JSON.createObjectNode().put("hash", value);
    }

    private static ObjectNode matches(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            Pattern pattern = Pattern.compile(question.get("pattern").textValue());
            ArrayNode names = answer.putArray("names");
            question.get("names").forEach(name -> {
                if (pattern.matcher(name.textValue()).matches()) {
                    names.add(name);
                }
            });
        } catch (PatternSyntaxException error) {
            answer.put("error", error.getDescription());
        }
        return answer;
    }
}
