package golden;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** Usage: GoldenWriter OUT_DIR. Writes every case into OUT_DIR, which must be empty or absent. */
public final class GoldenWriter {
    private GoldenWriter() { }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 1) {
            System.err.println("usage: GoldenWriter OUT_DIR");
            System.exit(2);
        }
        Path out = Path.of(arguments[0]).toAbsolutePath();
        Files.createDirectories(out);
        try (Stream<Path> present = Files.list(out)) {
            if (present.findAny().isPresent()) {
                System.err.println(out + " is not empty");
                System.exit(2);
            }
        }
        ReadCases.write(out);
        CleaningCases.write(out);
        TransactionalCleaningCases.write(out);
        System.exit(0); // Kafka's metrics registry keeps threads alive
    }
}
