"""Producer, consumer and admin client with kafka-python's API, in the broker's process."""
