import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command line tools in one process: a JSON object per line names a class and its
 * arguments, and the answer has the output and the exit code.
 */
public final class Tools {
    private static final int NOT_ENDED = -1;
    private static final long LIMIT_MS = 40_000;

    private Tools() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        InputStream requests = System.in;
        ObjectMapper mapper = new ObjectMapper();
        Exit.setShutdownHookAdder((name, hook) -> {});
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(requests, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(mapper.writeValueAsString(run(mapper, mapper.readTree(line))));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static ObjectNode run(ObjectMapper mapper, JsonNode request) throws Exception {
        String[] arguments = mapper.convertValue(request.get("arguments"), String[].class);
        byte[] input = request.get("input").asText().getBytes(StandardCharsets.UTF_8);
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        AtomicInteger code = new AtomicInteger(NOT_ENDED);
        CountDownLatch ended = new CountDownLatch(1);
        Exit.Procedure end = (status, message) -> {
            // A tool may exit where it would catch an exception, so its thread stays here.
            code.compareAndSet(NOT_ENDED, status);
            ended.countDown();
            while (true) {
                LockSupport.park();
            }
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        System.setIn(new ByteArrayInputStream(input));
        PrintStream printed = new PrintStream(out, true, StandardCharsets.UTF_8);
        PrintStream reported = new PrintStream(errors, true, StandardCharsets.UTF_8);
        System.setOut(printed);
        System.setErr(reported);
        Thread thread = new Thread(() -> {
            try {
                Class<?> tool = Class.forName(request.get("tool").asText());
                scala.Console$ console = scala.Console$.MODULE$;
                Body body = new Body(tool, arguments);
                console.withOut(printed, () -> console.withErr(reported, body));
                code.compareAndSet(NOT_ENDED, 0);
            } catch (Throwable error) {
                error.printStackTrace(reported);
                code.compareAndSet(NOT_ENDED, 1);
            } finally {
                ended.countDown();
            }
        });
        thread.setDaemon(true);
        thread.start();
        if (!ended.await(LIMIT_MS, TimeUnit.MILLISECONDS)) {
            thread.interrupt();
        }
        ObjectNode answer = mapper.createObjectNode();
        answer.put("code", code.get());
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("errors", errors.toString(StandardCharsets.UTF_8));
        return answer;
    }

    /** Calls a tool's main method. */
    private static final class Body extends scala.runtime.AbstractFunction0<Object> {
        private final Class<?> tool;
        private final String[] arguments;

        Body(Class<?> tool, String[] arguments) {
            this.tool = tool;
            this.arguments = arguments;
        }

        @Override
        public Object apply() {
            try {
                tool.getMethod("main", String[].class).invoke(null, (Object) arguments);
                return null;
            } catch (InvocationTargetException error) {
                Body.<RuntimeException>raise(error.getCause());
                return null;
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(error);
            }
        }

        @SuppressWarnings("unchecked")
        private static <E extends Throwable> void raise(Throwable error) throws E {
            throw (E) error;
        }
    }
}
