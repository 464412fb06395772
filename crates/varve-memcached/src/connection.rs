//! One client: bytes come, are parsed, done and answered, in order.
//!
//! # Batches
//!
//! All requests that have come are done before the connection waits for more. Changes that follow each other
//! are one transaction, up to `Settings::batch`, with those of other connections (`queue`); reads that
//! follow each other see one view, if the store has nothing in memory, and nobody keeps it open while he
//! waits for a client. Reads are done at once, on the runtime's own thread: they wait for a page at most,
//! and for somebody who has the whole table. A batch of changes may wait for pages and locks: it goes to
//! threads for that, of which there is a bounded number. Its commit is then awaited without a thread.
//! Changes in memory wait for nothing, and are done at once, too.
//!
//! - **MC-1** No answer to a change leaves before its transaction is as durable as the database's setting
//!   asks. What an answer rests on, but did not change, may be another's change that is not durable yet.
//! - **MC-2** Answers come in the order of the requests, and a request sees what those before it did.
//! - **MC-4** A connection takes bounded memory: the longest request, a piece of what it was sent, and
//!   `MOST_ANSWER_BYTES` of answers and a value. Who does not read his answers is not read. One that is idle
//!   takes no buffers.
//! - **MC-5** What is no request is answered by name, and skipped as long as it is announced; where nobody
//!   can say where the next one begins, the connection ends.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::task::{spawn_blocking, yield_now};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::accounts::Login;
use crate::batch::Work;
use crate::counters::Counts;
use crate::item::now;
use crate::items::{Items, Place, Refusal, Wait};
use crate::protocol::{Ask, Limits, Protocol, Read, Reply, Standing, Step, parse};
use crate::queue::Queue;
use crate::request::Request;
use crate::server::Shared;

/// With so many bytes of answers, they are sent before anything else is done.
pub const MOST_ANSWER_BYTES: usize = 256 << 10;
const READ_BYTES: usize = 16 << 10;
/// A client has agreed on a key and said who it is within this time of its coming.
pub const LOGIN_TIME: Duration = Duration::from_secs(10);
/// Who says a wrong password waits for so long, as who guesses says many.
const GUESS_TIME: Duration = Duration::from_secs(1);
/// After so many reads others have their turn.
const READS_AT_ONCE: usize = 256;

pub struct Connection<I: Items> {
    shared: Arc<Shared<I>>,
    /// Always there, but while a batch is done. Boxed: it goes to other threads and comes back, and the task
    /// has room for it wherever it does so (MC-4).
    session: Option<Box<I::Session>>,
    input: BytesMut,
    output: BytesMut,
    /// Changes that are not done yet.
    batch: Vec<(Request, Reply)>,
    /// What the client speaks, once it has said something.
    protocol: Option<Protocol>,
    standing: Standing,
    /// So many bytes that come next belong to a request that was refused.
    skip: u64,
    /// Done since the view was made that reads see.
    reads: usize,
    counts: Counts,
}

/// What becomes of the connection.
#[derive(PartialEq, Eq)]
enum Then {
    /// All that is there is done.
    Wait,
    /// Answers have to leave first.
    Send,
    End,
}

impl<I: Items> Connection<I> {
    pub fn new(shared: Arc<Shared<I>>) -> Result<Connection<I>, Refusal> {
        let standing = match shared.settings.accounts {
            None => Standing::NotAsked,
            Some(_) => Standing::Unknown,
        };
        Ok(Connection {
            session: Some(Box::new(shared.items.session()?)),
            standing,
            shared,
            input: BytesMut::new(),
            output: BytesMut::new(),
            batch: Vec::new(),
            protocol: None,
            skip: 0,
            reads: 0,
            counts: Counts {
                total_connections: 1,
                ..Counts::default()
            },
        })
    }

