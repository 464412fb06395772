//! A connection in a thread: whoever scripts several of them sees which of them wait.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::client::{Answer, SqlResult};
use crate::server::Server;

/// Answers one statement at a time.
pub struct Session {
    say: Sender<String>,
    answers: Receiver<SqlResult<Answer>>,
    waiting: bool,
}

impl Session {
    pub fn open(server: &Server) -> Result<Session> {
        let mut client = server.connect()?;
        let (say, statements) = channel::<String>();
        let (answer, answers) = channel();
        thread::spawn(move || {
            for statement in statements {
                let answered = client.send(&statement).and_then(|()| client.receive());
                if answer.send(answered).is_err() {
                    break;
                }
            }
        });
        Ok(Session {
            say,
            answers,
            waiting: false,
        })
    }

    /// Its statement has not answered yet.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    pub fn say(&mut self, statement: &str) -> Result<()> {
        self.say
            .send(statement.to_string())
            .context("the session's thread has ended")?;
        self.waiting = true;
        Ok(())
    }

    /// The answer, if it comes in time.
    pub fn answer(&mut self, within: Duration) -> Result<Option<SqlResult<Answer>>> {
        match self.answers.recv_timeout(within) {
            Ok(answer) => {
                self.waiting = false;
                Ok(Some(answer))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the session's thread has ended"),
        }
    }

    /// For statements that wait for nobody for longer than this.
    pub fn ask(&mut self, statement: &str, within: Duration) -> Result<SqlResult<Answer>> {
        self.say(statement)?;
        self.answer(within)?
            .with_context(|| format!("no answer to {statement}"))
    }
}
