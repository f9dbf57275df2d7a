//! `--probe.listen` and `--probe.list`: whether the exporter answers probes, and which targets it
//! probes.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use railscope_exporter::ProbeAccess;
use railscope_exporter::sources::probe::{ListAccess, ListError, ProbeList, RdmaAccess, Told};
use reqwest::{Client, StatusCode, Url};

/// How often a list is fetched.
const FETCH_EVERY: Duration = Duration::from_secs(60);
/// How soon it is fetched again after it could not be had.
const FETCH_AGAIN: Duration = Duration::from_secs(10);
/// Timeout of its server.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest list that is taken, bytes: 256 targets are 40 kB.
const LARGEST: usize = 1024 * 1024;

#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Answer the probes of other nodes on this UDP address, `host:port` or `:port` (10661 is usual). Off by default.
    #[arg(
        long = "probe.listen",
        env = "RAILSCOPE_PROBE_LISTEN",
        value_name = "ADDR:PORT",
        value_parser = listen
    )]
    listen: Option<Listen>,
    /// Probe the NICs on this list: a file, read again when it changes, or an http URL, fetched every minute. Off
    /// by default.
    #[arg(
        long = "probe.list",
        env = "RAILSCOPE_PROBE_LIST",
        value_name = "FILE|URL"
    )]
    list: Option<String>,
    /// Also probe and answer by RDMA with this program: `railscope-rdma-probe`, which needs libibverbs and the devices below
    /// /dev/infiniband. Other nodes find it by `--probe.listen`. Off by default.
    #[arg(
        long = "probe.rdma",
        env = "RAILSCOPE_PROBE_RDMA",
        value_name = "PROGRAM"
    )]
    rdma: Option<PathBuf>,
}

/// Addresses to respond at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listen(Vec<SocketAddr>);

/// Fetches the list of a URL for as long as it is polled.
#[derive(Debug)]
pub(crate) struct Fetcher {
    client: Client,
    url: Url,
    told: Told,
}

impl ProbeArgs {
    /// The exporter's settings, and the fetcher of its list.
    pub(crate) fn access(self) -> anyhow::Result<(ProbeAccess, Option<Fetcher>)> {
        let (list, fetcher) = match self.list {
            None => (None, None),
            Some(place) => {
                let (list, fetcher) = list(place).context("--probe.list")?;
                (Some(list), fetcher)
            }
        };
        let listen = self.listen.map(|Listen(addresses)| addresses);
        let access = ProbeAccess {
            listen: listen.unwrap_or_default(),
            list,
            rdma: self.rdma.map(RdmaAccess::new),
        };
        Ok((access, fetcher))
    }
}

