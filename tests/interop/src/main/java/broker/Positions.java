package broker;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Prints where a consumer ends up in partition 0 of topics: bootstrap, isolation level, topics. */
public final class Positions {
    private static final int QUIET_POLLS = 5;

    private Positions() {}

    public static void main(String[] arguments) {
        Properties settings = new Properties();
        settings.putAll(
                Map.of(
                        ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0],
                        ConsumerConfig.ISOLATION_LEVEL_CONFIG, arguments[1],
                        ConsumerConfig.FETCH_MAX_WAIT_MS_CONFIG, "20"));
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            for (int number = 2; number < arguments.length; number++) {
                TopicPartition partition = new TopicPartition(arguments[number], 0);
                consumer.assign(List.of(partition));
                consumer.seekToBeginning(List.of(partition));
                for (int quiet = 0; quiet < QUIET_POLLS; ) {
                    long before = consumer.position(partition);
                    consumer.poll(Duration.ofMillis(100));
                    quiet = consumer.position(partition) == before ? quiet + 1 : 0;
                }
                System.out.println(partition.topic() + " " + consumer.position(partition));
            }
        }
    }
}
