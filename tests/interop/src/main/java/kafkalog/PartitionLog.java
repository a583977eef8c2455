package kafkalog;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import kafka.log.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.*;

/** One Kafka UnifiedLog opened as a broker opens it, with short verbs for those who fill it. */
public final class PartitionLog implements AutoCloseable {
    private static final int COORDINATOR_EPOCH = 3;

    public final ManualClock clock;
    public final DataDir dataDir;
    public final Map<String, String> overrides;
    private final DeferredScheduler scheduler = new DeferredScheduler();
    private final UnifiedLog log;
    private Compression codec = Compression.NONE;
    private int leaderEpoch = 0;

    private PartitionLog(DataDir dataDir, Map<String, String> overrides, ManualClock clock, Uuid topicId)
            throws Exception {
        this.dataDir = dataDir;
        this.overrides = new TreeMap<>(overrides); // one order in every manifest
        this.clock = clock;
        boolean isNew = !Files.exists(dataDir.partitionDir());
        Files.createDirectories(dataDir.partitionDir());
        boolean clean = dataDir.takeCleanShutdown() || isNew;
        this.log = Release.open(
            dataDir.partitionDir().toFile(),
            overrides,
            dataDir.checkpoint(DataDir.LOG_START, 0L),
            dataDir.checkpoint(DataDir.RECOVERY_POINT, 0L),
            scheduler,
            clock,
            clean,
            topicId,
            Release.DAY_MS);
        settle();
    }

    public static PartitionLog open(DataDir dataDir, Map<String, String> overrides, ManualClock clock)
            throws Exception {
        return new PartitionLog(dataDir, overrides, clock, topicId(dataDir));
    }

    /** The same, but no topic id is given, so none is written. */
    public static PartitionLog openAsIs(DataDir dataDir, Map<String, String> overrides, ManualClock clock)
            throws Exception {
        return new PartitionLog(dataDir, overrides, clock, null);
    }

    public static PartitionLog create(Path path, TopicPartition partition, Map<String, String> overrides)
            throws Exception {
        Files.createDirectories(path);
        return open(new DataDir(path, partition), overrides, new ManualClock(ManualClock.START_MS));
    }

    /** A fixed id for each topic name, where a broker would draw a random one; none where a file has one. */
    private static Uuid topicId(DataDir dataDir) {
        if (Files.exists(dataDir.partitionDir().resolve("partition.metadata"))) {
            return null;
        }
        UUID id = UUID.nameUUIDFromBytes(dataDir.partition().topic().getBytes());
        return new Uuid(id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    public UnifiedLog log() {
        return log;
    }

    public PartitionLog codec(CompressionType type) {
        codec = Compression.of(type).build();
        return this;
    }

    public PartitionLog leaderEpoch(int epoch) {
        leaderEpoch = epoch;
        return this;
    }

    public long now() {
        return clock.milliseconds();
    }

    public void append(SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT, MemoryRecords.withRecords(codec, records));
    }

    public void appendIdempotent(long producerId, int epoch, int sequence, SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT,
            MemoryRecords.withIdempotentRecords(codec, producerId, (short) epoch, sequence, records));
    }

    public void appendTransactional(long producerId, int epoch, int sequence, SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT,
            MemoryRecords.withTransactionalRecords(codec, producerId, (short) epoch, sequence, records));
    }

    public void commit(long producerId, int epoch) {
        endTransaction(ControlRecordType.COMMIT, producerId, epoch);
    }

    public void abort(long producerId, int epoch) {
        endTransaction(ControlRecordType.ABORT, producerId, epoch);
    }

    private void endTransaction(ControlRecordType type, long producerId, int epoch) {
        appendAs(AppendOrigin.COORDINATOR, MemoryRecords.withEndTransactionMarker(
            now(), producerId, (short) epoch, new EndTransactionMarker(type, COORDINATOR_EPOCH)));
    }

    /** What a leader does with a batch as it came from a client or a coordinator. */
    public void lead(ByteBuffer batch, AppendOrigin origin) {
        appendAs(origin, MemoryRecords.readableRecords(batch));
    }

    private void appendAs(AppendOrigin origin, MemoryRecords records) {
        Release.appendAsLeader(log, records, leaderEpoch, origin);
        settle();
    }

    /** What a follower does: whole batches that carry their offsets, several to one append, gaps allowed. */
    public void replicate(MemoryRecords... batches) {
        int size = 0;
        for (MemoryRecords batch : batches) {
            size += batch.sizeInBytes();
        }
        ByteBuffer together = ByteBuffer.allocate(size);
        for (MemoryRecords batch : batches) {
            together.put(batch.buffer().duplicate());
        }
        together.flip();
        replicate(together);
    }

    public void replicate(ByteBuffer batches) {
        Release.appendAsFollower(log, MemoryRecords.readableRecords(batches), leaderEpoch);
        settle();
    }

    public void roll() {
        Release.roll(log);
        settle();
    }

    public void deleteRecordsBefore(long offset) {
        Release.incrementLogStart(log, offset);
        settle();
    }

    public void deleteOldSegments() {
        Release.deleteOldSegments(log);
        settle();
    }

    /** What a broker does every ten minutes. */
    public void expireProducers() {
        log.producerStateManager().removeExpiredProducers(clock.milliseconds());
    }

    public int activeSize() {
        return log.activeSegment().size();
    }

    /** A single replica: everything appended is at once replicated everywhere, and background work is done. */
    public void settle() {
        Release.updateHighWatermark(log, log.logEndOffset());
        scheduler.runPending();
    }

    /** In the order of a broker's shutdown: flush, close, checkpoints, and the mark last. */
    @Override
    public void close() throws Exception {
        settle();
        Release.beforeClose(log);
        log.flush(true);
        long logStart = log.logStartOffset();
        long highWatermark = log.highWatermark();
        boolean startIsInside = logStart > log.logSegments().iterator().next().baseOffset();
        long recoveryPoint = log.recoveryPoint();
        log.close();
        scheduler.runPending();
        dataDir.writeCheckpoint(DataDir.RECOVERY_POINT, recoveryPoint);
        dataDir.writeCheckpoint(DataDir.HIGH_WATERMARK, highWatermark);
        if (startIsInside) {
            dataDir.writeCheckpoint(DataDir.LOG_START, logStart);
        } else {
            dataDir.writeEmptyCheckpoint(DataDir.LOG_START);
        }
        dataDir.markCleanShutdown();
    }
}
