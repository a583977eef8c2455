package golden;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import kafkalog.Json;
import kafkalog.LogReport;
import kafkalog.PartitionLog;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.AppInfoParser;

/** A directory to read: Kafka's files in data/, and beside it what Kafka's reader gives for them. */
final class ReadCase {
    static final TopicPartition PARTITION = new TopicPartition("golden", 0);

    private ReadCase() { }

    interface Story {
        void tell(PartitionLog log) throws Exception;
    }

    static void write(Path outDir, String name, Map<String, String> config, Story story) throws Exception {
        Path caseDir = outDir.resolve(name);
        Files.createDirectories(caseDir);
        try (PartitionLog partition = PartitionLog.create(caseDir.resolve("data"), PARTITION, config)) {
            story.tell(partition);
            report(caseDir, name, partition);
        }
    }

    private static void report(Path caseDir, String name, PartitionLog partition) throws Exception {
        LogReport report = new LogReport(partition.log());
        Json.writeLines(caseDir.resolve("records.jsonl"), report.records());
        Json.writeLines(caseDir.resolve("batches.jsonl"), report.batches());
        Json.writeLines(caseDir.resolve("committed.jsonl"), report.committed());
        Json.writeIndented(caseDir.resolve("manifest.json"), Json.object(
            "kafka_version", AppInfoParser.getVersion(),
            "case", name,
            "kind", "read",
            "topic", PARTITION.topic(),
            "partition", PARTITION.partition(),
            "config", partition.overrides,
            "closed_at_ms", partition.now(),
            "log_start_offset", partition.log().logStartOffset(),
            "log_end_offset", partition.log().logEndOffset(),
            "last_stable_offset", partition.log().lastStableOffset(),
            "segments", report.segments()));
    }
}
