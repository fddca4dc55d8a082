package io.stratakv.example;

import io.stratakv.Entry;
import io.stratakv.Scan;
import io.stratakv.ScanOptions;
import io.stratakv.Store;
import java.nio.file.Path;

/** What java/README.md shows; ReadmeTest compares and runs it. */
public final class Example {
    public static void main(String[] arguments) {
        try (Store store = Store.open(Path.of(arguments[0]))) { // created if absent
            store.put("user:1", "Ada"); // returns when durable
            System.out.println(store.get("user:1").orElseThrow().text());
            store.increment("visits".getBytes(), 1);
            store.transact(transaction -> transaction.put(store, "user:2".getBytes(), "Grace".getBytes()));
            try (Scan scan = store.scan(ScanOptions.prefix("user:".getBytes()))) {
                for (Entry entry : scan) {
                    System.out.println(entry.keyText() + " = " + entry.record().text());
                }
            }
        }
    }
}
