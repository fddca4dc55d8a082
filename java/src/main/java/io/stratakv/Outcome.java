package io.stratakv;

import com.sun.jna.Pointer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Optional;

/** What calls come to: statuses, messages, records. */
final class Outcome {
    static final int OK = 0;
    static final int ABSENT = 1;
    static final int UNMET = 2;
    private static final int ERROR = 16;

    /** Words of a {@code stratakv_record}, and where in it what lies. */
    static final int RECORD_WORDS = 6;
    private static final int VALUE = 0;
    private static final int VALUE_LEN = 1;
    private static final int VERSION = 2;
    private static final int EXPIRY_MS = 3;
    private static final int FLAGS = 4;
    private static final int OWNER = 5;

    private Outcome() {}

    /** The status, unless it is an error: that is thrown, as is what an order threw meanwhile. */
    static int check(int status, long[] message) {
        String text = message[0] == 0 ? "" : takeText(message[0]);
        Throwable thrown = Callbacks.takeThrown();
        if (thrown != null) {
            throw Callbacks.rethrow(thrown);
        }
        if (status >= ERROR || status < 0) {
            throw failure(status, text);
        }
        return status;
    }

    private static StrataKvException failure(int status, String text) {
        for (StrataKvException.Kind kind : StrataKvException.Kind.values()) {
            if (kind.status == status) {
                return new StrataKvException(kind, text);
            }
        }
        String name = text(Calls.stratakv_status_name(status));
        return new StrataKvException(
                StrataKvException.Kind.INTERNAL,
                "libstratakv_c answered with status " + status + " (" + name + "), which this version does not know: " + text);
    }

    static boolean isOk(int status, long[] message) {
        return check(status, message) == OK;
    }

    /** A text that native code has made for us. */
    static String takeText(long address) {
        try {
            return text(address);
        } finally {
            Calls.stratakv_message_free(address);
        }
    }

    /** A text of native code. */
    static String text(long address) {
        return new Pointer(address).getString(0, StandardCharsets.UTF_8.name());
    }

    static byte[] bytes(long address, long len) {
        return len == 0 ? new byte[0] : new Pointer(address).getByteArray(0, Math.toIntExact(len));
    }

    /** A record, which is freed; empty if there is none. Throws if the call failed. */
    static Optional<Record> takeRecord(int status, long[] record, long[] message) {
        try {
            check(status, message);
            return record(record, 0);
        } finally {
            free(record, 0);
        }
    }

    /** The same, where a value may lie in the room. */
    static Optional<Record> takeRecord(int status, Scratch scratch) {
        long[] record = scratch.takeRecord();
        try {
            if (check(status, scratch.takeMessage()) == ABSENT) {
                return Optional.empty();
            }
            int at = scratch.placeOf(record[VALUE]);
            if (at < 0) {
                return record(record, 0);
            }
            byte[] value = scratch.get(at, (int) record[VALUE_LEN]);
            return Optional.of(new Record(value, (int) record[FLAGS], record[VERSION], Times.expiry(record[EXPIRY_MS])));
        } finally {
            free(record, 0);
        }
    }

    /** The same, of several in a row. */
    static Optional<Record> takeRecord(long[] records, int at) {
        try {
            return record(records, at);
        } finally {
            free(records, at);
        }
    }

    /** Lets go what native code holds for a record. */
    static void free(long[] records, int at) {
        if (records[at + OWNER] != 0) {
            long[] one = new long[RECORD_WORDS];
            System.arraycopy(records, at, one, 0, RECORD_WORDS);
            records[at + OWNER] = 0;
            Calls.stratakv_record_free(one);
        }
    }

    /** A record that belongs to somebody else. */
    static Optional<Record> record(long[] words, int at) {
        if (words[at + VALUE] == 0) {
            return Optional.empty();
        }
        byte[] value = bytes(words[at + VALUE], words[at + VALUE_LEN]);
        Optional<Instant> expiry = Times.expiry(words[at + EXPIRY_MS]);
        return Optional.of(new Record(value, (int) words[at + FLAGS], words[at + VERSION], expiry));
    }

    /** A record that native code shows for a moment; null stands for none. */
    static Optional<Record> record(Pointer record) {
        return record == null ? Optional.empty() : record(record.getLongArray(0, RECORD_WORDS), 0);
    }

    /** A value alone. */
    static Optional<byte[]> takeValue(int status, long[] record, long[] message) {
        return takeRecord(status, record, message).map(Record::value);
    }
}
