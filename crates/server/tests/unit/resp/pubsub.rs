//! Mailboxes, without connections.

use super::*;
use crate::memory_budget::MemoryBudget;

const HERE: ConnectionAddress = ConnectionAddress { worker_slot: 0, connection: 7 };

fn listen(
    pubsub: &Arc<PubSub>,
    client: u64,
    budget: &Arc<MemoryBudget>,
    names: &[(ListenKind, &str)],
) -> Subscriptions {
    let mut subscriptions = pubsub.enter((client, HERE), Version::Resp2, MemoryPermit::new(budget));
    names.iter().for_each(|(kind, name)| subscriptions.add(*kind, name.as_bytes()));
    subscriptions
}

#[test]
fn a_listener_is_called_once_and_gets_what_it_listens_to() {
    let (calls, budget) = (Arc::<Calls>::default(), MemoryBudget::new(1 << 20));
    let pubsub = PubSub::new(&calls);
    assert_eq!(pubsub.publish(ListenKind::Channel, b"a", b"1"), 0);
    let names = [(ListenKind::Channel, "a"), (ListenKind::Pattern, "a*"), (ListenKind::ShardChannel, "a")];
    let mut subscriptions = listen(&pubsub, 1, &budget, &names);
    assert_eq!(pubsub.counts_of(1), Some([1, 1, 1]));
    assert_eq!(pubsub.publish(ListenKind::Channel, b"a", b"1"), 2);
    assert_eq!(pubsub.publish(ListenKind::ShardChannel, b"a", b"2"), 1);
    assert_eq!(calls.take(0).here, [7], "once");
    assert!(budget.held_bytes() > 0 && subscriptions.has_some());
    assert_eq!(subscriptions.take_if(false), Ok(Vec::new()), "not now");
    let all =
        b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n1\r\n*4\r\n$8\r\npmessage\r\n$2\r\na*\r\n$1\r\na\r\n$1\r\n1\r\n\
        *3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$1\r\n2\r\n";
    assert_eq!(subscriptions.take_if(true).unwrap(), all);
    assert_eq!((budget.held_bytes(), subscriptions.has_some()), (0, false));
    subscriptions.speak(Version::Resp3);
    assert_eq!((subscriptions.count(ListenKind::Channel), subscriptions.count(ListenKind::ShardChannel)), (2, 1));
    subscriptions.remove(ListenKind::Pattern, b"a*");
    assert_eq!(pubsub.publish(ListenKind::Channel, b"a", b"3"), 1);
    assert_eq!(subscriptions.take_if(true).unwrap(), b">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n3\r\n");
    drop(subscriptions);
    assert_eq!((pubsub.publish(ListenKind::Channel, b"a", b"3"), pubsub.counts_of(1)), (0, None));
    assert_eq!(pubsub.channels(ListenKind::Channel, None, 100), Some(Vec::new()));
}

#[test]
fn a_mailbox_is_bounded_and_what_is_in_it_is_counted() {
    let (calls, budget) = (Arc::<Calls>::default(), MemoryBudget::new(256 << 20));
    let pubsub = PubSub::new(&calls);
    let subscriptions = listen(&pubsub, 1, &budget, &[(ListenKind::Channel, "a")]);
    let message = vec![0; 1 << 20];
    for _ in 0..3 {
        pubsub.publish(ListenKind::Channel, b"a", &message);
    }
    let held = budget.held_bytes();
    assert!((3 << 20..=8 << 20).contains(&held), "{held}");
    assert_eq!(calls.take(0).here, [7]);
    pubsub.publish(ListenKind::Channel, b"a", &message);
    pubsub.publish(ListenKind::Channel, b"a", &message);
    assert_eq!(calls.take(0).here, [7], "it is to be closed");
    assert_eq!((subscriptions.take_if(true), budget.held_bytes()), (Err(MailboxOverrun), 0));
    pubsub.publish(ListenKind::Channel, b"a", b"more");
    assert_eq!(budget.held_bytes(), 0, "nothing more is kept for it");
    // One message may be longer than all of that, if there is memory for it.
    let subscriptions = listen(&pubsub, 2, &budget, &[(ListenKind::Channel, "b")]);
    pubsub.publish(ListenKind::Channel, b"b", &vec![0; 5 << 20]);
    assert!(subscriptions.take_if(true).is_ok_and(|messages| messages.len() > 5 << 20));
    let small = MemoryBudget::new(1 << 20);
    let subscriptions = listen(&pubsub, 3, &small, &[(ListenKind::Channel, "c")]);
    pubsub.publish(ListenKind::Channel, b"c", &vec![0; 2 << 20]);
    assert_eq!(subscriptions.take_if(true), Err(MailboxOverrun));
}

/// A message to many takes no more than itself of each: what a permit takes ahead would leave none
/// for those behind.
#[test]
fn a_message_to_many_leaves_room_for_all() {
    let (calls, budget) = (Arc::<Calls>::default(), MemoryBudget::new(4 << 20));
    let pubsub = PubSub::new(&calls);
    let all: Vec<Subscriptions> =
        (0..5000).map(|client| listen(&pubsub, client, &budget, &[(ListenKind::Channel, "a")])).collect();
    assert_eq!(pubsub.publish(ListenKind::Channel, b"a", b"hello"), 5000);
    assert!(all.iter().all(|one| one.take_if(true).is_ok_and(|messages| !messages.is_empty())));
}

#[test]
fn counts_are_written_where_they_belong() {
    let pubsub = PubSub::new(&Arc::default());
    let budget = MemoryBudget::new(1 << 20);
    let _one = listen(&pubsub, 1, &budget, &[(ListenKind::Channel, "a")]);
    let publication = |at, channel: &'static str| Publication {
        at,
        kind: ListenKind::Channel,
        channel: Bytes::from_static(channel.as_bytes()),
        message: Bytes::new(),
    };
    let mut said = b"*4\r\n+OK\r\n".to_vec();
    send_all(&pubsub, &[publication(4, "a"), publication(4, "b"), publication(9, "a")], &mut said);
    assert_eq!(said, b"*4\r\n:1\r\n:0\r\n+OK\r\n:1\r\n");
}
