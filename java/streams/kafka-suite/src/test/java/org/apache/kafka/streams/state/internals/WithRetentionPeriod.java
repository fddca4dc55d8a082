package org.apache.kafka.streams.state.internals;

/** Kafka 4.4 asks stores by this interface; Kafka 4.3 does not have it, and our stores name it. */
public interface WithRetentionPeriod {
    /** How long records are kept, in milliseconds. */
    long retentionPeriod();
}