/// A file is read once here, so that a bad one stops the start; one that is not there yet does not.
fn list(place: String) -> anyhow::Result<(ListAccess, Option<Fetcher>)> {
    if !place.contains("://") {
        let path = PathBuf::from(place);
        match ProbeList::load(&path) {
            Ok(_) => {}
            Err(missing @ ListError::Unreadable { .. }) => {
                tracing::warn!("{missing}: no probes are sent until it exists");
            }
            Err(bad) => return Err(bad.into()),
        }
        return Ok((ListAccess::File(path), None));
    }
    let url = Url::parse(&place).with_context(|| format!("{place:?} is not a URL"))?;
    if url.scheme() != "http" {
        bail!(
            "{place:?}: expected a file or http://host:port/path; this version fetches http, not https"
        );
    }
    // Nodes are near; a proxy of the environment is meant for the world outside.
    let client = Client::builder()
        .user_agent(concat!("railscope-exporter/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .timeout(PATIENCE)
        .build()?;
    let told = Told::default();
    let fetcher = Fetcher {
        client,
        url,
        told: told.clone(),
    };
    Ok((ListAccess::Told(told), Some(fetcher)))
}

impl Fetcher {
    /// Fetches the list over and over.
    pub(crate) async fn run(self) {
        loop {
            let fetched = self.fetch().await;
            let pause = if fetched.is_ok() {
                FETCH_EVERY
            } else {
                FETCH_AGAIN
            };
            self.told.tell(fetched);
            tokio::time::sleep(pause).await;
        }
    }

    async fn fetch(&self) -> Result<ProbeList, ListError> {
        let file = self.url.to_string();
        match self.text().await {
            Ok(text) => ProbeList::parse(&file, &text),
            Err(error) => Err(ListError::Unreadable {
                file,
                problem: format!("{error:#}"),
            }),
        }
    }

    async fn text(&self) -> anyhow::Result<String> {
        let mut response = self.client.get(self.url.clone()).send().await?;
        if response.status() != StatusCode::OK {
            bail!("answered {}", response.status());
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len() + chunk.len() > LARGEST {
                bail!("more than {LARGEST} bytes");
            }
            body.extend_from_slice(&chunk);
        }
        Ok(String::from_utf8(body)?)
    }
}

/// Reads `host:port` with an address for a host, or `:port` for every address.
fn listen(text: &str) -> Result<Listen, String> {
    let expected =
        || format!("{text:?} is not an address such as :10661, 10.0.1.2:10661 or [fd00::2]:10661");
    let addresses = match text.strip_prefix(':') {
        Some(port) => {
            let port: u16 = port.parse().map_err(|_| expected())?;
            vec![
                (Ipv4Addr::UNSPECIFIED, port).into(),
                (Ipv6Addr::UNSPECIFIED, port).into(),
            ]
        }
        None => vec![text.parse::<SocketAddr>().map_err(|_| expected())?],
    };
    if addresses.iter().any(|address| address.port() == 0) {
        return Err(expected());
    }
    Ok(Listen(addresses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    #[test]
    fn an_address_to_answer_at_is_one_or_all() {
        let at = |text| listen(text).map(|Listen(addresses)| addresses.len());
        assert_eq!(at(":10661"), Ok(2));
        assert_eq!(at("10.0.1.2:10661"), Ok(1));
        assert_eq!(at("[fd00::2]:10661"), Ok(1));
        for bad in ["", ":", ":0", "10.0.1.2", "gpu-1:10661", ":65536"] {
            assert!(at(bad).is_err(), "{bad}");
        }
    }

    /// Result of a response of the server.
    async fn fetched(answer: &str) -> Result<usize, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let (_, fetcher) = list(format!("http://{at}/probes?node=a")).expect("a URL");
        let answer = answer.to_owned();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let mut question = [0; 1024];
            let length = stream.read(&mut question).await.expect("a question");
            assert!(question[..length].starts_with(b"GET /probes?node=a HTTP/1.1\r\n"));
            // A client that has read enough closes the connection.
            stream.write_all(answer.as_bytes()).await.ok();
        });
        let list = fetcher.expect("a fetcher").fetch().await;
        server.await.expect("the server");
        let list = list.map(|list| list.targets.len());
        list.map_err(|error| error.to_string().replace(&at.to_string(), "AT"))
    }

    #[tokio::test]
    async fn a_list_is_fetched_or_it_is_said_why_not() {
        let answer = |status: &str, body: &str| {
            let length = body.len();
            format!(
                "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        };
        let good = fetched(&answer("200 OK", r#"{"targets":[]}"#)).await;
        assert_eq!(good, Ok(0));
        let bad = fetched(&answer("200 OK", r#"{"targets":7}"#)).await;
        let said = "http://AT/probes?node=a:1:12: invalid type: integer `7`, expected a sequence";
        assert_eq!(bad, Err(said.to_owned()));
        let absent = fetched(&answer("404 Not Found", "")).await;
        let said = "http://AT/probes?node=a: answered 404 Not Found";
        assert_eq!(absent, Err(said.to_owned()));
        let large = fetched(&answer("200 OK", &" ".repeat(LARGEST + 1))).await;
        let said = format!("http://AT/probes?node=a: more than {LARGEST} bytes");
        assert_eq!(large, Err(said));
    }

    #[test]
    fn a_list_is_a_file_or_an_http_url_and_a_bad_one_is_said_at_the_start() {
        let temp = tempfile::tempdir().expect("a temporary directory");
        let path = temp.path().join("list.json");
        let place = path.display().to_string();
        assert!(matches!(
            list(place.clone()),
            Ok((ListAccess::File(_), None))
        ));
        std::fs::write(&path, "{\n  \"targets\": 3 }").expect("write");
        let error = list(place.clone()).expect_err("a bad list").to_string();
        let said = format!("{place}:2:14: invalid type: integer `3`, expected a sequence");
        assert_eq!(error, said);
        let url = list("http://collector:10670/api/v1/probes?node=a".to_owned());
        assert!(matches!(url, Ok((ListAccess::Told(_), Some(_)))));
        for bad in ["https://collector/x", "ftp://collector/x", "http://"] {
            assert!(list(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
