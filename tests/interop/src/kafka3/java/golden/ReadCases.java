package golden;

import static golden.Data.header;
import static golden.Data.record;
import static golden.Data.tombstone;

import java.nio.file.Path;
import java.util.Map;
import kafkalog.PartitionLog;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.SimpleRecord;

/** The directories whose reading is compared with Kafka's. */
final class ReadCases {
    private static final int KIB = 1024;
    private static final int MIB = 1024 * KIB;

    private ReadCases() { }

    static void write(Path out) throws Exception {
        for (CompressionType codec : CompressionType.values()) {
            ReadCase.write(out, "codec-" + codec.name, Map.of("max.message.bytes", "2097152"),
                log -> everyShapeOfRecord(log.codec(codec)));
        }
        ReadCase.write(out, "segments", Map.of("segment.bytes", "2048", "index.interval.bytes", "256"),
            ReadCases::segmentsAndLogStart);
        ReadCase.write(out, "log-append-time",
            Map.of("message.timestamp.type", "LogAppendTime", "index.interval.bytes", "100"), ReadCases::appendTime);
        ReadCase.write(out, "idempotent", Map.of(), ReadCases::idempotent);
        ReadCase.write(out, "transactions", Map.of("segment.bytes", "900", "index.interval.bytes", "200"),
            ReadCases::transactions);
        ReadCase.write(out, "holes", Map.of("segment.bytes", "900", "index.interval.bytes", "100"), ReadCases::holes);
    }

    /** Sizes from nothing to 1 MiB, null and empty keys and values, every odd header, times out of order. */
    private static void everyShapeOfRecord(PartitionLog log) {
        long t = log.now();
        log.append(record(t, "empty-value", ""), record(t + 5, "one-byte", "x"),
            record(t - 20, Data.utf8("hundred-bytes"), Data.lines(100)), record(t + 1, (String) null, "null key"),
            record(t + 2, "", "empty key"), tombstone(t + 3, "null-value"), record(t + 4, (String) null, null));
        log.append(record(t + 100, "headers", "v", header("trace", "a"), header("trace", "b"),
            header("null-value", (byte[]) null), header("", "empty name"), header("empty-value", ""),
            header("größe-名", new byte[] {0, -1, 127, -128}), header("trace", "a")),
            record(t + 99, new byte[] {0, 1, (byte) 0xff}, new byte[] {(byte) 0xc3, 0x28}));
        log.append(record(t + 200, Data.utf8("noise"), Data.noise(300, 1)));
        log.append(record(t + 300, Data.utf8("16-kib"), Data.lines(16 * KIB)),
            record(t + 250, Data.utf8("16-kib-after"), Data.utf8("small")));
        log.append(record(t + 400, Data.utf8("1-mib"), Data.lines(MIB)));
        log.append(record(-1L, "no-timestamp", "-1"), record(0L, "epoch", "0"));
        log.append(record(t + 500, "last", "one"));
    }

    private static void segmentsAndLogStart(PartitionLog log) {
        for (int i = 0; i < 120; i++) {
            if (i == 50) {
                log.leaderEpoch(2);
            } else if (i == 90) {
                log.leaderEpoch(5);
            }
            // Every seventh batch is older than its predecessors: the time index must skip it.
            long t = log.now() + (i % 7 == 6 ? -5000 : 0);
            SimpleRecord[] batch = new SimpleRecord[1 + i % 4];
            for (int j = 0; j < batch.length; j++) {
                batch[j] = record(t + j, "key-" + (i * 31 + j) % 40, "value " + i + "." + j);
            }
            log.append(batch);
            log.clock.advance(1000);
        }
        log.deleteRecordsBefore(45);
    }

    private static void appendTime(PartitionLog log) {
        for (int i = 0; i < 12; i++) {
            log.append(record(7L * i, "k" + i % 5, "v" + i), record(log.now() + 99, "k" + i % 3, "w" + i));
            log.clock.advance(i % 4 == 3 ? 0 : 250);
            if (i == 7) {
                log.roll();
            }
        }
    }

