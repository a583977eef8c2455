"""Producer, consumer and admin client of kafka-python's shape, in the broker's process."""
