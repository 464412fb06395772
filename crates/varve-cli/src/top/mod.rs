//! `varve top`: what the monitor's page shows, in a terminal. It reads what the page reads, over HTTP, so it
//! is the same for a server and for a program that has a database open, and it costs them as little.

pub mod client;
mod screen;
mod series;
mod tables;

use std::io::{self, IsTerminal, Write};
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Terminal};
use serde_json::Value;

use self::client::Client;
use self::screen::View;
use self::series::Series;
use crate::Outcome;

#[derive(clap::Args)]
pub struct Args {
    /// Where the monitor listens: the server's varve_monitor_address
    #[arg(default_value = "127.0.0.1:3480")]
    address: String,
    /// A file with the monitor's token, if it wants one
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Prints one screen as text and ends
    #[arg(long)]
    once: bool,
    /// The size of that screen, in columns and lines
    #[arg(long, value_name = "COLUMNSxLINES", default_value = "120x40", requires = "once", value_parser = size)]
    size: (u16, u16),
}

/// How often it asks.
const INTERVAL: Duration = Duration::from_secs(1);

pub fn run(args: &Args) -> Result<Outcome, String> {
    let token = match &args.token_file {
        Some(file) => Some(varve_monitor::token_from_file(file).map_err(|e| e.to_string())?),
        None => None,
    };
    let client = Client::new(&args.address, token);
    if args.once {
        let screen = once(&client, args.size)?;
        // Who reads no more wants no more.
        let _ = io::stdout().lock().write_all(screen.as_bytes());
        return Ok(Outcome::Clean);
    }
    if !io::stdout().is_terminal() {
        return Err("standard output is no terminal: --once prints one screen as text".into());
    }
    // What is wrong with the address or the token is told before the screen is taken.
    client.json("/api/state")?;
    watch(client, &mut || Some(None))?;
    Ok(Outcome::Clean)
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let (columns, lines) = text.split_once('x').ok_or("it has the form 120x40")?;
    let number = |text: &str| match text.parse() {
        Ok(n @ 20..=1000) => Ok(n),
        _ => Err(format!("{text} is no number from 20 to 1000")),
    };
    Ok((number(columns)?, number(lines)?))
}

/// What the monitor says, with the samples that were known before.
fn ask(client: &Client, mut series: Series) -> Result<(Series, Value), String> {
    series.refresh(client)?;
    Ok((series, client.json("/api/state")?))
}

/// The same in a thread of its own: who presses a key does not wait for a monitor that says nothing.
fn begin_to_ask(
    client: &Arc<Client>,
    view: &View,
) -> io::Result<JoinHandle<Result<(Series, Value), String>>> {
    let (client, series) = (client.clone(), view.series.clone());
    thread::Builder::new().spawn(move || ask(&client, series))
}

/// A screen as text.
fn once(client: &Client, size: (u16, u16)) -> Result<String, String> {
    let (series, state) = ask(client, Series::default())?;
    let view = View {
        series,
        state,
        ..View::default()
    };
    Ok(text(&view, size))
}

fn text(view: &View, (columns, lines): (u16, u16)) -> String {
    let backend = TestBackend::new(columns, lines);
    let mut terminal = Terminal::new(backend).expect("this one can't fail");
    let drawn = terminal.draw(|frame| screen::draw(frame, view));
    to_text(drawn.expect("this one can't fail").buffer)
}

fn to_text(buffer: &Buffer) -> String {
    let columns = usize::from(buffer.area.width);
    let mut text = String::new();
    for line in buffer.content.chunks(columns) {
        let line: String = line.iter().map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Takes the terminal until the user has enough of it, or `next` says `None`; else that says what stands
/// beside the name. True: the user had enough.
pub fn watch(
    client: Client,
    next: &mut dyn FnMut() -> Option<Option<String>>,
) -> Result<bool, String> {
    let failed = |e: io::Error| format!("the terminal: {e}");
    let mut terminal = ratatui::try_init().map_err(|e| {
        // It may have begun.
        ratatui::restore();
        failed(e)
    })?;
    let ended = show(&mut terminal, &Arc::new(client), next);
    ratatui::restore();
    ended.map_err(failed)
}

fn show(
    terminal: &mut DefaultTerminal,
    client: &Arc<Client>,
    next: &mut dyn FnMut() -> Option<Option<String>>,
) -> io::Result<bool> {
    let mut view = View::default();
    let mut asks = Instant::now();
    let mut asked = None;
    loop {
        match next() {
            Some(note) => view.note = note,
            None => return Ok(false),
        }
        if let Some(answer) = asked.take_if(|asked: &mut JoinHandle<_>| asked.is_finished()) {
            match answer.join().unwrap_or_else(|panic| resume_unwind(panic)) {
                // It was asked before.
                _ if view.paused => {}
                Ok((series, state)) => {
                    (view.series, view.state, view.error) = (series, state, None)
                }
                Err(e) => view.error = Some(e),
            }
        }
        if Instant::now() >= asks && asked.is_none() {
            asks = Instant::now() + INTERVAL;
            if !view.paused {
                asked = Some(begin_to_ask(client, &view)?);
            }
        }
        terminal.draw(|frame| screen::draw(frame, &view))?;
        // Shorter than the interval: `next` is asked now and then, and an answer is shown as it comes.
        let most = INTERVAL / if asked.is_some() { 50 } else { 4 };
        let left = asks.saturating_duration_since(Instant::now());
        if !event::poll(left.clamp(INTERVAL / 50, most))? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind == KeyEventKind::Press => match wish(key) {
                Some(Wish::Quit) => return Ok(true),
                Some(Wish::Pause) => view.paused = !view.paused,
                Some(Wish::OtherTable) => view.table = view.table.next(),
                None => {}
            },
            _ => {}
        }
    }
}

enum Wish {
    Quit,
    Pause,
    OtherTable,
}

fn wish(key: KeyEvent) -> Option<Wish> {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        // The terminal sends no signal while it is raw.
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Wish::Quit),
        KeyCode::Char('p') => Some(Wish::Pause),
        KeyCode::Tab => Some(Wish::OtherTable),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
