package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Parameter;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Null for every argument of every public method. */
class ArgumentsTest {
    @TempDir
    Path folder;

    private final Map<Class<?>, Object> samples = new LinkedHashMap<>();

    private void fill(Store store) {
        Collection collection = store.collection("c");
        StoredList list = store.list("l");
        list.push(End.BACK, new byte[1]);
        Position position = list.position(0).orElseThrow();
        Record record = new Record(new byte[1], 0, 1, Optional.empty());
        Function<Optional<Record>, Next> keep = before -> Next.keep();
        Store.Steps<RuntimeException> steps = transaction -> {};
        Store.Work<String, RuntimeException> work = transaction -> "";
        Order order = key -> key;
        List<Object> all = List.of(
                store, list, position, record, Next.put(new byte[1]), Options.builder(), Options.defaults(), order,
                PutOptions.defaults(), Expect.any(), ScanOptions.all(), End.FRONT, Engine.SLAB, Durability.POWER_LOSS,
                Placement.PACKED, IoBackend.AUTO, new byte[1], "text", folder.resolve("nothing"), Instant.MAX,
                store.transaction(), new WriteBatch(), new Entry(new byte[1], record),
                new Element(new byte[1], position), collection.scan(), list.elements());
        all.forEach(sample -> samples.put(sample.getClass(), sample));
        samples.put(Collection.class, collection);
        samples.put(Path.class, folder.resolve("nothing"));
        samples.put(Function.class, keep);
        samples.put(Store.Steps.class, steps);
        samples.put(Store.Work.class, work);
        samples.put(Order.class, order);
        samples.put(List.class, List.of(new byte[1]));
        samples.put(Iterable.class, List.of(Map.entry(new byte[1], new byte[1])));
        samples.put(Optional.class, Optional.empty());
        samples.put(int.class, 1);
        samples.put(long.class, 1L);
        samples.put(boolean.class, true);
    }

    private Object sample(Class<?> type) {
        Object sample = samples.get(type);
        assertTrue(sample != null, () -> "the test needs a sample of " + type);
        return sample;
    }

    @Test
    void nullIsRefusedByTheNameOfTheArgument() throws Exception {
        try (Store store = Store.open(folder.resolve("data"), EachEngine.options(Engine.SLAB).build())) {
            fill(store);
            int tried = 0;
            for (Class<?> type : List.of(
                    Store.class, Collection.class, StoredList.class, WriteBatch.class, Transaction.class,
                    Options.Builder.class, PutOptions.class, ScanOptions.class, Next.class, Expect.class, Record.class,
                    Entry.class, Element.class, Scan.class, Elements.class)) {
                List<Executable> executables = new ArrayList<>(List.of(type.getConstructors()));
                executables.addAll(List.of(type.getDeclaredMethods()));
                for (Executable executable : executables) {
                    tried += tryNulls(type, executable);
                }
            }
            assertTrue(tried > 80, "tried only " + tried);
        }
    }

    private int tryNulls(Class<?> type, Executable executable) {
        int tried = 0;
        Parameter[] parameters = executable.getParameters();
        boolean isOurs = Modifier.isPublic(executable.getModifiers()) && !executable.isSynthetic()
                && !executable.getName().equals("equals");
        for (int i = 0; isOurs && i < parameters.length; i++) {
            if (!parameters[i].getType().isPrimitive()) {
                Object[] arguments = new Object[parameters.length];
                for (int j = 0; j < arguments.length; j++) {
                    arguments[j] = j == i ? null : sample(parameters[j].getType());
                }
                InvocationTargetException thrown = assertThrows(
                        InvocationTargetException.class, () -> invoke(type, executable, arguments),
                        () -> executable + " took null");
                assertEquals(NullPointerException.class, thrown.getCause().getClass(), executable::toString);
                assertEquals(parameters[i].getName(), thrown.getCause().getMessage(), executable::toString);
                tried++;
            }
        }
        return tried;
    }

    private Object invoke(Class<?> type, Executable executable, Object[] arguments)
            throws ReflectiveOperationException {
        return executable instanceof Method method
                ? method.invoke(Modifier.isStatic(method.getModifiers()) ? null : sample(type), arguments)
                : ((java.lang.reflect.Constructor<?>) executable).newInstance(arguments);
    }
}
