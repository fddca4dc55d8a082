package io.stratakv;

/** When a write is acknowledged. */
public enum Durability {
    /** When it outlives a power cut. What engines have if nothing is said, but for {@link Engine#TIER}. */
    POWER_LOSS,
    /** When it outlives the end of the process. */
    PROCESS_CRASH,
    /** When it is in memory: {@link Engine#TIER} only, which has no other. */
    MEMORY
}
