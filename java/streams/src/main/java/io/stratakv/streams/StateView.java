package io.stratakv.streams;

import org.apache.kafka.streams.query.Position;

/**
 * The records of one task's store, as a store of Kafka's sees them: all of them, or only the
 * committed ones. {@link TaskState} makes both; the committed ones cannot be written.
 */
interface StateView {
    /** A record's value; null if there is none. */
    byte[] get(byte[] key);

    /** Records of keys from one up to another; null is no bound. To be closed. */
    MergedScan scan(byte[] from, byte[] to, boolean isForward);

    /** How many records there are, more or less. */
    long count();

    /** How far the input was read. */
    Position position();

    /** The latest time of a record that was put; -1 if none was. */
    long streamTime();

    /** Moves stream time on. */
    void observe(long time);

    /** Buffers a write of the task; a null value deletes. */
    void put(byte[] key, byte[] value);

    /** Buffers a record of the changelog, which {@link #get} sees at once. */
    void restore(byte[] key, byte[] value);

    /** As {@link #restore}, but nobody may ask for it before all is there that Kafka restores at once. */
    void load(byte[] key, byte[] value);

    /** Deletes a record that nobody may ask for any more; as much restoring as it was before. */
    void drop(byte[] key);

    /** Drops a range of keys with the next commit. Readers must not look there any more. */
    void dropRange(byte[] from, byte[] to);
}
