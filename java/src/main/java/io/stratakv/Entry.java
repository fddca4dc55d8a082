package io.stratakv;

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;

/**
 * A key and its record, of a scan.
 *
 * @param key the key, a copy
 * @param record the record; of a scan of keys only it is empty, its version 0
 */
public record Entry(byte[] key, Record record) {
    /**
     * An entry.
     *
     * @throws NullPointerException an argument is null
     */
    public Entry {
        Objects.requireNonNull(key, "key");
        Objects.requireNonNull(record, "record");
    }

    /**
     * The key as text in UTF-8.
     *
     * @return the text
     */
    public String keyText() {
        return new String(key, StandardCharsets.UTF_8);
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof Entry that && Arrays.equals(key, that.key) && record.equals(that.record);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(key) + record.hashCode();
    }

    @Override
    public String toString() {
        return "Entry[key=" + keyText() + ", record=" + record + "]";
    }
}
