package kafkalog;

import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.server.util.Scheduler;

/**
 * Keeps Kafka's background work (flushes, deletion of replaced files) until asked, then runs it in order on the
 * caller's thread. Delays are ignored: nobody looks at a directory between "marked" and "deleted".
 * Periodic tasks (expiry of producers) are dropped: no log here lives that long.
 */
public final class DeferredScheduler implements Scheduler {
    private final Queue<Runnable> pending = new ArrayDeque<>();

    public void runPending() {
        for (Runnable task = pending.poll(); task != null; task = pending.poll()) {
            task.run();
        }
    }

    @Override
    public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
        if (periodMs <= 0) {
            pending.add(task);
        }
        return new DoneHandle();
    }

    @Override
    public void startup() { }

    @Override
    public void shutdown() {
        runPending();
    }

    @Override
    public void resizeThreadPool(int newSize) { }
}
