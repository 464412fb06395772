//! What the servers over an open database have in common: where they listen, and the thread that runs them.
//! The monitor and the memcached server are such.
//!
//! - **LISTEN-1** Who does not encrypt, or does not ask clients who they are, listens on loopback addresses
//!   only.
//! - **LISTEN-2** When [`Background::end`] returns, nothing that ran there has the database any more.

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use varve::{Error, MeasuredThread, Result};

/// What keeps others away from who listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// It encrypts, and asks clients who they are.
    Complete,
    /// It is not, or does not, what the first words say, as "it does not encrypt". The others say what to do.
    Lacks(&'static str, &'static str),
}

/// So many clients that come at once wait to be let in; who finds no place among them tries again after a
/// second. As memcached has it, and the system permits.
const BACKLOG: i32 = 1024;

/// Listens on an address with a port, as `127.0.0.1:3480` or `[::1]:3480`; port 0 is one that is free, and
/// the address that is returned has it. `who` listens. The listener does not block.
///
/// # Errors
///
/// `Invalid` for an address that is none, or is no loopback address where one is needed; `Io` if the port is
/// taken.
pub fn listen_on(text: &str, who: &str, guard: Guard) -> Result<(TcpListener, SocketAddr)> {
    let address = address(text, who, guard)?;
    let failed = |e| Error::io("listen on", address.to_string(), e);
    let listener = TcpListener::bind(address).map_err(failed)?;
    // The standard library has it wait for 128.
    rustix::net::listen(&listener, BACKLOG).map_err(|e| failed(e.into()))?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok((listener, address))
}

/// LISTEN-1.
fn address(text: &str, who: &str, guard: Guard) -> Result<SocketAddr> {
    let address: SocketAddr = text.parse().map_err(|_| {
        Error::invalid(format!(
            "`{text}` is no address to listen on: it has the form 127.0.0.1:PORT or [::1]:PORT"
        ))
    })?;
    if let (Guard::Lacks(why, mend), false) = (guard, address.ip().is_loopback()) {
        return Err(Error::invalid(format!(
            "{who} listens on loopback addresses only, as {why}, and {} is none: {mend}",
            address.ip()
        )));
    }
    Ok(address)
}

/// A thread with a runtime, until it is told to end or dropped.
pub struct Background {
    /// `None` once it is to end.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Runs the future that `run` makes, which is to be over soon after what it is given is told. Everything
    /// else that it has started on the runtime ends with it.
    ///
    /// # Errors
    ///
    /// `Io` if the system has no thread.
    pub fn start<F: Future<Output = ()>>(
        name: &str,
        runtime: Runtime,
        run: impl FnOnce(oneshot::Receiver<()>) -> F + Send + 'static,
    ) -> Result<Background> {
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _measured = MeasuredThread::begin();
                runtime.block_on(run(stopped));
                // LISTEN-2: its tasks go with it, and with them the database.
                drop(runtime);
            })
            .map_err(|e| Error::io("start the thread", name, e))?;
        Ok(Background {
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Ends it, and waits for that.
    pub fn end(&mut self) {
        // Fails if the thread has ended by itself.
        let _ = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take() {
            // A panic has been told by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_loopback_addresses_are_taken() {
        let checked = |text| address(text, "the server", Guard::Lacks("it is simple", "do so"));
        let guarded = |text| address(text, "the server", Guard::Complete);
        for good in ["127.0.0.1:0", "127.8.9.1:3480", "[::1]:3480"] {
            assert!(checked(good).is_ok(), "{good}");
        }
        for bad in [
            "0.0.0.0:3480",
            "192.168.1.2:80",
            "[::]:3480",
            "[::ffff:10.0.0.1]:1",
        ] {
            let why = checked(bad).unwrap_err().to_string();
            let part = "the server listens on loopback addresses only, as it is simple, and ";
            assert!(why.contains(part), "LISTEN-1: {bad}: {why}");
            assert!(why.ends_with(" is none: do so"), "{why}");
            assert!(guarded(bad).is_ok(), "{bad}");
        }
        for none in [
            "",
            "3480",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:70000",
            "a.b:1",
        ] {
            let why = checked(none).unwrap_err().to_string();
            assert!(why.contains(&format!("`{none}` is no address")), "{why}");
            assert!(guarded(none).is_err(), "{none}");
        }
    }

    /// What its tasks have is given back.
    #[test]
    fn nothing_is_kept_by_what_has_ended() {
        let kept = Arc::new(());
        let (of_task, of_run) = (kept.clone(), kept.clone());
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.build().unwrap();
        let background = Background::start("test", runtime, move |stopped| async move {
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(of_task);
            });
            let _ = stopped.await;
            drop(of_run);
        });
        background.unwrap().end();
        assert_eq!(Arc::strong_count(&kept), 1, "LISTEN-2");
    }
}
