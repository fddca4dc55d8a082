package io.stratakv;

/** What a name stands for. */
public enum CollectionKind {
    /** A {@link Collection}. */
    KEY_VALUE,
    /** A {@link StoredList}. */
    LIST
}
