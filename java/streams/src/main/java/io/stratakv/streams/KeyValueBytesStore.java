package io.stratakv.streams;

import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A store of keys and values. Subclasses tell Kafka in which form values are. */
class KeyValueBytesStore extends PersistentStore implements KeyValueStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(KeyValueBytesStore.class);

    KeyValueBytesStore(String name) {
        super(name);
    }

    private static byte[] keyOf(Bytes key) {
        return RecordKeys.tagged(RecordKeys.DATA, Objects.requireNonNull(key, "key cannot be null").get());
    }

    @Override
    public byte[] get(Bytes key) {
        return state().get(keyOf(key));
    }

    @Override
    public void put(Bytes key, byte[] value) {
        state().put(keyOf(key), value);
        updatePosition();
    }

    @Override
    public byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] before = get(key);
        if (before == null) {
            put(key, value);
        }
        return before;
    }

    @Override
    public void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        for (KeyValue<Bytes, byte[]> entry : entries) {
            put(entry.key, entry.value);
        }
    }

    @Override
    public byte[] delete(Bytes key) {
        byte[] before = get(key);
        put(key, null);
        return before;
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return range(null, null, true);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return range(null, null, false);
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean isForward) {
        if (from != null && to != null && from.compareTo(to) > 0) {
            LOG.warn(
                    "Returning empty iterator for range of {}: its first key is behind its last. The serializer may not "
                            + "keep the order of keys.",
                    name());
            return MappedIterator.empty();
        }
        byte[] first = from == null ? new byte[] {RecordKeys.DATA} : keyOf(from);
        byte[] end = to == null ? new byte[] {RecordKeys.DATA + 1} : RecordKeys.after(keyOf(to));
        return scan(first, end, isForward);
    }

    private KeyValueIterator<Bytes, byte[]> scan(byte[] first, byte[] end, boolean isForward) {
        MergedScan scan = state().scan(first, end, isForward);
        return new MappedIterator<>(scan, key -> Bytes.wrap(RecordKeys.untagged(key)), key -> true);
    }

    @Override
    public <S extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, S serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        byte[] first = RecordKeys.tagged(RecordKeys.DATA, serializer.serialize(null, prefix));
        return scan(first, RecordKeys.behind(first), true);
    }

    @Override
    public long approximateNumEntries() {
        return state().count();
    }

    @Override
    void restore(ConsumerRecord<byte[], byte[]> record) {
        state().load(RecordKeys.tagged(RecordKeys.DATA, record.key()), record.value());
    }
}
