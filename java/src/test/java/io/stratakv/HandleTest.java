package io.stratakv;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

class HandleTest {
    private final List<Long> freed = new ArrayList<>();

    @Test
    void itIsFreedOnceAndAfterTheLastCall() {
        Handle handle = Handle.shared("thing", null, 7, freed::add);
        Handle.Use first = handle.use();
        Handle.Use second = handle.use();
        handle.run();
        handle.run();
        first.close();
        assertEquals(List.of(), freed);
        assertThrows(IllegalStateException.class, handle::use);
        second.close();
        assertEquals(List.of(7L), freed);
        handle.run();
        assertEquals(List.of(7L), freed);
    }

    @Test
    void aCallOnAChildIsACallOnItsParent() {
        Handle parent = Handle.shared("parent", null, 1, freed::add);
        Handle child = Handle.exclusive("child", parent, 2, freed::add);
        Handle.Use use = child.use();
        parent.run();
        child.run();
        assertEquals(List.of(), freed);
        use.close();
        assertEquals(List.of(2L, 1L), freed);
        IllegalStateException error = assertThrows(IllegalStateException.class, child::use);
        assertEquals("the parent is closed", error.getMessage());
    }

    @Test
    void aRefusedCallLeavesNothingHeld() throws InterruptedException {
        Handle parent = Handle.shared("parent", null, 1, freed::add);
        Handle child = Handle.exclusive("child", parent, 2, freed::add);
        child.run();
        assertThrows(IllegalStateException.class, child::use);
        AtomicReference<Throwable> thrown = new AtomicReference<>();
        Thread other = new Thread(child::use);
        other.setDaemon(true);
        other.setUncaughtExceptionHandler((thread, error) -> thrown.set(error));
        other.start();
        other.join(60_000);
        assertInstanceOf(IllegalStateException.class, thrown.get(), "another thread is refused, and does not wait");
        parent.run();
        assertEquals(List.of(2L, 1L), freed);
    }

    @Test
    void whatIsSpentIsNotFreed() {
        Handle handle = Handle.exclusive("thing", null, 7, freed::add);
        try (Handle.Use use = handle.use()) {
            assertEquals(7, use.address());
            handle.spend();
        }
        handle.run();
        assertEquals(List.of(), freed);
    }

    @Test
    void whatClosingFailedWithIsToldOnce() {
        RuntimeException mine = new RuntimeException("mine");
        Handle handle = Handle.shared("thing", null, 7, address -> {
            throw mine;
        });
        assertSame(mine, assertThrows(RuntimeException.class, handle::closeAndWait));
        handle.closeAndWait();
    }
}
