package golden;

import java.nio.charset.StandardCharsets;
import java.util.Random;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.SimpleRecord;

/** Records and byte strings of the stories; everything random comes from a seed given by the caller. */
final class Data {
    private Data() { }

    static SimpleRecord record(long timestamp, String key, String value, Header... headers) {
        return new SimpleRecord(timestamp, utf8(key), utf8(value), headers);
    }

    static SimpleRecord record(long timestamp, byte[] key, byte[] value, Header... headers) {
        return new SimpleRecord(timestamp, key, value, headers);
    }

    static SimpleRecord tombstone(long timestamp, String key, Header... headers) {
        return new SimpleRecord(timestamp, utf8(key), null, headers);
    }

    static Header header(String name, byte[] value) {
        return new RecordHeader(name, value);
    }

    static Header header(String name, String value) {
        return new RecordHeader(name, utf8(value));
    }

    static byte[] utf8(String text) {
        return text == null ? null : text.getBytes(StandardCharsets.UTF_8);
    }

    /** Numbered 16-byte lines: compresses well, yet no two parts are equal, so a misplaced block shows. */
    static byte[] lines(int size) {
        byte[] bytes = new byte[size];
        for (int start = 0; start < size; start += 16) {
            byte[] line = utf8(String.format("%08x.......%n", start / 16).replace("\r\n", "\n"));
            System.arraycopy(line, 0, bytes, start, Math.min(16, size - start));
        }
        return bytes;
    }

    /** Bytes no codec can shrink. */
    static byte[] noise(int size, long seed) {
        byte[] bytes = new byte[size];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    /** Small numbers are drawn far more often than large ones, as busy keys are. */
    static int skewed(Random random, int bound) {
        double u = random.nextDouble();
        return (int) (bound * u * u * u);
    }
}
