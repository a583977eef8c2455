package golden;

import static golden.Data.header;
import static golden.Data.record;
import static golden.Data.tombstone;
import static kafkalog.ManualClock.START_MS;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import kafkalog.DataDir;
import kafkalog.PartitionLog;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;

/** Directories before and after Kafka's cleaner, without transactions. */
final class CleaningCases {
    private static final long HOUR_MS = 3_600_000;

    private CleaningCases() { }

    static void write(Path out) throws Exception {
        small(out);
        segments(out);
        tombstones(out);
        partialMap(out);
        unkeyed(out);
        appendTime(out);
        holes(out);
        lastBatch(out);
        denseIndex(out);
        for (CompressionType codec : CompressionType.values()) {
            if (codec != CompressionType.NONE) {
                compressed(out, codec);
            }
        }
    }

    static Map<String, String> compact(String... namesAndValues) {
        Map<String, String> config = new TreeMap<>();
        config.put("cleanup.policy", "compact");
        for (int i = 0; i < namesAndValues.length; i += 2) {
            config.put(namesAndValues[i], namesAndValues[i + 1]);
        }
        return config;
    }

    private static void small(Path out) throws Exception {
        new CleaningPair(out, "clean-small", compact("delete.retention.ms", "60000"))
            .note("one closed segment: overwrites, tombstones, headers, a batch kept whole, batches gone whole")
            .write(log -> {
                long t = log.now();
                log.append(record(t, "a", "0"), record(t + 1, "b", "0"), record(t + 2, "c", "0"));
                log.append(record(t + 10, "a", "1"), record(t + 11, "b", "1"));
                log.append(record(t + 20, "c", "1", header("trace", "x"), header("trace", "y"),
                    header("none", (byte[]) null)), tombstone(t + 15, "d"));
                log.append(record(t + 30, "e", "kept"), record(t + 25, "f", "kept", header("h", "1")),
                    record(t + 28, "", "empty key"));
                log.append(record(t + 40, "a", "2"), record(t + 41, "b", ""), tombstone(t + 42, "c"));
                log.append(tombstone(t + 50, "g", header("why", "gone")));
                log.append(record(t + 60, "h", "0"), record(t + 61, "h", "1"), record(t + 62, "h", "2"));
                log.append(record(t + 5, "b", "3"), record(t + 6, "x", "older than its neighbours"));
                log.roll();
                log.append(record(t + 100, "a", "active"), tombstone(t + 101, "b"));
            });
    }

    /** Closed segments of very different sizes, so that groups of two, one and three form under segment.bytes. */
    private static void segments(Path out) throws Exception {
        int[] sizes = {90_000, 110_000, 285_000, 40_000, 60_000, 70_000, 100_000};
        new CleaningPair(out, "clean-segments",
            compact("segment.bytes", "300000", "delete.retention.ms", "86400000"))
            .note("several groups; one source of more than one 262144-byte chunk; default index interval")
            .write(log -> {
                Random random = new Random(42);
                for (int size : sizes) {
                    fill(log, random, size, 4000, 60);
                    log.roll();
                }
                fill(log, random, 5_000, 4000, 60);
            });
    }

    private static void fill(PartitionLog log, Random random, int segmentBytes, int keys, int valueBytes) {
        while (log.activeSize() < segmentBytes) {
            log.append(batch(log, random, keys, valueBytes));
            log.clock.advance(100);
        }
    }

    /** One to nine records of skewed keys, about the present time; a tenth are tombstones. */
    private static SimpleRecord[] batch(PartitionLog log, Random random, int keys, int valueBytes) {
        SimpleRecord[] batch = new SimpleRecord[1 + random.nextInt(9)];
        for (int i = 0; i < batch.length; i++) {
            String key = "user-" + Data.skewed(random, keys);
            long t = log.now() + random.nextInt(2000) - 1000;
            batch[i] = random.nextInt(10) == 0 ? tombstone(t, key)
                : record(t, key, "value " + t + " " + "x".repeat(random.nextInt(valueBytes)));
        }
        return batch;
    }

