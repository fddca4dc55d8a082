package io.stratakv.streams.cluster;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.File;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;

/** An ext4 file system in a file, mounted below a folder: it can really be full. For root. */
public final class SmallDisk implements AutoCloseable {
    private final Path mounted;

    private SmallDisk(Path mounted) {
        this.mounted = mounted;
    }

    /** Mounts a new one. Without root, or without its tools, the test is skipped; in CI it fails. */
    public static SmallDisk mount(File folder, long bytes) throws IOException {
        Path image = folder.toPath().resolve("disk.image");
        Path mounted = Files.createDirectory(folder.toPath().resolve("disk"));
        try (RandomAccessFile file = new RandomAccessFile(image.toFile(), "rw")) {
            file.setLength(bytes);
        }
        String failure = run("mkfs.ext4", "-q", "-F", "-m", "0", image.toString());
        failure = failure == null ? run("mount", "-o", "loop", image.toString(), mounted.toString()) : failure;
        if (failure != null && !"true".equals(System.getenv("CI"))) {
            assumeTrue(false, "skipped: a full disk needs root, mkfs.ext4 and mount: " + failure);
        }
        if (failure != null) {
            throw new IOException(failure + "; with CI=true everything must run");
        }
        return new SmallDisk(mounted);
    }

    public File folder() {
        return mounted.toFile();
    }

    /** Takes all space but so much. */
    public void fill(long leftBytes) throws IOException {
        long free = Files.getFileStore(mounted).getUsableSpace() - leftBytes;
        byte[] block = new byte[1 << 16];
        try (RandomAccessFile filler = new RandomAccessFile(filler().toFile(), "rw")) {
            for (long written = 0; written + block.length <= free; written += block.length) {
                filler.write(block);
            }
        }
    }

    /** Gives the space back. */
    public void empty() throws IOException {
        Files.deleteIfExists(filler());
    }

    private Path filler() {
        return mounted.resolve("filler");
    }

    /** Runs a program; null, or why it failed. */
    private static String run(String... command) {
        try {
            Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
            String said = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).trim();
            return process.waitFor() == 0 ? null : command[0] + ": " + said;
        } catch (IOException error) {
            return error.getMessage();
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
            return "interrupted";
        }
    }

    @Override
    public void close() {
        // A killed process may hold it a moment longer: it is detached then.
        String failure = run("umount", mounted.toString());
        if (failure != null) {
            run("umount", "--lazy", mounted.toString());
        }
    }
}
