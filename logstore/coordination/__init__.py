"""The compacted topics of Kafka's coordinators, and the fields of the records in them."""
