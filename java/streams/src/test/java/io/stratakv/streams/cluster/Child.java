package io.stratakv.streams.cluster;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;

/** A process with an instance of the application, which tests may kill. */
final class Child implements AutoCloseable {
    private final Process process;
    private final List<String> lines = new CopyOnWriteArrayList<>();
    private final Thread reader;

    private Child(Process process) {
        this.process = process;
        this.reader = new Thread(this::read);
        reader.setDaemon(true);
        reader.start();
    }

    static Child start(Class<?> program, Map<String, String> configuration) throws IOException {
        return start(program, configuration, List.of("-XX:TieredStopAtLevel=1"));
    }

    /** The same with options of Java. */
    static Child start(Class<?> program, Map<String, String> configuration, List<String> options) throws IOException {
        List<String> command = new ArrayList<>(List.of(
                Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-Xmx512m",
                "-XX:+UseSerialGC",
                "-Dstratakv.library=" + System.getProperty("stratakv.library"),
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"));
        command.addAll(options);
        command.addAll(List.of("-cp", classPath(), program.getName()));
        configuration.forEach((name, value) -> command.add(name + "=" + value));
        Files.createDirectories(Path.of("target", "children"));
        return new Child(new ProcessBuilder(command).redirectErrorStream(true).start());
    }

    private static String classPath() throws IOException {
        return "target/classes:target/test-classes:" + Files.readString(Path.of("target/classpath")).trim();
    }

    /** All it says is kept in {@code target/children} too, for whoever looks for a reason. */
    private void read() {
        Path log = Path.of("target", "children", process.pid() + ".log");
        try (BufferedReader reader =
                        new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
                PrintWriter copy = new PrintWriter(Files.newBufferedWriter(log), true)) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                lines.add(line);
                copy.println(line);
            }
        } catch (IOException ended) {
            lines.add("the output ended: " + ended);
        }
    }

    List<String> lines() {
        return List.copyOf(lines);
    }

    boolean hasSaid(String line) {
        return lines.contains(line);
    }

    boolean hasSaidWords(String words) {
        return lines.stream().anyMatch(line -> line.contains(words));
    }

    /** Waits until something holds. The child must live on. */
    void await(String what, Duration patience, BooleanSupplier holds) throws InterruptedException {
        long end = System.nanoTime() + patience.toNanos();
        while (!holds.getAsBoolean()) {
            if (System.nanoTime() >= end) {
                throw new IllegalStateException("waited in vain for " + what + ": " + lines());
            }
            if (!process.isAlive()) {
                throw new IllegalStateException("the application ended before " + what + ": " + lines());
            }
            Thread.sleep(20);
        }
    }

    /** A figure that it told as {@code FIGURE name value}, the latest. */
    double figure(String name) {
        String start = "FIGURE " + name + " ";
        return lines.stream()
                .filter(line -> line.startsWith(start))
                .mapToDouble(line -> Double.parseDouble(line.substring(start.length())))
                .reduce((earlier, later) -> later)
                .orElseThrow(() -> new IllegalStateException("it told no " + name + ": " + lines()));
    }

    void awaitRunning() throws InterruptedException {
        await("RUNNING", Feed.PATIENCE, () -> hasSaid("RUNNING"));
    }

    /** As {@code kill -9}: no code of the process runs any more. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** As {@code kill}: the application closes in order. */
    void end() throws InterruptedException {
        // Not by the process itself, which would no longer read what it says.
        process.toHandle().destroy();
        process.waitFor();
        reader.join();
    }

    @Override
    public void close() {
        process.destroyForcibly();
    }
}
