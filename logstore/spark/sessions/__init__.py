"""Start Spark: Java, the JVM, sessions and Python workers."""
