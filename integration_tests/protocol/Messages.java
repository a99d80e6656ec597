import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;

/**
 * Reads and writes messages with the classes that Kafka itself generates from its definitions. A line of JSON on stdin
 * is a question: class, bytes (hex), read (the version they are in), write (the version wanted); without bytes it is of
 * a new message. A line on stdout is the answer: bytes, json (the fields by name, in the version that was read) and,
 * where the version wanted cannot carry the message, no bytes but unsupported. With neither read nor write it is the
 * range of versions, low and high, and, by version, the paths of fields that may be null.
 */
public class Messages {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = questions.readLine()) != null; ) {
            answers.println(answer(JSON.readTree(line)));
        }
        answers.flush();
    }

    private static ObjectNode answer(JsonNode question) throws Exception {
        Class<?> type = Class.forName(question.get("class").textValue());
        Message message = (Message) type.getDeclaredConstructor().newInstance();
        ObjectNode answer = JSON.createObjectNode();
        if (!question.has("write")) {
            Schema[] schemas = (Schema[]) type.getField("SCHEMAS").get(null);
            answer.put("low", message.lowestSupportedVersion()).put("high", message.highestSupportedVersion());
            for (int version = message.lowestSupportedVersion(); version < schemas.length; version++) {
                nullable(schemas[version], "", answer.withObject("/nullable").withArray("" + version));
            }
            return answer;
        }
        if (question.has("bytes")) {
            short read = question.get("read").shortValue();
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(question.get("bytes").textValue()));
            message.read(new ByteBufferAccessor(bytes), read);
            answer.put("left", bytes.remaining());
            answer.set("json", json(type, message, read));
        }
        try {
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, question.get("write").shortValue()).buffer();
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            answer.put("bytes", HexFormat.of().formatHex(bytes));
        } catch (UnsupportedVersionException | NullPointerException error) {
            answer.put("unsupported", String.valueOf(error.getMessage()));
        }
        return answer;
    }

    /** Collects the paths of fields that may be null. */
    private static void nullable(Schema schema, String path, ArrayNode found) {
        for (BoundField each : schema.fields()) {
            if (each.def.type instanceof TaggedFields tagged) {
                tagged.fields().values().forEach(field -> nullable(field, path, found));
            } else {
                nullable(each.def, path, found);
            }
        }
    }

    private static void nullable(Field field, String path, ArrayNode found) {
        if (field.type.isNullable()) {
            found.add(path + field.name);
        }
        if (field.type.arrayElementType().orElse(field.type) instanceof Schema inner) {
            nullable(inner, path + field.name + ".", found);
        }
    }

    private static JsonNode json(Class<?> type, Message message, short version) throws Exception {
        Class<?> converter = Class.forName(type.getName() + "JsonConverter");
        for (Method method : converter.getMethods()) {
            if (method.getName().equals("write") && method.getParameterCount() == 3) {
                return (JsonNode) method.invoke(null, message, version, false);
            }
        }
        throw new IllegalStateException(converter + " has no write of three arguments");
    }
}
