"""Compare brokers over the wire: speed, costs, and conformance to Kafka's documentation."""
