package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafkalog.Json;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Kafka's classes of requests, responses and records, in a batch: a file of {"name", "version", "bytes"} a line in, a
 * file with what Kafka made of each out. Kafka reads the bytes, tells them as JSON, and writes them again; then it
 * makes the message from that JSON and writes that. Of an unknown class or version there is an empty object.
 */
final class MessagesCommand {
    private static final List<String> PACKAGES = List.of(
        "org.apache.kafka.common.message",
        "org.apache.kafka.common.metadata",
        "org.apache.kafka.coordinator.group.generated",
        "org.apache.kafka.coordinator.share.generated",
        "org.apache.kafka.coordinator.transaction.generated",
        "org.apache.kafka.raft.generated",
        "org.apache.kafka.server.log.remote.metadata.storage.generated",
        "org.apache.kafka.storage.internals.log.generated",
        "org.apache.kafka.storage.internals.log");

    private static final Map<String, Class<?>> CLASSES = new TreeMap<>();

    private MessagesCommand() { }

    static Map<String, Object> run(Request request) throws Exception {
        int known = 0;
        int lines = 0;
        try (BufferedReader in = Files.newBufferedReader(Path.of(request.text("input")));
            BufferedWriter out = Files.newBufferedWriter(Path.of(request.text("output")))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                Map<String, Object> answer = answer(Json.parse(line));
                known += answer.isEmpty() ? 0 : 1;
                lines++;
                out.write(Json.encode(answer));
                out.newLine();
            }
        }
        return Json.object("lines", lines, "known", known);
    }

    private static Map<String, Object> answer(JsonNode line) throws Exception {
        Class<?> kind = classOf(line.get("name").asText());
        if (kind == null) {
            return Map.of();
        }
        short version = (short) line.get("version").asInt();
        Message message = (Message) kind.getConstructor().newInstance();
        if (message.highestSupportedVersion() == 0 && kind.getSimpleName().endsWith("Key")
            && message instanceof ApiMessage keyed && keyed.apiKey() == version) {
            version = 0; // from Kafka 4 on the number that begins a key is its type
        }
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return Map.of();
        }
        ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(line.get("bytes").asText()));
        try {
            message.read(new ByteBufferAccessor(bytes), version);
            JsonNode json = toJson(kind, message, version);
            boolean hasRecords = json.toString().contains("SizeInBytes");
            return Json.object(
                "bytes", written(message, version),
                "left", bytes.remaining(),
                "json", json,
                "again", hasRecords ? null : written(fromJson(kind, json, version), version));
        } catch (InvocationTargetException e) {
            return Json.object("error", e.getCause().toString());
        } catch (Exception e) {
            return Json.object("error", e.toString());
        }
    }

    private static Class<?> classOf(String name) {
        if (!CLASSES.containsKey(name)) {
            CLASSES.put(name, null);
            for (String each : PACKAGES) {
                for (String end : List.of("Data", "")) {
                    try {
                        CLASSES.put(name, Class.forName(each + "." + name + end).asSubclass(Message.class));
                        return CLASSES.get(name);
                    } catch (ClassNotFoundException | ClassCastException e) {
                        continue;
                    }
                }
            }
        }
        return CLASSES.get(name);
    }

    private static String written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return Base64.getEncoder().encodeToString(buffer.array());
    }

    private static Method converter(Class<?> kind, String name, Class<?>... parameters) throws Exception {
        return Class.forName(kind.getName() + "JsonConverter").getMethod(name, parameters);
    }

    private static JsonNode toJson(Class<?> kind, Message message, short version) throws Exception {
        return (JsonNode) converter(kind, "write", kind, short.class, boolean.class)
            .invoke(null, message, version, false);
    }

    private static Message fromJson(Class<?> kind, JsonNode json, short version) throws Exception {
        return (Message) converter(kind, "read", JsonNode.class, short.class).invoke(null, json, version);
    }
}
