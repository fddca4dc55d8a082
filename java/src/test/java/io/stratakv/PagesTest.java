package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.util.AbstractMap.SimpleImmutableEntry;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.EnumSource;

/** Records that come and go many by one call: short ones, such as fill a page, and longer ones. */
@ParameterizedClass
@EnumSource(value = Engine.class, names = {"SLAB", "HASH", "MATRIX"})
class PagesTest extends EachEngine {
    private final Random random = new Random(1);

    private byte[] random(int len) {
        byte[] bytes = new byte[len];
        random.nextBytes(bytes);
        return bytes;
    }

    /** Records of all lengths about the room of a page, and many short ones. */
    private TreeMap<byte[], byte[]> records() {
        TreeMap<byte[], byte[]> records = new TreeMap<>(Arrays::compareUnsigned);
        for (int i = 0; i < 3000; i++) {
            records.put(random(1 + random.nextInt(40)), random(random.nextInt(300)));
        }
        for (int len = Scratch.ROOM - 80; len < Scratch.ROOM + 20; len += 7) {
            records.put(random(16), random(len));
        }
        records.put(random(16), random(1 << 20));
        return records;
    }

    @Test
    void whatGoesInByPagesComesOutByThem() {
        TreeMap<byte[], byte[]> records = records();
        Collection paged = store.collection("paged");
        paged.put("gone", "x");
        // More than once, so that no engine has too much to take as one.
        for (Map.Entry<byte[], byte[]> one : records.entrySet()) {
            if (one.getValue().length > 1000) {
                paged.put(one.getKey(), one.getValue());
            }
        }
        try (WriteBatch batch = new WriteBatch()) {
            batch.putAll(paged, records.entrySet().stream().filter(one -> one.getValue().length <= 1000).toList());
            batch.putAll(paged, List.of(new SimpleImmutableEntry<>(bytes("gone"), null)));
            store.write(batch);
        }
        for (ScanOptions options : new ScanOptions[] {ScanOptions.all(), ScanOptions.all().reverse()}) {
            Map<byte[], byte[]> left = new TreeMap<>(records);
            try (Scan scan = paged.scan(options)) {
                for (Entry entry : scan) {
                    assertArrayEquals(left.remove(entry.key()), entry.record().value());
                    assertTrue(entry.record().version() != 0);
                }
            }
            assertTrue(left.isEmpty());
        }
        records.forEach((key, value) -> assertArrayEquals(value, paged.get(key).orElseThrow().value()));
        assertFalse(paged.get("gone").isPresent());
    }

    /** A page that is full, and a change that is longer than one, in one batch and in their order. */
    @Test
    void longChangesKeepTheirPlace() {
        byte[] key = bytes("key");
        byte[] before = random(Scratch.ROOM);
        byte[] after = bytes("after");
        Collection paged = store.collection("paged");
        try (WriteBatch batch = new WriteBatch()) {
            batch.putAll(paged, List.of(Map.entry(key, bytes("first")), Map.entry(key, before), Map.entry(key, after)));
            assertEquals(3, batch.count());
            store.write(batch);
        }
        assertArrayEquals(after, paged.get(key).orElseThrow().value());
    }

    @Test
    void whatBelongsToARecordComesWithIt() {
        Instant expiry = Instant.ofEpochMilli(System.currentTimeMillis() + 3_600_000);
        Collection paged = store.collection("paged");
        paged.put(bytes("a"), bytes("b"), PutOptions.defaults().withFlags(7).withExpiry(expiry));
        Record got = paged.get(bytes("a")).orElseThrow();
        assertEquals(7, got.flags());
        assertEquals(Optional.of(expiry), got.expiry());
        try (Scan scan = paged.scan()) {
            assertEquals(got, scan.next().record());
        }
    }

    /** Records that are in Java already are refused all the same, once a scan is closed. */
    @Test
    void aClosedScanGivesNothingMore() {
        Collection paged = store.collection("paged");
        for (int i = 0; i < 10; i++) {
            paged.put(Integer.toString(i), "x");
        }
        Scan scan = paged.scan();
        scan.next();
        scan.close();
        assertThrows(IllegalStateException.class, scan::next);
        assertThrows(IllegalStateException.class, scan::hasNext);
    }
}
