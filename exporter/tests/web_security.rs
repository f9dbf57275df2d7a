//! The web server behind `web-config.yml`, tested with a real TLS client.
mod client;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Authority, Client};
use railscope_exporter::{Exporter, Limits, WebSecurity, serve_secured};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// A folder with a server certificate of an authority, and a configuration that names it.
struct Folder {
    dir: TempDir,
    authority: Authority,
}

const TLS: &str = "tls_server_config:\n  cert_file: server.crt\n  key_file: server.key\n";

impl Folder {
    fn new(config: &str) -> Self {
        let folder = Self {
            dir: tempfile::tempdir().expect("a folder"),
            authority: Authority::new("first"),
        };
        folder.certify(&folder.authority);
        folder.write("web.yml", config);
        folder
    }

    fn certify(&self, authority: &Authority) {
        let (certificate, key) = authority.sign("localhost");
        self.write("server.crt", &certificate);
        self.write("server.key", &key);
        self.write("ca.crt", &authority.pem());
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces the file as a careful tool does.
    fn write(&self, name: &str, text: &str) {
        let new = self.path("new");
        fs::write(&new, text).expect("writes");
        fs::rename(new, self.path(name)).expect("renames");
    }

    fn load(&self) -> Result<WebSecurity, String> {
        WebSecurity::load(&self.path("web.yml")).map_err(|error| error.to_string())
    }
}

/// A server behind the folder's configuration; ends when dropped.
struct Server {
    address: SocketAddr,
    _runtime: Runtime,
}

impl Server {
    fn start(folder: &Folder) -> Self {
        let security = Arc::new(folder.load().expect("a good configuration"));
        // As `railscope exporter` serves: one thread.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let exporter = Exporter::start_samplers(Vec::new(), Limits::default(), None);
        let exporter = Arc::new(exporter.expect("starts"));
        let listener = runtime
            .block_on(TcpListener::bind("127.0.0.1:0"))
            .expect("listens");
        let address = listener.local_addr().expect("an address");
        let never = std::future::pending();
        runtime.spawn(serve_secured(exporter, listener, security, never));
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// Status line and body of `/metrics`.
    fn get(&self, client: &Client, user: Option<&str>) -> Result<String, String> {
        client.get(self.address, user)
    }
}

#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn is_page(answer: &Result<String, String>) -> bool {
    answer.as_ref().is_ok_and(|answer| {
        answer.starts_with("HTTP/1.1 200") && answer.contains("railscope_exporter_build_info")
    })
}

#[test]
fn tls_is_spoken_to_those_who_trust_the_certificate_and_to_nobody_else() {
    let folder = Folder::new(&format!("{TLS}  min_version: TLS13\n"));
    let server = Server::start(&folder);
    let answer = server.get(&folder.authority.client(), None);
    assert!(is_page(&answer), "{answer:?}");
    let stranger = server.get(&Authority::new("other").client(), None);
    assert!(stranger.expect_err("no trust").contains("UnknownIssuer"));
    let old = server.get(&folder.authority.client().only_tls12(), None);
    assert!(old.expect_err("too old").contains("ProtocolVersion"));
    server
        .get(&Client::plain(), None)
        .expect_err("no plain HTTP on a TLS port");
}

#[test]
fn clients_show_a_certificate_of_the_right_authority() {
    for (kind, without, wrong, right) in [
        ("RequireAndVerifyClientCert", false, false, true),
        ("VerifyClientCertIfGiven", true, false, true),
    ] {
        let config = format!("{TLS}  client_ca_file: ca.crt\n  client_auth_type: {kind}\n");
        let folder = Folder::new(&config);
        let server = Server::start(&folder);
        let client = || folder.authority.client();
        let other = Authority::new("other");
        for (client, served) in [
            (client(), without),
            (client().showing(other.sign("prometheus")), wrong),
            (client().showing(folder.authority.sign("prometheus")), right),
        ] {
            let answer = server.get(&client, None);
            assert_eq!(is_page(&answer), served, "{kind}: {answer:?}");
        }
    }
}

/// The lowest cost that bcrypt supports; real ones begin at 10.
fn hash(password: &str) -> String {
    bcrypt::hash(password, 4).expect("hashes")
}

#[test]
fn users_show_their_password() {
    let (alice, bob) = (hash("wonderland"), hash(""));
    let config = format!(
        "basic_auth_users:\n  alice: {alice}\n  bob: {bob}\n\
         http_server_config:\n  headers:\n    X-Frame-Options: deny\n"
    );
    let folder = Folder::new(&config);
    let server = Server::start(&folder);
    for (user, served) in [
        (None, false),
        (Some("alice:wonderland"), true),
        // From memory now.
        (Some("alice:wonderland"), true),
        (Some("alice:Wonderland"), false),
        (Some("alice:Wonderland"), false),
        (Some("alice:"), false),
        (Some("alice"), false),
        (Some("bob:wonderland"), false),
        (Some("bob:"), true),
        (Some("mallory:wonderland"), false),
        (Some(":"), false),
    ] {
        let mut answer = String::new();
        // A busy machine may ask to try again.
        eventually("the password is checked", || {
            answer = server.get(&Client::plain(), user).expect("an answer");
            !answer.starts_with("HTTP/1.1 503")
        });
        let status = if served {
            "HTTP/1.1 200"
        } else {
            "HTTP/1.1 401"
        };
        assert!(answer.starts_with(status), "{user:?}: {answer}");
        let lower = answer.to_ascii_lowercase();
        assert_eq!(lower.contains("www-authenticate: basic"), !served);
        assert_eq!(lower.contains("railscope_exporter_build_info"), served);
        assert!(lower.contains("x-frame-options: deny"), "{answer}");
    }
}

#[test]
fn those_who_guess_hold_up_nobody_who_knows() {
    // A cost that takes a noticeable while.
    let known = bcrypt::hash("known", 9).expect("hashes");
    let folder = Folder::new(&format!("basic_auth_users:\n  alice: {known}\n"));
    let server = Server::start(&folder);
    let right = || {
        server
            .get(&Client::plain(), Some("alice:known"))
            .expect("an answer")
    };
    assert!(right().starts_with("HTTP/1.1 200"));
    std::thread::scope(|scope| {
        let guess = |number| {
            let user = format!("alice:guess-{number}");
            let server = &server;
            move || {
                server
                    .get(&Client::plain(), Some(&user))
                    .expect("an answer")
            }
        };
        let guesses: Vec<_> = (0..200).map(|number| scope.spawn(guess(number))).collect();
        for _ in 0..20 {
            assert!(right().starts_with("HTTP/1.1 200"));
        }
        for guess in guesses {
            let answer = guess.join().expect("ends");
            let refused = ["HTTP/1.1 401", "HTTP/1.1 503"];
            assert!(
                refused.iter().any(|status| answer.starts_with(status)),
                "{answer}"
            );
        }
    });
}

#[test]
fn a_new_certificate_is_taken_up_and_a_broken_or_weaker_configuration_is_not() {
    let folder = Folder::new(TLS);
    let server = Server::start(&folder);
    let old = folder.authority.client();
    assert!(is_page(&server.get(&old, None)));

    let next = Authority::new("next");
    folder.certify(&next);
    eventually("the new certificate is shown", || {
        is_page(&server.get(&next.client(), None))
    });

    let password = format!("{TLS}basic_auth_users:\n  alice: {}\n", hash("x"));
    folder.write("web.yml", &password);
    let asks = || {
        server
            .get(&next.client(), None)
            .is_ok_and(|said| said.starts_with("HTTP/1.1 401"))
    };
    eventually("a password is asked for", asks);
    for worse in [
        "",
        "tls_server_config:\n  cert_fil: x\n",
        TLS,
        "basic_auth_users: {}\n",
    ] {
        folder.write("web.yml", worse);
        std::thread::sleep(Duration::from_millis(2500));
        assert!(asks(), "{worse:?}");
    }
    let other = format!("{TLS}basic_auth_users:\n  bob: {}\n", hash("y"));
    folder.write("web.yml", &other);
    eventually("a good one is taken up again", || {
        is_page(&server.get(&next.client(), Some("bob:y")))
    });
}

#[test]
fn clients_that_never_shake_hands_hold_up_nobody() {
    let folder = Folder::new(TLS);
    let server = Server::start(&folder);
    let silent: Vec<_> = (0..40)
        .map(|_| std::net::TcpStream::connect(server.address).expect("connects"))
        .collect();
    let begun = Instant::now();
    assert!(is_page(&server.get(&folder.authority.client(), None)));
    assert!(begun.elapsed() < Duration::from_secs(5));
    drop(silent);
}

#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    let (certificate, key) = Authority::new("x").sign("localhost");
    let inline =
        |name: &str, text: &str| format!("  {name}: |\n    {}\n", text.replace('\n', "\n    "));
    let mixed = format!(
        "tls_server_config:\n{}  key_file: server.key\n",
        inline("cert", &certificate)
    );
    for (config, expected) in [
        (
            "tls_server_config:\n  cert_file: none.crt\n  key_file: server.key\n".to_owned(),
            "none.crt: No such file",
        ),
        (
            "tls_server_config:\n  cert_file: web.yml\n  key_file: server.key\n".to_owned(),
            "holds no -----BEGIN CERTIFICATE-----",
        ),
        (
            "tls_server_config:\n  cert_file: server.crt\n  key_file: server.crt\n".to_owned(),
            "holds no private key",
        ),
        (mixed, "keys may not be consistent"),
        (
            format!("{TLS}  cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]\n"),
            "unknown cipher suite \"TLS_RSA_WITH_RC4_128_SHA\": expected some of TLS_AES_256_GCM_SHA384",
        ),
        (
            "tls_server_config:\n  cert_fil: x\n".to_owned(),
            "web.yml:2: unknown key \"cert_fil\": did you mean cert_file?",
        ),
    ] {
        let error = Folder::new(&config).load().err().expect("refused");
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("PRIVATE KEY"), "{error}");
    }
    let missing = WebSecurity::load(Path::new("/nowhere/web.yml"))
        .err()
        .expect("refused");
    assert!(
        missing.to_string().contains("/nowhere/web.yml"),
        "{missing}"
    );
    let whole = format!(
        "tls_server_config:\n{}{}",
        inline("cert", &certificate),
        inline("key", &key)
    );
    let folder = Folder::new(&format!(
        "{whole}  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n"
    ));
    assert!(folder.load().expect("loads").speaks_tls());
}
