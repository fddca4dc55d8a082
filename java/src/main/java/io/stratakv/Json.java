package io.stratakv;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads the two kinds of JSON that the library gives: an object of whole numbers, an array of strings. */
final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Map<String, Long> numbers(String text) {
        Json json = new Json(text);
        Map<String, Long> numbers = new LinkedHashMap<>();
        json.each('{', '}', () -> {
            String name = json.string();
            json.expect(':');
            numbers.put(name, json.number());
        });
        return numbers;
    }

    static List<String> strings(String text) {
        Json json = new Json(text);
        List<String> strings = new ArrayList<>();
        json.each('[', ']', () -> strings.add(json.string()));
        return strings;
    }

    private void each(char first, char last, Runnable item) {
        expect(first);
        if (!isNext(last)) {
            do {
                item.run();
            } while (isNext(','));
            expect(last);
        }
        skipSpace();
        if (at != text.length()) {
            throw unexpected();
        }
    }

    private long number() {
        skipSpace();
        int start = at;
        while (at < text.length() && "-0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String digits = text.substring(start, at);
        return digits.startsWith("-") ? Long.parseLong(digits) : Long.parseUnsignedLong(digits);
    }

    private String string() {
        expect('"');
        StringBuilder string = new StringBuilder();
        for (char next = take(); next != '"'; next = take()) {
            string.append(next == '\\' ? escaped() : next);
        }
        return string.toString();
    }

    private char escaped() {
        char kind = take();
        return switch (kind) {
            case 'b' -> '\b';
            case 'f' -> '\f';
            case 'n' -> '\n';
            case 'r' -> '\r';
            case 't' -> '\t';
            case 'u' -> (char) Integer.parseInt("" + take() + take() + take() + take(), 16);
            default -> kind;
        };
    }

    private char take() {
        if (at >= text.length()) {
            throw unexpected();
        }
        return text.charAt(at++);
    }

    private boolean isNext(char wanted) {
        skipSpace();
        boolean is = at < text.length() && text.charAt(at) == wanted;
        at += is ? 1 : 0;
        return is;
    }

    private void expect(char wanted) {
        if (!isNext(wanted)) {
            throw unexpected();
        }
    }

    private void skipSpace() {
        while (at < text.length() && Character.isWhitespace(text.charAt(at))) {
            at++;
        }
    }

    private IllegalArgumentException unexpected() {
        return new IllegalArgumentException("JSON of another shape than expected, at character " + at + ": " + text);
    }
}
