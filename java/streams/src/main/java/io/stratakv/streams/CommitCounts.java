package io.stratakv.streams;

/** What a store's commits came to, for metrics. The task's thread writes, others read. */
final class CommitCounts {
    private volatile long commits;
    private volatile long bytes;
    private volatile long nanos;
    private volatile long spills;

    void committed(long bytes, long nanos) {
        commits = commits + 1;
        this.bytes = this.bytes + bytes;
        this.nanos = this.nanos + nanos;
    }

    void spilled() {
        spills = spills + 1;
    }

    long commits() {
        return commits;
    }

    long bytes() {
        return bytes;
    }

    long nanos() {
        return nanos;
    }

    long spills() {
        return spills;
    }
}
