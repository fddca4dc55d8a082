//! What operations do to registers, and what they then answer.

use std::collections::HashMap;

use bytes::Bytes;
use smallvec::SmallVec;
use stratakv_base::decimal;
use stratakv_engine::{Expect, Unmet, Update};

/// A value by number: equal values have equal numbers.
pub(super) type ValueId = u32;

/// No record.
pub(super) const ABSENT: ValueId = 0;

/// As the value of a change: none, only the condition counts.
pub(super) const KEPT: ValueId = ValueId::MAX;

/// What a key holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Register {
    pub(super) value: ValueId,
    /// 0: not known.
    pub(super) version: u64,
    /// The highest version the key is known to have had.
    pub(super) highest: u64,
}

/// The registers of a component.
pub(super) type Registers = SmallVec<[Register; 1]>;

/// What a call does; keys by their number in the component.
#[derive(Clone, Debug)]
pub(super) enum Action<'h> {
    Get(usize),
    Write(SmallVec<[(usize, Expect, ValueId); 1]>),
    Update(usize, &'h Update),
}

/// What it answered. Versions of 0 are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Unknown,
    /// `existed: None`: it is not told.
    Done {
        version: u64,
        existed: Option<bool>,
    },
    Record(Option<(ValueId, u64)>),
    Number {
        number: u64,
        version: u64,
    },
    Unmet(Unmet),
}

/// The values of a component.
#[derive(Clone, Debug)]
pub(super) struct Values {
    numbers: HashMap<Bytes, ValueId>,
    values: Vec<Bytes>,
}

impl Values {
    pub(super) fn new() -> Values {
        Values { numbers: HashMap::new(), values: vec![Bytes::new()] }
    }

    pub(super) fn number(&mut self, value: Bytes) -> ValueId {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.values.push(value.clone());
            self.values.len() as ValueId - 1
        })
    }

    pub(super) fn get(&self, number: ValueId) -> &Bytes {
        self.values.get(number as usize).unwrap_or(&self.values[0])
    }
}

impl Register {
    /// Whether the record may have this version; if its version was not known, it is now.
    fn learn(&mut self, version: u64) -> bool {
        if version == 0 || self.version == version {
            return true;
        }
        if self.version != 0 || version <= self.highest {
            return false;
        }
        (self.version, self.highest) = (version, version);
        true
    }

    /// Writes; false if the version does not grow.
    fn write(&mut self, value: ValueId, version: u64) -> bool {
        if version != 0 && version <= self.highest {
            return false;
        }
        let highest = self.highest.max(version);
        *self = Register { value, version: if value == ABSENT { 0 } else { version }, highest };
        true
    }

    fn exists(&self) -> bool {
        self.value != ABSENT
    }

    /// Whether a condition holds, learning the version it names.
    fn meets(&mut self, expect: Expect) -> bool {
        match expect {
            Expect::Any => true,
            Expect::Absent => !self.exists(),
            Expect::Present => self.exists(),
            Expect::Version(version) => self.exists() && self.learn(version),
        }
    }

    /// Whether a condition fails in the way answered, learning the version answered.
    fn fails(&mut self, expect: Expect, unmet: Unmet) -> bool {
        match (expect, unmet) {
            (Expect::Present | Expect::Version(_), Unmet::Absent) => !self.exists(),
            (Expect::Absent, Unmet::Present { version }) => self.exists() && self.learn(version),
            (Expect::Version(expected), Unmet::Version { found }) => {
                self.exists() && expected != found && self.learn(found)
            }
            _ => false,
        }
    }
}

