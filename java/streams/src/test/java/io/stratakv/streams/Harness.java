package io.stratakv.streams;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.io.File;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.processor.TaskId;
import org.apache.kafka.streams.processor.api.MockProcessorContext;
import org.apache.kafka.streams.processor.internals.RecordBatchingStateRestoreCallback;
import org.apache.kafka.streams.state.KeyValueIterator;

/** Opens single stores as a task does, without a topology. */
final class Harness {
    static final String APPLICATION = "harness";

    private Harness() {}

    static Properties configuration(boolean isExactlyOnce) {
        Properties configuration = new Properties();
        configuration.put(StreamsConfig.APPLICATION_ID_CONFIG, APPLICATION);
        configuration.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:9092");
        configuration.put(
                StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                isExactlyOnce ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        return configuration;
    }

    /** Opens a store in the directory of a task: {@code folder/harness/0_N}. */
    static <S extends StateStore> S open(S store, File folder, int partition, Properties configuration) {
        File task = new File(new File(folder, APPLICATION), "0_" + partition);
        task.mkdirs();
        MockProcessorContext<?, ?> context =
                new MockProcessorContext<>(configuration, new TaskId(0, partition), task);
        store.init(context.getStateStoreContext(), store);
        return store;
    }

    static <S extends StateStore> S open(S store, File folder) {
        return open(store, folder, 0, configuration(false));
    }

    /** The same, and gives what Kafka would hand the records of a changelog to. */
    static RecordBatchingStateRestoreCallback openToRestore(StateStore store, File folder, Properties configuration) {
        File task = new File(new File(folder, APPLICATION), "0_9");
        task.mkdirs();
        StateStoreContext context =
                new MockProcessorContext<>(configuration, new TaskId(0, 9), task).getStateStoreContext();
        AtomicReference<RecordBatchingStateRestoreCallback> callback = new AtomicReference<>();
        Object registering = Proxy.newProxyInstance(
                Harness.class.getClassLoader(), new Class<?>[] {StateStoreContext.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("register")) {
                        callback.set((RecordBatchingStateRestoreCallback) arguments[1]);
                        return null;
                    }
                    return method.invoke(context, arguments);
                });
        store.init((StateStoreContext) registering, store);
        return callback.get();
    }

    static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes(UTF_8));
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, UTF_8);
    }

    static byte[] value(String text) {
        return text == null ? null : text.getBytes(UTF_8);
    }

    /** All that an iterator gives, in words that can be compared; it is closed. */
    static <K> List<String> listed(KeyValueIterator<K, byte[]> iterator) {
        try (iterator) {
            List<String> listed = new ArrayList<>();
            while (iterator.hasNext()) {
                K peeked = iterator.peekNextKey();
                KeyValue<K, byte[]> next = iterator.next();
                if (!peeked.equals(next.key)) {
                    throw new AssertionError("peeked at " + peeked + ", got " + next.key);
                }
                listed.add(next.key + "=" + text(next.value));
            }
            return listed;
        }
    }

    static ConsumerRecord<byte[], byte[]> changelogRecord(byte[] key, byte[] value, long timestamp) {
        return new ConsumerRecord<>(
                "changelog", 0, 0, timestamp, TimestampType.CREATE_TIME, key.length, value == null ? -1 : value.length, key,
                value, new RecordHeaders(), Optional.empty());
    }
}
