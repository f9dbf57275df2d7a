//! Requests that only who has a token may make.

use axum::http::{HeaderMap, StatusCode, header};

use super::params::Refusal;

/// Whether a request shows the token that stands in the file of this field.
///
/// # Errors
/// What was expected.
pub(super) fn check(headers: &HeaderMap, token: &str, field: &str) -> Result<(), Refusal> {
    let given = headers.get(header::AUTHORIZATION);
    let given = given.and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    if given.is_some_and(|given| same(given, token.as_bytes())) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::UNAUTHORIZED,
        String::from("the token is missing or wrong"),
        format!("Authorization: Bearer, and the token of {field}"),
    ))
}

/// Whether two texts are equal, in a time that does not tell how much of them is.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
