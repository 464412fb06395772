//! What panics. Those of a database's background threads are caught, and poison it, so that a test would not
//! hear of them: `listen`. Those that are expected, while a failing case is made smaller, need not be heard:
//! `quietly`.

use std::any::Any;
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
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

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` without the messages of its panics; those of other threads are printed.
pub fn quietly<R>(work: impl FnOnce() -> R) -> R {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                usual(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// What a panic said.
pub fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
    text.unwrap_or_else(|| "something".into())
}
