//! Web configurations that are read, and those that are refused with their line.

use super::*;

const HASH: &str = "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi";

/// What every line of a text is refused with, behind `web.yml:<line>: `.
const REFUSED: &[(&str, &str)] = &[
    (
        "tls_server_confg:\n  cert_file: x\n",
        "1: unknown key \"tls_server_confg\": did you mean tls_server_config?",
    ),
    (
        "a: 1\n",
        "1: unknown key \"a\": expected tls_server_config, http_server_config, basic_auth_users",
    ),
    (
        "tls_server_config:\n  cert_file: x\n  key_fil: y\n",
        "3: unknown key \"key_fil\": did you mean key_file?",
    ),
    (
        "tls_server_config:\n  cert_file: x\n",
        "1: tls_server_config needs key_file or key",
    ),
    (
        "tls_server_config:\n  cert_file: x\n  cert: y\n  key: z\n",
        "3: cert_file and cert exclude each other",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  min_version: TLS11\n",
        "4: min_version: TLS 1.0 and 1.1 are no longer safe and not offered",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  min_version: TLS31\n",
        "4: unknown min_version \"TLS31\": did you mean TLS13?",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  min_version: TLS13\n  max_version: TLS12\n",
        "1: min_version is above max_version",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  client_auth_type: RequireAndVerifyClientCert\n",
        "1: client_auth_type needs client_ca_file or client_ca",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  client_ca: z\n",
        "1: client_ca_file without client_auth_type checks no client: set it to RequireAndVerifyClientCert",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  client_auth_type: RequireAnyClientCert\n",
        "4: client_auth_type RequireAnyClientCert believes any certificate: use RequireAndVerifyClientCert",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  client_auth_type: RequireAndVerify\n",
        "4: unknown client_auth_type \"RequireAndVerify\": expected NoClientCert, VerifyClientCertIfGiven, RequireAndVerifyClientCert",
    ),
    (
        "tls_server_config:\n  client_allowed_sans: [a]\n",
        "2: client_allowed_sans is not supported: sign the certificates of allowed clients with a separate CA instead",
    ),
    (
        "tls_server_config:\n  cert_file: [x]\n  key: y\n",
        "2: cert_file: expected text",
    ),
    (
        "tls_server_config: yes\n",
        "1: expected tls_server_config to hold \"key: value\" lines",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  prefer_server_cipher_suites: often\n",
        "4: prefer_server_cipher_suites: expected true or false",
    ),
    (
        "tls_server_config:\n  cert: x\n  key: y\n  cipher_suites: A\n",
        "4: cipher_suites: expected a list of text",
    ),
    (
        "http_server_config:\n  headers:\n    X-Frame-Option: deny\n",
        "3: unknown key \"X-Frame-Option\": did you mean X-Frame-Options?",
    ),
    (
        "http_server_config:\n  headers:\n    X-Frame-Options: \"a\\nb\"\n",
        "3: X-Frame-Options: expected printable ASCII",
    ),
    (
        "http_server_config:\n  http2: maybe\n",
        "2: http2: expected true or false",
    ),
    (
        "rate_limit:\n  interval: 1s\n",
        "1: rate_limit is not supported: a scrape is answered from memory",
    ),
    (
        "\nbasic_auth_users:\n  alice: secret\n",
        "3: user \"alice\": expected a bcrypt hash such as $2y$10$…, as htpasswd -nBC 10 writes it",
    ),
    (
        "basic_auth_users:\n  alice: $2y$31$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
        "2: user \"alice\": a bcrypt cost of 31 takes too long to check: at most 15",
    ),
    (
        "basic_auth_users:\n  \"a:b\": $2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi\n",
        "2: user \"a:b\": a colon cannot be sent",
    ),
    (
        "basic_auth_users:\n  7: x\n",
        "2: a key of basic_auth_users is no text: put it in quotes",
    ),
    ("- a\n", "1: expected the file to hold \"key: value\" lines"),
    (
        "basic_auth_users: {}\nbasic_auth_users: {}\n",
        "2: duplicated key in mapping",
    ),
];

#[test]
fn what_is_wrong_is_said_with_its_line() {
    for (text, expected) in REFUSED {
        let refused = parse(Path::new("web.yml"), text).map_err(|error| error.to_string());
        assert_eq!(refused, Err(format!("web.yml:{expected}")), "{text}");
    }
    let broken = parse(Path::new("web.yml"), "a: [1\nb: 2\n").map_err(|error| error.line);
    assert!(matches!(broken, Err(1..=3)), "{broken:?}");
}

#[test]
fn a_whole_file_is_read() {
    let text = format!(
        "tls_server_config:\n  cert_file: tls/server.crt\n  key_file: /keys/server.key\n  \
         client_ca: |\n    PEM\n  client_auth_type: RequireAndVerifyClientCert\n  min_version: TLS13\n  \
         cipher_suites:\n    - TLS_AES_128_GCM_SHA256\n  prefer_server_cipher_suites: true\n  \
         curve_preferences: []\n  client_allowed_sans:\n\
         http_server_config:\n  http2: false\n  headers:\n    X-Frame-Options: deny\n\
         basic_auth_users:\n  prometheus: {HASH}\n"
    );
    let config = parse(Path::new("/etc/railscope/web.yml"), &text);
    let tls = TlsSettings {
        certificate: Pem::File("/etc/railscope/tls/server.crt".into()),
        key: Pem::File("/keys/server.key".into()),
        client_ca: Some(Pem::Inline("PEM\n".to_owned())),
        client_auth: ClientAuth::RequireAndVerifyClientCert,
        min_version: TlsVersion::Tls13,
        max_version: TlsVersion::Tls13,
        cipher_suites: vec!["TLS_AES_128_GCM_SHA256".to_owned()],
        prefer_server_cipher_suites: true,
    };
    let expected = WebConfig {
        tls: Some(tls),
        headers: vec![("X-Frame-Options", "deny".to_owned())],
        users: BTreeMap::from([("prometheus".to_owned(), HASH.to_owned())]),
    };
    assert_eq!(config, Ok(expected));
}

#[test]
fn what_a_template_leaves_empty_is_not_set() {
    for text in [
        "",
        "# nothing\n",
        "tls_server_config:\nhttp_server_config:\nbasic_auth_users:\n",
        "tls_server_config:\n  cert_file: \"\"\n  client_allowed_sans: []\nbasic_auth_users: {}\n",
    ] {
        let config = parse(Path::new("web.yml"), text);
        assert_eq!(config, Ok(WebConfig::default()), "{text:?}");
    }
}

#[test]
fn lists_in_lists_without_end_are_refused_and_not_followed_to_the_end_of_the_stack() {
    for text in ["- ".repeat(30_000), "? ".repeat(30_000)] {
        let error = parse("web.yml".as_ref(), &text)
            .err()
            .map(|error| error.to_string());
        let expected = "web.yml:1: too much nesting: expected at most 64 levels";
        assert_eq!(error.as_deref(), Some(expected), "{}", &text[..2]);
    }
}
