package io.stratakv.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.streams.example.WordCount;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The page shows the example as it is, and the example counts. */
class PageTest {
    @TempDir
    File folder;

    @Test
    void thePageShowsTheExample() throws IOException {
        String page = Files.readString(Path.of("../../docs/streams.md"));
        String example = Files.readString(Path.of("src/test/java/io/stratakv/streams/example/WordCount.java"));
        String shown = example.substring(example.indexOf("    /** Runs until"), example.lastIndexOf("}")).indent(-4);
        assertTrue(page.contains("```java\n" + shown.stripTrailing() + "\n```"), shown);
    }

    @Test
    void theExampleCounts() {
        Properties properties = WordCount.properties("none:9092", folder.getPath());
        try (TopologyTestDriver driver = new TopologyTestDriver(WordCount.topology(), properties)) {
            driver.createInputTopic("lines", new StringSerializer(), new StringSerializer())
                    .pipeInput("to be or not to be");
            Map<String, Long> counts = driver.createOutputTopic(
                    "counts", new StringDeserializer(), new LongDeserializer()).readKeyValuesToMap();
            assertEquals(Map.of("to", 2L, "be", 2L, "or", 1L, "not", 1L), counts);
        }
        assertTrue(new File(folder, "word-count/stratakv").isDirectory(), "the state is in StrataKV");
        assertEquals(StreamsConfig.EXACTLY_ONCE_V2, properties.get(StreamsConfig.PROCESSING_GUARANTEE_CONFIG));
    }
}