    /// Serves the client until it goes, or has to. It came at this time.
    pub async fn serve<S>(mut self, mut stream: S, came: Instant) -> io::Result<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let send_time = Some(self.shared.settings.send_time);
        loop {
            let is_stranger = self.standing == Standing::Unknown;
            let turn = self.turn(&mut stream);
            let then = match is_stranger {
                // MC-8. No batch is under way that would be broken off.
                true => within_login_time(came, turn).await?,
                false => turn.await?,
            };
            if then == Then::End {
                return within(send_time, stream.shutdown()).await;
            }
        }
    }

    /// Does what has come, answers, and waits for more.
    async fn turn<S>(&mut self, stream: &mut S) -> io::Result<Then>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let then = self.work(stream).await?;
        match self.output.is_empty() {
            true => self.shared.tally.counters.take(&mut self.counts),
            false => self.send(stream).await?,
        }
        if then == Then::Wait {
            match self.receive(stream).await? {
                0 => return Ok(Then::End),
                bytes => self.counts.bytes_read += bytes as u64,
            }
        }
        Ok(then)
    }

    async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        // Whoever has the answer finds it counted.
        self.counts.bytes_written += self.output.len() as u64;
        self.shared.tally.counters.take(&mut self.counts);
        let all = async {
            stream.write_all(&self.output).await?;
            // What encrypts keeps the end of it otherwise, if the client does not read.
            stream.flush().await
        };
        within(Some(self.shared.settings.send_time), all).await?;
        self.output.clear();
        Ok(())
    }

    /// Waits for bytes. 0: no more come.
    async fn receive(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<usize> {
        if self.input.is_empty() {
            // MC-4: nothing is kept for who says nothing.
            (self.input, self.output) = (BytesMut::new(), BytesMut::new());
        }
        // What is announced comes soon, or never.
        let time = match self.input.is_empty() && self.skip == 0 {
            true => self.shared.settings.idle_time,
            false => Some(self.shared.settings.send_time),
        };
        let input = &mut self.input;
        within(time, poll_fn(|cx| poll_receive(stream, input, cx))).await
    }

    /// Does all requests that are there.
    async fn work(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<Then> {
        let then = loop {
            let limits = Limits {
                value_bytes: self.shared.items.most_value_bytes(),
                standing: self.standing,
            };
            let skipped = self.skip.min(self.input.len() as u64);
            self.input.advance(skipped as usize);
            self.skip -= skipped;
            if self.output.len() > MOST_ANSWER_BYTES {
                break Then::Send;
            }
            // What is used is cut off afterwards, since what is asked for lies there.
            let input = std::mem::take(&mut self.input);
            self.protocol = self.protocol.or_else(|| Protocol::of(&input));
            let protocol = self.protocol.unwrap_or(Protocol::Text);
            let (used, then) = match parse(protocol, &input, now(), limits) {
                Step::More => (0, Some(Then::Wait)),
                Step::Close => (0, Some(Then::End)),
                Step::Use(used, ask) => (used, self.answer(ask, stream).await?),
            };
            self.input = input;
            self.input.advance(used);
            if let Some(then) = then {
                break then;
            }
        };
        self.change(stream).await?;
        self.end_reads();
        Ok(then)
    }

    fn end_reads(&mut self) {
        self.reads = 0;
        let session = self.session.as_mut().expect("no batch is being done");
        self.shared.items.end_reads(session);
    }

    /// Does one request. `Some`: the next one has to wait.
    async fn answer(
        &mut self,
        ask: Ask<'_>,
        stream: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<Option<Then>> {
        if let Ask::Change(changes) = ask {
            self.batch.extend(changes);
            if self.batch.len() >= self.shared.settings.batch {
                self.change(stream).await?;
            }
            return Ok(None);
        }
        // MC-2.
        self.change(stream).await?;
        match ask {
            Ask::Change(_) => unreachable!("it is done above"),
            Ask::Read(read) => {
                for (n, key) in read.keys().enumerate() {
                    if self.output.len() > MOST_ANSWER_BYTES {
                        self.end_reads();
                        self.send(stream).await?;
                    }
                    if n % READS_AT_ONCE == READS_AT_ONCE - 1 {
                        yield_now().await;
                    }
                    if !self.read(&read, key).await? {
                        return Ok(None);
                    }
                    self.reads += 1;
                    let most = self.shared.settings.read_batch;
                    if most.is_some_and(|most| self.reads >= most.get()) {
                        self.end_reads();
                    }
                }
                read.end(&mut self.output);
            }
            Ask::Login(login, reply) => return self.admit(login, &reply).await.map(Some),
            Ask::Say(text, skip) => {
                self.output.extend_from_slice(&text);
                self.skip = skip;
            }
            Ask::Stats(kind, reply) => {
                let stats = self.shared.stats(&kind);
                reply.stats(&kind, stats, &mut self.output);
            }
            Ask::FlushAll(delay, reply) => {
                self.counts.cmd_flush += 1;
                self.end_reads();
                let session = self.session.as_ref().expect("no batch is being done");
                let container = self.shared.items.container(session);
                match self.shared.clone().flush_all(container, delay).await {
                    Ok(()) => reply.done(&mut self.output),
                    Err(refusal) => reply.fail(&refusal.told(), &mut self.output),
                }
            }
            Ask::Quit(text) => {
                self.output.extend_from_slice(&text);
                return Ok(Some(Then::End));
            }
        }
        Ok(None)
    }

    /// Lets the client in, or does not. The next request finds that done.
    async fn admit(&mut self, login: Option<Login<'_>>, reply: &Reply) -> io::Result<Then> {
        // Nobody reads in what was before, and others need not wait for a table meanwhile.
        self.end_reads();
        self.counts.auth_cmds += 1;
        let accounts = self.shared.settings.accounts.as_ref();
        let warn = |why: &str| self.shared.items.warn(why);
        let knows = |login| accounts.is_some_and(|accounts| accounts.admit(login, warn));
        if login.is_some_and(knows) {
            self.standing = Standing::Known;
            reply.welcome(&mut self.output);
            return Ok(Then::Send);
        }
        self.counts.auth_errors += 1;
        sleep(GUESS_TIME).await;
        reply.reject(&mut self.output);
        Ok(match self.standing {
            Standing::Known => Then::End,
            _ => Then::Send,
        })
    }

    /// Reads an item, and answers. `false`: no more keys are to be read.
    async fn read(&mut self, read: &Read<'_>, key: &[u8]) -> io::Result<bool> {
        let mut done = self.read_now(read, key);
        if let Err(Refusal::Busy) = done {
            // Elsewhere, where it may wait.
            let mut session = self.session.take().expect("no batch is being done");
            let (shared, of) = (self.shared.clone(), key.to_vec());
            let waited = spawn_blocking(move || {
                let waited = shared.items.read(&mut session, &of, Wait::Yes, |_| ());
                (session, waited)
            });
            let (session, waited) = waited.await.map_err(io::Error::other)?;
            self.session = Some(session);
            done = waited.and_then(|()| self.read_now(read, key));
        }
        match done {
            Ok(change) => self.batch.extend(change),
            Err(refusal) => {
                read.fail(&refusal.told(), &mut self.output);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads an item, and answers, or says as which change it is to be read.
    fn read_now(
        &mut self,
        read: &Read<'_>,
        key: &[u8],
    ) -> Result<Option<(Request, Reply)>, Refusal> {
        let session = self.session.as_mut().expect("no batch is being done");
        let (out, counts) = (&mut self.output, &mut self.counts);
        self.shared.items.read(session, key, Wait::No, |item| {
            let item = item.filter(|item| !item.is_over(now()));
            // Who is to renew it is written down: that is a change.
            let change = item.as_ref().filter(|item| item.wants_renewal());
            let change = change.and_then(|_| read.as_change());
            if change.is_none() {
                counts.read(item.is_some());
                read.answer(key, item, now(), out);
            }
            change
        })
    }

    /// Does the changes that have come, and waits until they are durable (MC-1).
    async fn change(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        while !self.batch.is_empty() {
            // Nobody reads in what was before.
            self.end_reads();
            if self.output.len() > MOST_ANSWER_BYTES {
                self.send(stream).await?;
            }
            self.change_some().await?;
        }
        Ok(())
    }

    /// Does as many as have answers of `MOST_ANSWER_BYTES` (MC-4).
    async fn change_some(&mut self) -> io::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        let session = self.session.take().expect("no batch is being done");
        let items = &self.shared.items;
        let place = items.place(batch[0].0.effect());
        let mut work = Work::new(items, session, batch);
        let (mut work, waited) = match place {
            Place::Memory => {
                // It waits for nothing.
                self.shared.changes().make_each(&mut work, place);
                (work, Ok(()))
            }
            Place::Table => Queue::make(&self.shared, work).await?,
        };
        if let Err(refusal) = waited {
            work.out.clear();
            let why = refusal.told();
            let failed = work.batch[..work.done].iter();
            failed.for_each(|(_, reply)| reply.fail(&why, &mut work.out));
        }
        work.batch.drain(..work.done);
        (self.session, self.batch) = (Some(work.session), work.batch);
        self.shared.tally.counters.take(&mut work.counts);
        match self.output.is_empty() {
            true => self.output = work.out,
            false => self.output.extend_from_slice(&work.out),
        }
        Ok(())
    }
}

impl<I: Items> Drop for Connection<I> {
    /// What was counted since the last answer counts, too.
    fn drop(&mut self) {
        self.shared.tally.counters.take(&mut self.counts);
    }
}

/// Who came at this time has said who he is within the time for that.
async fn within_login_time<T>(
    came: Instant,
    what: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    timeout_at(came + LOGIN_TIME, what)
        .await
        .map_err(|_| io::ErrorKind::TimedOut)?
}

/// `None` is any time.
async fn within<T>(
    time: Option<Duration>,
    what: impl Future<Output = io::Result<T>>,
) -> io::Result<T> {
    match time {
        Some(time) => timeout(time, what)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?,
        None => what.await,
    }
}

thread_local! {
    /// Where bytes come first, so that a connection that waits for them needs no room.
    static FIRST: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

fn poll_receive(
    stream: &mut (impl AsyncRead + Unpin),
    input: &mut BytesMut,
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    FIRST.with_borrow_mut(|first| {
        let mut first = ReadBuf::new(first);
        ready!(Pin::new(stream).poll_read(cx, &mut first))?;
        input.extend_from_slice(first.filled());
        Poll::Ready(Ok(first.filled().len()))
    })
}
