package io.stratakv;

/**
 * An order of keys. It does not compare: it makes of each key its sort key, and records lie in the order of the bytes of those, then of their keys. It must make the same of the same key for ever; what
 * makes something else needs another name. Any thread may call it as long as the store is open. It must not call the store: that is an {@link IllegalStateException}.
 */
@FunctionalInterface
public interface Order {
    /**
     * The sort key of a key: up to 65,535 bytes, together with the key. What it throws comes out of the call that wanted to know.
     *
     * @param key the key, a copy
     * @return its sort key
     */
    byte[] sortKey(byte[] key);
}
