package io.stratakv;

import java.nio.charset.StandardCharsets;
import java.util.Objects;

/**
 * An element of a list.
 *
 * @param value its value, a copy
 * @param position names it
 */
public record Element(byte[] value, Position position) {
    /**
     * An element.
     *
     * @throws NullPointerException an argument is null
     */
    public Element {
        Objects.requireNonNull(value, "value");
        Objects.requireNonNull(position, "position");
    }

    /**
     * The value as text in UTF-8.
     *
     * @return the text
     */
    public String text() {
        return new String(value, StandardCharsets.UTF_8);
    }
}
