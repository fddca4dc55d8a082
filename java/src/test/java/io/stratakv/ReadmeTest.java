package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.stratakv.example.Example;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ReadmeTest {
    @TempDir
    Path folder;

    @Test
    void whatTheReadmeShowsIsTheExample() throws IOException {
        String readme = Files.readString(Path.of("README.md"));
        String example = Files.readString(Path.of("src/test/java/io/stratakv/example/Example.java"));
        int begin = example.indexOf("        try (Store store");
        String shown = example.substring(begin, example.indexOf("\n        }\n", begin) + "\n        }\n".length());
        assertTrue(readme.contains("```java\n" + shown.indent(-8) + "```"), shown);
    }

    @Test
    void theExampleRuns() {
        PrintStream before = System.out;
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        try {
            System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
            Example.main(new String[] {folder.resolve("data").toString()});
        } finally {
            System.setOut(before);
        }
        assertEquals("Ada\nuser:1 = Ada\nuser:2 = Grace\n", printed.toString(StandardCharsets.UTF_8));
    }
}
