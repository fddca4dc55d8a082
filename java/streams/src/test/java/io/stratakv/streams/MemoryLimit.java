package io.stratakv.streams;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * A control group whose memory is limited, as containers' is: the page cache counts too. Without
 * {@code streams.container} there is none.
 */
public final class MemoryLimit {
    /** The property with the group's directory. */
    public static final String CONTAINER = "streams.container";

    private MemoryLimit() {}

    /** This process belongs to the group from now on: what it has taken already does not count. */
    public static void enter() {
        join("");
    }

    /** This process does not belong to it any more. */
    public static void leave() {
        join("..");
    }

    private static void join(String where) {
        String group = System.getProperty(CONTAINER);
        if (group == null) {
            return;
        }
        try {
            Files.writeString(Path.of(group, where, "cgroup.procs"), "" + ProcessHandle.current().pid());
        } catch (IOException error) {
            throw new UncheckedIOException("cannot join the control group " + group, error);
        }
    }
}
