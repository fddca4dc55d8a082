package io.stratakv.streams.cluster;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.LongFunction;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.test.KafkaClusterTestKit;
import org.apache.kafka.common.test.TestKitNodes;

/** Three brokers in this process, or one, on loopback, and a client for them. */
final class Cluster {
    private static final short COPIES = 3;

    private final KafkaClusterTestKit kit;
    private final short copies;
    private final Admin admin;
    private final KafkaProducer<String, String> producer;
    private final KafkaProducer<String, byte[]> bytes;
    private final AtomicReference<Exception> lost = new AtomicReference<>();

    private Cluster(KafkaClusterTestKit kit, short copies) {
        this.kit = kit;
        this.copies = copies;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", brokers());
        this.admin = Admin.create(properties);
        properties.put("acks", "all");
        properties.put("linger.ms", "5");
        this.producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
        this.bytes = new KafkaProducer<>(properties, new StringSerializer(), new ByteArraySerializer());
    }

    static Cluster start() throws Exception {
        return start(COPIES);
    }

    /** A single broker, which keeps one copy of all. */
    static Cluster startOne() throws Exception {
        return start((short) 1);
    }

    private static Cluster start(short brokers) throws Exception {
        TestKitNodes nodes =
                new TestKitNodes.Builder().setNumBrokerNodes(brokers).setNumControllerNodes(1).build();
        KafkaClusterTestKit kit = new KafkaClusterTestKit.Builder(nodes)
                .setConfigProp("offsets.topic.num.partitions", "2")
                .setConfigProp("offsets.topic.replication.factor", "" + brokers)
                .setConfigProp("transaction.state.log.num.partitions", "2")
                .setConfigProp("transaction.state.log.replication.factor", "" + brokers)
                .setConfigProp("transaction.state.log.min.isr", "" + Math.min(2, brokers))
                // On a machine with much else to do a broker is late, not dead.
                .setConfigProp("broker.session.timeout.ms", "60000")
                .setConfigProp("replica.lag.time.max.ms", "60000")
                .setConfigProp("log.segment.delete.delay.ms", "1000")
                .setConfigProp("group.initial.rebalance.delay.ms", "0")
                .setConfigProp("group.min.session.timeout.ms", "1000")
                .build();
        kit.format();
        kit.startup();
        kit.waitForReadyBrokers();
        return new Cluster(kit, brokers);
    }

    String brokers() {
        return kit.bootstrapServers();
    }

    void createTopic(String topic, int partitions) throws ExecutionException, InterruptedException {
        admin.createTopics(List.of(new NewTopic(topic, partitions, copies))).all().get();
    }

    /** A topic of which one broker has all: for much data, as no broker is killed. */
    void createTopicOfOneCopy(String topic, int partitions) throws ExecutionException, InterruptedException {
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
    }

    /** A topic as Kafka Streams makes them for changelogs; one copy, as no broker is killed. */
    void createChangelog(String topic, int partitions) throws ExecutionException, InterruptedException {
        NewTopic changelog = new NewTopic(topic, partitions, (short) 1);
        admin.createTopics(List.of(changelog.configs(Map.of("cleanup.policy", "compact")))).all().get();
    }

    void deleteTopics(List<String> topics) throws ExecutionException, InterruptedException {
        admin.deleteTopics(topics).all().get();
    }

    /** Produces so many records, and waits until the brokers have them. */
    void fill(String topic, long records, LongFunction<String> key, LongFunction<byte[]> value) {
        for (long i = 0; i < records; i++) {
            bytes.send(new ProducerRecord<>(topic, key.apply(i), value.apply(i)), this::noteLost);
        }
        bytes.flush();
        failIfAnyWasLost();
    }

    private void noteLost(RecordMetadata sent, Exception error) {
        if (error != null) {
            lost.compareAndSet(null, error);
        }
    }

    private void failIfAnyWasLost() {
        if (lost.get() != null) {
            throw new IllegalStateException("the brokers did not take a record", lost.get());
        }
    }

    /** Produces so many records without waiting for the brokers. */
    void send(String topic, int records, LongFunction<String> key) {
        for (int i = 0; i < records; i++) {
            producer.send(new ProducerRecord<>(topic, key.apply(i), "x"));
        }
    }

    /** A record for a topic. */
    record Message(String topic, String key, String value) {}

    void produce(List<Message> messages) throws ExecutionException, InterruptedException {
        List<Future<?>> sent = new ArrayList<>();
        for (Message message : messages) {
            sent.add(producer.send(new ProducerRecord<>(message.topic(), message.key(), message.value())));
        }
        for (Future<?> each : sent) {
            each.get();
        }
    }

    /** How many records, and marks of transactions, are committed in each partition. */
    List<Long> committed(String topic) {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            List<TopicPartition> partitions = partitions(consumer, topic);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            return partitions.stream().map(ends::get).toList();
        }
    }

    private KafkaConsumer<String, String> consumer() {
        Map<String, Object> configuration = Map.of(
                "bootstrap.servers", brokers(), "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        return new KafkaConsumer<>(configuration, new StringDeserializer(), new StringDeserializer());
    }

    private static List<TopicPartition> partitions(KafkaConsumer<String, String> consumer, String topic) {
        return consumer.partitionsFor(topic).stream()
                .map(partition -> new TopicPartition(topic, partition.partition()))
                .sorted(Comparator.comparingInt(TopicPartition::partition))
                .toList();
    }

    /** Waits until a topic has so many committed records. */
    void awaitRecords(String topic, int expected, Duration patience) {
        int found = read(topic, expected, patience, 0).size();
        if (found < expected) {
            throw new IllegalStateException(topic + " has " + found + " records of " + expected + " after " + patience);
        }
    }

    /** The committed records of a topic: waits for so many, and then whether there are more. */
    List<ConsumerRecord<String, String>> consume(String topic, int expected, Duration patience) {
        // What came too often would come now.
        return read(topic, expected, patience, 10);
    }

    private List<ConsumerRecord<String, String>> read(String topic, int expected, Duration patience, int morePolls) {
        try (KafkaConsumer<String, String> consumer = consumer()) {
            List<TopicPartition> partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            long end = System.nanoTime() + patience.toNanos();
            while (records.size() < expected && System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
            for (int polls = 0; polls < morePolls; polls++) {
                consumer.poll(Duration.ofMillis(200)).forEach(records::add);
            }
            return records;
        }
    }

    void close() throws Exception {
        producer.close();
        bytes.close();
        admin.close();
        kit.close();
    }
}
