//! The demo's own web page and API beside the collector's: faults to inject and clear, ground truth beside incidents.
//!
//! Only local users may inject faults: a POST has to name the address that the demo listens on as its
//! host, which another name for it (DNS rebinding) does not, and as its origin, if it comes from a web page.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use railscope_collector::service::Beside;
use railscope_model::identity::Part;
use serde_json::json;

use super::stage::{Said, Stage};
use super::wanted::Wanted;

/// Path of the web page, without a leading slash.
const PAGE: &str = "demo";
/// Seconds between two refreshes of the web page.
const REFRESH_SECONDS: u32 = 5;
/// No script, nothing from elsewhere, forms to here only, and no frame in which another site could hide a button.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// What the collector's style sheet has no need of.
const STYLE: &str = "section { margin-bottom: 16px; }\ntable { border-collapse: collapse; }\n\
    th, td { text-align: left; padding: 3px 14px 3px 0; overflow-wrap: anywhere; }\nth { color: var(--soft); font-weight: 500; }\n\
    form { margin: 0; }\n";

/// What every handler gets.
#[derive(Clone)]
struct Desk {
    stage: Arc<Stage>,
    hosts: Arc<[String]>,
}

/// The demo's routes and their link, for a demo that listens here.
pub(super) fn beside(stage: Arc<Stage>, listening: SocketAddr) -> Beside {
    let desk = Desk {
        stage,
        hosts: hosts(listening).into(),
    };
    let routes = Router::new()
        .route("/demo", get(page))
        .route("/demo/page.css", get(style))
        .route("/demo/faults", get(faults))
        .route("/demo/inject", post(inject))
        .route("/demo/end", post(end))
        .with_state(desk);
    Beside {
        otlp: None,
        routes,
        link: Some(("Break something", PAGE)),
    }
}

/// What a request from this machine calls the address.
fn hosts(listening: SocketAddr) -> Vec<String> {
    let (ip, port) = (listening.ip(), listening.port());
    let mut hosts = vec![listening.to_string()];
    if ip.is_loopback() || ip.is_unspecified() {
        hosts.extend(["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{port}")));
    }
    hosts
}

/// Why a request may not change anything; none if it may.
fn refusal(headers: &HeaderMap, hosts: &[String]) -> Option<String> {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let host = text(header::HOST).unwrap_or_default();
    if !hosts.iter().any(|known| known == host) {
        return Some(format!("host {host:?}: expected one of {hosts:?}"));
    }
    let origin = text(header::ORIGIN)?;
    let own = format!("http://{host}");
    (origin != own)
        .then(|| format!("requests from web pages of {origin:?} are not allowed: expected {own}"))
}

/// Pairs of a query; `set` may stand several times.
type Pairs = Query<Vec<(String, String)>>;

async fn inject(State(desk): State<Desk>, headers: HeaderMap, Query(pairs): Pairs) -> Response {
    match asked(&desk, &headers, &pairs) {
        Ok(wanted) => answer(&headers, desk.stage.inject(&wanted).await),
        Err(refused) => refused.into_response(),
    }
}

async fn end(State(desk): State<Desk>, headers: HeaderMap, Query(pairs): Pairs) -> Response {
    match asked(&desk, &headers, &pairs) {
        Ok(Wanted { cause, part, .. }) => {
            answer(&headers, desk.stage.end(&cause, part.as_ref()).await)
        }
        Err(refused) => refused.into_response(),
    }
}

/// The action of a request, if it is permitted.
fn asked(
    desk: &Desk,
    headers: &HeaderMap,
    pairs: &[(String, String)],
) -> Result<Wanted, (StatusCode, String)> {
    let line = |problem: String| problem + "\n";
    match refusal(headers, &desk.hosts) {
        Some(refusal) => Err((StatusCode::FORBIDDEN, line(refusal))),
        None => wanted(pairs).map_err(|problem| (StatusCode::BAD_REQUEST, line(problem))),
    }
}

