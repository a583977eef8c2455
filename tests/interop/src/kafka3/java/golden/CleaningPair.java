package golden;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import kafkalog.CleaningPass;
import kafkalog.DataDir;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.ManualClock;
import kafkalog.PartitionLog;
import kafkalog.Release;
import org.apache.kafka.common.utils.AppInfoParser;

/** One pass of Kafka's own Cleaner: before/ as it was closed, after/ as it was closed, and a manifest of the pass. */
final class CleaningPair {
    /** log.cleaner.io.buffer.size 524288 over one thread, half for reading and half for writing. */
    private static final int IO_BUFFER_BYTES = 262_144;
    /** message.max.bytes, the broker's default. */
    private static final int MAX_IO_BUFFER_BYTES = 1_048_588;
    private static final double LOAD_FACTOR = 0.9;
    static final int ROOMY_MAP_BYTES = 2 * 1024 * 1024;

    private final String name;
    private final Path caseDir;
    private final Map<String, String> config;
    private long cleaningTimeMs = ManualClock.START_MS + 3_600_000;
    private int mapBytes = ROOMY_MAP_BYTES;
    private boolean transactions = false;
    private String compression = "none";
    private String note = "";

    CleaningPair(Path outDir, String name, Map<String, String> config) {
        this.name = name;
        this.caseDir = outDir.resolve(name);
        this.config = config;
    }

    CleaningPair cleanedAt(long timeMs) {
        cleaningTimeMs = timeMs;
        return this;
    }

    CleaningPair mapBytes(int bytes) {
        mapBytes = bytes;
        return this;
    }

    CleaningPair withTransactions() {
        transactions = true;
        return this;
    }

    CleaningPair compressed(String codec) {
        compression = codec;
        return this;
    }

    CleaningPair note(String text) {
        note = text;
        return this;
    }

    /** A new log, filled by the story and never cleaned. */
    DataDir write(ReadCase.Story story) throws Exception {
        return write(config, story);
    }

    /** The same, but the log was filled under another configuration. */
    DataDir write(Map<String, String> fillingConfig, ReadCase.Story story) throws Exception {
        DataDir before = new DataDir(caseDir.resolve("before/data"), ReadCase.PARTITION);
        Files.createDirectories(before.path());
        fill(before, fillingConfig, ManualClock.START_MS, story);
        return clean(before);
    }

    /** The result of an earlier pass, with whatever the story appends to it. */
    DataDir continueFrom(DataDir earlier, long atMs, ReadCase.Story story) throws Exception {
        DataDir before = earlier.copyTo(caseDir.resolve("before/data"));
        fill(before, config, atMs, story);
        return clean(before);
    }

    private static void fill(DataDir dir, Map<String, String> config, long atMs, ReadCase.Story story)
            throws Exception {
        try (PartitionLog log = PartitionLog.open(dir, config, new ManualClock(atMs))) {
            story.tell(log);
        }
    }

    private DataDir clean(DataDir before) throws Exception {
        long checkpoint = before.checkpoint(DataDir.FIRST_DIRTY, 0L);
        before.writeCheckpoint(DataDir.FIRST_DIRTY, checkpoint);
        Map<String, Object> beforeMtimes = stampMtimes(before);
        DataDir after = before.copyTo(caseDir.resolve("after/data"));

        Map<String, Object> manifest;
        Map<String, Object> beforeState;
        Map<String, Object> afterState;
        long activeBase;
        long endOffset;
        try (PartitionLog partition = PartitionLog.open(after, config, new ManualClock(cleaningTimeMs))) {
            beforeState = state(partition);
            activeBase = partition.log().activeSegment().baseOffset();
            CleaningPass pass = Release.clean(partition, checkpoint, null,
                new CleaningPass.Buffers(IO_BUFFER_BYTES, MAX_IO_BUFFER_BYTES, mapBytes, LOAD_FACTOR));
            endOffset = pass.endOffset();
            afterState = state(partition);
            manifest = Json.object(
                "kafka_version", AppInfoParser.getVersion(),
                "case", name,
                "kind", "clean",
                "note", note,
                "topic", ReadCase.PARTITION.topic(),
                "partition", ReadCase.PARTITION.partition(),
                "transactions", transactions,
                "compression", compression,
                "config", config,
                "delete_retention_ms", partition.log().config().deleteRetentionMs,
                "cleaning_time_ms", cleaningTimeMs,
                "first_dirty_offset", pass.firstDirtyOffset(),
                "uncleanable_offset", pass.uncleanableOffset(),
                "upper_bound_offset", pass.upperBoundOffset(),
                "end_offset", endOffset,
                "io_buffer_size", IO_BUFFER_BYTES,
                "max_io_buffer_size", MAX_IO_BUFFER_BYTES,
                "dedupe_buffer_size", mapBytes,
                "dedupe_buffer_load_factor", LOAD_FACTOR,
                "map_slots", pass.mapSlots(),
                "map_slots_used", pass.mapSlotsUsed(),
                "stats", pass.stats());
        }
        after.writeCheckpoint(DataDir.FIRST_DIRTY, endOffset);
        beforeState.put("mtime_ms", beforeMtimes);
        afterState.put("mtime_ms", mtimes(after, activeBase));
        manifest.put("before", beforeState);
        manifest.put("after", afterState);
        Json.writeIndented(caseDir.resolve("manifest.json"), manifest);
        return after;
    }

    private static Map<String, Object> state(PartitionLog partition) {
        return Json.object(
            "log_start_offset", partition.log().logStartOffset(),
            "log_end_offset", partition.log().logEndOffset(),
            "last_stable_offset", partition.log().lastStableOffset(),
            "segments", new LogReport(partition.log()).segments());
    }

    /** A distinct whole second for every closed segment, older than the pass. */
    private static Map<String, Object> stampMtimes(DataDir dir) throws IOException {
        long activeBase = activeBaseOffset(dir);
        Map<Long, Long> timeOfBase = new LinkedHashMap<>();
        for (Map.Entry<String, File> file : dir.closedSegmentFiles(activeBase).entrySet()) {
            long base = Long.parseLong(file.getKey().substring(0, file.getKey().indexOf('.')));
            long time = timeOfBase.computeIfAbsent(base, b -> ManualClock.START_MS + 1000L * timeOfBase.size());
            if (!file.getValue().setLastModified(time)) {
                throw new IOException("cannot set the time of " + file.getValue());
            }
        }
        return mtimes(dir, activeBase);
    }

    private static Map<String, Object> mtimes(DataDir dir, long activeBase) throws IOException {
        Map<String, Object> times = new LinkedHashMap<>();
        dir.closedSegmentFiles(activeBase).forEach((file, at) -> times.put(file, at.lastModified()));
        return times;
    }

    private static long activeBaseOffset(DataDir dir) throws IOException {
        return dir.closedSegmentFiles(Long.MAX_VALUE).keySet().stream()
            .filter(file -> file.endsWith(".log"))
            .mapToLong(file -> Long.parseLong(file.substring(0, file.indexOf('.'))))
            .max().orElseThrow();
    }
}
