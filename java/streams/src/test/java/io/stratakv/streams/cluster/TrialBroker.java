package io.stratakv.streams.cluster;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * One broker on loopback for trying out {@link io.stratakv.streams.example.WordCount}. Each line of
 * its input goes to the topic `lines`, each committed record of `counts` to its output. Its data
 * lies in a temporary folder, and goes when it ends.
 */
public final class TrialBroker {
    private TrialBroker() {}

    /** Runs until its input ends. Takes no arguments. */
    public static void main(String[] arguments) throws Exception {
        Cluster broker = Cluster.startOne();
        broker.createTopic("lines", 2);
        broker.createTopic("counts", 2);
        System.out.println("broker: " + broker.brokers());
        System.out.println("Each line that you type goes to the topic `lines`; what comes to `counts` is shown.");
        System.out.println("The end of the input (Ctrl-D) ends the broker and drops its data.");
        Thread shower = new Thread(() -> show(broker.brokers()));
        shower.setDaemon(true);
        shower.start();
        send(broker);
        broker.close();
        // Threads of the broker may go on.
        System.exit(0);
    }

    private static void send(Cluster broker) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (!line.isBlank()) {
                broker.produce(List.of(new Cluster.Message("lines", null, line)));
            }
        }
    }

    private static void show(String brokers) {
        Map<String, Object> configuration = Map.of(
                "bootstrap.servers", brokers, "group.id", "shower", "isolation.level", "read_committed",
                "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, Long> consumer =
                new KafkaConsumer<>(configuration, new StringDeserializer(), new LongDeserializer())) {
            consumer.subscribe(List.of("counts"));
            while (true) {
                consumer.poll(Duration.ofMillis(200))
                        .forEach(record -> System.out.println(record.key() + " " + record.value()));
            }
        }
    }
}
