//! Passwords of the web server: HTTP basic authentication against bcrypt hashes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use tokio::sync::Semaphore;

use super::security::{Loaded, WebSecurity};

/// A password that was checked is not hashed again, or every scrape would cost 0.1 s of CPU; so many are
/// remembered, wrong ones among them.
const REMEMBERED: usize = 128;
/// Hashing costs a core; clients with unknown passwords share one and wait for each other, at most
/// this long.
const WAIT: Duration = Duration::from_secs(5);
static HASHING: Semaphore = Semaphore::const_new(1);
/// Checked for users that do not exist, so that they take as long as those that do. Of no known password.
const NOBODY: &str = "$2b$10$abcdefghijklmnopqrstuuS0ZWTH3yPyxQ9vW8h1a9tGN2mEmZ9yK";

/// Users with the hashes of their passwords.
pub(super) struct Users {
    hashes: BTreeMap<String, String>,
    /// SHA-256 of hash, user and password -> whether they fit.
    checked: Mutex<BTreeMap<[u8; 32], bool>>,
}

impl Users {
    pub(super) fn new(hashes: BTreeMap<String, String>) -> Self {
        Self {
            hashes,
            checked: Mutex::default(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    fn remembered(&self, digest: &[u8; 32]) -> Option<bool> {
        let checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.get(digest).copied()
    }

    fn remember(&self, digest: [u8; 32], fits: bool) {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= REMEMBERED {
            // A client guesses passwords: the right one is verified again at once.
            checked.retain(|_, fits| *fits);
        }
        if checked.len() < REMEMBERED {
            checked.insert(digest, fits);
        }
    }
}

/// Lets a request through that shows a user and password, where any are set, and adds the headers.
pub(super) async fn protect(
    State(security): State<Arc<WebSecurity>>,
    request: Request,
    next: Next,
) -> Response {
    let loaded = security.now();
    let allowed = if loaded.users.is_empty() {
        Ok(true)
    } else {
        fits(&loaded, request.headers()).await
    };
    let mut response = match allowed {
        Ok(true) => next.run(request).await,
        Ok(false) => {
            let asks = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic"))];
            (StatusCode::UNAUTHORIZED, asks, "Unauthorized\n").into_response()
        }
        Err(Busy) => {
            let said = "too many passwords to check: try again\n";
            (StatusCode::SERVICE_UNAVAILABLE, said).into_response()
        }
    };
    response.headers_mut().extend(loaded.headers.clone());
    response
}

/// Too many wait to be checked.
struct Busy;

async fn fits(loaded: &Arc<Loaded>, headers: &HeaderMap) -> Result<bool, Busy> {
    let Some((user, password)) = credentials(headers) else {
        return Ok(false);
    };
    let known = loaded.users.hashes.get(&user);
    let hash = known.map_or(NOBODY, String::as_str).to_owned();
    let digest = fingerprint(&[&hash, &user, &password]);
    if let Some(fits) = loaded.users.remembered(&digest) {
        return Ok(fits);
    }
    let turn = tokio::time::timeout(WAIT, HASHING.acquire()).await;
    let Ok(Ok(_turn)) = turn else {
        return Err(Busy);
    };
    // bcrypt uses 72 bytes at most; longer passwords are refused here as its own tools refuse them.
    let verified = move || bcrypt::non_truncating_verify(password, &hash).unwrap_or(false);
    let fits = tokio::task::spawn_blocking(verified).await.unwrap_or(false) && known.is_some();
    loaded.users.remember(digest, fits);
    Ok(fits)
}

/// User and password of an `Authorization: Basic` header.
fn credentials(headers: &HeaderMap) -> Option<(String, String)> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    let (user, password) = text.split_once(':')?;
    Some((user.to_owned(), password.to_owned()))
}

/// One number for several texts; lengths keep `ab`,`c` and `a`,`bc` apart.
fn fingerprint(texts: &[&str]) -> [u8; 32] {
    let mut bytes = Vec::new();
    for text in texts {
        bytes.extend(text.len().to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    let mut out = [0; 32];
    out.copy_from_slice(digest(&SHA256, &bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_of_nobody_takes_the_work_of_a_real_one() {
        let verified = bcrypt::non_truncating_verify("secret", NOBODY);
        assert!(matches!(verified, Ok(false)), "{verified:?}");
    }

    #[test]
    fn credentials_are_a_name_a_colon_and_a_password() {
        for (value, expected) in [
            ("Basic YWxpY2U6YTpi", Some(("alice", "a:b"))),
            ("basic Ojo=", Some(("", ":"))),
            ("Basic YWxpY2U=", None),
            ("Basic not base64", None),
            ("Basic //8=", None),
            ("Bearer YWxpY2U6YTpi", None),
            ("Basic", None),
        ] {
            let value = HeaderValue::from_static(value);
            let found = credentials(&HeaderMap::from_iter([(header::AUTHORIZATION, value)]));
            let expected = expected.map(|(user, word)| (user.to_owned(), word.to_owned()));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn who_guesses_does_not_push_out_who_knows() {
        let users = Users::new(BTreeMap::new());
        users.remember([255; 32], true);
        for number in 0..=254 {
            users.remember([number; 32], false);
        }
        assert_eq!(users.remembered(&[255; 32]), Some(true));
        let remembered = users.checked.lock().expect("not poisoned").len();
        assert!(remembered <= REMEMBERED, "{remembered}");
    }
}
