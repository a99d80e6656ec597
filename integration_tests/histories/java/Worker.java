import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Kafka's producers and consumers for another process: a request a line of stdin, an answer a line of stdout, both JSON.
 * A request has an id, which its answer repeats, the name of a client, and what it is to do; each client has a thread.
 * An answer has "error", the names of the exception's classes up to Exception and its text, if there was one.
 */
public class Worker {
    static final ObjectMapper JSON = new ObjectMapper();
    static final Map<String, Client> CLIENTS = new ConcurrentHashMap<>();
    static final Map<String, ConsumerGroupMetadata> METADATA = new ConcurrentHashMap<>();

    interface Client {
        /** What the request asks for; null: it is answered later. */
        Object perform(JsonNode request) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, ExecutorService> threads = new HashMap<>();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            String name = request.get("client").asText();
            threads.computeIfAbsent(name, any -> Executors.newSingleThreadExecutor()).execute(() -> serve(name, request));
            if (request.get("do").asText().equals("close")) {
                threads.remove(name).shutdown();
            }
        }
        System.exit(0);
    }

    static void serve(String name, JsonNode request) {
        try {
            Object told = switch (request.get("do").asText()) {
                case "producer" -> made(name, new Producing(options(request)));
                case "consumer" -> made(name, new Consuming(name, options(request), request.get("topic").asText()));
                default -> CLIENTS.get(name).perform(request);
            };
            if (told != null) {
                answer(request, told, null);
            }
        } catch (Exception error) {
            answer(request, null, error);
        }
    }

    static Object made(String name, Client client) {
        CLIENTS.put(name, client);
        return true;
    }

    static Map<String, Object> options(JsonNode request) {
        Map<String, Object> found = new HashMap<>();
        request.get("options").properties().forEach(each -> found.put(each.getKey(), each.getValue().asText()));
        return found;
    }

    static void answer(JsonNode request, Object told, Exception error) {
        ObjectNode made = JSON.createObjectNode();
        made.set("id", request.get("id"));
        made.set("told", JSON.valueToTree(told));
        if (error != null) {
            for (Class<?> each = error.getClass(); each != Exception.class; each = each.getSuperclass()) {
                made.withArray("error").add(each.getSimpleName());
            }
            made.put("text", String.valueOf(error.getMessage()));
        }
        synchronized (System.out) {
            System.out.println(made);
        }
    }

    static class Producing implements Client {
        final KafkaProducer<String, String> producer;

        Producing(Map<String, Object> options) {
            producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer());
        }

        @Override
        public Object perform(JsonNode request) {
            switch (request.get("do").asText()) {
                case "start" -> producer.initTransactions();
                case "begin" -> producer.beginTransaction();
                case "commit" -> producer.commitTransaction();
                case "abort" -> producer.abortTransaction();
                case "close" -> producer.close(Duration.ZERO);
                case "offsets" -> {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    positions(request).forEach((each, at) -> offsets.put(each, new OffsetAndMetadata(at)));
                    producer.sendOffsetsToTransaction(offsets, METADATA.get(request.get("group").asText()));
                }
                case "send" -> {
                    String topic = request.get("topic").asText();
                    int partition = request.get("partition").asInt();
                    producer.send(new ProducerRecord<>(topic, partition, null, request.get("value").asText()),
                        (metadata, error) -> answer(request, error == null ? metadata.offset() : null, error));
                    return null;
                }
                default -> throw new IllegalArgumentException(request.toString());
            }
            return true;
        }
    }

    static Map<TopicPartition, Long> positions(JsonNode request) {
        Map<TopicPartition, Long> found = new TreeMap<>((one, other) -> one.partition() - other.partition());
        request.get("positions").properties().forEach(each -> found.put(
            new TopicPartition(request.get("topic").asText(), Integer.parseInt(each.getKey())), each.getValue().asLong()));
        return found;
    }

    static class Consuming implements Client, ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final String name;
        final String topic;
        int span;

        Consuming(String name, Map<String, Object> options, String topic) {
            this.name = name;
            this.topic = topic;
            consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            span++;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            span++;
        }

        @Override
        public Object perform(JsonNode request) {
            switch (request.get("do").asText()) {
                case "subscribe" -> consumer.subscribe(List.of(topic), this);
                case "assign" -> {
                    span++;
                    consumer.assign(positions(request).keySet());
                    positions(request).forEach(consumer::seek);
                }
                case "rewind" -> {
                    span++;
                    positions(request).forEach(consumer::seek);
                }
                case "poll" -> {
                    return polled(request.get("ms").asLong());
                }
                case "commit" -> {
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    positions(request).forEach((each, at) -> offsets.put(each, new OffsetAndMetadata(at)));
                    consumer.commitSync(offsets);
                }
                case "committed" -> {
                    Map<Integer, Long> told = new TreeMap<>();
                    consumer.committed(positions(request).keySet()).forEach(
                        (each, at) -> told.put(each.partition(), at == null ? -1 : at.offset()));
                    return told;
                }
                case "metadata" -> METADATA.put(name, consumer.groupMetadata());
                case "close" -> consumer.close();
                default -> throw new IllegalArgumentException(request.toString());
            }
            return span;
        }

        Object polled(long ms) {
            Map<Integer, List<Object>> records = new TreeMap<>();
            consumer.poll(Duration.ofMillis(ms)).forEach(each ->
                records.computeIfAbsent(each.partition(), any -> new ArrayList<>()).add(
                    List.of(each.offset(), each.value())));
            return Map.of("span", span, "records", records);
        }
    }
}
