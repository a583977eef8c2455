package judge;

import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.MalformedURLException;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Pattern;
import kafkalog.Json;
import kafkalog.Release;

/**
 * Kafka's dump tool, run in this process. It complains on both standard streams, among much that is no complaint; and
 * it keeps the stream it finds first, so both are replaced once and for all, before it is loaded.
 *
 * The system property judge.dump.classpath names the jars of the tool where it belongs to another release than the
 * rest; then it gets a class loader of its own.
 */
final class DumpTool {
    private static final Pattern NORMAL = Pattern.compile(
        "Dumping .*|Log starting offset: .*|baseOffset: .* isvalid: true|\\| offset: .*|offset: .* position: .*"
        + "|timestamp: .* offset: .*|version: .*|producerId: .*|.* is empty\\.|\\s*");
    private static final Pattern PASSED = Pattern.compile(".* passed sanity check\\.|.* is empty\\.");
    private static final Lines OUT = new Lines();
    private static final Lines ERR = new Lines();
    private static final ClassLoader LOADER = loader();

    private DumpTool() { }

    static void takeStandardStreams() {
        System.setOut(new PrintStream(OUT, false, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, false, StandardCharsets.UTF_8));
    }

    /** Dumps whole segments with all records, then has the indexes checked for sanity alone. */
    static Map<String, Object> dump(List<File> files) throws Exception {
        List<String> complaints = new ArrayList<>();
        long[] lines = {0, 0};
        Consumer<String> out = line -> {
            lines[0]++;
            if (!NORMAL.matcher(line).matches()) {
                complaints.add(line);
            }
        };
        if (!files.isEmpty()) {
            run(out, complaints::add, "--deep-iteration", "--files", paths(files));
        }
        List<File> indexes = files.stream().filter(file -> file.getName().matches("\\d+\\.(time)?index")).toList();
        if (!indexes.isEmpty()) {
            run(line -> {
                if (PASSED.matcher(line).matches()) {
                    lines[1]++;
                } else if (!NORMAL.matcher(line).matches()) {
                    complaints.add(line);
                }
            }, complaints::add, "--index-sanity-check", "--files", paths(indexes));
        }
        return Json.object("files", files.size(), "lines", lines[0], "indexes", indexes.size(),
            "indexes_passed", lines[1], "complaints", complaints);
    }

    private static String paths(List<File> files) {
        return String.join(",", files.stream().map(File::getPath).toList());
    }

    private static void run(Consumer<String> out, Consumer<String> err, String... arguments) throws Exception {
        OUT.to(out);
        ERR.to(err);
        Thread thread = Thread.currentThread();
        ClassLoader before = thread.getContextClassLoader();
        thread.setContextClassLoader(LOADER);
        try {
            LOADER.loadClass(Release.DUMP_TOOL).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException e) {
            err.accept("the dump tool failed: " + e.getCause());
        } finally {
            thread.setContextClassLoader(before);
            System.out.flush();
            System.err.flush();
            OUT.to(line -> { });
            ERR.to(line -> { });
        }
    }

    private static ClassLoader loader() {
        String jars = System.getProperty("judge.dump.classpath", "");
        if (jars.isEmpty()) {
            return DumpTool.class.getClassLoader();
        }
        try {
            List<URL> urls = new ArrayList<>();
            for (String jar : jars.split(File.pathSeparator)) {
                urls.add(new File(jar).toURI().toURL());
            }
            return new URLClassLoader(urls.toArray(new URL[0]), ClassLoader.getPlatformClassLoader());
        } catch (MalformedURLException e) {
            throw new IllegalArgumentException(e);
        }
    }

    /** Hands on whole lines. */
    private static final class Lines extends OutputStream {
        private final ByteArrayOutputStream line = new ByteArrayOutputStream();
        private Consumer<String> consumer = text -> { };

        void to(Consumer<String> next) {
            if (line.size() > 0) {
                end();
            }
            consumer = next;
        }

        @Override
        public synchronized void write(int b) {
            if (b == '\n') {
                end();
            } else {
                line.write(b);
            }
        }

        @Override
        public synchronized void write(byte[] bytes, int start, int size) {
            for (int i = start; i < start + size; i++) {
                write(bytes[i]);
            }
        }

        private void end() {
            consumer.accept(line.toString(StandardCharsets.UTF_8));
            line.reset();
        }
    }
}
