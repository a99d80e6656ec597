import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools, as they are, one after another in this JVM, whose start is most of what a
 * tool costs. A line of JSON on stdin is a command: main, args, stdin. A line on stdout is its answer: exit, out, err.
 */
public class Runner {
    /** How the tool that runs has exited; tools that catch everything exit again. */
    static volatile Integer exited;

    /** What tools leave to be done at the end of the JVM: they close producers so. */
    static final List<Runnable> HOOKS = new CopyOnWriteArrayList<>();
    static final long HOOKS_MS = 30_000;

    /** What an exit becomes: it ends the thread, as the end of the JVM would. */
    static final class Exited extends RuntimeException {
        Exited() {
            super("exit", null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.Procedure exit = (status, message) -> {
            if (exited == null) {
                exited = status;
                end();
                System.out.flush();
                System.err.flush();
                System.setOut(new PrintStream(OutputStream.nullOutputStream()));
                System.setErr(new PrintStream(OutputStream.nullOutputStream()));
            }
            throw new Exited();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Exit.setShutdownHookAdder((name, runnable) -> HOOKS.add(runnable));
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = commands.readLine()) != null; ) {
            answers.println(json.writeValueAsString(run(json, json.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /** The hooks, as the JVM would run them. */
    static void end() {
        List<Thread> threads = new ArrayList<>();
        for (Runnable each : HOOKS) {
            threads.add(new Thread(each));
        }
        HOOKS.clear();
        threads.forEach(Thread::start);
        try {
            for (Thread each : threads) {
                each.join(HOOKS_MS);
            }
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    static ObjectNode run(ObjectMapper json, JsonNode command) throws Exception {
        String[] arguments = json.treeToValue(command.get("args"), String[].class);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream realOut = System.out;
        PrintStream realErr = System.err;
        InputStream realIn = System.in;
        exited = null;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(command.get("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(command.get("main").asText()).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end();
        } catch (InvocationTargetException thrown) {
            if (exited == null) {
                thrown.getCause().printStackTrace();
                exited = 1;
            }
        } finally {
            System.out.flush();
            System.err.flush();
            System.setOut(realOut);
            System.setErr(realErr);
            System.setIn(realIn);
        }
        ObjectNode answer = json.createObjectNode();
        answer.put("exit", exited == null ? 0 : exited);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }
}
