package golden;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;
import kafka.server.checkpoints.OffsetCheckpointFile;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import scala.Option;

/** A Kafka log directory: the partition's folder, the offset checkpoints and the clean-shutdown mark. */
record DataDir(Path path, TopicPartition partition) {
    static final String RECOVERY_POINT = "recovery-point-offset-checkpoint";
    static final String LOG_START = "log-start-offset-checkpoint";
    static final String HIGH_WATERMARK = "replication-offset-checkpoint";
    static final String FIRST_DIRTY = "cleaner-offset-checkpoint";

    Path partitionDir() {
        return path.resolve(partition.topic() + "-" + partition.partition());
    }

    /** Takes the mark away and tells whether it was there: Kafka forgets a clean shutdown as soon as it loads. */
    boolean takeCleanShutdown() throws Exception {
        CleanShutdownFileHandler mark = new CleanShutdownFileHandler(path.toString());
        boolean clean = mark.exists();
        mark.delete();
        return clean;
    }

    void markCleanShutdown() throws Exception {
        new CleanShutdownFileHandler(path.toString()).write(-1L);
    }

    long checkpoint(String name, long absent) throws IOException {
        if (!Files.exists(path.resolve(name))) {
            return absent;
        }
        Option<Object> offset = file(name).read().get(partition);
        return offset.isDefined() ? (Long) offset.get() : absent;
    }

    void writeCheckpoint(String name, long offset) throws IOException {
        file(name).write(new scala.collection.immutable.Map.Map1<>(partition, offset));
    }

    void writeEmptyCheckpoint(String name) throws IOException {
        file(name).write(scala.collection.immutable.Map$.MODULE$.empty());
    }

    private OffsetCheckpointFile file(String name) throws IOException {
        return new OffsetCheckpointFile(path.resolve(name).toFile(), new LogDirFailureChannel(1));
    }

    /** Copies everything with its times: the cleaner carries a source segment's mtime over to its result. */
    DataDir copyTo(Path target) throws IOException {
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
    Map<String, File> closedSegmentFiles(long activeBaseOffset) throws IOException {
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
