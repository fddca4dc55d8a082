package io.stratakv.streams.cluster;

import io.stratakv.streams.MemoryLimit;
import io.stratakv.streams.StrataKvStores;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashSet;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.HdrHistogram.Histogram;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * The application that is measured: the same on StrataKV's and on RocksDB's stores. It counts keys,
 * or counts them by seconds and sums the last seconds of each key once a second. At its orderly end
 * it tells its figures, and when it is up what was restored.
 */
public final class BenchApplication {
    static final String STATE = "state";
    static final String INPUT = "input";
    static final String OUTPUT = "output";
    static final int VALUE_BYTES = 32;
    private static final long SECOND_MS = 1000;
    private static final long SUMMED_MS = 10 * SECOND_MS;

    private BenchApplication() {}

    /** Arguments: {@code name=value} of the configuration, `bench.store` and `bench.shape`. */
    public static void main(String[] arguments) {
        MemoryLimit.enter();
        Map<String, String> given = Instance.given(arguments);
        Properties properties = Instance.properties();
        properties.putAll(given);
        String application = given.get("application.id");
        boolean isOurs = given.get("bench.store").equals("StrataKV");
        Figures figures = new Figures();
        Topology topology = given.get("bench.shape").equals("windows")
                ? windows(application, isOurs, figures)
                : counts(application, isOurs);
        KafkaStreams streams = new KafkaStreams(topology, properties);
        Restored restored = new Restored();
        streams.setGlobalStateRestoreListener(restored);
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                restored.tell();
            }
            System.out.println(now);
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(60));
            figures.tell();
        }));
        streams.start();
    }

    private static void tell(String name, double value) {
        System.out.println("FIGURE " + name + " " + value);
    }

    private static Topology counts(String application, boolean isOurs) {
        return topology(application)
                .addProcessor("counting", Counting::new, "source")
                .addStateStore(
                        Stores.keyValueStoreBuilder(
                                isOurs ? StrataKvStores.keyValue(STATE) : Stores.persistentKeyValueStore(STATE),
                                Serdes.String(), Serdes.ByteArray()),
                        "counting")
                .addSink("sink", CountAndJoin.topic(application, OUTPUT), "counting");
    }

    private static Topology windows(String application, boolean isOurs, Figures figures) {
        Duration kept = Duration.ofMinutes(10);
        Duration window = Duration.ofMillis(SECOND_MS);
        return topology(application)
                .addProcessor("summing", () -> new Summing(figures), "source")
                .addStateStore(
                        Stores.windowStoreBuilder(
                                isOurs
                                        ? StrataKvStores.window(STATE, kept, window, false)
                                        : Stores.persistentWindowStore(STATE, kept, window, false),
                                Serdes.String(), Serdes.Long()),
                        "summing")
                .addSink("sink", CountAndJoin.topic(application, OUTPUT), "summing");
    }

    private static Topology topology(String application) {
        return new Topology().addSource("source", CountAndJoin.topic(application, INPUT));
    }

    /** A count: a number, and bytes behind it, as aggregates have them. */
    static byte[] value(long count) {
        return ByteBuffer.allocate(VALUE_BYTES).putLong(count).array();
    }

    private static final class Counting implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, byte[]> store;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            this.store = context.getStateStore(STATE);
        }

        @Override
        public void process(Record<String, String> record) {
            byte[] before = store.get(record.key());
            long count = before == null ? 1 : ByteBuffer.wrap(before).getLong() + 1;
            store.put(record.key(), value(count));
            context.forward(record.withValue("" + count));
        }
    }

    private static final class Summing implements Processor<String, String, String, String> {
        private final Figures figures;
        private final Set<String> touched = new HashSet<>();
        private ProcessorContext<String, String> context;
        private WindowStore<String, Long> store;

        Summing(Figures figures) {
            this.figures = figures;
        }

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            this.store = context.getStateStore(STATE);
            context.schedule(Duration.ofMillis(SECOND_MS), PunctuationType.WALL_CLOCK_TIME, this::sum);
        }

        @Override
        public void process(Record<String, String> record) {
            long begun = System.nanoTime();
            long window = record.timestamp() / SECOND_MS * SECOND_MS;
            Long before = store.fetch(record.key(), window);
            store.put(record.key(), before == null ? 1 : before + 1, window);
            touched.add(record.key());
            figures.processed(System.nanoTime() - begun, System.currentTimeMillis() - record.timestamp());
        }

        private void sum(long now) {
            long begun = System.nanoTime();
            for (String key : touched) {
                long sum = 0;
                try (WindowStoreIterator<Long> windows = store.fetch(key, now - SUMMED_MS, now)) {
                    while (windows.hasNext()) {
                        sum += windows.next().value;
                    }
                }
                context.forward(new Record<>(key, "" + sum, now));
            }
            touched.clear();
            figures.punctuated(System.nanoTime() - begun);
        }
    }

    /** What processing took. The one thread of the application calls it, and its end. */
    private static final class Figures {
        /** Java compiles, caches fill: not counted. */
        private static final int WARM_SECONDS = 10;

        private final Histogram processNanos = new Histogram(3);
        private final Histogram lagMs = new Histogram(3);
        private final Histogram punctuationMicros = new Histogram(3);
        private long firstNanos;
        private long second;
        private long inSecond;
        private long fewest = Long.MAX_VALUE;
        private long processed;
        private double cpuAtStart;

        private boolean isWarm() {
            return firstNanos != 0 && System.nanoTime() - firstNanos > WARM_SECONDS * 1_000_000_000L;
        }

        synchronized void processed(long nanos, long lag) {
            if (firstNanos == 0) {
                firstNanos = System.nanoTime();
            }
            if (!isWarm()) {
                return;
            }
            if (processed == 0) {
                cpuAtStart = cpuSeconds();
            }
            processNanos.recordValue(nanos);
            lagMs.recordValue(Math.max(0, lag));
            processed++;
            long now = (System.nanoTime() - firstNanos) / 1_000_000_000L;
            if (now != second) {
                // The first second is not whole; those without a record are counted as well.
                boolean isWhole = second > WARM_SECONDS;
                fewest = isWhole ? Math.min(fewest, now > second + 1 ? 0 : inSecond) : fewest;
                second = now;
                inSecond = 0;
            }
            inSecond++;
        }

        synchronized void punctuated(long nanos) {
            if (isWarm()) {
                punctuationMicros.recordValue(nanos / 1000);
            }
        }

        private static double cpuSeconds() {
            return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean())
                    .getProcessCpuTime() / 1e9;
        }

        synchronized void tell() {
            if (processed > 0) {
                BenchApplication.tell("process-p99-us", processNanos.getValueAtPercentile(99) / 1e3);
                BenchApplication.tell("lag-p50-ms", lagMs.getValueAtPercentile(50));
                BenchApplication.tell("lag-p99-ms", lagMs.getValueAtPercentile(99));
                BenchApplication.tell("lag-max-ms", lagMs.getMaxValue());
                BenchApplication.tell("punctuation-p99-ms", punctuationMicros.getValueAtPercentile(99) / 1e3);
                BenchApplication.tell("worst-second", fewest);
                BenchApplication.tell("cpu-us", (cpuSeconds() - cpuAtStart) * 1e6 / processed);
            }
            BenchApplication.tell("peak-mib", memoryMib("VmHWM:"));
            BenchApplication.tell("anonymous-mib", memoryMib("RssAnon:"));
            System.out.flush();
        }

        private static double memoryMib(String name) {
            try {
                return Files.readAllLines(Path.of("/proc/self/status")).stream()
                        .filter(line -> line.startsWith(name))
                        .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
                        .sum() / 1024.0;
            } catch (IOException error) {
                return Double.NaN;
            }
        }
    }

    /** From the first record that is restored to the last. */
    private static final class Restored implements StateRestoreListener {
        private long begunNanos;
        private long endedNanos;
        private long records;

        @Override
        public synchronized void onRestoreStart(TopicPartition partition, String store, long from, long to) {
            begunNanos = begunNanos == 0 ? System.nanoTime() : begunNanos;
        }

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
            // The sum comes at the end.
        }

        @Override
        public synchronized void onRestoreEnd(TopicPartition partition, String store, long restored) {
            endedNanos = System.nanoTime();
            records += restored;
        }

        synchronized void tell() {
            BenchApplication.tell("restored-records", records);
            BenchApplication.tell("restore-seconds", (endedNanos - begunNanos) / 1e9);
        }
    }
}
