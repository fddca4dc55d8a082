//! The log of slow commands, without connections.

use super::super::arguments::Gathered;
use super::*;

fn words(arguments: &[&[u8]]) -> CommandWords {
    let mut gathered = Gathered::default();
    arguments.iter().for_each(|argument| gathered.push(argument));
    CommandWords::of(&Arguments::new(&gathered, b"", &[]))
}

fn entry(words: CommandWords) -> SlowEntry {
    SlowEntry { at: Wall(5_000), took: Duration::from_micros(7), words, address: "a:1".into(), name: "me".into() }
}

#[test]
fn arguments_are_cut_as_redis_cuts_them() {
    let long = [b'A'; 129];
    let cut = [&[b'A'; 128][..], b"... (1 more bytes)"].concat();
    assert_eq!(words(&[b"set", &long, &[b'B'; 128]]).0, [b"set".to_vec(), cut, vec![b'B'; 128]]);
    let many: Vec<&[u8]> = vec![b"x"; 33];
    let cut = words(&many).0;
    assert_eq!((cut.len(), &cut[31][..]), (32, &b"... (2 more arguments)"[..]));
    assert_eq!(words(&many[..32]).0, vec![b"x".to_vec(); 32]);
}

#[test]
fn the_newest_are_told_and_no_more_than_there_is_room_for() {
    let log = SlowCommands::from(Some(Duration::from_micros(10)));
    assert!(log.is_on() && log.is_slow(Duration::from_micros(10)) && !log.is_slow(Duration::from_micros(9)));
    log.set_entries_max(2);
    (0..3).for_each(|number| log.add(entry(words(&[format!("c{number}").as_bytes()]))));
    let told = |entries| {
        let mut out = Vec::new();
        log.write(entries, &mut out);
        String::from_utf8(out).unwrap()
    };
    let second = "*6\r\n:2\r\n:5\r\n:7\r\n*1\r\n$2\r\nc2\r\n$3\r\na:1\r\n$2\r\nme\r\n";
    assert_eq!(told(1), format!("*1\r\n{second}"));
    assert!(told(9).starts_with(&format!("*2\r\n{second}*6\r\n:1\r\n")), "{}", told(9));
    assert!(log.reply_bytes() as usize > told(9).len());
    log.clear();
    assert_eq!((log.len(), log.reply_bytes(), told(9)), (0, 0, "*0\r\n".into()));
    log.set_entries_max(i64::MAX);
    let long = [b'A'; 128];
    for _ in 0..1000 {
        log.add(entry(words(&[&long[..]; 32])));
    }
    assert!(log.len() < 60 && lock(&log.log).bytes <= LOG_BYTES_MAX, "{}", log.len());
    log.set_entries_max(0);
    log.add(entry(words(&[b"c"])));
    assert_eq!((log.len(), lock(&log.log).bytes), (0, 0));
    log.set_slow_from_us(-1);
    assert!(!log.is_on() && !log.is_slow(Duration::MAX));
}

#[test]
fn a_command_takes_time_from_the_end_of_the_one_before() {
    let mut timed = TimedCommands::default();
    let (first, second, third) = (words(&[b"1"]), words(&[b"2"]), words(&[b"3"]));
    timed.begin(u32::MAX, Mono(1_000), first.clone());
    timed.begin(0, Mono(1_000), second.clone());
    // The second one has two places; the third one has none.
    timed.begin(2, Mono(1_000), third.clone());
    timed.begin(2, Mono(1_000), words(&[b"4"]));
    assert!(timed.held_bytes() > 0);
    assert_eq!(timed.take_ended(u32::MAX, false, Mono(5_000)), None);
    assert_eq!(timed.take_ended(0, false, Mono(6_000)), Some((Duration::from_micros(5), first)));
    assert_eq!(timed.take_ended(1, false, Mono(7_000)), None, "its second answer is missing");
    assert_eq!(timed.take_ended(2, false, Mono(8_000)), Some((Duration::from_micros(2), second)));
    assert_eq!(timed.take_ended(2, false, Mono(8_000)), Some((Duration::ZERO, third)));
    assert_eq!(timed.take_ended(2, false, Mono(9_000)), None);
    assert!(timed.take_ended(3, true, Mono(9_000)).is_some() && timed.is_empty() && timed.held_bytes() == 0);
}
