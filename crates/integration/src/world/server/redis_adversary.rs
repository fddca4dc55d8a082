//! What clients say to the port of Redis clients that speak no protocol as they should.

use stratakv_base::random::Random;

/// Appends a scene about this key.
pub(super) fn scene(key: &str, long: usize, random: &mut Random, out: &mut Vec<u8>) {
    match random.below(12) {
        0 => {
            let mut bytes = vec![0; random.below(3000) as usize];
            random.fill(&mut bytes);
            out.extend(bytes);
        }
        1 => {
            let lengths = ["-1", "-2", "0", "99999999999999999999", "1048577", "536870913", "1000000", "+3", "3 "];
            out.extend(format!("*{}\r\n", lengths[random.below(9) as usize]).bytes());
        }
        2 => {
            let lengths = ["-1", "99999999999999999999", "536870913", "1048577", "1048576"];
            out.extend(format!("*3\r\n$3\r\nSET\r\n${}\r\n", lengths[random.below(5) as usize]).bytes());
            out.resize(out.len() + random.below(5000) as usize, b'x');
        }
        // A line without an end, and blanks and quotes in lines.
        3 => out.resize(out.len() + random.below(100_000) as usize, b'a'),
        4 => out.extend(format!("SET {key} \"a\\x00b\" \r\n  \r\nGET '{key}\r\n").bytes()),
        5 => (0..random.below(3000)).for_each(|_| out.extend(b"PING\r\n")),
        6 => {
            // A long value, asked for more often than anybody reads.
            command(&["SET", key, &"v".repeat(long)], out);
            (0..random.below(60)).for_each(|_| command(&["GET", key], out));
        }
        7 => {
            command(&["RPUSH", key, &"e".repeat(long / 4), "b", "c"], out);
            (0..random.below(40)).for_each(|_| command(&["LRANGE", key, "0", "-1"], out));
            (0..random.below(40)).for_each(|_| command(&["SRANDMEMBER", key, "-1000"], out));
        }
        8 => {
            // A transaction that nobody ends.
            command(&["MULTI"], out);
            (0..random.below(300)).for_each(|_| command(&["APPEND", key, "more"], out));
        }
        9 => {
            command(&["WATCH", key], out);
            (0..random.below(100)).for_each(|_| command(&["INCR", key], out));
            command(&["EXEC"], out);
        }
        10 => {
            let lines =
                ["INFO", "COMMAND", "COMMAND DOCS", "CLIENT LIST", "SCAN 0", "KEYS *", "SKV.RANGE - +", "RESET"];
            let words: Vec<&str> = lines[random.below(8) as usize].split(' ').collect();
            (0..1 + random.below(5)).for_each(|_| command(&words, out));
        }
        _ => mixed(key, random, out),
    }
}

fn command(words: &[&str], out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    words.iter().for_each(|word| out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
}

/// Good commands in a row, some of their bytes changed.
fn mixed(key: &str, random: &mut Random, out: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(12) {
        let commands: [&[&str]; 6] = [
            &["SET", key, "abcde"],
            &["HSET", key, "f", "1"],
            &["ZADD", key, "nan", "m"],
            &["LPUSH", key],
            &["GETRANGE", key, "-9223372036854775808", "9223372036854775807"],
            &["HELLO", "3"],
        ];
        command(commands[random.below(6) as usize], &mut bytes);
    }
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = match random.below(3) {
            0 => 0,
            1 => bytes[at] ^ 1 << random.below(8),
            _ => random.next_u64() as u8,
        };
    }
    out.extend(bytes);
}
