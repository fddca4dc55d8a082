package io.stratakv.streams;

import org.apache.kafka.streams.DslStoreFormat;

/** What Kafka puts before a value. Stores keep it as it comes; only the restoring differs. */
enum ValueForm {
    /** Nothing. */
    PLAIN,
    /** The timestamp. */
    TIMESTAMPED,
    /** Headers and the timestamp. */
    HEADERS;

    static ValueForm of(DslStoreFormat format) {
        if (format == DslStoreFormat.HEADERS) {
            return HEADERS;
        }
        return format == DslStoreFormat.PLAIN ? PLAIN : TIMESTAMPED;
    }
}
