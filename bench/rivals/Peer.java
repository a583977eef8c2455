import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.DigestException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32C;
import kafka.log.Cleaner;
import kafka.log.CleanerStats;
import kafka.log.LogToClean;
import kafkalog.DataDir;
import kafkalog.Json;
import kafkalog.ManualClock;
import kafkalog.PartitionLog;
import kafkalog.Release;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;
import org.apache.kafka.common.record.Record;
import org.apache.kafka.common.record.RecordBatch;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.CloseableIterator;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.utils.Throttler;
import scala.Tuple2;
import scala.runtime.BoxedUnit;

/**
 * Measures Kafka's own cleaner and offset map. Reads a JSON request per line and prints an answer per line.
 *
 * The process runs during the whole benchmark, so that the measured code is compiled. Times are the CPU time of the whole
 * process, including garbage collection and compilation, as for the engine, the wall time, and the time of the working
 * thread. As in a broker's cleaner thread, the map and the buffers are allocated once and used in every pass.
 */
public final class Peer {
    private static final int IO_BUFFER_BYTES = 262_144;
    private static final int MAX_IO_BUFFER_BYTES = 1_048_588;
    private static final double LOAD_FACTOR = 0.9;
    private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

    private static SkimpyOffsetMap map;
    private static long mapBytes;

    private Peer() { }

