package kafkalog;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that moves only when told to, so that every run writes the same bytes. */
public final class ManualClock implements Time {
    public static final long START_MS = 1_700_000_000_000L;

    private long nowMs;

    public ManualClock(long nowMs) {
        this.nowMs = nowMs;
    }

    public void advance(long ms) {
        nowMs += ms;
    }

    @Override
    public long milliseconds() {
        return nowMs;
    }

    @Override
    public long nanoseconds() {
        return nowMs * 1_000_000L;
    }

    @Override
    public void sleep(long ms) {
        advance(ms);
    }

    /** Part of the interface until Kafka 4; so it carries no override mark. */
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("one thread, which never waits");
    }
}
