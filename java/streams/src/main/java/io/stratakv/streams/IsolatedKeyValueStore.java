package io.stratakv.streams;

import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;

/** A store of keys and values whose queries choose between all records and the committed ones. */
class IsolatedKeyValueStore extends KeyValueBytesStore {
    IsolatedKeyValueStore(String name) {
        super(name);
    }

    /** Values begin with a timestamp. */
    static final class Timestamped extends IsolatedKeyValueStore implements TimestampedBytesStore {
        Timestamped(String name) {
            super(name);
        }
    }

    /** Values begin with headers and a timestamp. */
    static final class WithHeaders extends IsolatedKeyValueStore implements HeadersBytesStore {
        WithHeaders(String name) {
            super(name);
        }
    }

    @Override
    public ReadOnlyKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel level) {
        return isCommittedOnly(level) ? view(new IsolatedKeyValueStore(name())) : this;
    }
}
