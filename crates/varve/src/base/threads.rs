//! Background threads, which have names and are measured (`instruments`).

use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use super::instruments::MeasuredThread;
use super::{Error, Result};

/// Starts a thread.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let spawned = Builder::new().name(name.into()).spawn(measured(body));
    spawned.map_err(|e| Error::io("start thread", name, e))
}

/// The same with one that ends before `scope` does.
pub(crate) fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let named = Builder::new().name(name.into());
    let spawned = named.spawn_scoped(scope, measured(body));
    spawned.map_err(|e| Error::io("start thread", name, e))
}

fn measured<T>(body: impl FnOnce() -> T) -> impl FnOnce() -> T {
    move || {
        let _measured = MeasuredThread::begin();
        body()
    }
}
