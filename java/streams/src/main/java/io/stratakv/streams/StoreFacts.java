package io.stratakv.streams;

import io.stratakv.Collection;
import io.stratakv.Entry;
import io.stratakv.Scan;
import io.stratakv.ScanOptions;
import io.stratakv.WriteBatch;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.query.Position;

/**
 * What a task's store knows of itself beside its records: the changelog offsets it was committed
 * at, the position of its input, stream time. All of it is written in the batch of the records.
 */
final class StoreFacts {
    private static final byte[] POSITION = fact("position");
    private static final byte[] STREAM_TIME = fact("time");
    /** There while the collection holds a part of what was not committed yet. */
    private static final byte[] PARTIAL = fact("partial");
    private static final String OFFSET = "offset ";

    private final Map<TopicPartition, Long> offsets = new ConcurrentHashMap<>();
    private volatile Position position = Position.emptyPosition();
    private volatile long streamTime = -1;
    private boolean isPartial;

    private static byte[] fact(String name) {
        return RecordKeys.tagged(RecordKeys.FACT, name.getBytes(StandardCharsets.UTF_8));
    }

    private static byte[] offsetKey(TopicPartition partition) {
        return fact(OFFSET + partition.partition() + " " + partition.topic());
    }

    static StoreFacts read(Collection collection) {
        StoreFacts facts = new StoreFacts();
        try (Scan scan = collection.scan(ScanOptions.prefix(new byte[] {RecordKeys.FACT}))) {
            for (Entry entry : scan) {
                facts.take(new String(RecordKeys.untagged(entry.key()), StandardCharsets.UTF_8), entry.record().value());
            }
        }
        return facts;
    }

    private void take(String name, byte[] value) {
        if (name.startsWith(OFFSET)) {
            String[] parts = name.substring(OFFSET.length()).split(" ", 2);
            offsets.put(new TopicPartition(parts[1], Integer.parseInt(parts[0])), ByteBuffer.wrap(value).getLong());
        } else if (name.equals("position")) {
            position = positionOf(value);
        } else if (name.equals("time")) {
            streamTime = ByteBuffer.wrap(value).getLong();
        } else if (name.equals("partial")) {
            isPartial = true;
        }
    }

    Long offset(TopicPartition partition) {
        return offsets.get(partition);
    }

    Position position() {
        return position;
    }

    long streamTime() {
        return streamTime;
    }

    boolean isPartial() {
        return isPartial;
    }

    /** How many facts the collection holds. */
    int count() {
        return offsets.size() + (position.isEmpty() ? 0 : 1) + (streamTime < 0 ? 0 : 1) + (isPartial ? 1 : 0);
    }

    /** Whether a commit at these offsets would write nothing new. */
    boolean isAt(Map<TopicPartition, Long> committed, Position reached, long time) {
        return !isPartial && offsets.equals(committed) && position.equals(reached) && streamTime == time;
    }

    /** Notes that a part of what follows is written before its commit. */
    void beginPart(WriteBatch batch, Collection collection) {
        batch.put(collection, PARTIAL, new byte[0]);
    }

    void begunPart() {
        isPartial = true;
    }

    /** Adds the offsets of a commit to its batch. */
    void write(
            WriteBatch batch, Collection collection, Map<TopicPartition, Long> changed, Position reached, long time) {
        for (TopicPartition partition : offsets.keySet()) {
            if (changed.isEmpty() || (changed.containsKey(partition) && changed.get(partition) == null)) {
                batch.delete(collection, offsetKey(partition));
            }
        }
        changed.forEach((partition, offset) -> {
            if (offset != null) {
                batch.put(collection, offsetKey(partition), number(offset));
            }
        });
        if (!reached.isEmpty()) {
            batch.put(collection, POSITION, bytesOf(reached));
        }
        if (time >= 0) {
            batch.put(collection, STREAM_TIME, number(time));
        }
        if (isPartial) {
            batch.delete(collection, PARTIAL);
        }
    }

    /** The batch was written. */
    void written(Map<TopicPartition, Long> changed, Position reached, long time) {
        if (changed.isEmpty()) {
            offsets.clear();
        }
        changed.forEach((partition, offset) -> {
            if (offset == null) {
                offsets.remove(partition);
            } else {
                offsets.put(partition, offset);
            }
        });
        position = reached.copy();
        streamTime = time;
        isPartial = false;
    }

    private static byte[] number(long number) {
        return ByteBuffer.allocate(Long.BYTES).putLong(number).array();
    }

    private static byte[] bytesOf(Position position) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(bytes)) {
            out.writeInt(position.getTopics().size());
            for (String topic : position.getTopics()) {
                Map<Integer, Long> partitions = position.getPartitionPositions(topic);
                out.writeUTF(topic);
                out.writeInt(partitions.size());
                for (Map.Entry<Integer, Long> partition : partitions.entrySet()) {
                    out.writeInt(partition.getKey());
                    out.writeLong(partition.getValue());
                }
            }
        } catch (IOException impossible) {
            throw new UncheckedIOException(impossible);
        }
        return bytes.toByteArray();
    }

    private static Position positionOf(byte[] value) {
        Position position = Position.emptyPosition();
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(value))) {
            for (int topics = in.readInt(); topics > 0; topics--) {
                String topic = in.readUTF();
                for (int partitions = in.readInt(); partitions > 0; partitions--) {
                    position.withComponent(topic, in.readInt(), in.readLong());
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException("the position in the store has an unknown form: delete the state", error);
        }
        return position;
    }
}
