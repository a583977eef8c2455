package kafkalog;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON: keys in the order given, one object a line or one indented object. */
public final class Json {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() { }

    public static Map<String, Object> object(Object... namesAndValues) {
        Map<String, Object> object = new LinkedHashMap<>();
        for (int i = 0; i < namesAndValues.length; i += 2) {
            object.put((String) namesAndValues[i], namesAndValues[i + 1]);
        }
        return object;
    }

    public static void writeLines(Path file, List<?> objects) throws IOException {
        StringBuilder text = new StringBuilder();
        for (Object object : objects) {
            text.append(encode(object)).append('\n');
        }
        Files.writeString(file, text);
    }

    public static void writeIndented(Path file, Object object) throws IOException {
        Files.writeString(file, MAPPER.writerWithDefaultPrettyPrinter().writeValueAsString(object) + "\n");
    }

    public static JsonNode parse(String text) throws IOException {
        return MAPPER.readTree(text);
    }

    public static String encode(Object object) {
        try {
            return MAPPER.writeValueAsString(object);
        } catch (JsonProcessingException e) {
            throw new IllegalStateException(e);
        }
    }
}
