package io.stratakv.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.junit.jupiter.api.Test;

class BenchFiguresTest {
    @Test
    void theTableShowsMediansAndLossesFirst() {
        String table = BenchFigures.table(List.of(
                "gets\tMORE\tStrataKV\t300", "gets\tMORE\tRocksDB\t100", "puts\tMORE\tStrataKV\t50",
                "puts\tMORE\tRocksDB\t100", "puts\tMORE\tStrataKV\t90", "puts\tMORE\tRocksDB\t900",
                "puts\tMORE\tRocksDB\t120", "puts\tMORE\tStrataKV\t60", "done\tx\tStrataKV",
                "restored\tLESS\tStrataKV\t0", "restored\tLESS\tRocksDB\t1000", "alone\tLESS\tStrataKV\t5",
                "pause\tLESS\tStrataKV\t4", "pause\tLESS\tRocksDB\t1"));
        assertEquals(
                """
                | measured | better | StrataKV | RocksDB | ours ÷ RocksDB's |
                |---|---|--:|--:|--:|
                | **pause** | less | 4.00 | 1.00 | **4.00** |
                | **puts** | more | 60.00 | 120 | **0.50** |
                | gets | more | 300 | 100 | 3.00 |
                | restored | less | 0.00 | 1,000 | 0.00 |
                """,
                table);
    }
}