    private static void tombstones(Path out) throws Exception {
        Map<String, String> config = compact("delete.retention.ms", "1000", "index.interval.bytes", "100");
        DataDir first = new CleaningPair(out, "clean-tombstones-1", config)
            .cleanedAt(START_MS + 10_000)
            .note("the first pass gives batches with tombstones their delete horizon")
            .write(log -> {
                long t = log.now();
                log.append(record(t, "a", "0"), record(t, "b", "0"), record(t, "c", "0"));
                log.append(tombstone(t + 1, "a"), record(t + 2, "d", "0"));
                log.append(tombstone(t + 3, "b"));
                log.roll();
                log.append(tombstone(t + 4, "never-had-a-value"), tombstone(t + 5, "d"), record(t + 6, "e", "0"));
                log.append(record(t + 7, "f", "0"), tombstone(t + 8, "g"), record(t + 9, "h", "0"));
                log.roll();
                log.append(record(t + 20, "i", "0"));
            });
        new CleaningPair(out, "clean-tombstones-2", config)
            .cleanedAt(START_MS + 11_000) // exactly the horizon of the first pass: expired
            .note("the second pass, at the horizon itself, drops those tombstones and stamps new ones")
            .continueFrom(first, START_MS + 10_500, log -> {
                long t = log.now();
                log.append(record(t, "h", "1"), tombstone(t + 1, "i"));
                log.append(record(t + 2, "e", "1"), record(t + 3, "a", "back again"));
                log.roll();
                log.append(record(t + 4, "j", "0"));
            });
    }

    /** 240 bytes are ten slots, nine usable: the tenth distinct key stands in the middle of a batch. */
    private static void partialMap(Path out) throws Exception {
        Map<String, String> config = compact("delete.retention.ms", "60000", "index.interval.bytes", "200");
        DataDir last = new CleaningPair(out, "clean-partial-map-1", config)
            .mapBytes(240)
            .note("the map is full inside a batch inside the second segment; what follows stays as it is")
            .write(log -> {
                for (int i = 0; i < 30; i++) {
                    long t = log.now() + i;
                    log.append(record(t, "k" + i / 2, "0." + i), record(t, "k" + (i % 3), "1." + i),
                        i % 8 == 7 ? tombstone(t, "k" + i / 3) : record(t, "k" + i / 4, "2." + i));
                    if (i % 10 == 9) {
                        log.roll();
                    }
                }
                log.append(record(log.now() + 99, "k1", "active"));
            });
        for (int pass = 2; pass <= 3; pass++) {
            last = new CleaningPair(out, "clean-partial-map-" + pass, config)
                .cleanedAt(START_MS + HOUR_MS + 1000L * pass)
                .mapBytes(240)
                .note("the next pass goes on from the offset the last one reached")
                .continueFrom(last, START_MS + HOUR_MS, log -> { });
        }
    }

    private static void unkeyed(Path out) throws Exception {
        Map<String, String> filling = new HashMap<>();
        filling.put("cleanup.policy", "delete");
        new CleaningPair(out, "clean-unkeyed", compact("delete.retention.ms", "60000"))
            .note("keyless records were written under policy delete; the policy then became compact")
            .write(filling, log -> {
                long t = log.now();
                log.append(record(t, (String) null, "0"), record(t + 1, "a", "0"), record(t + 2, (String) null, "1"));
                log.append(record(t + 3, (String) null, "2"), record(t + 4, (String) null, null));
                log.append(record(t + 5, "a", "1"), record(t + 6, "b", "0"));
                log.roll();
                log.append(record(t + 7, (String) null, "3"), record(t + 8, "b", "1"));
                log.append(record(t + 9, "c", "0"));
                log.roll();
                log.append(record(t + 10, (String) null, "active"));
            });
    }

    private static void appendTime(Path out) throws Exception {
        new CleaningPair(out, "clean-append-time", compact("message.timestamp.type", "LogAppendTime",
            "delete.retention.ms", "60000", "segment.bytes", "1500", "index.interval.bytes", "300"))
            .note("LogAppendTime: one time a batch, kept when records leave the batch")
            .write(log -> {
                for (int i = 0; i < 40; i++) {
                    log.append(record(5L * i, "k" + i % 7, "0." + i), record(-1L, "k" + i % 11, "1." + i),
                        i % 9 == 4 ? tombstone(3L, "k" + i % 5) : record(log.now() + 77, "k" + i % 13, "2." + i));
                    log.clock.advance(i % 3 * 40L);
                }
            });
    }

