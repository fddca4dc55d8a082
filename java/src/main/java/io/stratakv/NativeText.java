package io.stratakv;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileSystems;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Objects;

/** Strings as C takes them: bytes with a zero behind them. */
final class NativeText {
    private NativeText() {}

    static byte[] of(String text, String what) {
        Objects.requireNonNull(text, what);
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("the " + what + " contains a zero character");
        }
        return ended(text.getBytes(StandardCharsets.UTF_8));
    }

    /** The bytes that the file system knows a path by, whatever characters Java takes them for. */
    static byte[] of(Path path, String what) {
        Objects.requireNonNull(path, what);
        if (path.getFileSystem() != FileSystems.getDefault()) {
            throw new IllegalArgumentException(
                    "the " + what + " " + path + " is not in the machine's file system: a store needs real files");
        }
        String escaped = path.toUri().getRawPath();
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        for (int at = 0; at < escaped.length(); at++) {
            if (escaped.charAt(at) == '%') {
                bytes.write(Integer.parseInt(escaped.substring(at + 1, at + 3), 16));
                at += 2;
            } else {
                bytes.write(escaped.charAt(at));
            }
        }
        return ended(withoutLastSlash(bytes.toByteArray()));
    }

    /** A URI of a folder ends with one. */
    private static byte[] withoutLastSlash(byte[] path) {
        boolean ends = path.length > 1 && path[path.length - 1] == '/';
        return ends ? Arrays.copyOf(path, path.length - 1) : path;
    }

    private static byte[] ended(byte[] bytes) {
        return Arrays.copyOf(bytes, bytes.length + 1);
    }
}
