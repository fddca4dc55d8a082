package io.stratakv.ycsb;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.Vector;
import net.spy.memcached.AddrUtil;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.MemcachedClient;
import site.ycsb.ByteArrayByteIterator;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;

/**
 * A server that speaks memcache, for YCSB, by spymemcached. The fields of a record are one value; an update changes some of them by {@code gets} and {@code cas}, again where somebody else was faster.
 * Scans memcache does not have.
 *
 * <p>Properties: {@code memcache.address}, {@code memcache.protocol} (text or binary).
 */
public final class MemcacheDb extends DB {
    private static final int NEVER = 0;

    private MemcachedClient client;

    /** For YCSB. */
    public MemcacheDb() {}

    @Override
    public void init() throws DBException {
        String address = getProperties().getProperty("memcache.address", "127.0.0.1:11211");
        String protocol = getProperties().getProperty("memcache.protocol", "text");
        ConnectionFactoryBuilder factory = new ConnectionFactoryBuilder()
                .setProtocol(ConnectionFactoryBuilder.Protocol.valueOf(protocol.toUpperCase(java.util.Locale.ROOT)))
                .setOpTimeout(60_000)
                .setDaemon(true);
        try {
            client = new MemcachedClient(factory.build(), AddrUtil.getAddresses(address));
        } catch (IOException error) {
            throw new DBException(error);
        }
    }

    @Override
    public void cleanup() {
        client.shutdown();
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
        return attempt(() -> {
            byte[] value = (byte[]) client.get(key);
            if (value == null) {
                return Status.NOT_FOUND;
            }
            Map<String, byte[]> all = decode(value);
            for (String field : fields == null ? all.keySet() : fields) {
                result.put(field, new ByteArrayByteIterator(all.get(field)));
            }
            return Status.OK;
        });
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
        return attempt(() -> {
            boolean isNew = client.add(key, NEVER, encode(new HashMap<>(), values)).get();
            return isNew ? Status.OK : Status.BAD_REQUEST;
        });
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
        Map<String, ByteIterator> changes = new HashMap<>();
        values.forEach((field, value) -> changes.put(field, new ByteArrayByteIterator(value.toArray())));
        return attempt(() -> {
            while (true) {
                CASValue<Object> before = client.gets(key);
                if (before == null) {
                    return Status.NOT_FOUND;
                }
                byte[] next = encode(decode((byte[]) before.getValue()), changes);
                CASResponse response = client.cas(key, before.getCas(), NEVER, next);
                if (response != CASResponse.EXISTS) {
                    return response == CASResponse.OK ? Status.OK : new Status(response.name(), "cas");
                }
                changes.values().forEach(ByteIterator::reset);
            }
        });
    }

    @Override
    public Status delete(String table, String key) {
        return attempt(() -> client.delete(key).get() ? Status.OK : Status.NOT_FOUND);
    }

    @Override
    public Status scan(
            String table, String first, int count, Set<String> fields, Vector<HashMap<String, ByteIterator>> result) {
        return Status.NOT_IMPLEMENTED;
    }

    private interface Attempt {
        Status run() throws Exception;
    }

    private static Status attempt(Attempt attempt) {
        try {
            return attempt.run();
        } catch (Exception error) {
            error.printStackTrace();
            return Status.ERROR;
        }
    }

    private static byte[] encode(Map<String, byte[]> before, Map<String, ByteIterator> changes) throws IOException {
        Map<String, byte[]> all = new TreeMap<>(before);
        changes.forEach((field, value) -> all.put(field, value.toArray()));
        ByteArrayOutputStream encoded = new ByteArrayOutputStream();
        try (DataOutputStream out = new DataOutputStream(encoded)) {
            for (Map.Entry<String, byte[]> field : all.entrySet()) {
                out.writeUTF(field.getKey());
                out.writeInt(field.getValue().length);
                out.write(field.getValue());
            }
        }
        return encoded.toByteArray();
    }

    private static Map<String, byte[]> decode(byte[] encoded) throws IOException {
        Map<String, byte[]> fields = new HashMap<>();
        try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(encoded))) {
            while (in.available() > 0) {
                String field = in.readUTF();
                fields.put(field, in.readNBytes(in.readInt()));
            }
        }
        return fields;
    }
}
