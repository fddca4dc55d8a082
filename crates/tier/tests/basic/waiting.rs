//! What a tick costs while many wait: as much as can go on, however many there are.

use super::*;

/// Whether a read, and what becomes of reads that were under way.
fn is_read(request: &DiskRequest) -> bool {
    matches!(request, DiskRequest::Read { .. })
}

impl Driver {
    /// What stayed under way and is chosen ends.
    fn let_through(&mut self, choose: fn(&DiskRequest) -> bool) {
        let (chosen, others): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.under_way).into_iter().partition(|(_, request)| choose(request));
        self.under_way = others;
        for (io, request) in chosen {
            let outcome = self.request(request);
            self.effects.begin(self.now);
            self.shard.as_mut().expect("it is open").complete(io, outcome, &mut self.effects);
        }
        self.tick();
    }
}

/// Each write that had read its item and found no room was tried in every tick.
#[test]
fn of_writes_that_find_no_room_a_tick_tries_the_first() {
    const WRITES: usize = 100;
    let mut driver = Driver::new(config());
    for number in 0..4000 {
        assert!(matches!(driver.put(number, 3000), Reply::Done { .. }));
    }
    driver.run_until_idle();
    // Their items are on the disk, and what is read of it comes later.
    driver.stays_under_way = |_| true;
    for number in 0..WRITES {
        let update = Update::Append(vec![b'x'; 2000].into());
        driver.submit(Operation::Update { key: key(number), update, level: Level::Memory });
    }
    assert!(driver.effects.replies.is_empty(), "one is in memory");
    // Memory is filled meanwhile, and nothing leaves it.
    let mut held = 0;
    while held == 0 {
        driver.submit(put_of(10_000 + driver.next as usize, 60_000, Expiry::NEVER));
        driver.tick();
        held = usize::from(driver.effects.replies.is_empty());
        driver.effects.replies.clear();
    }
    driver.stays_under_way = |request| !is_read(request);
    driver.let_through(is_read);
    (0..100).for_each(|_| driver.tick());
    let waiting = WRITES + held - driver.effects.replies.len();
    assert!(waiting > WRITES / 2, "{waiting} wait for room");
    let before = driver.statistic("suspended_steps");
    (0..100).for_each(|_| driver.tick());
    let steps = driver.statistic("suspended_steps") - before;
    assert!(steps <= 2 * 100, "{steps} steps in 100 ticks, and nothing could go on");
    driver.stays_under_way = |_| false;
    driver.let_through(|_| true);
    driver.run_until_idle();
    assert_eq!(driver.effects.replies.len(), WRITES + held, "not everybody is answered");
    assert!(driver.effects.replies.iter().all(|(_, reply)| !matches!(reply, Reply::Failed(_))));
    driver.sound();
}
