//! Connections, and the second hand (MON-3).
//!
//! A client may be slow, or mean. It gets one of few connections; the head of a request has a time and a
//! size; and a connection ends after a minute, whatever goes on there. So one that reads nothing of an
//! answer goes, too. The page's requests find a new connection by themselves.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use varve::Database;

use crate::access::Access;
use crate::routes;
use crate::samples::{INTERVAL, Samples};
use crate::transactions::Sessions;

/// Who comes when there are so many is turned away.
pub const MOST_CONNECTIONS: usize = 32;
const MOST_HEAD_BYTES: usize = 16 << 10;
const MOST_HEADERS: usize = 64;
/// How long the head of a request may take.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection is good for new requests.
const LIFE: Duration = Duration::from_secs(60);
/// How long it has for the last one then.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// What all connections use.
pub struct Shared {
    pub db: Database,
    pub access: Access,
    samples: Mutex<Samples>,
    sessions: Option<Sessions>,
}

impl Shared {
    pub fn new(db: Database, access: Access, sessions: Option<Sessions>) -> Shared {
        let samples = Mutex::new(Samples::new(SystemTime::now()));
        let sessions = sessions.filter(|_| access.has_token());
        Shared {
            db,
            access,
            samples,
            sessions,
        }
    }

    /// Who says what sessions are doing, if that may leave.
    pub fn sessions(&self) -> Option<&Sessions> {
        let sessions = self.sessions.as_ref();
        assert!(sessions.is_none() || self.access.has_token(), "MON-7");
        sessions
    }

    /// Only the monitor's thread takes it, so nobody ever waits here.
    pub fn samples(&self) -> MutexGuard<'_, Samples> {
        let samples = self.samples.lock();
        samples.unwrap_or_else(PoisonError::into_inner)
    }

    fn take_sample(&self) {
        let (metrics, standing) = (self.db.metrics(), self.db.standing());
        self.samples().add(SystemTime::now(), &metrics, &standing);
    }
}

/// Runs until `stopped` is told, or nobody is left to tell it.
pub async fn run(listener: TcpListener, shared: Shared, stopped: oneshot::Receiver<()>) {
    let shared = Arc::new(shared);
    tokio::spawn(sample(shared.clone()));
    tokio::spawn(accept(listener, shared));
    let _ = stopped.await;
}

async fn sample(shared: Arc<Shared>) {
    let mut seconds = interval(INTERVAL);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        seconds.tick().await;
        shared.take_sample();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The process has no file descriptor left, or the client is gone.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        // MON-3: without room the connection is closed as it is dropped.
        if let Ok(place) = room.clone().try_acquire_owned() {
            let shared = shared.clone();
            tokio::spawn(async move {
                serve(stream, shared).await;
                drop(place);
            });
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let answer = service_fn(move |request| {
        let answer = routes::answer(&shared, &request);
        async { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MOST_HEAD_BYTES)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection);
    // Errors are the client's: it has gone, or sent what is no request.
    if timeout(LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = timeout(LAST_ANSWER, connection).await;
    }
}
