package golden;

import java.nio.ByteBuffer;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.DefaultRecordBatch;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MemoryRecordsBuilder;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.common.record.TimestampType;

/** Batches with their offsets already in them, as a follower receives them from a compacted leader. */
final class Batches {
    private Batches() { }

    static MemoryRecords dense(long baseOffset, int leaderEpoch, SimpleRecord... records) {
        return MemoryRecords.withRecords(baseOffset, Compression.NONE, leaderEpoch, records);
    }

    /** Records at the given offsets only; the batch still claims [baseOffset, lastOffset]. */
    static MemoryRecords sparse(long baseOffset, long lastOffset, int leaderEpoch, long[] offsets,
                                SimpleRecord... records) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(4096),
            RecordBatch.MAGIC_VALUE_V2, Compression.NONE, TimestampType.CREATE_TIME, baseOffset,
            RecordBatch.NO_TIMESTAMP, RecordBatch.NO_PRODUCER_ID, RecordBatch.NO_PRODUCER_EPOCH,
            RecordBatch.NO_SEQUENCE, false, false, leaderEpoch);
        for (int i = 0; i < offsets.length; i++) {
            builder.appendWithOffset(offsets[i], records[i]);
        }
        builder.overrideLastOffset(lastOffset);
        return builder.build();
    }

    /** A header without records, what the cleaner leaves of a producer's last batch. */
    static MemoryRecords empty(long baseOffset, long lastOffset, int leaderEpoch, long producerId, int epoch,
                               int sequence, long timestamp) {
        ByteBuffer buffer = ByteBuffer.allocate(DefaultRecordBatch.RECORD_BATCH_OVERHEAD);
        DefaultRecordBatch.writeEmptyHeader(buffer, RecordBatch.MAGIC_VALUE_V2, producerId, (short) epoch, sequence,
            baseOffset, lastOffset, leaderEpoch, TimestampType.CREATE_TIME, timestamp, false, false);
        buffer.flip();
        return MemoryRecords.readableRecords(buffer);
    }
}
