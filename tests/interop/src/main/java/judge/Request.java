package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import kafkalog.DataDir;
import kafkalog.ManualClock;
import kafkalog.PartitionLog;
import org.apache.kafka.common.TopicPartition;

/** The arguments of a command, with the ones every command has under their own names. */
record Request(JsonNode json) {
    DataDir dataDir() {
        return new DataDir(Path.of(text("data_dir")), partition());
    }

    TopicPartition partition() {
        return new TopicPartition(text("topic"), json.path("partition").asInt(0));
    }

    Map<String, String> config() {
        Map<String, String> config = new TreeMap<>();
        json.path("config").properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        return config;
    }

    long now() {
        return number("now", ManualClock.START_MS);
    }

    PartitionLog open() throws Exception {
        return PartitionLog.open(dataDir(), config(), new ManualClock(now()));
    }

    String text(String name) {
        if (!json.hasNonNull(name)) {
            throw new IllegalArgumentException("'" + name + "' is missing");
        }
        return json.get(name).asText();
    }

    long number(String name, long absent) {
        return json.hasNonNull(name) ? json.get(name).asLong() : absent;
    }

    boolean has(String name) {
        return json.hasNonNull(name);
    }

    boolean flag(String name, boolean absent) {
        return json.hasNonNull(name) ? json.get(name).asBoolean() : absent;
    }
}
