"""Keys and values decoded: JSON, and what Confluent's serializers write, by schemas from files."""
