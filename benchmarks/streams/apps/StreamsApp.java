import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/** The workloads as an app of Kafka Streams, of one thread. */
public class StreamsApp {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration WINDOW = Duration.ofSeconds(10);
    private static final Duration KEPT = Duration.ofSeconds(600);

    public static class Order {
        public long id;
        public String user;
        public double amount;
        public String kind;
        public String currency;
    }

    private static <T> Serde<T> json(Class<T> type) {
        Serializer<T> out = (topic, value) -> {
            try {
                return value == null ? null : JSON.writeValueAsBytes(value);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        Deserializer<T> in = (topic, data) -> {
            try {
                return data == null ? null : JSON.readValue(data, type);
            } catch (Exception error) {
                throw new RuntimeException(error);
            }
        };
        return Serdes.serdeFrom(out, in);
    }

    private static <V> KStream<String, V> read(StreamsBuilder builder, Serde<V> values) {
        return builder.stream(System.getenv("BENCH_TOPIC"), Consumed.with(Serdes.String(), values));
    }

    private static <V> void count(KStream<String, V> events, Serde<V> values) {
        events.groupByKey(Grouped.with(Serdes.String(), values)).count(Materialized.as("counts"));
    }

    public static void main(String[] args) {
        Map<String, String> given = System.getenv();
        Properties settings = new Properties();
        settings.put("application.id", given.get("BENCH_APP"));
        settings.put("bootstrap.servers", given.get("BENCH_BROKER"));
        settings.put("state.dir", given.get("BENCH_FOLDER"));
        settings.put("processing.guarantee", given.get("BENCH_GUARANTEE"));
        settings.put("commit.interval.ms", Math.round(Double.parseDouble(given.get("BENCH_COMMIT_S")) * 1000));
        settings.put("num.stream.threads", 1);
        settings.put("dsl.store.suppliers.class", "org.apache.kafka.streams.state.BuiltInDslStoreSuppliers$"
            + (given.get("BENCH_STORE").startsWith("memory") ? "InMemory" : "RocksDB") + "DslStoreSuppliers");
        settings.put("auto.offset.reset", "earliest");
        settings.put("producer.compression.type", "lz4");
        settings.put("default.key.serde", Serdes.StringSerde.class);

        StreamsBuilder builder = new StreamsBuilder();
        Serde<ObjectNode> objects = json(ObjectNode.class);
        switch (given.get("BENCH_WORKLOAD")) {
            case "map" -> read(builder, objects)
                .mapValues(value -> value.put("n", 1))
                .to(given.get("BENCH_OUT"), Produced.with(Serdes.String(), objects));
            case "windows" -> read(builder, objects)
                .groupByKey(Grouped.with(Serdes.String(), objects))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, KEPT))
                .count(Materialized.as("counts"));
            case "typed" -> {
                Serde<Order> orders = json(Order.class);
                count(read(builder, orders).filter((key, order) -> order.amount >= 0), orders);
            }
            default -> count(read(builder, objects), objects);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        System.out.println("ready");
    }
}
