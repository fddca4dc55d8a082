package io.stratakv;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.net.URL;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;

/**
 * Finds {@code libstratakv_c.so} and binds {@link Calls} to it, once: in the system property, in
 * {@code java.library.path}, in the jar, or where the system looks.
 */
final class Library {
    private static final String PROPERTY = "stratakv.library";
    private static boolean isBound;

    private Library() {}

    /** Whatever reaches native code without a handle begins with this. */
    static synchronized void bind() {
        if (!isBound) {
            requirePlatform(Native.POINTER_SIZE, ByteOrder.nativeOrder());
            Native.register(Calls.class, find(System.getProperty(PROPERTY)));
            isBound = true;
        }
    }

    static void requirePlatform(int pointerBytes, ByteOrder order) {
        if (pointerBytes != 8 || order != ByteOrder.LITTLE_ENDIAN) {
            throw new UnsatisfiedLinkError(
                    "StrataKV for Java needs a 64-bit, little-endian machine; this one has pointers of " + pointerBytes * 8
                            + " bits and is " + order + ": use a 64-bit Java on x86-64 or aarch64");
        }
    }

    static NativeLibrary find(String path) {
        try {
            if (path != null) {
                return NativeLibrary.getInstance(path);
            }
            Path inFolder = inLibraryPath();
            if (inFolder != null) {
                return NativeLibrary.getInstance(inFolder.toString());
            }
            URL packed = Library.class.getResource(resource());
            return packed == null ? NativeLibrary.getInstance("stratakv_c") : unpacked(packed);
        } catch (UnsatisfiedLinkError cause) {
            String where = path == null
                    ? "java.library.path, this jar (" + resource() + ") or where the system looks"
                    : PROPERTY + " (" + path + ")";
            UnsatisfiedLinkError error = new UnsatisfiedLinkError(
                    "libstratakv_c cannot be loaded from " + where + ": build it (cargo build --release -p stratakv-c) and give its path, "
                            + "-D" + PROPERTY + "=/path/to/libstratakv_c.so. " + cause.getMessage());
            error.initCause(cause);
            throw error;
        }
    }

    /** Where a jar has the library for this machine: {@code /io/stratakv/native/linux-amd64/...}. */
    static String resource() {
        return "/io/stratakv/native/linux-" + System.getProperty("os.arch") + "/" + file();
    }

    private static String file() {
        return System.mapLibraryName("stratakv_c");
    }

    /**
     * Loads the library from a jar: by a file that only this user can read, and that is gone once it
     * is loaded.
     */
    static NativeLibrary unpacked(URL packed) {
        Path folder = null;
        Path file = null;
        try {
            // Its name is new and its rights are 0700: nobody else can put a library there.
            folder = Files.createTempDirectory("stratakv-native");
            file = folder.resolve(file());
            try (InputStream in = packed.openStream()) {
                Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
            }
            return NativeLibrary.getInstance(file.toString());
        } catch (IOException error) {
            UnsatisfiedLinkError unsatisfied = new UnsatisfiedLinkError(
                    "libstratakv_c of the jar cannot be unpacked into " + System.getProperty("java.io.tmpdir")
                            + ": make room there, or name another folder by -Djava.io.tmpdir. " + error.getMessage());
            unsatisfied.initCause(error);
            throw unsatisfied;
        } finally {
            removeQuietly(file);
            removeQuietly(folder);
        }
    }

    /** What is mapped stays mapped; a file that cannot be removed is only litter. */
    private static void removeQuietly(Path path) {
        try {
            if (path != null) {
                Files.deleteIfExists(path);
            }
        } catch (IOException litter) {
            path.toFile().deleteOnExit();
        }
    }

    private static Path inLibraryPath() {
        for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
            Path candidate = Path.of(folder, file());
            if (Files.isRegularFile(candidate)) {
                return candidate.toAbsolutePath();
            }
        }
        return null;
    }
}
