package apps;

import java.io.FileInputStream;
import java.io.InputStream;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener of Spring for Kafka in transactions: {@code java apps.SpringApp app.properties}.
 *
 * <p>For each record of {@code orders}, whose value is a number, it sends one to {@code invoices},
 * and then may fail, so that both the record and the consumer's offset are rolled back: the first
 * time for numbers that 31 divides, each time for those that {@code fails.always} divides. These go
 * to {@code orders-dlt} after two more attempts. It closes on SIGTERM.
 */
public final class SpringApp {
  private static final int FAILS_ONCE = 31;

  private SpringApp() {}

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (InputStream file = new FileInputStream(arguments[0])) {
      settings.load(file);
    }
    String bootstrap = settings.getProperty("bootstrap.servers");
    int failsAlways = Integer.parseInt(settings.getProperty("fails.always"));

    var producers =
        new DefaultKafkaProducerFactory<>(
            Map.<String, Object>of(
                "bootstrap.servers", bootstrap,
                "transaction.timeout.ms", 10_000,
                "reconnect.backoff.max.ms", 500),
            new StringSerializer(),
            new StringSerializer());
    producers.setTransactionIdPrefix("billing-");
    var template = new KafkaTemplate<>(producers);

    Map<String, Object> consumer = new HashMap<>();
    consumer.put("bootstrap.servers", bootstrap);
    consumer.put("group.id", "billing");
    consumer.put("auto.offset.reset", "earliest");
    consumer.put("isolation.level", "read_committed");
    consumer.put("enable.auto.commit", false);
    consumer.put("max.poll.records", 20);
    consumer.put("session.timeout.ms", 6_000);
    consumer.put("heartbeat.interval.ms", 1_000);
    consumer.put("reconnect.backoff.max.ms", 500);
    var consumers =
        new DefaultKafkaConsumerFactory<>(
            consumer, new StringDeserializer(), new StringDeserializer());

    Set<String> failed = ConcurrentHashMap.newKeySet();
    var properties = new ContainerProperties("orders");
    properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
    properties.setMessageListener(
        (MessageListener<String, String>)
            order -> {
              template.send("invoices", order.key(), order.value());
              long number = Long.parseLong(order.value());
              boolean isFirst = failed.add(order.value());
              if (number % failsAlways == 0 || number % FAILS_ONCE == 0 && isFirst) {
                throw new IllegalStateException("refused: " + number);
              }
            });
    var container = new ConcurrentMessageListenerContainer<>(consumers, properties);
    container.setConcurrency(2);
    container.setAfterRollbackProcessor(
        new DefaultAfterRollbackProcessor<>(
            new DeadLetterPublishingRecoverer(template, SpringApp::deadLetters),
            new FixedBackOff(20, 2),
            template,
            true));
    Runtime.getRuntime().addShutdownHook(new Thread(container::stop, "closing"));
    container.start();
    System.out.println("started");
    Thread.currentThread().join();
  }

  private static TopicPartition deadLetters(ConsumerRecord<?, ?> order, Exception error) {
    return new TopicPartition("orders-dlt", order.partition());
  }
}
