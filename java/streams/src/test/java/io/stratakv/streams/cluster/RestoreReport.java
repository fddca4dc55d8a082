package io.stratakv.streams.cluster;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.processor.StateRestoreListener;

/** Prints from which offset each store is restored, and how many records that took. */
final class RestoreReport implements StateRestoreListener {
    @Override
    public void onRestoreStart(TopicPartition partition, String store, long from, long to) {
        System.out.println("RESTORE " + store + " " + partition.partition() + " from " + from + " to " + to);
    }

    @Override
    public void onBatchRestored(TopicPartition partition, String store, long end, long count) {
        // The sum comes at the end.
    }

    @Override
    public void onRestoreEnd(TopicPartition partition, String store, long restored) {
        System.out.println("RESTORED " + store + " " + partition.partition() + " records " + restored);
    }
}
