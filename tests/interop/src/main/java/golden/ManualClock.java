package golden;

import java.util.function.Supplier;
import org.apache.kafka.common.utils.Time;

/** A clock that moves only when told to, so that every run writes the same bytes. */
final class ManualClock implements Time {
    static final long START_MS = 1_700_000_000_000L;

    private long nowMs;

    ManualClock(long nowMs) {
        this.nowMs = nowMs;
    }

    void advance(long ms) {
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

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        throw new UnsupportedOperationException("the golden writer has one thread and never waits");
    }
}
