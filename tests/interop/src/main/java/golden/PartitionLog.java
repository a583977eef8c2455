package golden;

import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.CompressionType;
import org.apache.kafka.common.record.ControlRecordType;
import org.apache.kafka.common.record.EndTransactionMarker;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.SimpleRecord;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import scala.Option;
import scala.Some;

/** One Kafka UnifiedLog opened as a broker opens it, with short verbs for the stories that fill it. */
final class PartitionLog implements AutoCloseable {
    private static final int DAY_MS = 86_400_000;
    private static final int COORDINATOR_EPOCH = 3;

    final ManualClock clock;
    final DataDir dataDir;
    final Map<String, String> overrides;
    private final DeferredScheduler scheduler = new DeferredScheduler();
    private final UnifiedLog log;
    private Compression codec = Compression.NONE;
    private int leaderEpoch = 0;

    private PartitionLog(DataDir dataDir, Map<String, String> overrides, ManualClock clock) throws Exception {
        this.dataDir = dataDir;
        this.overrides = new TreeMap<>(overrides); // one order in every manifest
        this.clock = clock;
        boolean isNew = !Files.exists(dataDir.partitionDir());
        Files.createDirectories(dataDir.partitionDir());
        boolean clean = dataDir.takeCleanShutdown() || isNew;
        Properties properties = new Properties();
        properties.putAll(overrides);
        LogConfig.validateNames(properties);
        this.log = UnifiedLog.apply(
            dataDir.partitionDir().toFile(),
            new LogConfig(properties),
            dataDir.checkpoint(DataDir.LOG_START, 0L),
            dataDir.checkpoint(DataDir.RECOVERY_POINT, 0L),
            scheduler,
            new BrokerTopicStats(false),
            clock,
            900_000,
            new ProducerStateManagerConfig(DAY_MS, false),
            600_000,
            new LogDirFailureChannel(1),
            clean,
            new Some<>(topicId(dataDir.partition())),
            true,
            new ConcurrentHashMap<>(),
            false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        settle();
    }

    static PartitionLog open(DataDir dataDir, Map<String, String> overrides, ManualClock clock) throws Exception {
        return new PartitionLog(dataDir, overrides, clock);
    }

    static PartitionLog create(Path path, TopicPartition partition, Map<String, String> overrides) throws Exception {
        Files.createDirectories(path);
        return open(new DataDir(path, partition), overrides, new ManualClock(ManualClock.START_MS));
    }

    /** A fixed id for each topic name, where a broker would draw a random one. */
    private static Uuid topicId(TopicPartition partition) {
        UUID id = UUID.nameUUIDFromBytes(partition.topic().getBytes());
        return new Uuid(id.getMostSignificantBits(), id.getLeastSignificantBits());
    }

    UnifiedLog log() {
        return log;
    }

    PartitionLog codec(CompressionType type) {
        codec = Compression.of(type).build();
        return this;
    }

    PartitionLog leaderEpoch(int epoch) {
        leaderEpoch = epoch;
        return this;
    }

    long now() {
        return clock.milliseconds();
    }

    void append(SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT, MemoryRecords.withRecords(codec, records));
    }

    void appendIdempotent(long producerId, int epoch, int sequence, SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT,
            MemoryRecords.withIdempotentRecords(codec, producerId, (short) epoch, sequence, records));
    }

    void appendTransactional(long producerId, int epoch, int sequence, SimpleRecord... records) {
        appendAs(AppendOrigin.CLIENT,
            MemoryRecords.withTransactionalRecords(codec, producerId, (short) epoch, sequence, records));
    }

    void commit(long producerId, int epoch) {
        endTransaction(ControlRecordType.COMMIT, producerId, epoch);
    }

    void abort(long producerId, int epoch) {
        endTransaction(ControlRecordType.ABORT, producerId, epoch);
    }

    private void endTransaction(ControlRecordType type, long producerId, int epoch) {
        appendAs(AppendOrigin.COORDINATOR, MemoryRecords.withEndTransactionMarker(
            now(), producerId, (short) epoch, new EndTransactionMarker(type, COORDINATOR_EPOCH)));
    }

    private void appendAs(AppendOrigin origin, MemoryRecords records) {
        log.appendAsLeader(records, leaderEpoch, origin, MetadataVersion.latestProduction(),
            RequestLocal.NoCaching(), VerificationGuard.SENTINEL);
        settle();
    }

    /** What a follower does: whole batches that carry their offsets, several to one append, gaps allowed. */
    void replicate(MemoryRecords... batches) {
        int size = 0;
        for (MemoryRecords batch : batches) {
            size += batch.sizeInBytes();
        }
        ByteBuffer together = ByteBuffer.allocate(size);
        for (MemoryRecords batch : batches) {
            together.put(batch.buffer().duplicate());
        }
        together.flip();
        appendAsFollower(MemoryRecords.readableRecords(together));
        settle();
    }

    /** 3.9.1 added the leader epoch to this one call; looking it up lets the writer run with any 3.9 release. */
    private void appendAsFollower(MemoryRecords records) {
        try {
            for (Method method : UnifiedLog.class.getMethods()) {
                if (method.getName().equals("appendAsFollower")) {
                    Object[] arguments = method.getParameterCount() == 1
                        ? new Object[] {records} : new Object[] {records, leaderEpoch};
                    method.invoke(log, arguments);
                    return;
                }
            }
            throw new NoSuchMethodException("appendAsFollower");
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    void roll() {
        log.roll(Option.empty());
        settle();
    }

    void deleteRecordsBefore(long offset) {
        log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
        settle();
    }

    int activeSize() {
        return log.activeSegment().size();
    }

    /** A single replica: everything appended is at once replicated everywhere, and background work is done. */
    void settle() {
        log.updateHighWatermark(log.logEndOffset());
        scheduler.runPending();
    }

    /** In the order of a broker's shutdown: flush, close, checkpoints, and the mark last. */
    @Override
    public void close() throws Exception {
        settle();
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
