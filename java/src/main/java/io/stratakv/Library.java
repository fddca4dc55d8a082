package io.stratakv;

import com.sun.jna.Native;
import com.sun.jna.NativeLibrary;
import java.io.File;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;

/** Finds {@code libstratakv_c.so} and binds {@link Calls} to it, once. */
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
            return NativeLibrary.getInstance(path == null ? searched() : path);
        } catch (UnsatisfiedLinkError cause) {
            String where = path == null ? "java.library.path or where the system looks" : PROPERTY + " (" + path + ")";
            UnsatisfiedLinkError error = new UnsatisfiedLinkError(
                    "libstratakv_c cannot be loaded from " + where + ": build it (cargo build --release -p stratakv-c) and give its path, "
                            + "-D" + PROPERTY + "=/path/to/libstratakv_c.so. " + cause.getMessage());
            error.initCause(cause);
            throw error;
        }
    }

    private static String searched() {
        String file = System.mapLibraryName("stratakv_c");
        for (String folder : System.getProperty("java.library.path", "").split(File.pathSeparator)) {
            Path candidate = Path.of(folder, file);
            if (Files.isRegularFile(candidate)) {
                return candidate.toAbsolutePath().toString();
            }
        }
        return "stratakv_c";
    }
}
