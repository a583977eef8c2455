package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import kafkalog.Json;
import kafkalog.Release;

/**
 * A process that lets Kafka's own classes look at, write and clean log directories on request.
 *
 * One JSON object a line on standard input, {"command": ..., arguments}; for each, one JSON object a line on standard
 * output: {"ok": true, "result": ...} or {"ok": false, "error": ..., "trace": ...}. The first line out, before any
 * request, tells Kafka's version. The commands are in the README beside the pom.
 */
public final class Judge {
    private Judge() { }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        DumpTool.takeStandardStreams();
        answer(answers, Json.object("ok", true, "result", Json.object("kafka_version", Release.version())));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = Json.parse(line);
            String command = request.path("command").asText();
            if (command.equals("quit")) {
                break;
            }
            answer(answers, attempt(command, new Request(request)));
        }
        Runtime.getRuntime().halt(0); // Kafka's metrics registry keeps threads alive
    }

    private static Object attempt(String command, Request request) {
        try {
            return Json.object("ok", true, "result", run(command, request));
        } catch (Exception | LinkageError | AssertionError e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            return Json.object("ok", false, "error", e.toString(), "trace", trace.toString());
        }
    }

    private static Object run(String command, Request request) throws Exception {
        return switch (command) {
            case "judge" -> Verdict.of(request);
            case "clean" -> CleanCommand.run(request);
            case "write" -> WriteCommand.run(request);
            case "fill" -> FillCommand.run(request);
            case "open" -> LiveCommand.open(request);
            case "apply" -> LiveCommand.apply(request);
            case "close" -> LiveCommand.close(request);
            case "messages" -> MessagesCommand.run(request);
            case "authorize" -> AuthorizeCommand.run(request);
            default -> throw new IllegalArgumentException("unknown command '" + command + "'");
        };
    }

    private static void answer(PrintStream answers, Object answer) {
        byte[] line = (Json.encode(answer) + "\n").getBytes(StandardCharsets.UTF_8);
        answers.write(line, 0, line.length);
        answers.flush();
    }
}
