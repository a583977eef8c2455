package kafkalog;

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import kafka.log.*;
import org.apache.kafka.common.record.*;
import org.apache.kafka.common.record.internal.*;
import org.apache.kafka.storage.internals.log.*;

/**
 * One Kafka UnifiedLog that stays open between requests, with a clock and a scheduler of its own. Unlike
 * {@link PartitionLog} it is told how the directory was left, and deletes files only when their delay is over.
 */
public final class LiveLog {
    public final ManualClock clock;
    private final TimedScheduler scheduler;
    private final UnifiedLog log;
    private Map<String, String> overrides;

    /** How the directory was left, by its checkpoints. */
    public record Left(boolean clean, long recoveryPoint, long logStart) { }

    /** What a producer is told: offsets assigned now or, for a batch sent again, then; and the time set by the log. */
    public record Appended(long firstOffset, long lastOffset, long logAppendTime) { }

    public LiveLog(Path dir, Map<String, String> overrides, ManualClock clock, Left left,
                   int producerIdExpirationMs) throws Exception {
        this.clock = clock;
        this.scheduler = new TimedScheduler(clock);
        this.overrides = new TreeMap<>(overrides);
        Files.createDirectories(dir);
        this.log = Release.open(dir.toFile(), overrides, left.logStart(), left.recoveryPoint(), scheduler, clock,
            left.clean(), null, producerIdExpirationMs);
        settle();
    }

    public UnifiedLog log() {
        return log;
    }

    public Appended appendAsLeader(ByteBuffer batch, int leaderEpoch, AppendOrigin origin) {
        LogAppendInfo info =
            Release.appendAsLeader(log, MemoryRecords.readableRecords(batch), leaderEpoch, origin);
        settle();
        return new Appended(info.firstOffset(), info.lastOffset(), info.logAppendTime());
    }

    public void appendAsFollower(ByteBuffer batches, int leaderEpoch) {
        Release.appendAsFollower(log, MemoryRecords.readableRecords(batches), leaderEpoch);
        settle();
    }

    public void roll() {
        Release.roll(log);
        settle();
    }

    public void flush() {
        log.flush(false);
        settle();
    }

    public int deleteOldSegments() {
        int deleted = Release.deleteOldSegments(log);
        settle();
        return deleted;
    }

    public boolean incrementLogStart(long offset) {
        boolean changed = Release.incrementLogStart(log, offset);
        settle();
        return changed;
    }

    /** Moves the log start, then lets go of the segments below it; of the rules of retention only that one is asked. */
    public long deleteRecords(long offset) {
        Release.incrementLogStart(log, offset < 0 ? log.highWatermark() : offset);
        Map<String, String> noDelete = new TreeMap<>(overrides);
        noDelete.put("cleanup.policy", "compact");
        LogConfig former = log.updateConfig(Release.config(noDelete));
        try {
            Release.deleteOldSegments(log);
        } finally {
            log.updateConfig(former);
        }
        settle();
        return log.logStartOffset();
    }

    /** What a broker does every ten minutes. */
    public void expireProducers() {
        log.producerStateManager().removeExpiredProducers(clock.milliseconds());
    }

    public boolean truncateTo(long offset) {
        boolean changed = log.truncateTo(offset);
        settle();
        return changed;
    }

    public void truncateFullyAndStartAt(long offset, Optional<Long> logStart) {
        Release.truncateFullyAndStartAt(log, offset, logStart);
        settle();
    }

    public void configure(Map<String, String> changed) {
        overrides = new TreeMap<>(changed);
        log.updateConfig(Release.config(changed));
    }

    public void advance(long ms) {
        clock.advance(ms);
        settle();
    }

    /** A single replica: the high watermark is the log end. */
    private void settle() {
        scheduler.runDue();
        Release.updateHighWatermark(log, log.logEndOffset());
    }

    /** In the order of a broker's shutdown; what a broker would delete later is left behind. */
    public void close() {
        Release.beforeClose(log);
        log.flush(true);
        scheduler.drop();
        log.close();
    }

    /** Lets go of the files after a copy was made of them, as they were when the process was killed. */
    public void abandon() {
        scheduler.drop();
        log.close();
    }

    public Map<String, Object> state() {
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(List.of(segment.baseOffset(), segment.size()));
        }
        return Json.object(
            "log_start_offset", log.logStartOffset(),
            "log_end_offset", log.logEndOffset(),
            "high_watermark", log.highWatermark(),
            "last_stable_offset", log.lastStableOffset(),
            "recovery_point", log.recoveryPoint(),
            "segments", segments,
            "epochs", Release.epochs(log),
            "producers", LogReport.producers(log.producerStateManager()),
            "producers_end_offset", log.producerStateManager().mapEndOffset());
    }
}
