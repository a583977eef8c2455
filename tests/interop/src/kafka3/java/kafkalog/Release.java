package kafkalog;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogCleanerManager;
import kafka.log.LogToClean;
import kafka.log.OffsetsToClean;
import kafka.log.UnifiedLog;
import kafka.server.BrokerTopicStats;
import kafka.server.RequestLocal;
import kafka.server.checkpoints.OffsetCheckpointFile;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.FetchIsolation;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Option;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** Everything that is called differently in Kafka 3 and in Kafka 4; this is the side of 3.9. */
public final class Release {
    public static final String DUMP_TOOL = "kafka.tools.DumpLogSegments";
    public static final int DAY_MS = 86_400_000;

    private Release() { }

    public static String version() {
        return AppInfoParser.getVersion();
    }

    public static StandardAuthorizer authorizer() {
        return new StandardAuthorizer();
    }

    public static LogConfig config(Map<String, String> overrides) {
        Properties properties = new Properties();
        properties.putAll(overrides);
        LogConfig.validateNames(properties);
        return new LogConfig(properties);
    }

    /** Opens as a broker's log manager does; a null topic id leaves the stored one in force. */
    public static UnifiedLog open(File dir, Map<String, String> overrides, long logStart, long recoveryPoint,
                                  Scheduler scheduler, Time time, boolean clean, Uuid topicId,
                                  int producerIdExpirationMs) {
        return UnifiedLog.apply(dir, config(overrides), logStart, recoveryPoint, scheduler,
            new BrokerTopicStats(false), time, 900_000, new ProducerStateManagerConfig(producerIdExpirationMs, false), 600_000,
            new LogDirFailureChannel(1), clean, Option.apply(topicId), true, new ConcurrentHashMap<>(), false,
            LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
    }

    public static LogAppendInfo appendAsLeader(UnifiedLog log, MemoryRecords records, int leaderEpoch, AppendOrigin origin) {
        return log.appendAsLeader(records, leaderEpoch, origin, MetadataVersion.latestProduction(),
            RequestLocal.NoCaching(), VerificationGuard.SENTINEL);
    }

    /** 3.9.1 added the leader epoch to this one call; looking it up lets the writer run with any 3.9 release. */
    public static void appendAsFollower(UnifiedLog log, MemoryRecords records, int leaderEpoch) {
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

    public static FetchDataInfo read(UnifiedLog log, long offset, int bytes, FetchIsolation isolation) {
        return log.read(offset, bytes, isolation, true);
    }

    public static void roll(UnifiedLog log) {
        log.roll(Option.empty());
    }

    public static void updateHighWatermark(UnifiedLog log, long offset) {
        log.updateHighWatermark(offset);
    }

    public static boolean incrementLogStart(UnifiedLog log, long offset) {
        return log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
    }

    public static int deleteOldSegments(UnifiedLog log) {
        return log.deleteOldSegments();
    }

    public static void truncateFullyAndStartAt(UnifiedLog log, long offset, Optional<Long> logStart) {
        log.truncateFullyAndStartAt(offset, Option.apply(logStart.orElse(null)));
    }

    /** What a broker's shutdown does to a log before it flushes it: nothing yet, closing is enough. */
    public static void beforeClose(UnifiedLog log) { }

    /** The leader epochs and their start offsets. */
    public static List<List<Long>> epochs(UnifiedLog log) {
        List<List<Long>> entries = new ArrayList<>();
        if (log.leaderEpochCache().isDefined()) {
            for (var entry : log.leaderEpochCache().get().epochEntries()) {
                entries.add(List.of((long) entry.epoch, entry.startOffset));
            }
        }
        return entries;
    }

    /** The transactions that a reader of [start, end) must drop, as (producer id, first offset). */
    public static List<List<Long>> aborted(UnifiedLog log, long start, long end) {
        List<List<Long>> ranges = new ArrayList<>();
        for (var each : CollectionConverters.asJava(log.collectAbortedTransactions(start, end))) {
            ranges.add(List.of(each.producerId(), each.firstOffset()));
        }
        return ranges;
    }

    /** Last sequence, last offset, offset delta and timestamp of a producer's batch. */
    public static List<Object> batch(BatchMetadata batch) {
        return List.of(batch.lastSeq, batch.lastOffset, batch.offsetDelta, batch.timestamp);
    }

    public static Map<TopicPartition, Long> readOffsets(Path file) throws IOException {
        Map<TopicPartition, Long> offsets = new HashMap<>();
        CollectionConverters.asJava(checkpoint(file).read()).forEach((tp, offset) -> offsets.put(tp, (Long) offset));
        return offsets;
    }

    public static void writeOffsets(Path file, Map<TopicPartition, Long> offsets) throws IOException {
        checkpoint(file).write(CollectionConverters.asScala(new HashMap<TopicPartition, Object>(offsets)));
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
        OffsetsToClean offsets =
            LogCleanerManager.cleanableOffsets(log, Option.apply(firstDirty), clock.milliseconds());
        long limit = uncleanable == null ? offsets.firstUncleanableDirtyOffset() : uncleanable;
        LogToClean toClean =
            new LogToClean(log.topicPartition(), log, offsets.firstDirtyOffset(), limit, false);
        if (toClean.cleanableBytes() == 0) {
            return CleaningPass.nothing(offsets.firstDirtyOffset(), limit, toClean.firstUncleanableOffset(),
                toClean.cleanBytes());
        }
        SkimpyOffsetMap map = new SkimpyOffsetMap(buffers.mapBytes(), "MD5");
        Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock);
        Cleaner cleaner = new Cleaner(0, map, buffers.ioBufferBytes(), buffers.maxIoBufferBytes(), buffers.loadFactor(),
            unlimited, clock, each -> BoxedUnit.UNIT);
        Tuple2<Object, CleanerStats> result = cleaner.clean(toClean);
        partition.settle();
        CleanerStats stats = result._2();
        return new CleaningPass(offsets.firstDirtyOffset(), limit, toClean.firstUncleanableOffset(),
            toClean.cleanBytes(), toClean.cleanableBytes(), (Long) result._1(), map.slots(), map.size(),
            Json.object(
                "mapBytesRead", stats.mapBytesRead(),
                "mapMessagesRead", stats.mapMessagesRead(),
                "bytesRead", stats.bytesRead(),
                "messagesRead", stats.messagesRead(),
                "bytesWritten", stats.bytesWritten(),
                "messagesWritten", stats.messagesWritten(),
                "invalidMessagesRead", stats.invalidMessagesRead(),
                "bufferUtilization", stats.bufferUtilization()));
    }
}
