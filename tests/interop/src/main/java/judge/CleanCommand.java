package judge;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import kafkalog.CleaningPass;
import kafkalog.DataDir;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.PartitionLog;
import kafkalog.Release;

/**
 * Kafka's cleaner on a directory, in place, the checkpoint after each pass: one or several passes at one moment, or
 * one after each list of operations, on a log that stays open from the first to the last.
 */
final class CleanCommand {
    private CleanCommand() { }

    static Map<String, Object> run(Request request) throws Exception {
        CleaningPass.Buffers buffers = new CleaningPass.Buffers(
            (int) request.number("io_buffer", 262_144),
            (int) request.number("max_io_buffer", 1_048_588),
            (int) request.number("dedupe_bytes", 2 * 1024 * 1024),
            request.has("load_factor") ? request.json().get("load_factor").asDouble() : 0.9);
        Long uncleanable = request.has("uncleanable") ? request.number("uncleanable", 0) : null;
        DataDir dir = request.dataDir();
        long firstDirty = request.number("first_dirty", dir.checkpoint(DataDir.FIRST_DIRTY, 0L));
        List<Object> passes = new ArrayList<>();
        List<Object> segments;
        try (PartitionLog partition = request.open()) {
            JsonNode turns = request.json().path("turns");
            long left = turns.isMissingNode() ? request.number("passes", 1) : turns.size();
            for (int turn = 0; left > 0; left--, turn++) {
                for (JsonNode operation : turns.path(turn)) {
                    WriteCommand.apply(partition, operation);
                }
                long started = System.nanoTime();
                CleaningPass pass = Release.clean(partition, firstDirty, uncleanable, buffers);
                if (pass.stats() != null) {
                    dir.writeCheckpoint(DataDir.FIRST_DIRTY, pass.endOffset());
                    firstDirty = pass.endOffset();
                }
                passes.add(describe(pass, System.nanoTime() - started));
                boolean done = pass.stats() == null || pass.endOffset() >= pass.upperBoundOffset();
                if (done && turns.isMissingNode()) {
                    break;
                }
            }
            segments = new LogReport(partition.log()).segments();
        }
        return Json.object("passes", passes, "segments", segments, "first_dirty_offset", firstDirty);
    }

    private static Map<String, Object> describe(CleaningPass pass, long nanoseconds) {
        return Json.object(
            "first_dirty_offset", pass.firstDirtyOffset(),
            "uncleanable_offset", pass.uncleanableOffset(),
            "upper_bound_offset", pass.upperBoundOffset(),
            "clean_bytes", pass.cleanBytes(),
            "cleanable_bytes", pass.cleanableBytes(),
            "end_offset", pass.endOffset(),
            "map_slots", pass.mapSlots(),
            "map_slots_used", pass.mapSlotsUsed(),
            "stats", pass.stats(),
            "ms", nanoseconds / 1_000_000);
    }
}
