package io.stratakv;

/** The ends of a list. */
public enum End {
    /** Its first element. */
    FRONT(0),
    /** Its last element. */
    BACK(1);

    final int code;

    End(int code) {
        this.code = code;
    }
}
