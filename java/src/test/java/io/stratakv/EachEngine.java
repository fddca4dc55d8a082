package io.stratakv;

import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.file.Path;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.Parameter;

/** A store of an engine in a temporary directory. */
abstract class EachEngine {
    @Parameter
    Engine engine;

    @TempDir
    Path folder;

    Store store;

    @BeforeEach
    void open() {
        store = Store.open(folder.resolve("data"), options(engine).build());
    }

    @AfterEach
    void close() {
        store.close();
    }

    static Options.Builder options(Engine engine) {
        Options.Builder options =
                Options.builder().engine(engine).durability(Durability.PROCESS_CRASH).memoryBytes(64 << 20);
        return engine == Engine.HASH ? options.regionBytes(16 << 20) : options.shards(2);
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, UTF_8);
    }
}
