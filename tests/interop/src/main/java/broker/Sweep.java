package broker;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The sweep through Kafka's own clients; see tests/support/interop/sweep.py. */
public final class Sweep {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final Duration POLL = Duration.ofMillis(100);

    private final String bootstrap;

    private Sweep(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        Sweep sweep = new Sweep(arguments[0]);
        report("produce", sweep::produce);
        report("idempotent", sweep::idempotent);
        report("transaction", sweep::transaction);
        report("group", sweep::group);
        report("rebalance", sweep::rebalance);
        report("delete_records", sweep::deleteRecords);
        report("configs", sweep::configs);
        report("acls", sweep::acls);
    }

    private static void report(String action, Callable<Map<String, ?>> work) throws Exception {
        Map<String, Object> line = new TreeMap<>(Map.of("action", action));
        try {
            line.put("seen", work.call());
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
            line.put("failed", error.toString());
        }
        System.out.println(new ObjectMapper().writeValueAsString(line));
    }

    private interface Step {
        void run() throws Exception;
    }

    private static void until(BooleanSupplier isSo, Step step) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("it does not come about");
            }
            step.run();
        }
    }

    // -- producers ---------------------------------------------------------------------------

    private KafkaProducer<String, String> producer(Map<String, Object> configs) {
        Map<String, Object> all = new TreeMap<>(configs);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private static List<RecordMetadata> send(
            KafkaProducer<String, String> producer, String topic, List<String> values)
            throws Exception {
        var sent = new ArrayList<java.util.concurrent.Future<RecordMetadata>>();
        for (String value : values) {
            var record = new ProducerRecord<>(topic, 0, "k", value);
            record.headers().add("h", "x".getBytes());
            sent.add(producer.send(record));
        }
        producer.flush();
        var found = new ArrayList<RecordMetadata>();
        for (var each : sent) {
            found.add(each.get());
        }
        return found;
    }

    private static List<String> numbers(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(number -> prefix + number).toList();
    }

    private Map<String, ?> produce() throws Exception {
        Map<String, Object> configs =
                Map.of("enable.idempotence", false, "compression.type", "gzip");
        try (var producer = producer(configs)) {
            // Each alone is worth to be compressed.
            List<String> values =
                    numbers("", 100).stream().map(each -> String.format("%-100s", each)).toList();
            return Map.of("first", send(producer, "written", values).get(0).offset());
        }
    }

    private Map<String, ?> idempotent() throws Exception {
        try (var producer = producer(Map.of("enable.idempotence", true))) {
            for (String number : numbers("", 20)) {
                send(producer, "once", List.of(number));
            }
        }
        return Map.of();
    }

    private Map<String, ?> transaction() throws Exception {
        try (var producer = producer(Map.of("transactional.id", "booking-1"));
                var member = consumer("booking")) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, "booked", numbers("c", 10));
            producer.sendOffsetsToTransaction(
                    Map.of(new TopicPartition("transfers", 0), new OffsetAndMetadata(7)),
                    member.groupMetadata());
            producer.commitTransaction();
            producer.beginTransaction();
            send(producer, "booked", numbers("a", 10));
            producer.abortTransaction();
            producer.beginTransaction();
            send(producer, "booked", List.of("d0"));
            producer.commitTransaction();
        }
        List<String> read = new ArrayList<>();
        try (var reader = consumer("nobody")) {
            reader.assign(List.of(new TopicPartition("booked", 0)));
            until(() -> read.contains("d0"), () -> read.addAll(values(reader)));
        }
        return Map.of("read", read);
    }

    // -- consumers ---------------------------------------------------------------------------

    private KafkaConsumer<String, String> consumer(String group) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "group.id", group,
                        "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                        "isolation.level", "read_committed", "heartbeat.interval.ms", "200"),
                new StringDeserializer(), new StringDeserializer());
    }

    private static List<String> values(KafkaConsumer<String, String> consumer) {
        List<String> found = new ArrayList<>();
        for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
            found.add(record.value());
        }
        return found;
    }

    private Map<String, ?> group() throws Exception {
        List<String> read = new ArrayList<>();
        try (var consumer = consumer("readers")) {
            consumer.subscribe(List.of("events"));
            until(() -> read.size() >= 100, () -> read.addAll(values(consumer)));
            consumer.commitSync();
        }
        return Map.of("read", read.stream().sorted().toList());
    }

    private Map<String, ?> rebalance() throws Exception {
        List<List<Integer>> sizes = new ArrayList<>();
        try (var one = consumer("pair")) {
            one.subscribe(List.of("events"));
            until(() -> one.assignment().size() == 4, () -> one.poll(POLL));
            sizes.add(List.of(one.assignment().size()));
            try (var two = consumer("pair")) {
                two.subscribe(List.of("events"));
                // A poll may block while the other one has to join: each gets a short turn.
                until(() -> one.assignment().size() == 2 && two.assignment().size() == 2, () -> {
                    one.poll(POLL);
                    two.poll(POLL);
                });
                sizes.add(List.of(one.assignment().size(), two.assignment().size()));
            }
            until(() -> one.assignment().size() == 4, () -> one.poll(POLL));
            sizes.add(List.of(one.assignment().size()));
        }
        return Map.of("sizes", sizes);
    }

    // -- administration ----------------------------------------------------------------------

    private Admin admin() {
        return Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    private Map<String, ?> deleteRecords() throws Exception {
        TopicPartition old = new TopicPartition("old", 0);
        try (Admin admin = admin(); var reader = consumer("nobody")) {
            long low = admin.deleteRecords(Map.of(old, RecordsToDelete.beforeOffset(12)))
                    .lowWatermarks().get(old).get().lowWatermark();
            return Map.of("low", low, "earliest", reader.beginningOffsets(List.of(old)).get(old));
        }
    }

    private Map<String, ?> configs() throws Exception {
        try (Admin admin = admin()) {
            String before = retention(admin);
            var set = new AlterConfigOp(
                    new ConfigEntry("retention.ms", "12345"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(configured(), List.of(set))).all().get();
            return Map.of("before", before, "after", retention(admin));
        }
    }

    private static ConfigResource configured() {
        return new ConfigResource(ConfigResource.Type.TOPIC, "configured");
    }

    private static String retention(Admin admin) throws Exception {
        return admin.describeConfigs(List.of(configured())).all().get().get(configured())
                .get("retention.ms").value();
    }

    private Map<String, ?> acls() throws Exception {
        var topics = new ResourcePattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED);
        try (Admin admin = admin()) {
            admin.createAcls(List.of(
                    allowing(topics, "User:ann", AclOperation.READ),
                    allowing(topics, "User:bob", AclOperation.WRITE))).all().get();
            List<String> created = principals(admin.describeAcls(matching(topics, null)).values().get());
            admin.deleteAcls(List.of(matching(topics, "User:bob"))).all().get();
            List<String> left = principals(admin.describeAcls(matching(topics, null)).values().get());
            return Map.of("created", created, "left", left);
        }
    }

    private static AclBinding allowing(ResourcePattern on, String who, AclOperation operation) {
        return new AclBinding(
                on, new AccessControlEntry(who, "*", operation, AclPermissionType.ALLOW));
    }

    private static AclBindingFilter matching(ResourcePattern on, String who) {
        return new AclBindingFilter(
                new ResourcePatternFilter(on.resourceType(), on.name(), on.patternType()),
                new AccessControlEntryFilter(
                        who, null, AclOperation.ANY, AclPermissionType.ANY));
    }

    private static List<String> principals(Collection<AclBinding> acls) {
        return acls.stream().map(each -> each.entry().principal()).sorted().toList();
    }
}
