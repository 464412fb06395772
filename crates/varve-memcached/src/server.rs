//! Who listens, who is let in, and what is done from time to time.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::{AbortHandle, spawn_blocking};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_rustls::Accept;

use crate::accounts::Accounts;
use crate::batch::{Changes, Clock};
use crate::connection::{Connection, LOGIN_TIME};
use crate::counters::{Counters, Counts};
use crate::item::now;
use crate::items::{Goes, Items, Place, Refusal};
use crate::protocol::VERSION;
use crate::queue::Queue;
use crate::tls::Tls;

/// After the process had no file descriptor left for a client.
const RETRY: Duration = Duration::from_millis(100);

/// What connections are allowed.
pub struct Settings {
    pub connections: usize,
    pub threads: usize,
    pub change_threads: usize,
    /// Changes in one transaction.
    pub batch: usize,
    pub idle_time: Option<Duration>,
    /// What has begun, a request or an answer, goes on within this time.
    pub send_time: Duration,
    pub sweep_time: Option<Duration>,
    /// Reads in one view; `None`: as many as come together.
    pub read_batch: Option<NonZeroUsize>,
    /// Clients have one of them. `None`: nobody is asked.
    pub accounts: Option<Accounts>,
    /// Connections by TCP are encrypted with it.
    pub tls: Option<Tls>,
}

/// What is counted. Clones count together.
#[derive(Clone)]
pub struct Tally {
    pub counters: Arc<Counters>,
    connections: usize,
    /// For those that may come.
    room: Arc<Semaphore>,
}

impl Tally {
    pub fn new(connections: usize) -> Tally {
        Tally {
            counters: Arc::default(),
            connections,
            room: Arc::new(Semaphore::new(connections)),
        }
    }

    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let connections = self.connections - self.room.available_permits();
        let mut counts = vec![("curr_connections", connections as u64)];
        counts.extend(self.counters.list());
        counts
    }
}

/// What all connections use.
pub struct Shared<I: Items> {
    /// Dropped first: it has sessions.
    pub queue: Queue<I>,
    pub items: I,
    pub clock: Clock,
    pub settings: Settings,
    pub tally: Tally,
    begun: Instant,
    /// The flushes that wait for their time, by container: of each only the last one counts.
    flushes: Mutex<HashMap<usize, AbortHandle>>,
    /// Who deletes many rows has it, so that others find threads.
    deletes: tokio::sync::Mutex<()>,
}

impl<I: Items> Shared<I> {
    pub fn new(items: I, settings: Settings) -> Shared<I> {
        Shared {
            queue: Queue::new(&settings),
            items,
            clock: Clock::default(),
            tally: Tally::new(settings.connections),
            begun: Instant::now(),
            settings,
            flushes: Mutex::default(),
            deletes: tokio::sync::Mutex::new(()),
        }
    }

    pub fn changes(&self) -> Changes<'_, I> {
        Changes {
            items: &self.items,
            clock: &self.clock,
        }
    }

    /// All items of a container go: at once, or in so many seconds, if nobody says anything else until then.
    pub async fn flush_all(
        self: Arc<Shared<I>>,
        container: usize,
        delay: u32,
    ) -> Result<(), Refusal> {
        self.items.may_flush()?;
        if delay == 0 {
            self.set_flush(container, None);
            return self.delete(Goes::All(container)).await.map(drop);
        }
        let shared = self.clone();
        let flush = tokio::spawn(async move {
            sleep(Duration::from_secs(delay.into())).await;
            // Nobody waits for it.
            if let Err(refusal) = shared.delete(Goes::All(container)).await {
                let why = refusal.told();
                let what = format!("a flush_all of {delay} s ago is not done: {why}");
                shared.items.warn(&what);
            }
        });
        self.set_flush(container, Some(flush.abort_handle()));
        Ok(())
    }

    /// A connection's place. `None`: there are as many as there may be.
    fn place(&self) -> Option<OwnedSemaphorePermit> {
        let place = self.tally.room.clone().try_acquire_owned().ok();
        let mut counts = Counts {
            rejected_connections: u64::from(place.is_none()),
            ..Counts::default()
        };
        self.tally.counters.take(&mut counts);
        place
    }

    fn set_flush(&self, container: usize, flush: Option<AbortHandle>) {
        let mut flushes = self.flushes.lock().unwrap_or_else(PoisonError::into_inner);
        let last = match flush {
            Some(flush) => flushes.insert(container, flush),
            None => flushes.remove(&container),
        };
        if let Some(last) = last {
            last.abort();
        }
    }

    async fn delete(self: &Arc<Shared<I>>, which: Goes) -> Result<u64, Refusal> {
        let is_short = matches!(which, Goes::All(_)) && self.items.flush_place() == Place::Memory;
        let _alone = match is_short {
            true => None,
            false => Some(self.deletes.lock().await),
        };
        let shared = self.clone();
        let deleted = spawn_blocking(move || shared.items.delete(which));
        let stopped = "the server was stopped before all items were deleted";
        deleted
            .await
            .map_err(|_| Refusal::Because(stopped.into()))?
    }

    /// Statistics of a kind, by memcached's names. `None`: there is no such kind.
    pub fn stats(&self, kind: &str) -> Option<Vec<(String, String)>> {
        let settings = &self.settings;
        let list: Vec<(&str, String)> = match kind {
            "" => return Some(self.general_stats()),
            "reset" => {
                self.tally.counters.reset();
                Vec::new()
            }
            "settings" => vec![
                ("maxconns", settings.connections.to_string()),
                ("num_threads", settings.threads.to_string()),
                ("item_size_max", self.items.most_value_bytes().to_string()),
                ("idle_timeout", seconds(settings.idle_time)),
                ("cas_enabled", "yes".into()),
                ("flush_enabled", "yes".into()),
                ("auth_enabled_sasl", yes_if_some(&settings.accounts)),
                ("auth_enabled_ascii", yes_if_some(&settings.accounts)),
                ("ssl_enabled", yes_if_some(&settings.tls)),
                ("binding_protocol", "auto-negotiate".into()),
                ("w_batch_size", settings.batch.to_string()),
                (
                    "r_batch_size",
                    settings.read_batch.map_or(0, NonZeroUsize::get).to_string(),
                ),
                ("sweep_interval", seconds(settings.sweep_time)),
            ],
            // They are about how memcached divides its memory.
            "items" | "slabs" | "sizes" => Vec::new(),
            _ => return None,
        };
        let memory = self.items.memory().filter(|_| kind == "settings");
        let memory = memory.map(|memory| ("maxbytes", memory.most.to_string()));
        let list = memory.into_iter().chain(list);
        Some(list.map(|(name, value)| (name.into(), value)).collect())
    }

    fn general_stats(&self) -> Vec<(String, String)> {
        let about = [
            ("pid", u64::from(std::process::id())),
            ("uptime", self.begun.elapsed().as_secs()),
            ("time", u64::from(now())),
        ];
        let numbers = [
            ("pointer_size", u64::from(usize::BITS)),
            ("max_connections", self.settings.connections as u64),
            ("threads", self.settings.threads as u64),
            ("curr_items", self.items.count()),
        ];
        let text = |(name, number): (&str, u64)| (name.to_owned(), number.to_string());
        let mut stats: Vec<_> = about.into_iter().map(text).collect();
        stats.push(("version".into(), VERSION.into()));
        let memory = self.items.memory();
        let memory = memory.map(|memory| [("bytes", memory.used), ("limit_maxbytes", memory.most)]);
        let numbers = numbers.into_iter().chain(memory.into_iter().flatten());
        stats.extend(numbers.chain(self.tally.counts()).map(text));
        stats
    }
}