/// `cause=gpu-thermal&part=gpu/gpu-node-03:2&set=clock_ratio=0.8`.
fn wanted(pairs: &[(String, String)]) -> Result<Wanted, String> {
    let mut wanted = Wanted::typical("");
    for (key, value) in pairs {
        match key.as_str() {
            "cause" => wanted.cause.clone_from(value),
            "part" => {
                let part: Part = value
                    .parse()
                    .map_err(|error| format!("part {value:?}: {error}"))?;
                wanted.part = Some(part);
            }
            "set" => {
                let number: toml::Table = toml::from_str(value).map_err(|error| {
                    format!("set {value:?}: expected NAME=NUMBER: {}", error.message())
                })?;
                wanted.set.extend(number);
            }
            other => return Err(format!("unknown {other:?}: expected cause, part or set")),
        }
    }
    if wanted.cause.is_empty() {
        return Err("expected a cause".to_owned());
    }
    Ok(wanted)
}

/// Redirect to the web page for a browser, the action as JSON for other clients.
fn answer(headers: &HeaderMap, said: anyhow::Result<Said>) -> Response {
    let accept = headers.get(header::ACCEPT);
    let is_browser = accept.is_some_and(|kinds| kinds.as_bytes().starts_with(b"text/html"));
    match said {
        Ok(_) if is_browser => Redirect::to("/demo").into_response(),
        Ok(said) => Json(said).into_response(),
        Err(error) => (StatusCode::UNPROCESSABLE_ENTITY, format!("{error:#}\n")).into_response(),
    }
}

async fn faults(State(desk): State<Desk>) -> Response {
    let causes = desk.stage.causes().iter();
    let causes: Vec<_> = causes
        .map(|cause| json!({ "cause": cause, "named_as": desk.stage.named_as(cause) }))
        .collect();
    Json(json!({ "injected": desk.stage.say(), "causes": causes })).into_response()
}

