package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import kafkalog.Json;
import kafkalog.LiveLog;
import kafkalog.ManualClock;
import kafkalog.Release;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/** Logs that stay open from request to request: opened, worked on one operation at a time, closed or abandoned. */
final class LiveCommand {
    private static final Map<String, LiveLog> OPEN = new HashMap<>();

    private LiveCommand() { }

    static Map<String, Object> open(Request request) throws Exception {
        LiveLog.Left left = new LiveLog.Left(
            request.flag("clean", true), request.number("recovery_point", 0), request.number("log_start", 0));
        LiveLog log = new LiveLog(request.dataDir().partitionDir(), request.config(),
            new ManualClock(request.now()), left,
            (int) request.number("producer_id_expiration_ms", Release.DAY_MS));
        OPEN.put(request.text("data_dir"), log);
        return log.state();
    }

    /** What the operation returned, or how Kafka refused it, and the state after it. */
    static Map<String, Object> apply(Request request) {
        LiveLog log = OPEN.get(request.text("data_dir"));
        Object result = null;
        Exception refused = null;
        try {
            result = run(log, request.json().get("operation"));
        } catch (RecordValidationException e) {
            refused = e.invalidException(); // as a broker answers its client
        } catch (KafkaException | IllegalArgumentException e) {
            refused = e;
        }
        Map<String, Object> answer = log.state();
        answer.put("result", result);
        answer.put("refused", refused == null ? null : refused.getClass().getSimpleName());
        answer.put("error", refused == null ? null : Errors.forException(refused).name());
        answer.put("message", refused == null ? null : refused.getMessage());
        return answer;
    }

    static Map<String, Object> close(Request request) {
        LiveLog log = OPEN.remove(request.text("data_dir"));
        if (request.flag("abandon", false)) {
            log.abandon();
        } else {
            log.close();
        }
        return log.state();
    }

    private static Object run(LiveLog log, JsonNode operation) {
        switch (operation.get("op").asText()) {
            case "append" -> {
                return append(log, operation, AppendOrigin.CLIENT);
            }
            case "end_transaction" -> {
                return append(log, operation, AppendOrigin.COORDINATOR);
            }
            case "expire" -> log.expireProducers();
            case "replicate" -> log.appendAsFollower(bytes(operation), operation.get("epoch").asInt());
            case "roll" -> log.roll();
            case "flush" -> log.flush();
            case "advance" -> log.advance(operation.get("ms").asLong());
            case "configure" -> log.configure(config(operation.get("config")));
            case "truncate_fully" -> log.truncateFullyAndStartAt(offset(operation), logStart(operation));
            case "retain" -> {
                return log.deleteOldSegments();
            }
            case "increment_log_start" -> {
                return log.incrementLogStart(offset(operation));
            }
            case "delete_records" -> {
                return log.deleteRecords(offset(operation));
            }
            case "truncate_to" -> {
                return log.truncateTo(offset(operation));
            }
            default -> throw new IllegalStateException("unknown operation " + operation);
        }
        return null;
    }

    private static Object append(LiveLog log, JsonNode operation, AppendOrigin origin) {
        LiveLog.Appended appended = log.appendAsLeader(bytes(operation), operation.get("epoch").asInt(), origin);
        return List.of(appended.firstOffset(), appended.lastOffset(), appended.logAppendTime());
    }

    private static ByteBuffer bytes(JsonNode operation) {
        return ByteBuffer.wrap(Base64.getDecoder().decode(operation.get("batches").asText()));
    }

    private static long offset(JsonNode operation) {
        return operation.get("offset").asLong();
    }

    private static Optional<Long> logStart(JsonNode operation) {
        return operation.hasNonNull("log_start") ? Optional.of(operation.get("log_start").asLong()) : Optional.empty();
    }

    private static Map<String, String> config(JsonNode pairs) {
        Map<String, String> config = new TreeMap<>();
        pairs.properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        return config;
    }
}
