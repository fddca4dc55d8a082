//! What looking for room costs, counted in tests: words of bits, entries of lists, turns of others.

#[cfg(test)]
thread_local! {
    static STEPS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
pub(super) fn count(steps: usize) {
    STEPS.set(STEPS.get() + steps);
}

#[cfg(not(test))]
#[inline(always)]
pub(super) fn count(_: usize) {}

/// Those of this thread since the last time.
#[cfg(test)]
pub(super) fn take() -> usize {
    STEPS.replace(0)
}
