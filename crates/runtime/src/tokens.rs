//! The table of operations in progress: token → who waits for the reply.

use std::collections::HashSet;

use stratakv_engine::Token;

use crate::slot::Waiter;

#[derive(Default)]
pub(crate) struct Tokens {
    entries: Vec<TokenSlot>,
    free: Vec<u32>,
}

struct TokenSlot {
    generation: u32,
    waiter: Option<Waiter>,
}

impl Tokens {
    /// A new token for `waiter`.
    pub(crate) fn insert(&mut self, waiter: Waiter) -> Token {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.entries.push(TokenSlot { generation: 0, waiter: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[slot as usize];
        entry.waiter = Some(waiter);
        Token { slot, generation: entry.generation }
    }

    /// Ends `token`. `None` if it was not live: the engine broke the rule of one terminal reply.
    pub(crate) fn remove(&mut self, token: Token) -> Option<Waiter> {
        let entry = self.entries.get_mut(token.slot as usize).filter(|e| e.generation == token.generation)?;
        let waiter = entry.waiter.take()?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(token.slot);
        Some(waiter)
    }

    /// Ends every token; who waited for them.
    pub(crate) fn drain(&mut self) -> Vec<Waiter> {
        let live = self.entries.iter_mut().enumerate().filter(|(_, entry)| entry.waiter.is_some());
        let ended = live.filter_map(|(slot, entry)| {
            entry.generation = entry.generation.wrapping_add(1);
            self.free.push(slot as u32);
            entry.waiter.take()
        });
        ended.collect()
    }

    /// Tokens of those who wait and match.
    pub(crate) fn matching(&self, matches: impl Fn(&Waiter) -> bool) -> HashSet<Token> {
        let live = self.entries.iter().enumerate().filter(|(_, entry)| entry.waiter.as_ref().is_some_and(&matches));
        live.map(|(slot, entry)| Token { slot: slot as u32, generation: entry.generation }).collect()
    }

    /// Operations in progress.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }
}