    /** Segments of one batch each cannot merge until a pass has made them small. */
    private static void holes(Path out) throws Exception {
        Map<String, String> config =
            compact("segment.bytes", "400", "delete.retention.ms", "60000", "index.interval.bytes", "50");
        DataDir first = new CleaningPair(out, "clean-holes-1", config)
            .note("offsets are missing at segment ends, between and inside batches; some segments become empty")
            .write(log -> {
                long t = log.now();
                for (int i = 0; i < 12; i++) {
                    long base = 10 + 30L * i;
                    // The first third is overwritten by the second; two keys live only in the first segments.
                    String key = i < 2 ? "old" + i : "k" + i % 4;
                    log.replicate(
                        Batches.sparse(base, base + 6, 0, new long[] {base + 1, base + 4},
                            record(t + i, key, "0." + i + "x".repeat(60)), record(t + i, "k" + i % 4, "1." + i)),
                        Batches.dense(base + 9, 0, record(t + i, "k" + (i + 1) % 4, "2." + i + "y".repeat(60)),
                            record(t + i, "k" + i % 4, "3." + i)),
                        Batches.empty(base + 15, base + 17, 0, RecordBatch.NO_PRODUCER_ID,
                            RecordBatch.NO_PRODUCER_EPOCH, RecordBatch.NO_SEQUENCE, t + i));
                }
            });
        new CleaningPair(out, "clean-holes-2", config)
            .cleanedAt(START_MS + 2 * HOUR_MS)
            .note("the segments of the first pass, some of them empty, merge with their neighbours")
            .continueFrom(first, START_MS + HOUR_MS, log -> {
                long t = log.now();
                log.replicate(Batches.dense(400, 0, record(t, "k1", "4"), tombstone(t + 1, "old0")));
                log.roll();
                log.replicate(Batches.dense(410, 0, record(t + 2, "k2", "5")));
            });

        new CleaningPair(out, "clean-dirty-from-middle", compact("index.interval.bytes", "50"))
            .note("the first dirty offset stands inside a batch of the first segment")
            .write(log -> {
                long t = log.now();
                for (int i = 0; i < 10; i++) {
                    log.append(record(t + i, "k" + i % 3, "0." + i), record(t + i, "m" + i % 4, "1." + i));
                    if (i % 5 == 4) {
                        log.roll();
                    }
                }
                log.append(record(t + 20, "k0", "active"));
                log.dataDir.writeCheckpoint(DataDir.FIRST_DIRTY, 5);
            });
    }

    private static void lastBatch(Path out) throws Exception {
        Map<String, String> filling = new HashMap<>();
        filling.put("cleanup.policy", "delete");
        DataDir first = new CleaningPair(out, "clean-last-batch", compact("delete.retention.ms", "1000"))
            .cleanedAt(START_MS + 5000)
            .note("the batch that ends the cleanable part loses all its records; its header stays")
            .write(filling, log -> {
                long t = log.now();
                log.append(record(t, "a", "0"), tombstone(t, "b"));
                log.append(record(t + 1, (String) null, "0"));
                log.append(record(t + 2, "a", "1"));
                log.append(record(t + 3, (String) null, "1"), record(t + 4, (String) null, "2"));
                log.roll();
                log.append(tombstone(t + 5, "c"), tombstone(t + 6, "a"));
            });
        DataDir second = new CleaningPair(out, "clean-last-batch-tombstone-1", compact("delete.retention.ms", "1000"))
            .cleanedAt(START_MS + 8000)
            .note("the former last batch goes; the new last one holds tombstones and gets its horizon")
            .continueFrom(first, START_MS + 7000, log -> {
                log.roll();
                log.append(record(log.now(), "d", "active"));
            });
        new CleaningPair(out, "clean-last-batch-tombstone-2", compact("delete.retention.ms", "1000"))
            .cleanedAt(START_MS + 20_000)
            .note("checkpoint lowered by hand to the last closed segment: its expired last batch keeps the header")
            .continueFrom(second, START_MS + 9000, log -> log.dataDir.writeCheckpoint(DataDir.FIRST_DIRTY, 6));
    }

    /** An index entry at every chance, so that each rule about entries shows in few bytes. */
    private static void denseIndex(Path out) throws Exception {
        Map<String, String> config = compact("delete.retention.ms", "1000", "index.interval.bytes", "1");
        DataDir first = new CleaningPair(out, "clean-dense-index-1", config)
            .cleanedAt(START_MS + 10)
            .note("index.interval.bytes 1; the first batch goes, the second gets a horizon")
            .write(log -> {
                long t = log.now();
                log.append(record(t, "a", "0"), record(t + 1, "b", "0"));
                log.append(tombstone(t + 2, "a"), record(t + 3, "b", "1"));
                log.append(record(t + 4, "c", "1"));
                log.roll();
            });
        first.writeCheckpoint(DataDir.FIRST_DIRTY, 0);
        new CleaningPair(out, "clean-dense-index-2", config)
            .cleanedAt(START_MS + 1010)
            .note("the same range again, exactly at the horizon: the tombstone goes, the batch keeps its horizon")
            .continueFrom(first, START_MS + 20, log -> { });
    }

    private static void compressed(Path out, CompressionType codec) throws Exception {
        new CleaningPair(out, "clean-" + codec.name, compact("delete.retention.ms", "60000", "segment.bytes", "4000"))
            .compressed(codec.name)
            .note("rebuilt batches are compressed anew, so compare records, not bytes")
            .write(log -> {
                Random random = new Random(7);
                log.codec(codec);
                for (int i = 0; i < 60; i++) {
                    log.append(batch(log, random, 50, 200));
                    log.clock.advance(100);
                }
            });
    }
}
