//! Queues of waiting clients, without connections.

use stratakv_base::CollectionId;
use stratakv_base::random::Random;

use super::*;

const HERE: ConnectionAddress = ConnectionAddress { worker_slot: 0, connection: 0 };

fn key(name: &str) -> Key {
    Key::new(CollectionId(0), name.as_bytes()).unwrap()
}

fn table() -> (Arc<WaitTable>, Arc<Calls>) {
    let calls = Arc::<Calls>::default();
    (WaitTable::new(&calls), calls)
}

fn address(connection: u32) -> ConnectionAddress {
    ConnectionAddress { connection, ..HERE }
}

fn enter(table: &Arc<WaitTable>, client: u64, names: &[&str]) -> Waiter {
    let keys: Vec<Key> = names.iter().map(|name| key(name)).collect();
    table.enter((client, address(client as u32)), WaitKind::List, &keys)
}

#[test]
fn who_came_first_looks_first_and_calls_the_next_when_it_leaves() {
    let (table, calls) = table();
    let (first, second) = (enter(&table, 1, &["a"]), enter(&table, 2, &["a"]));
    assert_eq!((first.take_call(), second.take_call()), (Called::Look(vec![0]), Called::No));
    assert_eq!(first.take_call(), Called::No, "there was nothing");
    table.call(&key("b"));
    assert!(!calls.has_some(), "nobody waits there");
    table.call(&key("a"));
    assert_eq!(calls.take(0).here, [1]);
    assert_eq!((second.take_call(), first.take_call()), (Called::No, Called::Look(vec![0])));
    drop(first);
    assert_eq!((calls.take(0).here, second.take_call()), (vec![2], Called::Look(vec![0])));
    assert_eq!((table.len(), table.is_waiting(1), table.is_waiting(2)), (1, false, true));
    drop(second);
    assert_eq!((table.len(), lock(&table.state).queues.len()), (0, 0));
}

#[test]
fn a_call_that_comes_while_one_looks_is_not_lost() {
    let (table, calls) = table();
    let waiter = enter(&table, 1, &["a"]);
    assert_eq!(waiter.take_call(), Called::Look(vec![0]));
    table.call(&key("a"));
    assert!(!calls.has_some(), "it asks itself when it has looked");
    assert_eq!(waiter.take_call(), Called::Look(vec![0]));
    assert_eq!(waiter.take_call(), Called::No);
}

#[test]
fn one_that_leaves_uncalled_calls_nobody() {
    let (table, calls) = table();
    let (first, second) = (enter(&table, 1, &["a"]), enter(&table, 2, &["a"]));
    let _ = (first.take_call(), first.take_call(), second.take_call());
    drop(first);
    assert!(!calls.has_some(), "the first knew that there is nothing");
    table.call(&key("a"));
    assert_eq!(second.take_call(), Called::Look(vec![0]));
}

#[test]
fn lists_and_sorted_sets_have_queues_of_their_own() {
    let (table, _) = table();
    let list = enter(&table, 1, &["a"]);
    let set = table.enter((2, address(2)), WaitKind::SortedSet, &[key("a")]);
    let _ = (list.take_call(), list.take_call());
    assert_eq!((set.take_call(), set.take_call()), (Called::Look(vec![0]), Called::No));
    table.call(&key("a"));
    assert_eq!((list.take_call(), set.take_call()), (Called::Look(vec![0]), Called::Look(vec![0])));
}

#[test]
fn a_wait_is_ended_once() {
    let (table, calls) = table();
    let waiter = enter(&table, 7, &["a", "b"]);
    assert!(!table.unblock(8, Unblock::Timeout) && table.unblock(7, Unblock::Error));
    assert!(!table.unblock(7, Unblock::Timeout));
    assert_eq!((calls.take(0).here, waiter.take_call()), (vec![7], Called::Unblocked(Unblock::Error)));
}

/// Clients come, look, take and go in any order: each element is taken by who waits longest at its
/// key and has been told, and nobody waits where there is one.
#[test]
fn no_element_stays_where_a_client_waits() {
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (table, calls) = table();
        let names = ["a", "b", "c"];
        let mut elements = [0u32; 3];
        let mut waiting: Vec<(u64, Vec<usize>, Waiter)> = Vec::new();
        for client in 1..200 {
            match random.below(4) {
                0 | 1 => {
                    let mut at: Vec<usize> = (0..3).filter(|_| random.below(2) == 0).collect();
                    at.extend(at.is_empty().then_some(0));
                    let keys: Vec<&str> = at.iter().map(|at| names[*at]).collect();
                    let waiter = enter(&table, client, &keys);
                    calls.add(address(client as u32));
                    waiting.push((client, at, waiter));
                }
                2 => {
                    let at = random.below(3) as usize;
                    elements[at] += 1 + random.below(2) as u32;
                    table.call(&key(names[at]));
                }
                _ if !waiting.is_empty() => {
                    let gone = random.below(waiting.len() as u64) as usize;
                    waiting.remove(gone);
                }
                _ => {}
            }
            let mut due = calls.take(0).here;
            while let Some(called) = due.pop() {
                let Some(place) = waiting.iter().position(|(client, ..)| *client == u64::from(called)) else {
                    continue;
                };
                while let Called::Look(keys) = waiting[place].2.take_call() {
                    let at = keys.iter().map(|number| waiting[place].1[*number]).find(|at| elements[*at] > 0);
                    if let Some(at) = at {
                        let earlier = waiting[..place].iter().any(|(_, keys, _)| keys.contains(&at));
                        assert!(!earlier, "seed {seed}: {called} takes from {at} before another");
                        elements[at] -= 1;
                        waiting.remove(place);
                        break;
                    }
                }
                due.extend(calls.take(0).here);
            }
            for (client, keys, _) in &waiting {
                assert!(
                    keys.iter().all(|at| elements[*at] == 0),
                    "seed {seed}: {client} waits at {keys:?}: {elements:?}"
                );
            }
        }
    }
}