    public static void main(String[] arguments) throws Exception {
        say(Json.object("kafka", Release.version(), "java", System.getProperty("java.version"),
            "vm", System.getProperty("java.vm.name")));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JsonNode request = Json.parse(line);
            try {
                say(switch (request.path("command").asText()) {
                    case "clean" -> clean(request);
                    case "map" -> map(request);
                    case "filter" -> filter(request);
                    default -> throw new IllegalArgumentException("unknown command: " + line);
                });
            } catch (Exception | LinkageError | AssertionError error) {
                error.printStackTrace();
                say(Json.object("error", error.toString()));
            }
        }
        Runtime.getRuntime().halt(0); // Kafka's metrics registry keeps threads alive
    }

    private static void say(Object answer) {
        System.out.println(Json.encode(answer));
    }

    /** Cleans [first dirty, active segment) of a partition in place; opening and closing are not measured. */
    private static Map<String, Object> clean(JsonNode request) throws Exception {
        TopicPartition tp = new TopicPartition(request.get("topic").asText(), request.path("partition").asInt(0));
        DataDir dir = new DataDir(Path.of(request.get("data_dir").asText()), tp);
        Map<String, String> config = new TreeMap<>();
        request.path("config").properties().forEach(each -> config.put(each.getKey(), each.getValue().asText()));
        ManualClock clock = new ManualClock(request.get("now").asLong());
        SkimpyOffsetMap offsets = mapOf(request.get("map_bytes").asLong());
        try (PartitionLog partition = PartitionLog.open(dir, config, clock)) {
            Throttler unlimited = new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", clock);
            Cleaner cleaner = new Cleaner(0, offsets, IO_BUFFER_BYTES, MAX_IO_BUFFER_BYTES, LOAD_FACTOR, unlimited,
                clock, each -> BoxedUnit.UNIT);
            long firstDirty = dir.checkpoint(DataDir.FIRST_DIRTY, 0L);
            long limit = partition.log().activeSegment().baseOffset();
            long wall = 0;
            long cpu = 0;
            long thread = 0;
            int passes = 0;
            CleanerStats stats = null;
            while (firstDirty < limit) { // until the map has fit all records, as the engine's command does
                LogToClean toClean = new LogToClean(tp, partition.log(), firstDirty, limit, false);
                long startedWall = System.nanoTime();
                long startedCpu = processCpu();
                long startedThread = THREADS.getCurrentThreadCpuTime();
                Tuple2<Object, CleanerStats> done = cleaner.clean(toClean);
                thread += THREADS.getCurrentThreadCpuTime() - startedThread;
                cpu += processCpu() - startedCpu;
                wall += System.nanoTime() - startedWall;
                firstDirty = (Long) done._1();
                stats = done._2();
                passes++;
            }
            partition.settle();
            dir.writeCheckpoint(DataDir.FIRST_DIRTY, firstDirty);
            return Json.object("cpu_ns", cpu, "thread_ns", thread, "wall_ns", wall, "passes", passes,
                "end_offset", firstDirty, "messages_read", stats == null ? 0 : stats.messagesRead(),
                "messages_written", stats == null ? 0 : stats.messagesWritten());
        }
    }

    private static SkimpyOffsetMap mapOf(long bytes) throws Exception {
        if (map == null || mapBytes != bytes) {
            map = null;
            map = new SkimpyOffsetMap((int) bytes, "MD5");
            mapBytes = bytes;
        }
        return map;
    }

    /**
     * Returns the user and system CPU time of all threads of this process, including the JVM's own, in nanoseconds.
     *
     * The JVM reports it with a resolution of 10 ms. Linux reports the time of each thread; for the running thread, its
     * own clock is more recent.
     */
    private static long processCpu() throws Exception {
        long total = THREADS.getCurrentThreadCpuTime();
        String self = Path.of("/proc/thread-self").toRealPath().getFileName().toString();
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                if (!thread.getFileName().toString().equals(self)) {
                    try {
                        total += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
                    } catch (NoSuchFileException ended) {
                        continue;
                    }
                }
            }
        }
        return total;
    }

    /** Puts 16-byte keys and looks up these and absent keys; each file contains consecutive keys. */
    private static Map<String, Object> map(JsonNode request) throws Exception {
        ByteBuffer puts = ByteBuffer.wrap(Files.readAllBytes(Path.of(request.get("puts").asText())));
        ByteBuffer absent = ByteBuffer.wrap(Files.readAllBytes(Path.of(request.get("absent").asText())));
        SkimpyOffsetMap offsets = mapOf(request.get("map_bytes").asLong());
        offsets.clear();
        long start = processCpu();
        for (int key = 0; key < puts.capacity() / 16; key++) {
            offsets.put(at(puts, key), key);
        }
        long put = processCpu();
        long sum = 0;
        for (int key = 0; key < puts.capacity() / 16; key++) {
            sum += offsets.get(at(puts, key));
        }
        long hit = processCpu();
        for (int key = 0; key < absent.capacity() / 16; key++) {
            sum += offsets.get(at(absent, key));
        }
        long miss = processCpu();
        return Json.object("put_ns", put - start, "hit_ns", hit - put, "miss_ns", miss - hit, "entries", offsets.size(),
            "sum", sum);
    }

    /** Maps all records of segments and filters them in memory, chunk by chunk as `Cleaner` does. */
    private static Map<String, Object> filter(JsonNode request) throws Exception {
        List<ByteBuffer> segments = new ArrayList<>();
        int size = 0;
        for (JsonNode path : request.get("paths")) {
            segments.add(ByteBuffer.wrap(Files.readAllBytes(Path.of(path.asText()))));
            size += segments.get(segments.size() - 1).capacity();
        }
        ByteBuffer out = ByteBuffer.allocate(size);
        SkimpyOffsetMap offsets = mapOf(request.get("map_bytes").asLong());
        offsets.clear();
        BufferSupplier suppliers = BufferSupplier.create();
        MemoryRecords.RecordFilter latest = new MemoryRecords.RecordFilter(request.get("now").asLong(), 0) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.DELETE_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                try {
                    return record.offset() >= offsets.get(record.key());
                } catch (DigestException error) {
                    throw new IllegalStateException(error);
                }
            }
        };
        long started = processCpu();
        for (ByteBuffer segment : segments) {
            for (MemoryRecords chunk = chunk(segment, 0); chunk.validBytes() > 0; chunk = chunk(segment, segment.position())) {
                for (MutableRecordBatch batch : chunk.batches()) {
                    try (CloseableIterator<Record> records = batch.streamingIterator(suppliers)) {
                        while (records.hasNext()) {
                            Record record = records.next();
                            offsets.put(record.key(), record.offset());
                        }
                    }
                }
                segment.position(segment.position() + chunk.validBytes());
            }
        }
        long mapped = processCpu();
        TopicPartition tp = new TopicPartition("memory", 0);
        for (ByteBuffer segment : segments) {
            for (MemoryRecords chunk = chunk(segment, 0); chunk.validBytes() > 0; chunk = chunk(segment, segment.position())) {
                chunk.filterTo(tp, latest, out, Integer.MAX_VALUE, suppliers);
                segment.position(segment.position() + chunk.validBytes());
            }
        }
        long filtered = processCpu();
        CRC32C checksum = new CRC32C();
        checksum.update(out.array(), 0, out.position());
        return Json.object("map_ns", mapped - started, "filter_ns", filtered - mapped, "bytes_written", out.position(),
            "checksum", checksum.getValue());
    }

    private static MemoryRecords chunk(ByteBuffer segment, int position) {
        segment.position(position);
        ByteBuffer chunk = segment.slice();
        return MemoryRecords.readableRecords(chunk.limit(Math.min(chunk.capacity(), MAX_IO_BUFFER_BYTES)).slice());
    }

    private static ByteBuffer at(ByteBuffer keys, int key) {
        return keys.limit(16 * key + 16).position(16 * key);
    }
}