    private static void idempotent(PartitionLog log) {
        long t = log.now();
        log.appendIdempotent(4000, 7, 0, record(t, "a", "0"), record(t + 1, "b", "0"));
        log.appendIdempotent(4001, 0, 2_147_483_646, record(t + 2, "c", "0"), record(t + 3, "d", "0"),
            record(t + 4, "e", "0"));
        log.append(record(t + 5, "plain", "0"));
        log.appendIdempotent(4000, 7, 2, record(t + 6, "a", "1"));
        log.appendIdempotent(4001, 0, 1, record(t + 7, "c", "1"));
        log.leaderEpoch(1);
        // The same batch again: the log answers with the old offsets and writes nothing.
        log.appendIdempotent(4000, 7, 2, record(t + 6, "a", "1"));
        for (int i = 0; i < 7; i++) {
            log.appendIdempotent(4002, 3, i * 2, record(t + 10 + i, "f", "" + i), record(t + 11 + i, "g", "" + i));
        }
        log.roll();
        log.appendIdempotent(4000, 8, 0, record(t + 30, "a", "2"), tombstone(t + 31, "b"));
        log.appendIdempotent(4001, 0, 2, record(t + 32, "c", "2"));
    }

    /** Commits and aborts over several segments, three producers at a time, one transaction left open. */
    private static void transactions(PartitionLog log) {
        for (int round = 0; round < 6; round++) {
            int sequence = round * 2;
            long t = log.now();
            log.appendTransactional(1, 0, sequence, record(t, "a", "1." + round), record(t, "b", "1." + round));
            log.appendTransactional(2, 5, sequence, record(t + 1, "a", "2." + round), record(t + 1, "c", "2." + round));
            log.append(record(t + 2, "plain", "" + round));
            if (round % 2 == 0) {
                log.abort(1, 0);
            } else {
                log.commit(1, 0);
            }
            log.clock.advance(500);
            log.append(record(log.now(), "between", "" + round));
            if (round % 3 == 1) {
                log.abort(2, 5);
            } else {
                log.commit(2, 5);
            }
            log.clock.advance(500);
        }
        log.abort(3, 1); // a producer that wrote nothing: no index entry for this one
        log.appendTransactional(3, 1, 0, record(log.now(), "open", "0"));
        log.append(record(log.now(), "after-open", "0"));
        log.appendTransactional(1, 1, 0, record(log.now(), "a", "aborted after open began"));
        log.abort(1, 1);
    }

    /** What a follower of a compacted log holds: gaps in batches, between batches, and at segment ends. */
    private static void holes(PartitionLog log) {
        long t = log.now();
        log.leaderEpoch(4);
        log.replicate(Batches.dense(3, 4, record(t, "a", "0"), record(t + 1, "b", "0")));
        log.replicate(
            Batches.sparse(8, 14, 4, new long[] {9, 12}, record(t + 9, "c", "0"), record(t + 5, "d", "0")),
            Batches.empty(15, 20, 4, 77, 2, 5, t + 20),
            Batches.dense(30, 4, record(t + 30, "e", "0")));
        for (int i = 0; i < 24; i++) {
            long base = 40 + 10L * i;
            log.replicate(
                Batches.dense(base, 4, record(t + base, "f" + i, "1"), record(t + base, "g" + i, "1")),
                Batches.sparse(base + 3, base + 7, 4, new long[] {base + 3, base + 5},
                    record(t + base + 9, "h" + i, "1"), tombstone(t + base, "f" + i)));
            if (i == 11) {
                log.leaderEpoch(6);
            }
        }
        log.roll();
        // The roll took the log end as base; the next batch begins later.
        log.replicate(Batches.dense(400, 6, record(t + 400, "z", "0")));
    }
}
