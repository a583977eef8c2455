package kafkalog;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;

/** A Kafka log directory: the partition's folder, the offset checkpoints and the clean-shutdown mark. */
public record DataDir(Path path, TopicPartition partition) {
    public static final String RECOVERY_POINT = "recovery-point-offset-checkpoint";
    public static final String LOG_START = "log-start-offset-checkpoint";
    public static final String HIGH_WATERMARK = "replication-offset-checkpoint";
    public static final String FIRST_DIRTY = "cleaner-offset-checkpoint";

    public Path partitionDir() {
        return path.resolve(partition.topic() + "-" + partition.partition());
    }

    /** Takes the mark away and tells whether it was there: Kafka forgets a clean shutdown as soon as it loads. */
    public boolean takeCleanShutdown() throws Exception {
        CleanShutdownFileHandler mark = new CleanShutdownFileHandler(path.toString());
        boolean clean = mark.exists();
        mark.delete();
        return clean;
    }

    public void markCleanShutdown() throws Exception {
        new CleanShutdownFileHandler(path.toString()).write(-1L);
    }

    public long checkpoint(String name, long absent) throws IOException {
        return Files.exists(path.resolve(name))
            ? Release.readOffsets(path.resolve(name)).getOrDefault(partition, absent) : absent;
    }

    public void writeCheckpoint(String name, long offset) throws IOException {
        Release.writeOffsets(path.resolve(name), Map.of(partition, offset));
    }

    public void writeEmptyCheckpoint(String name) throws IOException {
        Release.writeOffsets(path.resolve(name), Map.of());
    }

    /** Copies everything with its times: the cleaner carries a source segment's mtime over to its result. */
    public DataDir copyTo(Path target) throws IOException {
        try (Stream<Path> files = Files.walk(path)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                Path copy = target.resolve(path.relativize(file).toString());
                if (Files.isDirectory(file)) {
                    Files.createDirectories(copy);
                } else {
                    Files.copy(file, copy, StandardCopyOption.COPY_ATTRIBUTES);
                }
            }
        }
        return new DataDir(target, partition);
    }

    /** The closed segments' .log, .index and .timeindex, the files whose mtime the cleaner cares for. */
    public Map<String, File> closedSegmentFiles(long activeBaseOffset) throws IOException {
        Map<String, File> found = new TreeMap<>();
        try (Stream<Path> files = Files.list(partitionDir())) {
            for (Path file : (Iterable<Path>) files::iterator) {
                String name = file.getFileName().toString();
                boolean timed = name.endsWith(".log") || name.endsWith(".index") || name.endsWith(".timeindex");
                if (timed && Long.parseLong(name.substring(0, name.indexOf('.'))) < activeBaseOffset) {
                    found.put(name, file.toFile());
                }
            }
        }
        return found;
    }
}
