package org.apache.kafka.common.record.internal;

/** Makes this package of Kafka 4 exist, so that its wildcard import compiles against Kafka 3. */
final class OnlyInKafka4 {
    private OnlyInKafka4() { }
}
