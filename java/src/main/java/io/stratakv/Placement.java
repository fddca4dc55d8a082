package io.stratakv;

/** Where {@link Engine#SLAB} puts small records; fixed when a store is made. */
public enum Placement {
    /** In their places. What a store has if nothing is said. */
    IN_PLACE,
    /** One behind the other, in segments that are cleaned. */
    PACKED
}