fn yes_if_some<T>(what: &Option<T>) -> String {
    match what {
        Some(_) => "yes".into(),
        None => "no".into(),
    }
}

fn seconds(time: Option<Duration>) -> String {
    time.map_or(0, |time| time.as_secs()).to_string()
}

/// Runs until `stopped` is told, or nobody is left to tell it.
pub async fn run<I: Items>(
    tcp: Option<TcpListener>,
    unix: Option<UnixListener>,
    shared: Arc<Shared<I>>,
    stopped: oneshot::Receiver<()>,
) {
    if let Some(listener) = tcp {
        tokio::spawn(accept_tcp(listener, shared.clone()));
    }
    if let Some(listener) = unix {
        tokio::spawn(accept_unix(listener, shared.clone()));
    }
    if let Some(time) = shared.settings.sweep_time {
        tokio::spawn(sweep(time, shared));
    }
    let _ = stopped.await;
}

async fn accept_tcp<I: Items>(listener: TcpListener, shared: Arc<Shared<I>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        // Answers are small, and written whole.
        let _ = stream.set_nodelay(true);
        let Some(place) = shared.place() else {
            // In the clear it would be no answer to who expects TLS.
            if shared.settings.tls.is_none() {
                turn_away(stream).await;
            }
            continue;
        };
        match &shared.settings.tls {
            None => begin(stream, &shared, place),
            Some(tls) => {
                let acceptor = tls.acceptor(|why| shared.items.warn(why));
                let agreed = acceptor.accept(stream);
                tokio::spawn(encrypt(agreed, shared.clone(), place));
            }
        }
    }
}

/// Serves the client once it has agreed on a key.
async fn encrypt<I: Items>(
    agreed: Accept<TcpStream>,
    shared: Arc<Shared<I>>,
    place: OwnedSemaphorePermit,
) {
    let came = Instant::now();
    if let Ok(Ok(stream)) = timeout(LOGIN_TIME, agreed).await {
        serve(stream, shared, came, place).await;
    }
}

async fn accept_unix<I: Items>(listener: UnixListener, shared: Arc<Shared<I>>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        match shared.place() {
            Some(place) => begin(stream, &shared, place),
            None => turn_away(stream).await,
        }
    }
}

async fn turn_away(mut stream: impl AsyncWrite + Unpin) {
    // It has room for so few bytes, or it is not worth waiting for.
    let too_many = stream.write_all(b"ERROR Too many open connections\r\n");
    let _ = timeout(RETRY, too_many).await;
}

fn begin<I: Items, S>(stream: S, shared: &Arc<Shared<I>>, place: OwnedSemaphorePermit)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    tokio::spawn(serve(stream, shared.clone(), Instant::now(), place));
}

async fn serve<I: Items, S>(
    stream: S,
    shared: Arc<Shared<I>>,
    came: Instant,
    _place: OwnedSemaphorePermit,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    if let Ok(connection) = Connection::new(shared) {
        // Errors are the client's: it has gone, or does not go on.
        let _ = connection.serve(stream, came).await;
    }
}

/// Deletes items that are over, from time to time. Nobody is answered with them before either.
async fn sweep<I: Items>(time: Duration, shared: Arc<Shared<I>>) {
    let mut times = interval(time);
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first one is at once.
    times.tick().await;
    let mut told = None;
    loop {
        times.tick().await;
        let swept = shared.delete(Goes::Over(now())).await;
        let failed = swept.as_ref().err().map(Refusal::told);
        if let Some(why) = failed.as_ref().filter(|_| failed != told) {
            shared
                .items
                .warn(&format!("items that are over stay: {why}"));
        }
        told = failed;
        let mut counts = Counts {
            items_swept: swept.unwrap_or(0),
            ..Counts::default()
        };
        shared.tally.counters.take(&mut counts);
    }
}
