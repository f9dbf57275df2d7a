//! Maintenance windows are announced over the API with the token, and over a file.

use std::sync::Arc;

use axum::http::StatusCode;
use railscope_model::fabric::Timestamp;

use super::{get_text, now, serve, small};
use crate::config::Config;
use crate::maintenance::Announced;
use crate::status::State;

const WORK: &str =
    r#"{"parts": ["host/n*", "switch/leaf-03"], "until": 1e10, "why": "new firmware"}"#;

/// Status and response of a request with a token.
async fn ask(method: reqwest::Method, url: String, token: &str, body: &str) -> (u16, String) {
    let request = reqwest::Client::new().request(method, url);
    let request = request.bearer_auth(token).body(body.to_owned());
    let answer = request.send().await.expect("answer");
    (answer.status().as_u16(), answer.text().await.expect("text"))
}

#[tokio::test]
async fn without_a_token_in_the_configuration_nobody_announces() {
    let at = format!("{}/api/v1/maintenance", serve(small()).await);
    let (status, said) = ask(reqwest::Method::POST, at.clone(), "", WORK).await;
    assert_eq!(status, 404, "{said}");
    let (status, _) = ask(reqwest::Method::DELETE, at.clone() + "/0", "", "").await;
    assert_eq!(status, 404);
    assert_eq!(get_text(at).await.0, StatusCode::OK);
}

#[tokio::test]
async fn who_has_the_token_announces_and_withdraws() {
    let mut state = small();
    state.maintenance_token = Some("secret".into());
    let at = format!("{}/api/v1/maintenance", serve(state).await);
    let post = |token, body| ask(reqwest::Method::POST, at.clone(), token, body);
    for (token, body, status) in [
        ("", WORK, 401),
        ("secres", WORK, 401),
        ("secret", "{}", 400),
        ("secret", r#"{"parts": ["n7"], "until": 1e10}"#, 400),
        ("secret", WORK, 201),
    ] {
        let (answered, said) = post(token, body).await;
        assert_eq!(answered, status, "{token:?} {body} {said}");
    }
    let (_, window) = post("secret", WORK).await;
    let window: serde_json::Value = serde_json::from_str(&window).expect("JSON");
    let one = format!("{at}/{}", window["id"].as_str().expect("id"));
    let delete = |token| ask(reqwest::Method::DELETE, one.clone(), token, "");
    assert_eq!(delete("secres").await.0, 401);
    assert_eq!(delete("secret").await.0, 204);
    assert_eq!(
        delete("secret").await.0,
        404,
        "it was one window, posted twice"
    );
}

#[test]
fn a_file_is_read_again_and_what_is_wrong_in_it_takes_nothing_away() {
    let folder = tempfile::tempdir().expect("folder");
    let file = folder.path().join("maintenance.json");
    let state = State::new(&Config::default(), now);
    let mut announced = Announced::new(Vec::new(), Some(file.clone()));
    let list = |works: &[&str]| format!("[{}]", works.join(","));
    for (text, windows) in [
        (None, 0),
        (Some(list(&[WORK])), 1),
        (Some(list(&[WORK, WORK])), 2),
        (Some(String::from("[{]")), 2),
        (Some(list(&[])), 0),
    ] {
        if let Some(text) = &text {
            std::fs::write(&file, text).expect("write");
        }
        assert_eq!(
            announced.windows(state.now(), &state).len(),
            windows,
            "{text:?}"
        );
    }
}

#[test]
fn incidents_and_announced_work_outlive_a_restart_and_a_broken_file_is_an_error() {
    let folder = tempfile::tempdir().expect("folder");
    let state = small();
    let snapshot = state.snapshot().expect("a tick");
    let raw: crate::maintenance::RawWindow = serde_json::from_str(WORK).expect("JSON");
    let work = Arc::new(raw.check(Timestamp(0)).expect("a window"));
    let wire = crate::persist::incidents_file::Wire::of(&snapshot.view, &[Arc::clone(&work)]);
    crate::persist::incidents_file::save(folder.path(), &wire).expect("saved");
    let past = crate::persist::incidents_file::load(folder.path()).expect("loaded");
    assert_eq!(past.announced, [work]);
    let known = |incidents: &[crate::diagnose::incident::Incident]| -> Vec<_> {
        let known = incidents.iter();
        known
            .map(|one| (one.id.clone(), one.since, one.class.name, one.severity))
            .collect()
    };
    assert_eq!(known(&past.open), known(&snapshot.view.incidents));
    assert!(!past.open.is_empty());
    let file = folder.path().join("incidents.json");
    let text = std::fs::read_to_string(&file).expect("text");
    for (broken, said) in [
        (
            text.replace("port-down", "port-gone"),
            "\"port-gone\" is unknown",
        ),
        (text.replace("\"version\":1", "\"version\":9"), "version 9"),
        (text[..text.len() / 2].to_owned(), "EOF"),
    ] {
        std::fs::write(&file, broken).expect("write");
        let error = crate::persist::incidents_file::load(folder.path())
            .expect_err(said)
            .to_string();
        assert!(
            error.contains("incidents.json") && error.contains(said),
            "{error}"
        );
    }
}
