package io.stratakv.streams.cluster;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.test.KafkaClusterTestKit;
import org.apache.kafka.common.test.TestKitNodes;

/** Three brokers in this process, on loopback, and a client for them. */
final class Cluster {
    private static final short COPIES = 3;

    private final KafkaClusterTestKit kit;
    private final Admin admin;
    private final KafkaProducer<String, String> producer;

    private Cluster(KafkaClusterTestKit kit) {
        this.kit = kit;
        Properties properties = new Properties();
        properties.put("bootstrap.servers", brokers());
        this.admin = Admin.create(properties);
        properties.put("acks", "all");
        properties.put("linger.ms", "5");
        this.producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    static Cluster start() throws Exception {
        TestKitNodes nodes = new TestKitNodes.Builder().setNumBrokerNodes(3).setNumControllerNodes(1).build();
        KafkaClusterTestKit kit = new KafkaClusterTestKit.Builder(nodes)
                .setConfigProp("offsets.topic.num.partitions", "2")
                .setConfigProp("transaction.state.log.num.partitions", "2")
                .setConfigProp("transaction.state.log.min.isr", "2")
                // On a machine with much else to do a broker is late, not dead.
                .setConfigProp("broker.session.timeout.ms", "60000")
                .setConfigProp("replica.lag.time.max.ms", "60000")
                .setConfigProp("group.initial.rebalance.delay.ms", "0")
                .setConfigProp("group.min.session.timeout.ms", "1000")
                .build();
        kit.format();
        kit.startup();
        kit.waitForReadyBrokers();
        return new Cluster(kit);
    }

    String brokers() {
        return kit.bootstrapServers();
    }

    void createTopic(String topic, int partitions) throws ExecutionException, InterruptedException {
        admin.createTopics(List.of(new NewTopic(topic, partitions, COPIES))).all().get();
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
        admin.close();
        kit.close();
    }
}
