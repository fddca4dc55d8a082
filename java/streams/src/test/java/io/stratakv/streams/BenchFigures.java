package io.stratakv.streams;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/**
 * What the benchmarks measured, in a file, and the table of it. A phase that was measured is not
 * measured again: after an interruption the rest follows. Whoever begins anew deletes the folder.
 */
public final class BenchFigures {
    private static final Path FOLDER = Path.of("target", "streams-bench");
    private static final Path FILE = FOLDER.resolve("figures.tsv");
    private static final Path TABLE = FOLDER.resolve("table.md");
    private static final String DONE = "done";
    private static final String OURS = "StrataKV";
    private static final String THEIRS = "RocksDB";

    /** Which figures are better. */
    public enum Better {
        /** Rates. */
        MORE,
        /** Times, memory. */
        LESS
    }

    /** Measures something, and notes its figures. */
    public interface Phase {
        /** Runs the phase once. */
        void run(Notes notes) throws Exception;
    }

    /** The figures of one phase. */
    public static final class Notes {
        private final String store;
        private final List<String> lines = new ArrayList<>();

        private Notes(String store) {
            this.store = store;
        }

        /** Notes a figure, and says it. */
        public void add(String what, Better better, double value) {
            lines.add(String.join("\t", what, better.name(), store, Double.toString(value)));
            System.out.printf(Locale.ROOT, "bench: %s, %s: %,.2f%n", what, store, value);
        }
    }

    private BenchFigures() {}

    /** Measures a phase of one store, unless an interrupted run has done so; writes the table anew. */
    public static void measure(String name, String store, Phase phase) throws Exception {
        String done = String.join("\t", DONE, name, store);
        Files.createDirectories(FOLDER);
        if (Files.exists(FILE) && Files.readAllLines(FILE).contains(done)) {
            System.out.println("bench: " + name + ", " + store + ": measured before");
            return;
        }
        Notes notes = new Notes(store);
        phase.run(notes);
        notes.lines.add(done);
        Files.write(FILE, notes.lines, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        Files.writeString(TABLE, table(Files.readAllLines(FILE)));
    }

    private record Row(String what, Better better, double ours, double theirs) {
        double ratio() {
            return ours / theirs;
        }

        /** Below 1: we lose. */
        double advantage() {
            if (ours == theirs) {
                return 1;
            }
            return better == Better.MORE ? ours / theirs : theirs / ours;
        }

        String markdown() {
            String ratio = Double.isFinite(ratio()) ? String.format(Locale.ROOT, "%.2f", ratio()) : "-";
            String line = advantage() < 1 ? "| **%s** | %s | %s | %s | **%s** |" : "| %s | %s | %s | %s | %s |";
            return String.format(Locale.ROOT, line, what, better.name().toLowerCase(Locale.ROOT), number(ours),
                    number(theirs), ratio);
        }

        private static String number(double value) {
            return String.format(Locale.ROOT, Math.abs(value) < 100 ? "%.2f" : "%,.0f", value);
        }
    }

    /** Medians, and where we lose first, the worst at the top. */
    static String table(List<String> lines) {
        Map<String, Map<String, List<Double>>> values = new LinkedHashMap<>();
        Map<String, Better> better = new LinkedHashMap<>();
        for (String line : lines) {
            String[] parts = line.split("\t");
            if (!parts[0].equals(DONE)) {
                better.put(parts[0], Better.valueOf(parts[1]));
                values.computeIfAbsent(parts[0], what -> new LinkedHashMap<>())
                        .computeIfAbsent(parts[2], store -> new ArrayList<>())
                        .add(Double.valueOf(parts[3]));
            }
        }
        StringBuilder table = new StringBuilder("| measured | better | StrataKV | RocksDB | ours ÷ RocksDB's |\n");
        table.append("|---|---|--:|--:|--:|\n");
        values.entrySet().stream()
                .filter(row -> row.getValue().containsKey(OURS) && row.getValue().containsKey(THEIRS))
                .map(row -> new Row(
                        row.getKey(), better.get(row.getKey()), median(row.getValue().get(OURS)),
                        median(row.getValue().get(THEIRS))))
                .sorted(Comparator.comparingDouble(Row::advantage))
                .forEach(row -> table.append(row.markdown()).append('\n'));
        return table.toString();
    }

    private static double median(List<Double> values) {
        return values.stream().sorted().toList().get(values.size() / 2);
    }
}
