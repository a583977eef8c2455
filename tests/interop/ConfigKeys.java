import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Writes what Kafka itself says of its configuration: ConfigKeys OUT_DIR [CASES].
 *
 * keys.tsv: every topic and broker key with type, default and validator. With CASES also
 * synonyms.tsv: the broker keys behind a topic key, the first one first; and effective.jsonl: for
 * each case the values in force or the refusal. One source file, run as it is (config_keys.sh).
 */
public final class ConfigKeys {
    private static final Map<String, String> NODE = Map.of(
        "process.roles", "broker", "node.id", "1", "controller.quorum.voters", "2@localhost:9093",
        "controller.listener.names", "CONTROLLER", "listeners", "PLAINTEXT://localhost:9092",
        "log.dirs", "/tmp/kafka-logs");

    public static void main(String[] arguments) throws Exception {
        Path out = Path.of(arguments[0]);
        Files.createDirectories(out);
        try (PrintStream keys = new PrintStream(Files.newOutputStream(out.resolve("keys.tsv")))) {
            define(keys, "topic", LogConfig.configDefCopy());
            define(keys, "broker", KafkaConfig.configDef());
        }
        if (arguments.length < 2) {
            return;
        }
        try (PrintStream rows = new PrintStream(Files.newOutputStream(out.resolve("synonyms.tsv")))) {
            new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).forEach(
                (key, synonyms) -> rows.print(key + "\t" + synonyms.stream().map(ConfigSynonym::name)
                    .collect(Collectors.joining("\t")) + "\n"));
        }
        Path effective = out.resolve("effective.jsonl");
        try (PrintStream rows = new PrintStream(Files.newOutputStream(effective))) {
            for (String line : Files.readAllLines(Path.of(arguments[1]))) {
                if (!line.isBlank() && !line.startsWith("#")) {
                    rows.print(effective(line) + "\n");
                }
            }
        }
    }

    private static void define(PrintStream rows, String scope, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(definition.configKeys()).values()) {
            String bounds = key.validator == null ? "" : key.validator.toString();
            // Lists of releases and of every security provider are of no interest here.
            rows.print(String.join("\t", scope, key.name, key.type.toString(),
                text(key.defaultValue), bounds.length() > 100 ? "…" : bounds) + "\n");
        }
    }

    private static String text(Object value) {
        if (value instanceof List<?> list) {
            return list.stream().map(String::valueOf).collect(Collectors.joining(","));
        }
        return value == ConfigDef.NO_DEFAULT_VALUE ? "" : String.valueOf(value).replace("\n", " ");
    }

    /** Answers `broker key=value;… | topic key=value;…`. */
    private static String effective(String line) throws Exception {
        String[] parts = line.split("\\|", -1);
        Map<String, String> broker = pairs(parts[0]);
        Map<String, String> topic = pairs(parts.length > 1 ? parts[1] : "");
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("broker", broker);
        answer.put("topic", topic);
        try {
            Map<String, Object> defaults = broker(broker);
            call("validateBrokerLogConfigValues", defaults, false);
            Properties overrides = new Properties();
            overrides.putAll(topic);
            LogConfig config = LogConfig.fromProps(defaults, overrides);
            call("validateValues", config.values());
            Map<String, Object> values = new TreeMap<>();
            Map<String, ?> builtIn = LogConfig.fromProps(broker(Map.of()), new Properties()).values();
            config.values().forEach((key, value) -> {
                if (!Objects.equals(value, builtIn.get(key))) {
                    values.put(key, text(value));
                }
            });
            values.put("before", text(config.messageTimestampBeforeMaxMs));
            values.put("after", text(config.messageTimestampAfterMaxMs));
            values.put("max segment ms", text(config.maxSegmentMs()));
            answer.put("values", values);
        } catch (IllegalArgumentException | org.apache.kafka.common.KafkaException error) {
            answer.put("error", error.getMessage());
        }
        return json(answer);
    }

    private static Map<String, Object> broker(Map<String, String> properties) {
        Properties all = new Properties();
        all.putAll(NODE);
        all.putAll(properties);
        return KafkaConfig.fromProps(all, false).extractLogConfigMap();
    }

    /** Calls a static method of LogConfig whose parameter types differ between the releases. */
    private static void call(String name, Object... arguments) throws Exception {
        for (Method method : LogConfig.class.getMethods()) {
            if (method.getName().equals(name)) {
                try {
                    method.invoke(null, arguments);
                    return;
                } catch (InvocationTargetException error) {
                    throw (RuntimeException) error.getCause();
                }
            }
        }
        throw new NoSuchMethodException(name);
    }

    private static Map<String, String> pairs(String text) {
        Map<String, String> pairs = new LinkedHashMap<>();
        for (String pair : text.strip().split(";")) {
            int equals = pair.indexOf('=');
            if (equals > 0) {
                pairs.put(pair.substring(0, equals).strip(), pair.substring(equals + 1));
            }
        }
        return pairs;
    }

    private static String json(Object value) {
        if (value instanceof Map<?, ?> map) {
            List<String> members = new ArrayList<>();
            map.forEach((key, member) -> members.add(json(key) + ": " + json(member)));
            return "{" + String.join(", ", members) + "}";
        }
        String text = String.valueOf(value).replace("\\", "\\\\").replace("\"", "\\\"");
        return '"' + text.replace("\n", "\\n").replace("\t", "\\t") + '"';
    }
}
