//! What panics in any thread. Those of a database's background threads are caught, and poison it, so that a test would not hear of them.

use std::backtrace::Backtrace;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static HEARD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn heard() -> MutexGuard<'static, Vec<String>> {
    HEARD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on panics are written down, with where they happened.
pub fn listen() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let trace = Backtrace::force_capture().to_string();
            let own: Vec<&str> = trace.lines().filter(|l| l.contains("varve")).collect();
            heard().push(format!("{info}\n{}", own.join("\n")));
            before(info);
        }));
    });
}

/// What they said since this was called last.
pub fn take() -> Vec<String> {
    std::mem::take(&mut *heard())
}
