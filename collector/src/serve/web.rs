//! The web page: what is broken, where, and what to do, for a browser without scripts as well.

mod curve;
mod evidence;
mod fabric;
mod heat;
mod html;
mod incidents;
mod known;
mod lint;
mod matrix;
mod shape;
mod step_times;
mod summary;
mod tail;

use std::fmt::{self, Write};

use axum::extract::{Path, State as Shared};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};

use self::html::Esc;
use crate::serve::api::params::{Nothing, Params, Refusal};
use crate::serve::router::{App, snapshot};
use crate::status::{Snapshot, State};

/// Seconds between two refreshes of the page.
const REFRESH_SECONDS: u32 = 5;
/// Nothing from elsewhere, no script but our own: names of nodes come from the network.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'";

/// The input of a part of the web page.
struct Look<'a> {
    state: &'a State,
    snapshot: &'a Snapshot,
    /// Relative path to the root of the site, so that the page works below any path of a proxy.
    root: &'static str,
}

pub(crate) async fn overview(Shared(state): App, _: Params<Nothing>) -> Response {
    with_look(&state, "", overview_of)
}

fn overview_of(look: &Look<'_>) -> Response {
    let title = match look.snapshot.view.incidents.len() {
        0 if look.snapshot.layout.has_unknown() => String::from("no incident, some states unknown"),
        0 => String::from("all well"),
        open => crate::serve::phrases::count(open, "incident"),
    };
    page(look.state, look.root, &title, StatusCode::OK, |out| {
        summary::header(out, look)?;
        out.push_str("<div class=\"columns\">\n");
        incidents::list(out, look)?;
        out.push_str("<section class=\"where\" aria-label=\"Fabric\">\n");
        fabric::tiers(out, look)?;
        matrix::matrix(out, look)?;
        lint::section(out, look)?;
        shape::shape(out, look)?;
        out.push_str("</section>\n</div>\n");
        Ok(())
    })
}

pub(crate) async fn incident(
    Shared(state): App,
    Path(id): Path<String>,
    _: Params<Nothing>,
) -> Response {
    let root = "../";
    with_look(&state, root, |look| incident_of(look, &id))
}

fn incident_of(look: &Look<'_>, id: &str) -> Response {
    let (state, root) = (look.state, look.root);
    match look.snapshot.view.incident(id) {
        Some(incident) => page(state, root, incident.class.title, StatusCode::OK, |out| {
            incidents::page(out, look, incident)
        }),
        None => {
            let refusal = Refusal::new(
                StatusCode::NOT_FOUND,
                format!(
                    "No open incident {id:?}. It may be resolved: incidents close one minute after their last evidence."
                ),
                String::from("one of the open incidents on the overview"),
            );
            refused(state, root, &refusal)
        }
    }
}

pub(crate) async fn tail(Shared(state): App, _: Params<Nothing>) -> Response {
    with_look(&state, "", |look| {
        page(&state, "", "Tail latency", StatusCode::OK, |out| {
            tail::view(out, look)
        })
    })
}

/// Shows the result of the newest tick; before the first one, shows that there is none yet.
fn with_look(
    state: &State,
    root: &'static str,
    show: impl FnOnce(&Look<'_>) -> Response,
) -> Response {
    match snapshot(state) {
        Ok(snapshot) => show(&Look {
            state,
            snapshot: &snapshot,
            root,
        }),
        Err(refusal) => refused(state, root, &refusal),
    }
}

pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", include_str!("web/page.css"))
}

pub(crate) async fn script() -> Response {
    asset(
        "text/javascript; charset=utf-8",
        include_str!("web/page.js"),
    )
}

fn asset(kind: &'static str, body: &'static str) -> Response {
    (
        [
            (header::CONTENT_TYPE, kind),
            (header::CACHE_CONTROL, "max-age=300"),
        ],
        body,
    )
        .into_response()
}

fn refused(state: &State, root: &'static str, refusal: &Refusal) -> Response {
    let (status, error, expected) = refusal.parts();
    page(state, root, "not found", status, |out| {
        writeln!(
            out,
            "<section class=\"calm\"><h1>{}</h1><p>Expected {}.</p><p><a href=\"{}\">Overview</a></p></section>",
            Esc(error),
            Esc(expected),
            home(root)
        )
    })
}

/// The address of the overview.
fn home(root: &str) -> &str {
    if root.is_empty() { "./" } else { root }
}

fn page(
    state: &State,
    root: &'static str,
    title: &str,
    status: StatusCode,
    body: impl FnOnce(&mut String) -> fmt::Result,
) -> Response {
    let mut out = String::with_capacity(64 << 10);
    let written = shell(&mut out, state, root, title, body);
    if written.is_err() {
        // Writing into memory fails only if a value refuses to be shown.
        return (
            StatusCode::INTERNAL_SERVER_ERROR,
            "The page could not be written.\n",
        )
            .into_response();
    }
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (status, headers, Html(out)).into_response()
}

fn shell(
    out: &mut String,
    state: &State,
    root: &'static str,
    title: &str,
    body: impl FnOnce(&mut String) -> fmt::Result,
) -> fmt::Result {
    let cluster = Esc(&state.cluster);
    let beside = state.beside.map_or_else(String::new, |(label, path)| {
        format!("<a href=\"{root}{path}\">{}</a>", Esc(label))
    });
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{} · {cluster} · Railscope</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <link rel=\"stylesheet\" href=\"{root}assets/page.css\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\"></noscript>\n\
         <script src=\"{root}assets/page.js\" data-seconds=\"{REFRESH_SECONDS}\" defer></script>\n\
         </head>\n<body>\n\
         <header class=\"bar\"><a class=\"mark\" href=\"{}\">Railscope</a><span class=\"cluster\">{cluster}</span>\
         <nav><a href=\"{root}tail\">Tail latency</a><a href=\"{root}api/v1/incidents\">Incidents</a><a href=\"{root}api/v1/fabric\">Fabric</a>\
         <a href=\"{root}api/v1/topology\">Topology</a><a href=\"{root}api/v1/nodes\">Nodes</a>\
         <a href=\"{root}metrics\">Metrics</a>{beside}</nav></header>\n\
         <p id=\"lost\" class=\"banner\" role=\"status\" hidden></p>\n<main>\n",
        Esc(title),
        home(root),
    )?;
    body(out)?;
    write!(
        out,
        "</main>\n<footer>Railscope {} · links above are JSON or text</footer>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}
