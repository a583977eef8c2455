"""Kafka's classes and brokers as judges, and the modules that drive them."""

from tests.support.interop.judge import (
    BUILDS,
    KAFKA_3,
    KAFKA_4,
    PROJECT,
    RELEASES,
    REQUIRED,
    Judge,
    JudgeError,
    Release,
    Unavailable,
    build,
    fast_scratch,
)

__all__ = [
    "BUILDS",
    "KAFKA_3",
    "KAFKA_4",
    "PROJECT",
    "RELEASES",
    "REQUIRED",
    "Judge",
    "JudgeError",
    "Release",
    "Unavailable",
    "build",
    "fast_scratch",
]
