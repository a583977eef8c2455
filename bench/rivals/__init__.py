"""The peers that lines are measured against: Kafka's classes on a JVM, clients in Python."""
