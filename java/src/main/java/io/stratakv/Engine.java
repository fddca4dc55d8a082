package io.stratakv;

/** How a store keeps its records; fixed when it is made. */
public enum Engine {
    /** For NVMe and cloud volumes; ordered. What a new store has if nothing is said. */
    SLAB,
    /** In persistent memory; ordered in named collections only. */
    HASH,
    /** A tree of tables with its newest part in persistent memory; ordered. */
    MATRIX,
    /** A cache: it acknowledges from memory, and evicts. */
    TIER
}
