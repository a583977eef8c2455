package broker;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What people do with a broker, in some seconds: producers of every codec, idempotent ones,
 * transactions that commit, abort and are left open, consumer groups, compaction, delete-records.
 *
 * <p>Arguments: bootstrap address, seed, rounds. Prints a line a round; the parent may kill the
 * broker, or this process, at any of them.
 */
public final class Traffic {
    private static final String[] CODECS = {"none", "gzip", "snappy", "lz4", "zstd"};
    private static final int PARTITIONS = 2;
    private static final long ROUND_MS = 350;

    private final String bootstrap;
    private final Random random;

    private Traffic(String bootstrap, long seed) {
        this.bootstrap = bootstrap;
        this.random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        Traffic traffic = new Traffic(arguments[0], Long.parseLong(arguments[1]));
        traffic.run(Integer.parseInt(arguments[2]));
        // A producer that was left in the middle of its transaction must not hold the process.
        Runtime.getRuntime().halt(0);
    }

    private void run(int rounds) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            String rolls = "300";
            create(admin, "plain", Map.of("segment.ms", rolls, "index.interval.bytes", "200"));
            create(admin, "stamped",
                    Map.of("message.timestamp.type", "LogAppendTime", "segment.ms", rolls));
            create(admin, "compacted", Map.of("cleanup.policy", "compact", "segment.ms", rolls,
                    "index.interval.bytes", "100", "min.cleanable.dirty.ratio", "0.01", "delete.retention.ms", "100"));
            create(admin, "both", Map.of("cleanup.policy", "compact,delete", "segment.ms", rolls,
                    "min.cleanable.dirty.ratio", "0.01", "retention.bytes", "20000"));
            List<KafkaProducer<byte[], byte[]>> left = new ArrayList<>();
            for (int round = 0; round < rounds; round++) {
                long started = System.nanoTime();
                produce("plain", Map.of("enable.idempotence", "false",
                        "compression.type", CODECS[round % CODECS.length]));
                produce("stamped", Map.of("enable.idempotence", "true"));
                for (String topic : List.of("compacted", "both")) {
                    produce(topic, Map.of("enable.idempotence", "true",
                            "compression.type", CODECS[random.nextInt(CODECS.length)]));
                    transact(topic, "writer-" + topic, round % 3 != 0);
                }
                consume("group-" + round % 2);
                consumeTransformProduce();
                if (round % 4 == 2) {
                    left.add(begun("compacted", "left-" + round % 8));
                }
                if (round % 3 == 1) {
                    deleteRecords(admin);
                    deleteTopic(admin, "passing-" + round);
                }
                long restMs = ROUND_MS - TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - started);
                Thread.sleep(Math.max(1, restMs));
                System.out.println("round " + round);
            }
        }
    }

    private static void create(Admin admin, String name, Map<String, String> configs)
            throws Exception {
        try {
            NewTopic topic = new NewTopic(name, PARTITIONS, (short) 1).configs(configs);
            admin.createTopics(List.of(topic)).all().get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof TopicExistsException)) {
                throw error;
            }
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        Map<String, Object> all = new java.util.HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("acks", "all");
        all.put("linger.ms", random.nextInt(5));
        all.put("batch.size", 200 + random.nextInt(2000));
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void produce(String topic, Map<String, Object> settings) {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            send(producer, topic, 10 + random.nextInt(60));
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, String topic, int count) {
        for (int number = 0; number < count; number++) {
            byte[] key = ("key-" + random.nextInt(12)).getBytes();
            byte[] value = random.nextInt(6) == 0 ? null : new byte[random.nextInt(300)];
            // Late, early and equal times, as devices have them.
            long time = System.currentTimeMillis() - random.nextInt(3) * 1000L;
            Long timestamp = topic.equals("stamped") ? null : Long.valueOf(time);
            producer.send(new ProducerRecord<>(
                    topic, random.nextInt(PARTITIONS), timestamp, key, value));
        }
        producer.flush();
    }

    private void transact(String topic, String id, boolean commit) {
        try (KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", id))) {
            producer.initTransactions();
            producer.beginTransaction();
            send(producer, topic, 1 + random.nextInt(20));
            if (commit) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    /** A transaction that nobody ends, until the next of its id fences it. */
    private KafkaProducer<byte[], byte[]> begun(String topic, String id) {
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("transactional.id", id));
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, topic, 3);
        return producer;
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        return new KafkaConsumer<>(
                Map.of("bootstrap.servers", bootstrap, "group.id", group,
                        "auto.offset.reset", "earliest", "enable.auto.commit", "false",
                        "isolation.level", "read_committed"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void consume(String group) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(group)) {
            consumer.subscribe(List.of("plain", "both"));
            for (int turn = 0; turn < 3; turn++) {
                consumer.poll(Duration.ofMillis(60));
                consumer.commitSync();
            }
        }
    }

    private void consumeTransformProduce() {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("transformer");
                KafkaProducer<byte[], byte[]> producer =
                        producer(Map.of("transactional.id", "transformer"))) {
            producer.initTransactions();
            TopicPartition source = new TopicPartition("plain", 0);
            consumer.assign(List.of(source));
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            producer.beginTransaction();
            records.forEach(record -> producer.send(
                    new ProducerRecord<>("compacted", record.key(), record.value())));
            OffsetAndMetadata position = new OffsetAndMetadata(consumer.position(source));
            producer.sendOffsetsToTransaction(Map.of(source, position), consumer.groupMetadata());
            producer.commitTransaction();
        }
    }

    private void deleteTopic(Admin admin, String name) throws Exception {
        create(admin, name, Map.of("cleanup.policy", "compact"));
        produce(name, Map.of());
        admin.deleteTopics(List.of(name)).all().get();
    }

    private void deleteRecords(Admin admin) throws Exception {
        TopicPartition partition = new TopicPartition("plain", 1);
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("nobody")) {
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(end / 2)))
                    .all().get();
        }
    }
}
