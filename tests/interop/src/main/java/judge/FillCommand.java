package judge;

import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Random;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.PartitionLog;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;

/** A large log of random records, made here because it would be slow to send. One seed gives one log. */
final class FillCommand {
    private FillCommand() { }

    static Map<String, Object> run(Request request) throws Exception {
        Random random = new Random(request.number("seed", 1));
        long bytes = request.number("bytes", 0);
        int keys = (int) request.number("keys", 100_000);
        int batchRecords = (int) request.number("batch_records", 100);
        int valueBytes = (int) request.number("value_bytes", 100);
        int tombstonesPerMille = (int) request.number("tombstones_per_mille", 0);
        long batchMs = request.number("batch_ms", 10);
        byte[] filler = new byte[Math.max(1, valueBytes) * 2];
        random.nextBytes(filler);
        long written = 0;
        long records = 0;
        try (PartitionLog log = request.open()) {
            while (written < bytes) {
                SimpleRecord[] batch = new SimpleRecord[1 + random.nextInt(2 * batchRecords - 1)];
                for (int i = 0; i < batch.length; i++) {
                    // Small numbers come far more often than large ones, as busy keys do.
                    double u = random.nextDouble();
                    byte[] key = ("key-" + (long) (keys * u * u)).getBytes(StandardCharsets.UTF_8);
                    byte[] value = null;
                    if (random.nextInt(1000) >= tombstonesPerMille) {
                        value = new byte[random.nextInt(2 * valueBytes)];
                        System.arraycopy(filler, random.nextInt(filler.length - value.length + 1), value, 0,
                            value.length);
                    }
                    batch[i] = new SimpleRecord(log.now() + random.nextInt(1000) - 500, key, value);
                    written += 20 + key.length + (value == null ? 0 : value.length);
                }
                records += batch.length;
                log.append(batch);
                log.clock.advance(batchMs);
            }
            log.roll();
            log.append(new SimpleRecord(log.now(), new byte[] {1}, new byte[] {1}));
            return Json.object("records", records, "now", log.now(),
                "log_end_offset", log.log().logEndOffset(), "segments", new LogReport(log.log()).segments());
        }
    }
}
