//! Which path leads to what.

use std::str::FromStr;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use crate::access::{Answer, parameter};
use crate::openmetrics;
use crate::server::Shared;
use crate::state;

const HTML: &str = "text/html; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";
const CSV: &str = "text/csv; charset=utf-8; header=present";
const JSON: &str = "application/json";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// MON-4: scripts, styles and data from here only, nothing within the page itself, and no other page around
/// it. `blob:` is for the pictures that the page makes.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

type Reply = Response<Full<Bytes>>;

/// Answers a request; its body is not read.
pub fn answer<B>(shared: &Shared, request: &Request<B>) -> Reply {
    match shared.access.answer(request.uri(), request.headers()) {
        Answer::Yes => {}
        Answer::WrongHost => {
            let why = "The request's Host is no loopback address.\n";
            return reply(StatusCode::MISDIRECTED_REQUEST, TEXT, why);
        }
        Answer::NoToken => {
            let mut reply = reply(
                StatusCode::UNAUTHORIZED,
                HTML,
                include_str!("../page/token.html"),
            );
            set(&mut reply, header::WWW_AUTHENTICATE, "Bearer");
            return reply;
        }
        Answer::SetCookie => return lead_in(shared),
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut reply = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Only GET and HEAD.\n");
        set(&mut reply, header::ALLOW, "GET, HEAD");
        return reply;
    }
    let found = |kind, body: &'static str| reply(StatusCode::OK, kind, body);
    match request.uri().path() {
        "/" => found(HTML, include_str!("../page/index.html")),
        "/page.js" => found(SCRIPT, include_str!("../page/page.js")),
        "/plots.js" => found(SCRIPT, include_str!("../page/plots.js")),
        "/page.css" => found(STYLE, include_str!("../page/page.css")),
        "/icon.svg" => found("image/svg+xml", include_str!("../page/icon.svg")),
        "/uplot.js" => found(SCRIPT, include_str!("../page/uplot.js")),
        "/uplot.css" => found(STYLE, include_str!("../page/uplot.css")),
        "/uplot.LICENSE" => found(TEXT, include_str!("../page/uplot.LICENSE")),
        "/metrics" => {
            let db = &shared.db;
            let text = openmetrics::text(&db.metrics(), &db.standing(), &db.undo_tablespaces());
            reply(StatusCode::OK, openmetrics::CONTENT_TYPE, text)
        }
        "/api/state" => reply(StatusCode::OK, JSON, state::json(shared).to_string()),
        "/api/samples" => or_refusal(samples(shared, request)),
        "/api/samples.csv" => or_refusal(csv(shared, request)),
        _ => reply(StatusCode::NOT_FOUND, TEXT, "There is nothing here.\n"),
    }
}

/// To the page, by an address without the token.
fn lead_in(shared: &Shared) -> Reply {
    let mut reply = reply(StatusCode::SEE_OTHER, TEXT, "");
    set(&mut reply, header::LOCATION, "/");
    if let Some(cookie) = shared.access.set_cookie() {
        set(&mut reply, header::SET_COOKIE, &cookie);
    }
    reply
}

/// `since`: the number of the first one that is wanted. `columns`: their names, with commas.
fn samples<B>(shared: &Shared, request: &Request<B>) -> Result<Reply, String> {
    let since = number(request, "since", 0)?;
    let columns = parameter(request.uri(), "columns");
    let json = shared.samples().json(since, columns);
    Ok(reply(StatusCode::OK, JSON, json.to_string()))
}

/// `from`, `to`: seconds since 1970.
fn csv<B>(shared: &Shared, request: &Request<B>) -> Result<Reply, String> {
    let from = number(request, "from", 0.0)?;
    let to = number(request, "to", f64::MAX)?;
    let text = shared.samples().csv(from, to);
    let mut reply = reply(StatusCode::OK, CSV, text);
    let file = "attachment; filename=\"varve.csv\"";
    set(&mut reply, header::CONTENT_DISPOSITION, file);
    Ok(reply)
}

fn or_refusal(answer: Result<Reply, String>) -> Reply {
    answer.unwrap_or_else(|why| reply(StatusCode::BAD_REQUEST, TEXT, why))
}

/// A parameter, `usual` without one.
fn number<B, N: FromStr>(request: &Request<B>, name: &str, usual: N) -> Result<N, String> {
    let Some(text) = parameter(request.uri(), name) else {
        return Ok(usual);
    };
    let number = text.parse();
    number.map_err(|_| format!("`{name}` is no number that can be used here.\n"))
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Full::new(body.into()));
    *reply.status_mut() = status;
    set(&mut reply, header::CONTENT_TYPE, kind);
    set(&mut reply, header::CONTENT_SECURITY_POLICY, POLICY);
    set(&mut reply, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(&mut reply, header::REFERRER_POLICY, "no-referrer");
    set(&mut reply, header::CACHE_CONTROL, "no-store");
    reply
}

fn set(reply: &mut Reply, name: HeaderName, value: &str) {
    let value = HeaderValue::from_str(value).expect("our headers are ASCII");
    reply.headers_mut().insert(name, value);
}