async fn style() -> Response {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

async fn page(State(desk): State<Desk>) -> Response {
    let mut out = String::from(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Break something · Railscope demo</title>\n\
         <link rel=\"stylesheet\" href=\"assets/page.css\"><link rel=\"stylesheet\" href=\"demo/page.css\">\n",
    );
    // Writing into memory does not fail.
    write_page(&mut out, &desk.stage).ok();
    let headers = [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // With "no-referrer" browsers would not report the origin of a form.
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Html(out)).into_response()
}

fn write_page(out: &mut String, stage: &Stage) -> std::fmt::Result {
    let acts = stage.say();
    write!(
        out,
        "<noscript><meta http-equiv=\"refresh\" content=\"{REFRESH_SECONDS}\"></noscript>\n\
         <script src=\"assets/page.js\" data-seconds=\"{REFRESH_SECONDS}\" defer></script>\n</head>\n<body>\n\
         <header class=\"bar\"><a class=\"mark\" href=\"./\">Railscope</a><span class=\"cluster\">demo</span></header>\n\
         <p id=\"lost\" class=\"banner\" role=\"status\" hidden></p>\n\
         <main>\n<section class=\"calm\"><h1>Break something</h1>\n"
    )?;
    if acts.is_empty() {
        out.push_str("<p>Nothing was broken yet.</p>\n");
    } else {
        out.push_str(
            "<table class=\"acts\">\n<tr><th>fault</th><th>since</th><th>state</th><th>what Railscope reports</th><th>clear</th></tr>\n",
        );
        for act in acts.iter().rev() {
            let [what, since, state, verdict] = act.cells();
            let verdict = match act.incident_path() {
                Some(path) => format!("<a href=\"{}\">{}</a>", escaped(&path), escaped(&verdict)),
                None => escaped(&verdict),
            };
            let button = act.lasting().map_or_else(String::new, |(cause, part)| {
                button("end", &format!("cause={cause}&part={part}"), "Clear")
            });
            writeln!(
                out,
                "<tr><td>{}</td><td>{since}</td><td>{state}</td><td>{verdict}</td><td>{button}</td></tr>",
                escaped(&what)
            )?;
        }
        out.push_str("</table>\n");
    }
    out.push_str("</section>\n<section class=\"calm\"><h2>Faults</h2>\n<p>Each at a component that the demo selects; <code>railscope demo inject</code> accepts a component and parameters.</p>\n<table class=\"causes\">\n");
    for cause in stage.causes() {
        let named = stage.named_as(cause).map_or_else(
            || "not named here: only its symptoms can be seen".to_owned(),
            |class| format!("named as {class}"),
        );
        let button = button("inject", &format!("cause={cause}"), "Break");
        writeln!(
            out,
            "<tr><td>{cause}</td><td>{named}</td><td>{button}</td></tr>"
        )?;
    }
    out.push_str("</table>\n</section>\n</main>\n</body>\n</html>\n");
    Ok(())
}

fn button(action: &str, query: &str, label: &str) -> String {
    let query = escaped(query);
    format!(
        "<form method=\"post\" action=\"demo/{action}?{query}\"><button>{label}</button></form>"
    )
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn only_requests_to_this_address_and_from_its_own_page_change_anything() {
        let local = hosts("127.0.0.1:7".parse().expect("an address"));
        let outer = hosts("192.0.2.9:7".parse().expect("an address"));
        let any = hosts("0.0.0.0:7".parse().expect("an address"));
        for (hosts, host, origin, may) in [
            (&local, "127.0.0.1:7", None, true),
            (&local, "localhost:7", Some("http://localhost:7"), true),
            (&local, "localhost:7", Some("http://127.0.0.1:7"), false),
            (&local, "127.0.0.1:7", Some("https://127.0.0.1:7"), false),
            (&local, "127.0.0.1:7", Some("http://evil.example"), false),
            (&local, "127.0.0.1:7", Some("null"), false),
            (&local, "127.0.0.1:8", None, false),
            (&local, "evil.example:7", None, false),
            (&local, "", None, false),
            (&outer, "192.0.2.9:7", Some("http://192.0.2.9:7"), true),
            (&outer, "localhost:7", None, false),
            (&any, "[::1]:7", None, true),
            (&any, "evil.example:7", Some("http://evil.example:7"), false),
        ] {
            let mut headers = HeaderMap::new();
            let mut put = |name: HeaderName, value: &str| {
                headers.insert(name, HeaderValue::from_str(value).expect("a header"));
            };
            put(header::HOST, host);
            if let Some(origin) = origin {
                put(header::ORIGIN, origin);
            }
            assert_eq!(refusal(&headers, hosts).is_none(), may, "{host} {origin:?}");
        }
    }

    #[test]
    fn a_query_is_a_fault_or_is_told_what_would_be_one() {
        let pairs = |query: &[(&str, &str)]| -> Vec<_> {
            let own = query.iter();
            own.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let query = [
            ("cause", "gpu-thermal"),
            ("part", "gpu/n1:2"),
            ("set", "clock_ratio=0.8"),
        ];
        let found = wanted(&pairs(&query)).expect("a fault");
        assert_eq!(found.part.expect("a part").to_string(), "gpu/n1:2");
        assert_eq!(found.set["clock_ratio"].as_float(), Some(0.8));
        for (query, said) in [
            ([("part", "gpu/n1:2")], "expected a cause"),
            ([("part", "n1")], "part \"n1\""),
            ([("set", "0.8")], "expected NAME=NUMBER"),
            ([("kause", "x")], "unknown \"kause\""),
        ] {
            let error = wanted(&pairs(&query)).expect_err(said);
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn names_are_text_on_the_page() {
        assert_eq!(
            escaped("<a href=\"x\">&"),
            "&lt;a href=&quot;x&quot;&gt;&amp;"
        );
    }
}
