//! Bearer tokens.

use axum::http::{HeaderMap, StatusCode, header};

use super::params::Refusal;

/// Checks the bearer token of a request. `field` is the configuration field of the token file, for the error.
///
/// # Errors
/// The token is missing or wrong.
pub(super) fn check(headers: &HeaderMap, token: &str, field: &str) -> Result<(), Refusal> {
    let given = headers.get(header::AUTHORIZATION);
    // The scheme is case-insensitive (RFC 9110, 11.1).
    let given = given.and_then(|value| value.as_bytes().split_first_chunk());
    let given = given.filter(|(scheme, _): &(&[u8; 7], _)| scheme.eq_ignore_ascii_case(b"Bearer "));
    if given.is_some_and(|(_, given)| same(given, token.as_bytes())) {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::UNAUTHORIZED,
        String::from("the token is missing or wrong"),
        format!("Authorization: Bearer, and the token of {field}"),
    ))
}

/// Compares in constant time.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
