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
import javax.tools.ToolProvider;
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

    /** The program of docs/java.md, as a user copies it: compiled, and run in a process of its own. */
    @Test
    void theProgramOfThePageRuns() throws IOException, InterruptedException {
        String page = Files.readString(Path.of("../docs/java.md"));
        Path source = folder.resolve("Main.java");
        Files.writeString(source, block(page, "java"));
        String classes = System.getProperty("java.class.path");
        String[] options = {"-d", folder.toString(), "-cp", classes, source.toString()};
        assertEquals(0, ToolProvider.getSystemJavaCompiler().run(null, null, null, options));
        String library = "-Dstratakv.library=" + Path.of(System.getProperty("stratakv.library")).toAbsolutePath();
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        Process program = new ProcessBuilder(java, library, "-cp", folder + ":" + classes, "Main")
                .directory(folder.toFile())
                .redirectErrorStream(true)
                .start();
        String printed = new String(program.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertEquals(0, program.waitFor(), printed);
        assertEquals(block(page, "text"), printed);
    }

    private static String block(String page, String language) {
        String begin = "```" + language + "\n";
        int at = page.indexOf(begin) + begin.length();
        return page.substring(at, page.indexOf("```", at));
    }
}
