package kafkalog;

import java.io.File;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.internals.AppInfoParser;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogCleanerManager;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Everything that is called differently in Kafka 3 and in Kafka 4; this is the side of 4.4. */
public final class Release {
    public static final String DUMP_TOOL = "org.apache.kafka.tools.DumpLogSegments";
    public static final int DAY_MS = 86_400_000;

    /** Before KIP-890's second part: a marker has its transaction's epoch, not the one after it. */
    private static final short TRANSACTION_VERSION = 1;

    private Release() { }

    public static String version() {
        return AppInfoParser.getVersion();
    }

    /** An authorizer; one without metrics cannot decide. */
    public static StandardAuthorizer authorizer() {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        return authorizer;
    }

    /** Kafka 4 wants segments of at least 1 MiB, but for an internal setting that its own tests use. */
    public static LogConfig config(Map<String, String> overrides) {
        Properties properties = new Properties();
        overrides.forEach((name, value) ->
            properties.put(name.equals("segment.bytes") ? LogConfig.INTERNAL_SEGMENT_BYTES_CONFIG : name, value));
        return new LogConfig(properties);
    }

    /** Opens as a broker's log manager does; a null topic id leaves the stored one in force. */
    public static UnifiedLog open(File dir, Map<String, String> overrides, long logStart, long recoveryPoint,
                                  Scheduler scheduler, Time time, boolean clean, Uuid topicId,
                                  int producerIdExpirationMs) throws IOException {
        return UnifiedLog.create(dir, config(overrides), logStart, recoveryPoint, scheduler,
            new BrokerTopicStats(false), time, 900_000, new ProducerStateManagerConfig(producerIdExpirationMs, false), 600_000,
            new LogDirFailureChannel(1), clean, Optional.ofNullable(topicId), new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    public static LogAppendInfo appendAsLeader(UnifiedLog log, MemoryRecords records, int leaderEpoch, AppendOrigin origin) {
        return log.appendAsLeader(records, leaderEpoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
            TRANSACTION_VERSION);
    }

    public static void appendAsFollower(UnifiedLog log, MemoryRecords records, int leaderEpoch) {
        log.appendAsFollower(records, leaderEpoch);
    }

    public static FetchDataInfo read(UnifiedLog log, long offset, int bytes, FetchIsolation isolation) {
        try {
            return log.read(offset, bytes, isolation, true);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void roll(UnifiedLog log) {
        try {
            log.roll();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void updateHighWatermark(UnifiedLog log, long offset) {
        try {
            log.updateHighWatermark(offset);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static boolean incrementLogStart(UnifiedLog log, long offset) {
        return log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
    }

    public static int deleteOldSegments(UnifiedLog log) {
        try {
            return log.deleteOldSegments();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    public static void truncateFullyAndStartAt(UnifiedLog log, long offset, Optional<Long> logStart) {
        log.truncateFullyAndStartAt(offset, logStart);
    }

    /** What a broker's shutdown does to a log before it flushes it; closing alone would leave the indexes untrimmed. */
    public static void beforeClose(UnifiedLog log) {
        log.prepareActiveSegmentForClose();
    }

    /** The leader epochs and their start offsets. */
    public static List<List<Long>> epochs(UnifiedLog log) {
        List<List<Long>> entries = new ArrayList<>();
        for (var entry : log.leaderEpochCache().epochEntries()) {
            entries.add(List.of((long) entry.epoch(), entry.startOffset()));
        }
        return entries;
    }

    /** The transactions that a reader of [start, end) must drop, as (producer id, first offset). */
    public static List<List<Long>> aborted(UnifiedLog log, long start, long end) {
        List<List<Long>> ranges = new ArrayList<>();
        for (var each : log.collectAbortedTransactions(start, end)) {
            ranges.add(List.of(each.producerId(), each.firstOffset()));
        }
        return ranges;
    }

    /** Last sequence, last offset, offset delta and timestamp of a producer's batch. */
    public static List<Object> batch(BatchMetadata batch) {
        return List.of(batch.lastSeq(), batch.lastOffset(), batch.offsetDelta(), batch.timestamp());
    }

    public static Map<TopicPartition, Long> readOffsets(Path file) throws IOException {
        return checkpoint(file).read();
    }

    public static void writeOffsets(Path file, Map<TopicPartition, Long> offsets) throws IOException {
        checkpoint(file).write(new HashMap<>(offsets));
    }

    private static OffsetCheckpointFile checkpoint(Path file) throws IOException {
        return new OffsetCheckpointFile(file.toFile(), new LogDirFailureChannel(1));
    }

    /**
     * Has Kafka decide about a log and clean it once, if there is anything to clean.
     *
     * @param firstDirty what the cleaner checkpoint holds
     * @param uncleanable the exact limit; null leaves it to Kafka
     */
    public static CleaningPass clean(PartitionLog partition, long firstDirty, Long uncleanable,
                                     CleaningPass.Buffers buffers) throws Exception {
        UnifiedLog log = partition.log();
        ManualClock clock = partition.clock;
        Object offsets = cleanableOffsets(log, firstDirty, clock.milliseconds());
        long dirty = offset(offsets, "firstDirtyOffset");
        long limit = uncleanable == null ? offset(offsets, "firstUncleanableDirtyOffset") : uncleanable;
        LogToClean toClean = new LogToClean(log, dirty, limit, false);
        if (toClean.cleanableBytes() == 0) {
            return CleaningPass.nothing(dirty, limit, toClean.firstUncleanableOffset(), toClean.cleanBytes());
        }
        SkimpyOffsetMap map = new SkimpyOffsetMap(buffers.mapBytes(), "MD5");
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock);
        Cleaner cleaner = new Cleaner(0, map, buffers.ioBufferBytes(), buffers.maxIoBufferBytes(), buffers.loadFactor(),
            unlimited, clock, each -> { });
        Map.Entry<Long, CleanerStats> result = cleaner.clean(toClean);
        partition.settle();
        CleanerStats stats = result.getValue();
        return new CleaningPass(dirty, limit, toClean.firstUncleanableOffset(),
            toClean.cleanBytes(), toClean.cleanableBytes(), result.getKey(), map.slots(), map.size(),
            Json.object(
                "mapBytesRead", mapBytesRead(stats),
                "mapMessagesRead", stats.mapMessagesRead(),
                "bytesRead", stats.bytesRead(),
                "messagesRead", stats.messagesRead(),
                "bytesWritten", stats.bytesWritten(),
                "messagesWritten", stats.messagesWritten(),
                "invalidMessagesRead", stats.invalidMessagesRead(),
                "bufferUtilization", stats.bufferUtilization()));
    }

    /** Kafka keeps its manager's arithmetic to its package; so the three look-ups below go by name. */
    private static Object cleanableOffsets(UnifiedLog log, long firstDirty, long nowMs)
            throws ReflectiveOperationException {
        Method method = LogCleanerManager.class.getDeclaredMethod(
            "cleanableOffsets", UnifiedLog.class, Optional.class, long.class);
        method.setAccessible(true);
        return method.invoke(null, log, Optional.of(firstDirty), nowMs);
    }

    private static long offset(Object offsets, String name) throws ReflectiveOperationException {
        Method method = offsets.getClass().getDeclaredMethod(name);
        method.setAccessible(true);
        return (Long) method.invoke(offsets);
    }

    private static long mapBytesRead(CleanerStats stats) throws ReflectiveOperationException {
        var field = CleanerStats.class.getDeclaredField("mapBytesRead");
        field.setAccessible(true);
        return field.getLong(stats);
    }
}
