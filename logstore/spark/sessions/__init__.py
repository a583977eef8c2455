"""Spark itself: a Java for it, its JVM, its sessions and their workers."""
