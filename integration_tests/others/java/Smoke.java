import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own Java client against a broker: Smoke BOOTSTRAP TOPIC RECORDS REPLICAS. Prints one JSON object of what it saw. */
public class Smoke {
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        short replicas = Short.parseShort(arguments[3]);
        String group = topic + "-readers";
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, 2, replicas))).all().get();
            boolean listed = admin.listTopics().names().get().contains(topic);
            for (String codec : CODECS) {
                produce(bootstrap, topic, codec, count);
            }
            List<String> values = consume(bootstrap, topic, group, count * CODECS.size());
            long committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values()
                .stream().mapToLong(each -> each.offset()).sum();
            String target = topic + "-transacted";
            admin.createTopics(List.of(new NewTopic(target, 1, replicas))).all().get();
            transact(bootstrap, target, topic, count);
            List<String> transacted = consume(bootstrap, target, target + "-readers", count);
            long offset = admin.listConsumerGroupOffsets(target + "-copiers").partitionsToOffsetAndMetadata().get()
                .values().stream().mapToLong(each -> each.offset()).sum();
            System.out.println(new ObjectMapper().writeValueAsString(Map.of("codecs", CODECS, "listed", listed,
                "values", values, "committed", committed, "transacted", transacted, "transacted_offset", offset)));
        }
    }

    /** Writes count values and an offset of a group in each of two transactions, the first of which is aborted. */
    static void transact(String bootstrap, String target, String source, int count) {
        Map<String, Object> options =
            Map.of("bootstrap.servers", bootstrap, "transactional.id", target + "-copiers");
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (boolean commits : new boolean[] {false, true}) {
                producer.beginTransaction();
                for (int n = 0; n < count; n++) {
                    producer.send(new ProducerRecord<>(target, commits + " " + n));
                }
                producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition(source, 0), new OffsetAndMetadata(count)),
                    new ConsumerGroupMetadata(target + "-copiers"));
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
        }
    }

    static void produce(String bootstrap, String topic, String codec, int count) throws Exception {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "compression.type", codec);
        try (KafkaProducer<String, String> producer =
                 new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            List<Future<?>> sent = new ArrayList<>();
            for (int n = 0; n < count; n++) {
                ProducerRecord<String, String> made = new ProducerRecord<>(topic, n % 2, "" + n, codec + " " + n);
                made.headers().add("codec", codec.getBytes(StandardCharsets.UTF_8));
                sent.add(producer.send(made));
            }
            producer.flush();
            for (Future<?> each : sent) {
                each.get();
            }
        }
    }

    static List<String> consume(String bootstrap, String topic, String group, int total) {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "group.id", group,
            "enable.auto.commit", "false", "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        List<String> values = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer =
                 new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (values.size() < total) {
                consumer.poll(Duration.ofSeconds(1)).forEach(each -> values.add(each.value()));
                consumer.commitSync();
            }
        }
        return values;
    }
}
