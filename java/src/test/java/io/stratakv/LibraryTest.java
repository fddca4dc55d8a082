package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.jna.NativeLibrary;
import java.io.IOException;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class LibraryTest {
    @Test
    void otherMachinesAreRefusedInWords() {
        Library.requirePlatform(8, ByteOrder.LITTLE_ENDIAN);
        Error narrow = assertThrows(
                UnsatisfiedLinkError.class, () -> Library.requirePlatform(4, ByteOrder.LITTLE_ENDIAN));
        assertTrue(narrow.getMessage().contains("32 bits"), narrow.getMessage());
        Error big = assertThrows(UnsatisfiedLinkError.class, () -> Library.requirePlatform(8, ByteOrder.BIG_ENDIAN));
        assertTrue(big.getMessage().contains("BIG_ENDIAN"), big.getMessage());
    }

    @Test
    void aMissingLibrarySaysWhatToDo() {
        Error error = assertThrows(UnsatisfiedLinkError.class, () -> Library.find("/no/such/libstratakv_c.so"));
        assertTrue(error.getMessage().contains("cargo build --release -p stratakv-c"), error.getMessage());
        assertTrue(error.getMessage().contains("/no/such/libstratakv_c.so"), error.getMessage());
    }

    @Test
    void theLibraryPathOfJavaIsSearched() {
        String given = System.getProperty("stratakv.library");
        String before = System.getProperty("java.library.path");
        try {
            String folder = Path.of(given).getParent().toString();
            System.setProperty("java.library.path", "/no/such/folder:" + folder);
            assertEquals(Path.of(given).toAbsolutePath().normalize(), Library.find(null).getFile().toPath().normalize());
        } finally {
            System.setProperty("java.library.path", before);
        }
    }

    @Test
    void theLibraryOfAJarIsUnpackedAndLeavesNothing(@TempDir Path temporary) throws IOException {
        Path usual = Path.of(System.getProperty("java.io.tmpdir"));
        long foldersBefore = unpackedFolders(usual);
        Path given = Path.of(System.getProperty("stratakv.library"));
        NativeLibrary loaded = Library.unpacked(given.toUri().toURL());
        assertTrue(loaded.getFunction("stratakv_version") != null, "it is the library");
        assertEquals(foldersBefore, unpackedFolders(usual), "what was unpacked is removed");
        Error error = assertThrows(
                UnsatisfiedLinkError.class, () -> Library.unpacked(temporary.resolve("absent.so").toUri().toURL()));
        assertTrue(error.getMessage().contains("-Djava.io.tmpdir"), error.getMessage());
        String resource = Library.resource();
        assertTrue(resource.matches("/io/stratakv/native/linux-\\w+/libstratakv_c.so"), resource);
    }

    private static long unpackedFolders(Path temporary) throws IOException {
        try (Stream<Path> files = Files.list(temporary)) {
            return files.filter(file -> file.getFileName().toString().startsWith("stratakv-native")).count();
        }
    }
}
