package io.stratakv.streams;

import java.util.NoSuchElementException;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/**
 * Records of a scan under the keys that Kafka knows.
 *
 * @param <K> those keys
 */
final class MappedIterator<K> implements KeyValueIterator<K, byte[]> {
    private final MergedScan scan;
    private final Function<byte[], K> keys;
    private final Predicate<byte[]> shows;

    MappedIterator(MergedScan scan, Function<byte[], K> keys, Predicate<byte[]> shows) {
        this.scan = scan;
        this.keys = keys;
        this.shows = shows;
    }

    static <K> KeyValueIterator<K, byte[]> empty() {
        return new KeyValueIterator<>() {
            @Override
            public void close() {
                // There is nothing to close.
            }

            @Override
            public K peekNextKey() {
                throw new NoSuchElementException("the iterator is empty");
            }

            @Override
            public boolean hasNext() {
                return false;
            }

            @Override
            public KeyValue<K, byte[]> next() {
                throw new NoSuchElementException("the iterator is empty");
            }
        };
    }

    @Override
    public boolean hasNext() {
        return peek() != null;
    }

    private MergedScan.Item peek() {
        MergedScan.Item item = scan.peek();
        while (item != null && !shows.test(item.key())) {
            scan.next();
            item = scan.peek();
        }
        return item;
    }

    @Override
    public K peekNextKey() {
        MergedScan.Item item = peek();
        if (item == null) {
            throw new NoSuchElementException("the iterator is at its end");
        }
        return keys.apply(item.key());
    }

    @Override
    public KeyValue<K, byte[]> next() {
        K key = peekNextKey();
        return KeyValue.pair(key, scan.next().value());
    }

    @Override
    public void close() {
        scan.close();
    }
}
