package kafkalog;

import java.util.Map;

/**
 * One pass of Kafka's cleaner: what its cleaner manager decided and what its cleaner then counted.
 *
 * @param stats null when there was nothing to clean
 */
public record CleaningPass(
    long firstDirtyOffset,
    long uncleanableOffset,
    long upperBoundOffset,
    long cleanBytes,
    long cleanableBytes,
    long endOffset,
    int mapSlots,
    int mapSlotsUsed,
    Map<String, Object> stats) {

    static CleaningPass nothing(long firstDirty, long uncleanable, long upperBound, long cleanBytes) {
        return new CleaningPass(firstDirty, uncleanable, upperBound, cleanBytes, 0, firstDirty, 0, 0, null);
    }

    /**
     * What a cleaner thread has of memory.
     *
     * @param ioBufferBytes bytes of one of its two I/O buffers
     * @param maxIoBufferBytes to which they grow for a larger batch
     * @param mapBytes its share of log.cleaner.dedupe.buffer.size
     */
    public record Buffers(int ioBufferBytes, int maxIoBufferBytes, int mapBytes, double loadFactor) { }
}
