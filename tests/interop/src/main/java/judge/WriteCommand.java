package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.PartitionLog;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.AppendOrigin;

/** Kafka's log filled by a list of operations; bytes are base64. */
final class WriteCommand {
    private WriteCommand() { }

    static Map<String, Object> run(Request request) throws Exception {
        try (PartitionLog partition = request.open()) {
            for (JsonNode operation : request.json().path("operations")) {
                apply(partition, operation);
            }
            return Json.object(
                "log_end_offset", partition.log().logEndOffset(),
                "now", partition.now(),
                "segments", new LogReport(partition.log()).segments());
        }
    }

    static void apply(PartitionLog log, JsonNode operation) {
        switch (operation.get("op").asText()) {
            case "append" -> append(log, operation);
            case "lead" -> lead(log, operation);
            case "replicate" -> log.replicate(ByteBuffer.wrap(bytes(operation.get("batches"))));
            case "end_transaction" -> endTransaction(log, operation);
            case "roll" -> log.roll();
            case "advance" -> log.clock.advance(operation.get("ms").asLong());
            case "leader_epoch" -> log.leaderEpoch(operation.get("epoch").asInt());
            case "delete_before" -> log.deleteRecordsBefore(operation.get("offset").asLong());
            case "retain" -> log.deleteOldSegments();
            case "expire" -> log.expireProducers();
            default -> throw new IllegalArgumentException("unknown operation " + operation);
        }
    }

    private static void append(PartitionLog log, JsonNode operation) {
        List<SimpleRecord> records = new ArrayList<>();
        for (JsonNode record : operation.get("records")) {
            records.add(new SimpleRecord(record.get(0).asLong(), bytes(record.get(1)), bytes(record.get(2)),
                headers(record.path(3))));
        }
        SimpleRecord[] batch = records.toArray(new SimpleRecord[0]);
        log.codec(CompressionType.forName(operation.path("codec").asText("none")));
        JsonNode producer = operation.path("producer");
        if (producer.isMissingNode()) {
            log.append(batch);
            return;
        }
        long id = producer.get("id").asLong();
        int epoch = producer.get("epoch").asInt();
        int sequence = producer.get("sequence").asInt();
        if (producer.path("transactional").asBoolean()) {
            log.appendTransactional(id, epoch, sequence, batch);
        } else {
            log.appendIdempotent(id, epoch, sequence, batch);
        }
    }

    /** A batch as a client or a coordinator made it. */
    private static void lead(PartitionLog log, JsonNode operation) {
        AppendOrigin origin = AppendOrigin.valueOf(operation.get("origin").asText().toUpperCase(Locale.ROOT));
        log.lead(ByteBuffer.wrap(bytes(operation.get("batches"))), origin);
    }

    private static void endTransaction(PartitionLog log, JsonNode operation) {
        long id = operation.get("id").asLong();
        int epoch = operation.get("epoch").asInt();
        if (operation.get("commit").asBoolean()) {
            log.commit(id, epoch);
        } else {
            log.abort(id, epoch);
        }
    }

    private static Header[] headers(JsonNode pairs) {
        List<Header> headers = new ArrayList<>();
        for (JsonNode pair : pairs) {
            headers.add(new RecordHeader(pair.get(0).asText(), bytes(pair.get(1))));
        }
        return headers.toArray(new Header[0]);
    }

    private static byte[] bytes(JsonNode base64) {
        return base64.isNull() ? null : Base64.getDecoder().decode(base64.asText());
    }
}
