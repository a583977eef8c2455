package judge;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import kafka.log.*;
import kafkalog.DataDir;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.ManualClock;
import kafkalog.PartitionLog;
import kafkalog.Release;
import org.apache.kafka.storage.internals.log.*;

/** Everything Kafka makes of a partition's directory: it is copied, dumped, loaded as a broker does, read and closed. */
final class Verdict {
    private static final int SNAPSHOT_HEADER_BYTES = 10;
    private static final int SNAPSHOT_ENTRY_BYTES = 46;

    private Verdict() { }

    static Map<String, Object> of(Request request) throws Exception {
        Path scratch = Files.createTempDirectory("judge");
        try {
            return judge(request, request.dataDir().copyTo(scratch.resolve("data")));
        } finally {
            delete(scratch);
        }
    }

    private static Map<String, Object> judge(Request request, DataDir copy) throws Exception {
        setUp(request, copy);
        boolean wasClean = Files.exists(copy.path().resolve(".kafka_cleanshutdown"));
        List<List<Object>> given = listing(copy);
        Object dumpBefore = request.flag("dump", true) ? DumpTool.dump(dumpable(copy)) : null;
        Map<String, Object> verdict;
        List<List<Object>> loaded;
        try (PartitionLog partition = PartitionLog.openAsIs(copy, request.config(), new ManualClock(request.now()))) {
            loaded = listing(copy);
            verdict = report(partition.log(), request.flag("records", true));
        }
        verdict.put("was_clean", wasClean);
        verdict.put("dump", dumpBefore);
        verdict.put("dump_closed", request.flag("dump_closed", false) ? DumpTool.dump(dumpable(copy)) : null);
        verdict.put("files", Json.object("given", given, "loaded", loaded, "closed", contents(copy)));
        Map<String, Object> checkpoints = Json.object();
        for (String name : List.of(DataDir.RECOVERY_POINT, DataDir.LOG_START, DataDir.HIGH_WATERMARK,
                                   DataDir.FIRST_DIRTY)) {
            checkpoints.put(name, copy.checkpoint(name, -1L));
        }
        verdict.put("checkpoints", checkpoints);
        return verdict;
    }

    /** Overrules what the directory's own files say about how it was left. */
    private static void setUp(Request request, DataDir copy) throws Exception {
        if (request.has("clean")) {
            if (request.flag("clean", true)) {
                copy.markCleanShutdown();
            } else {
                copy.takeCleanShutdown();
            }
        }
        if (request.has("recovery_point")) {
            copy.writeCheckpoint(DataDir.RECOVERY_POINT, request.number("recovery_point", 0));
        }
        if (request.has("log_start")) {
            copy.writeCheckpoint(DataDir.LOG_START, request.number("log_start", 0));
        }
    }

    private static Map<String, Object> report(UnifiedLog log, boolean records) throws IOException {
        LogReport report = new LogReport(log);
        List<Object> segments = new ArrayList<>();
        for (LogSegment segment : log.logSegments()) {
            segments.add(segment(segment));
        }
        return Json.object(
            "kafka_version", Release.version(),
            "log_start_offset", log.logStartOffset(),
            "log_end_offset", log.logEndOffset(),
            "high_watermark", log.highWatermark(),
            "last_stable_offset", log.lastStableOffset(),
            "recovery_point", log.recoveryPoint(),
            "epochs", Release.epochs(log),
            "producers", LogReport.producers(log.producerStateManager()),
            "aborted", Release.aborted(log, log.logStartOffset(), log.logEndOffset()),
            "segments", segments,
            "batches", report.batches(),
            "records", records ? report.records() : null,
            "committed", records ? report.committed() : null);
    }

    private static Map<String, Object> segment(LogSegment segment) throws IOException {
        List<Object> offsets = new ArrayList<>();
        for (int i = 0; i < segment.offsetIndex().entries(); i++) {
            var entry = segment.offsetIndex().entry(i);
            offsets.add(List.of(entry.indexKey(), entry.indexValue()));
        }
        List<Object> times = new ArrayList<>();
        for (int i = 0; i < segment.timeIndex().entries(); i++) {
            var entry = segment.timeIndex().entry(i);
            times.add(List.of(entry.indexKey(), entry.indexValue()));
        }
        List<Object> aborted = new ArrayList<>();
        for (var each : segment.txnIndex().allAbortedTxns()) {
            aborted.add(List.of(each.producerId(), each.firstOffset(), each.lastOffset(), each.lastStableOffset()));
        }
        List<String> insane = new ArrayList<>();
        check(insane, () -> segment.offsetIndex().sanityCheck());
        check(insane, () -> segment.timeIndex().sanityCheck());
        check(insane, () -> segment.txnIndex().sanityCheck());
        return Json.object("base_offset", segment.baseOffset(), "size", segment.size(),
            "largest_timestamp", segment.largestTimestamp(), "next_offset", segment.readNextOffset(),
            "offset_index", offsets, "time_index", times, "txn_index", aborted, "sanity", insane);
    }

    private interface Check {
        void run() throws Exception;
    }

    private static void check(List<String> insane, Check check) {
        try {
            check.run();
        } catch (Exception e) {
            insane.add(e.toString());
        }
    }

    private static List<List<Object>> listing(DataDir dir) throws IOException {
        List<List<Object>> files = new ArrayList<>();
        for (File file : sorted(dir)) {
            files.add(List.of(file.getName(), file.length()));
        }
        return files;
    }

    /** Names and what is inside, to be compared with the directory another engine left. */
    private static List<List<Object>> contents(DataDir dir) throws Exception {
        List<List<Object>> files = new ArrayList<>();
        for (File file : sorted(dir)) {
            byte[] content = Files.readAllBytes(file.toPath());
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            digest.update(file.getName().endsWith(".snapshot") ? sortedSnapshot(content) : content);
            files.add(List.of(file.getName(), file.length(), HexFormat.of().formatHex(digest.digest())));
        }
        return files;
    }

    /** A producer snapshot without its CRC, its entries sorted: in the file they have the order of a hash table. */
    private static byte[] sortedSnapshot(byte[] snapshot) {
        List<byte[]> entries = new ArrayList<>();
        for (int at = SNAPSHOT_HEADER_BYTES; at < snapshot.length; at += SNAPSHOT_ENTRY_BYTES) {
            entries.add(Arrays.copyOfRange(snapshot, at, Math.min(at + SNAPSHOT_ENTRY_BYTES, snapshot.length)));
        }
        entries.sort(Arrays::compareUnsigned);
        ByteBuffer sorted = ByteBuffer.allocate(snapshot.length);
        int header = Math.min(SNAPSHOT_HEADER_BYTES, snapshot.length);
        sorted.put(snapshot, 0, Math.min(2, header));
        sorted.put(snapshot, Math.min(6, header), header - Math.min(6, header));
        entries.forEach(sorted::put);
        return Arrays.copyOf(sorted.array(), sorted.position());
    }

    private static List<File> dumpable(DataDir dir) throws IOException {
        return sorted(dir).stream()
            .filter(file -> file.getName().matches("\\d+\\.(log|index|timeindex|txnindex|snapshot)"))
            .toList();
    }

    private static List<File> sorted(DataDir dir) throws IOException {
        try (Stream<Path> files = Files.list(dir.partitionDir())) {
            return files.sorted().map(Path::toFile).toList();
        }
    }

    private static void delete(Path tree) throws IOException {
        try (Stream<Path> paths = Files.walk(tree)) {
            for (Path path : (Iterable<Path>) paths.sorted(Comparator.reverseOrder())::iterator) {
                Files.delete(path);
            }
        }
    }
}
