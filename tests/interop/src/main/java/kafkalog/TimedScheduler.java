package kafkalog;

import java.util.PriorityQueue;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.server.util.Scheduler;

/**
 * Runs Kafka's background work when the clock has come to it, in the order of due times, on the caller's thread; what
 * need not wait runs at once. Periodic tasks (expiry of producers) are dropped, as in {@link DeferredScheduler}.
 */
public final class TimedScheduler implements Scheduler {
    private final ManualClock clock;
    private final PriorityQueue<Task> pending = new PriorityQueue<>();
    private long scheduled = 0;

    public TimedScheduler(ManualClock clock) {
        this.clock = clock;
    }

    /** Runs what is due, and what that schedules in turn. */
    public void runDue() {
        while (!pending.isEmpty() && pending.peek().dueMs <= clock.milliseconds()) {
            pending.poll().work.run();
        }
    }

    /** Forgets what is pending, as a process does that is killed. */
    public void drop() {
        pending.clear();
    }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs <= 0 && delayMs <= 0) {
            task.run();
        } else if (periodMs <= 0) {
            pending.add(new Task(clock.milliseconds() + delayMs, scheduled++, task));
        }
        return new DoneHandle();
    }

    @Override
    public void startup() { }

    @Override
    public void shutdown() {
        drop();
    }

    @Override
    public void resizeThreadPool(int newSize) { }

    private record Task(long dueMs, long number, Runnable work) implements Comparable<Task> {
        @Override
        public int compareTo(Task other) {
            return dueMs != other.dueMs ? Long.compare(dueMs, other.dueMs) : Long.compare(number, other.number);
        }
    }
}
