//! Opens TCP connections, with TLS for `https`.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tower_service::Service;

/// Opens connections to the authority of a URL.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    tls: Option<Arc<ClientConfig>>,
    limit: Duration,
}

impl Connector {
    /// `limit` is the time for a connection, the TLS handshake included.
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, limit: Duration) -> Self {
        Self { tls, limit }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Stream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tls, limit } = self.clone();
        Box::pin(async move {
            let late = |_| {
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no connection within {limit:?}"),
                )
            };
            let stream = timeout(limit, open(&uri, tls)).await.map_err(late)??;
            Ok(TokioIo::new(stream))
        })
    }
}

async fn open(uri: &Uri, tls: Option<Arc<ClientConfig>>) -> io::Result<Stream> {
    let host = uri.host().unwrap_or_default();
    // Brackets of an IPv6 address belong to the URL.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = uri
        .port_u16()
        .unwrap_or(if tls.is_some() { 443 } else { 80 });
    let tcp = TcpStream::connect((host, port)).await?;
    tcp.set_nodelay(true)?;
    let Some(config) = tls else {
        return Ok(Stream(Box::new(tcp)));
    };
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let stream = TlsConnector::from(config).connect(name, tcp).await?;
    Ok(Stream(Box::new(stream)))
}

/// Bytes in both directions.
trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A TCP or TLS connection.
pub(super) struct Stream(Box<dyn Duplex>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, to)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