/// The registers after a call with this answer; `None` if it cannot have had it, or, where no
/// answer is known, would have changed nothing.
pub(super) fn step(
    action: &Action<'_>,
    answer: Answer,
    registers: &Registers,
    values: &mut Values,
) -> Option<Registers> {
    let mut after = registers.clone();
    match action {
        Action::Get(key) => {
            let register = after.get_mut(*key)?;
            let right = match answer {
                Answer::Record(None) => !register.exists(),
                Answer::Record(Some((value, version))) => register.value == value && register.learn(version),
                _ => false,
            };
            right.then_some(after)
        }
        Action::Write(changes) => match answer {
            Answer::Unmet(unmet) => {
                let mut fails = changes.iter().filter_map(|(key, expect, _)| {
                    let mut register = *registers.get(*key)?;
                    register.fails(*expect, unmet).then_some((*key, register))
                });
                let (key, register) = fails.next()?;
                // With several conditions it is not said which of them failed.
                if changes.len() == 1 {
                    *after.get_mut(key)? = register;
                }
                Some(after)
            }
            Answer::Done { version, existed } => write(changes, Some((version, existed)), after),
            Answer::Unknown => write(changes, None, after),
            Answer::Record(_) | Answer::Number { .. } => None,
        },
        Action::Update(key, change) => {
            let register = after.get_mut(*key)?;
            update(change, answer, register, values)?;
            Some(after)
        }
    }
}

fn write(
    changes: &[(usize, Expect, ValueId)],
    done: Option<(u64, Option<bool>)>,
    mut registers: Registers,
) -> Option<Registers> {
    for (key, expect, _) in changes {
        if !registers.get_mut(*key)?.meets(*expect) {
            return None;
        }
    }
    let last = changes.iter().rposition(|(.., value)| *value != KEPT);
    if last.is_none() && done.is_some_and(|done| done.0 != 0 || done.1 == Some(true)) {
        return None;
    }
    for (at, (key, _, value)) in changes.iter().enumerate().filter(|(_, (.., value))| *value != KEPT) {
        let register = registers.get_mut(*key)?;
        // The answer speaks of the last change.
        let (version, existed) = done.filter(|_| Some(at) == last).unwrap_or((0, None));
        if existed.is_some_and(|existed| existed != register.exists()) {
            return None;
        }
        let changed = register.exists() || *value != ABSENT;
        if changed && !register.write(*value, version) {
            return None;
        }
    }
    Some(registers)
}

fn update(change: &Update, answer: Answer, register: &mut Register, values: &mut Values) -> Option<()> {
    if !register.exists() {
        let absent = match change {
            Update::Touch(_) => Answer::Record(None),
            _ => Answer::Unmet(Unmet::Absent),
        };
        return (answer == absent).then_some(());
    }
    let old = values.get(register.value);
    let (new, number) = match change {
        Update::Append(bytes) => (Bytes::from([old, &bytes[..]].concat()), None),
        Update::Prepend(bytes) => (Bytes::from([&bytes[..], old].concat()), None),
        Update::Touch(_) => (old.clone(), None),
        Update::Edit(edit) => match edit.apply(old, 0, stratakv_base::Expiry::NEVER) {
            Ok(updated) => (updated.value, None),
            Err(_) => return (answer == Answer::Unmet(Unmet::Unchanged)).then_some(()),
        },
        Update::Increment(_) | Update::Decrement(_) => {
            let Some(number) = decimal::unsigned(old) else {
                return (answer == Answer::Unmet(Unmet::NotANumber)).then_some(());
            };
            let number = match change {
                Update::Decrement(by) => number.saturating_sub(*by),
                Update::Increment(by) => number.wrapping_add(*by),
                _ => number,
            };
            (Bytes::from(decimal::padded(number, old.len())), Some(number))
        }
    };
    let value = values.number(new);
    let version = match answer {
        Answer::Unknown => 0,
        Answer::Done { version, existed: Some(true) } if number.is_none() => version,
        Answer::Number { number: found, version } if number == Some(found) => version,
        Answer::Record(Some((found, version))) if found == value && matches!(change, Update::Touch(_)) => version,
        _ => return None,
    };
    register.write(value, version).then_some(())
}
