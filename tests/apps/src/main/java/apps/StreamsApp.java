package apps;

import java.io.FileInputStream;
import java.io.InputStream;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * A Kafka Streams application with state: {@code java apps.StreamsApp app.properties}.
 *
 * <p>It reads {@code orders}, whose keys are customers and whose values are "ITEM AMOUNT", and
 * writes
 *
 * <ul>
 *   <li>{@code totals}: the sum of each customer's amounts, after each order; the state has a
 *       changelog topic;
 *   <li>{@code counts}: how often each item was ordered, after each order; behind a repartition
 *       topic, with a changelog topic;
 *   <li>{@code regions}: the sum of the totals of all customers of a region, a table grouped by
 *       another key, behind a second repartition topic.
 * </ul>
 *
 * <p>It prints its states and errors, and closes on SIGTERM.
 */
public final class StreamsApp {
  private static final Serde<String> STRING = Serdes.String();
  private static final Serde<Long> LONG = Serdes.Long();

  private StreamsApp() {}

  static Topology topology() {
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> orders = builder.stream("orders", Consumed.with(STRING, STRING));

    KTable<String, Long> totals =
        orders
            .groupByKey(Grouped.with(STRING, STRING))
            .aggregate(() -> 0L, (customer, order, sum) -> sum + amount(order), store("totals"));
    totals.toStream().mapValues(String::valueOf).to("totals", Produced.with(STRING, STRING));

    orders
        .groupBy((customer, order) -> item(order), Grouped.with("by-item", STRING, STRING))
        .count(store("counts"))
        .toStream()
        .mapValues(String::valueOf)
        .to("counts", Produced.with(STRING, STRING));

    totals
        .groupBy(
            (customer, sum) -> KeyValue.pair(region(customer), sum),
            Grouped.with("by-region", STRING, LONG))
        .reduce(Long::sum, (sum, old) -> sum - old, store("regions"))
        .toStream()
        .mapValues(String::valueOf)
        .to("regions", Produced.with(STRING, STRING));
    return builder.build();
  }

  private static Materialized<String, Long, KeyValueStore<Bytes, byte[]>> store(String name) {
    return Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as(name)
        .withKeySerde(STRING)
        .withValueSerde(LONG);
  }

  private static String item(String order) {
    return order.substring(0, order.indexOf(' '));
  }

  private static long amount(String order) {
    return Long.parseLong(order.substring(order.indexOf(' ') + 1));
  }

  /** Customers are named "REGION-NUMBER". */
  private static String region(String customer) {
    return customer.substring(0, customer.indexOf('-'));
  }

  public static void main(String[] arguments) throws Exception {
    Properties settings = new Properties();
    try (InputStream file = new FileInputStream(arguments[0])) {
      settings.load(file);
    }
    KafkaStreams streams = new KafkaStreams(topology(), settings);
    CountDownLatch ended = new CountDownLatch(1);
    streams.setStateListener(
        (state, before) -> {
          System.out.println("state " + state);
          if (state.hasCompletedShutdown()) {
            ended.countDown();
          }
        });
    streams.setUncaughtExceptionHandler(
        error -> {
          System.out.println("error " + error);
          error.printStackTrace(System.out);
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    streams.setGlobalStateRestoreListener(new Restored());
    Runtime.getRuntime()
        .addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(30)), "closing"));
    streams.start();
    ended.await();
  }

  /** Prints how many records of a changelog each store was restored from. */
  private static final class Restored implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition partition, String store, long first, long end) {}

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long last, long count) {}

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long count) {
      System.out.println("restored " + store + " " + count);
    }
  }
}
