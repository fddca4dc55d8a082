package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteOrder;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

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
}
