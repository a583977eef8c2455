package kafkalog;

import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.TreeMap;
import kafka.log.*;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.FetchResponseData.AbortedTransaction;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.server.storage.log.*;
import org.apache.kafka.storage.internals.log.*;

/** What Kafka's own reader says about an open log, as objects ready for JSON. */
public final class LogReport {
    /** Longer byte values are given by digest, so that the reports stay readable and small. */
    private static final int MAX_INLINE_BYTES = 4096;
    private static final int FETCH_BYTES = 65_536;

    private final UnifiedLog log;

    public LogReport(UnifiedLog log) {
        this.log = log;
    }

    /** Every record from the log start to the log end, markers included. */
    public List<Object> records() {
        List<Object> lines = new ArrayList<>();
        fetchAll(FetchIsolation.LOG_END, log.logEndOffset(), (batch, aborted) -> {
            for (Map<String, Object> record : decoded(batch)) {
                if ((Long) record.get("offset") >= log.logStartOffset()) {
                    lines.add(record);
                }
            }
        });
        return lines;
    }

    /** The offsets a read_committed consumer returns, by the broker's list of aborted transactions. */
    public List<Object> committed() {
        List<Object> lines = new ArrayList<>();
        Set<Long> abortedProducers = new HashSet<>();
        fetchAll(FetchIsolation.TXN_COMMITTED, log.lastStableOffset(), (batch, aborted) -> {
            while (!aborted.isEmpty() && aborted.peek().firstOffset() <= batch.lastOffset()) {
                abortedProducers.add(aborted.poll().producerId());
            }
            if (batch.isControlBatch()) {
                if (isAbortMarker(batch)) {
                    abortedProducers.remove(batch.producerId());
                }
            } else if (!(batch.isTransactional() && abortedProducers.contains(batch.producerId()))) {
                for (var record : batch) {
                    if (record.offset() >= log.logStartOffset()) {
                        lines.add(Json.object("offset", record.offset()));
                    }
                }
            }
        });
        return lines;
    }

    /** What is known of every producer, by producer id. */
    public static List<Object> producers(ProducerStateManager manager) {
        List<Object> producers = new ArrayList<>();
        for (var producer : new TreeMap<>(manager.activeProducers()).values()) {
            List<Object> batches = new ArrayList<>();
            producer.batchMetadata().forEach(batch -> batches.add(Release.batch(batch)));
            producers.add(Json.object(
                "producer_id", producer.producerId(),
                "epoch", producer.producerEpoch(),
                "coordinator_epoch", producer.coordinatorEpoch(),
                "last_timestamp", producer.lastTimestamp(),
                "transaction_first_offset",
                producer.currentTxnFirstOffset().isPresent() ? producer.currentTxnFirstOffset().getAsLong() : null,
                "batches", batches));
        }
        return producers;
    }

    /** Every batch in the files, in file order: also those below the log start. */
    public List<Object> batches() {
        List<Object> lines = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            for (var batch : segment.log().batches()) {
                lines.add(batch(segment, batch));
            }
        }
        return lines;
    }

    public List<Object> segments() {
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(List.of(segment.baseOffset(), segment.size()));
        }
        return segments;
    }

    private interface BatchVisitor {
        void visit(RecordBatch batch, PriorityQueue<AbortedTransaction> aborted);
    }

    private void fetchAll(FetchIsolation isolation, long endOffset, BatchVisitor visitor) {
        long next = log.logStartOffset();
        while (next < endOffset) {
            FetchDataInfo fetched = Release.read(log, next, FETCH_BYTES, isolation);
            PriorityQueue<AbortedTransaction> aborted =
                new PriorityQueue<>(Comparator.comparingLong(AbortedTransaction::firstOffset));
            fetched.abortedTransactions.ifPresent(aborted::addAll);
            long reached = next;
            for (RecordBatch batch : fetched.records.batches()) {
                visitor.visit(batch, aborted);
                reached = batch.nextOffset();
            }
            if (reached == next) {
                return; // only offsets without records are left
            }
            next = reached;
        }
    }

    private static boolean isAbortMarker(RecordBatch batch) {
        for (var record : batch) {
            return ControlRecordType.parse(record.key()) == ControlRecordType.ABORT;
        }
        return false;
    }

    /** The loop variable has no named type: Kafka's Record is found through a wildcard, as is Java's own. */
    private static List<Map<String, Object>> decoded(RecordBatch batch) {
        List<Map<String, Object>> records = new ArrayList<>();
        for (var record : batch) {
            List<Object> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                List<Object> pair = new ArrayList<>();
                pair.add(header.key());
                pair.add(bytes(header.value()));
                headers.add(pair);
            }
            records.add(Json.object(
                "offset", record.offset(),
                "timestamp", record.timestamp(),
                "timestamp_type", batch.timestampType().id,
                "key", bytes(record.key()),
                "value", bytes(record.value()),
                "headers", headers,
                "batch_base_offset", batch.baseOffset(),
                "is_control", batch.isControlBatch()));
        }
        return records;
    }

    private static Map<String, Object> batch(LogSegment segment, FileLogInputStream.FileChannelRecordBatch batch) {
        return Json.object(
            "segment", segment.baseOffset(),
            "baseOffset", batch.baseOffset(),
            "lastOffset", batch.lastOffset(),
            "count", batch.countOrNull(),
            "baseSequence", batch.baseSequence(),
            "lastSequence", batch.lastSequence(),
            "producerId", batch.producerId(),
            "producerEpoch", batch.producerEpoch(),
            "partitionLeaderEpoch", batch.partitionLeaderEpoch(),
            "isTransactional", batch.isTransactional(),
            "isControl", batch.isControlBatch(),
            "deleteHorizonMs", batch.deleteHorizonMs().isPresent() ? batch.deleteHorizonMs().getAsLong() : null,
            "position", batch.position(),
            "timestampType", batch.timestampType().id,
            "maxTimestamp", batch.maxTimestamp(),
            "size", batch.sizeInBytes(),
            "magic", batch.magic(),
            "compresscodec", batch.compressionType().name,
            "crc", batch.checksum(),
            "isvalid", batch.isValid());
    }

    private static Object bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] copy = new byte[buffer.remaining()];
        buffer.duplicate().get(copy);
        return bytes(copy);
    }

    private static Object bytes(byte[] bytes) {
        if (bytes == null) {
            return null;
        }
        if (bytes.length <= MAX_INLINE_BYTES) {
            return Base64.getEncoder().encodeToString(bytes);
        }
        try {
            byte[] digest = MessageDigest.getInstance("SHA-256").digest(bytes);
            return Json.object("sha256", HexFormat.of().formatHex(digest), "size", bytes.length);
        } catch (NoSuchAlgorithmException e) {
            throw new IllegalStateException(e);
        }
    }
}
