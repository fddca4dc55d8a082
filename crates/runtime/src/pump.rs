//! Blocking calls in simulations, where one thread is everybody: who waits for a reply runs the
//! ticks meanwhile.

use std::cell::RefCell;

type Pump = Box<dyn FnMut()>;

thread_local! {
    static PUMP: RefCell<Option<Pump>> = const { RefCell::new(None) };
}

/// Whoever waits in this thread while `body` runs calls `pump` until it is answered, and does no
/// I/O of its own. The pump must bring the reply about sooner or later, or panic.
#[doc(hidden)]
pub fn with_pump<R>(pump: impl FnMut() + 'static, body: impl FnOnce() -> R) -> R {
    struct Restore(Option<Pump>);
    impl Drop for Restore {
        fn drop(&mut self) {
            PUMP.set(self.0.take());
        }
    }
    let _restore = Restore(PUMP.replace(Some(Box::new(pump))));
    body()
}

/// Whether this thread is one of a simulation.
pub(crate) fn is_there() -> bool {
    PUMP.with_borrow(Option::is_some)
}

/// Turns the machine once, if this thread is to.
pub(crate) fn once() -> bool {
    let Some(mut pump) = PUMP.take() else { return false };
    pump();
    PUMP.set(Some(pump));
    true
}
