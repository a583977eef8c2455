package golden;

import static golden.Data.record;
import static golden.Data.tombstone;
import static kafkalog.ManualClock.START_MS;

import java.nio.file.Path;
import java.util.Map;
import kafkalog.DataDir;

/** Directories before and after Kafka's cleaner with producer ids and transaction markers in them. */
final class TransactionalCleaningCases {
    private TransactionalCleaningCases() { }

    static void write(Path out) throws Exception {
        idempotent(out);
        transactions(out);
    }

    private static void idempotent(Path out) throws Exception {
        Map<String, String> config = CleaningCases.compact("delete.retention.ms", "1000");
        DataDir first = new CleaningPair(out, "clean-idempotent-1", config)
            .cleanedAt(START_MS + 10_000)
            .withTransactions()
            .note("no transactions, but producer ids: each producer's last batch keeps at least its header")
            .write(log -> {
                long t = log.now();
                log.appendIdempotent(1, 0, 0, record(t, "a", "0"), record(t, "b", "0"));
                log.appendIdempotent(1, 0, 2, record(t + 1, "a", "1"));
                log.appendIdempotent(2, 4, 0, record(t + 2, "c", "0"), tombstone(t + 2, "d"));
                log.append(record(t + 3, "b", "1"), record(t + 3, "c", "1"), record(t + 3, "a", "2"));
                log.appendIdempotent(3, 0, 0, record(t + 4, "e", "0"), record(t + 4, "a", "3"));
                log.roll();
                log.append(record(t + 5, "e", "1"));
                log.roll();
                log.append(record(t + 6, "f", "0"));
            });
        new CleaningPair(out, "clean-idempotent-2", config)
            .cleanedAt(START_MS + 12_000)
            .withTransactions()
            .note("producers 1 and 2 wrote again: their emptied batches go, producer 3's stays")
            .continueFrom(first, START_MS + 11_500, log -> {
                log.appendIdempotent(1, 0, 3, record(log.now(), "g", "0"));
                log.appendIdempotent(2, 5, 0, record(log.now(), "g", "1"));
                log.roll();
                log.append(record(log.now(), "g", "2"));
            });
    }

    private static void transactions(Path out) throws Exception {
        Map<String, String> config =
            CleaningCases.compact("delete.retention.ms", "1000", "segment.bytes", "700", "index.interval.bytes", "100");
        DataDir last = new CleaningPair(out, "clean-transactions-1", config)
            .cleanedAt(START_MS + 10_000)
            .withTransactions()
            .note("commits, aborts and plain records over several segments; aborted data goes, markers stay")
            .write(log -> {
                for (int i = 0; i < 8; i++) {
                    long t = log.now();
                    log.appendTransactional(1, 0, 2 * i, record(t, "a", "1." + i), record(t, "b" + i, "1." + i));
                    log.appendTransactional(2, 3, i, i == 5 ? tombstone(t, "b1") : record(t, "c" + i % 3, "2." + i));
                    log.append(record(t, "plain", "" + i));
                    if (i % 3 == 1) {
                        log.abort(1, 0);
                    } else {
                        log.commit(1, 0);
                    }
                    if (i % 2 == 0) {
                        log.abort(2, 3);
                    } else {
                        log.commit(2, 3);
                    }
                    log.clock.advance(10);
                }
                log.roll();
                log.append(record(log.now(), "active", "0"));
            });
        long[] passTimes = {START_MS + 20_000, START_MS + 21_000, START_MS + 22_500};
        for (int i = 0; i < passTimes.length; i++) {
            int pass = i + 2;
            last = new CleaningPair(out, "clean-transactions-" + pass, config)
                .cleanedAt(passTimes[i])
                .withTransactions()
                .note("later passes: markers without data get a horizon, then go")
                .continueFrom(last, passTimes[i] - 500, log -> {
                    log.appendTransactional(1, 0, 16 + pass - 2, record(log.now(), "a", "pass " + pass));
                    if (pass == 3) {
                        log.abort(1, 0);
                    } else {
                        log.commit(1, 0);
                    }
                    log.roll();
                    log.append(record(log.now(), "active", "" + pass));
                });
        }
        new CleaningPair(out, "clean-open-transaction", config)
            .cleanedAt(START_MS + 10_000)
            .withTransactions()
            .note("an open transaction in the second segment bounds the pass to the first")
            .write(log -> {
                long t = log.now();
                log.append(record(t, "a", "0"), record(t, "b", "0"));
                log.append(record(t, "a", "1"));
                log.roll();
                log.append(record(t + 1, "b", "1"));
                log.appendTransactional(1, 0, 0, record(t + 1, "c", "open"));
                log.roll();
                log.append(record(t + 2, "a", "2"));
                log.roll();
                log.append(record(t + 3, "a", "3"));
            });
    }
}
