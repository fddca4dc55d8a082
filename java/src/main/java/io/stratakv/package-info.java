/**
 * StrataKV: a persistent key-value store for NVMe, cloud volumes, persistent memory and DRAM.
 *
 * <p>{@link io.stratakv.Store#open(java.nio.file.Path) Store.open} opens one; a {@link io.stratakv.Store} is a {@link io.stratakv.Collection} of records by itself, and has others by name. The native
 * library, {@code libstratakv_c.so}, is taken from the path in the system property {@code stratakv.library}, else from {@code java.library.path}, else from where the system looks. It
 * needs a 64-bit, little-endian machine.
 *
 * <p><b>Threads.</b> Stores, collections and lists may be used by any number of threads at once. A scan, snapshot, batch, transaction or walk serves one thread at a time: others wait.
 *
 * <p><b>Closing.</b> Everything that is {@link java.lang.AutoCloseable} is freed by {@code close()}, and at some time after it became unreachable if that was forgotten. Afterwards, and once its store
 * is closed, its methods throw {@link java.lang.IllegalStateException}; so they do where another thread closes it meanwhile. {@code close()} may be called again, and does nothing then.
 *
 * <p><b>Arguments.</b> Null is a {@link java.lang.NullPointerException} that names the argument. Keys have 1 to 65,535 bytes, values up to 64 MiB; they are copied. Other bad arguments, and all that goes wrong
 * in the store, are a {@link io.stratakv.StrataKvException}.
 *
 * <p>{@code Record} and {@code Collection} are names of Java's own too: import them by name, not by {@code io.stratakv.*}.
 */
package io.stratakv;
