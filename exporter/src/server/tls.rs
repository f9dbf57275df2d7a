//! A listener whose connections use TLS: handshakes run in parallel, so that a slow client delays
//! no other client.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;

use super::security::WebSecurity;

/// Timeout of a client's TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes that run at once; more wait in the kernel's queue.
const HANDSHAKES: usize = 64;
/// After an error of the listener itself, such as too many open files.
const PAUSE: Duration = Duration::from_secs(1);

/// What both a TCP and a TLS connection are.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Connections that are ready to be served.
pub(super) struct SecuredListener {
    ready: mpsc::Receiver<(Box<dyn Stream>, SocketAddr)>,
    address: SocketAddr,
}

impl SecuredListener {
    /// Accepts on a listener from now on, for as long as this lives.
    pub(super) fn new(listener: TcpListener, security: Arc<WebSecurity>) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, ready) = mpsc::channel(HANDSHAKES);
        tokio::spawn(async move {
            tokio::select! {
                () = accept(&listener, &security, &sender) => {}
                () = sender.closed() => {}
            }
        });
        Ok(Self { ready, address })
    }
}

async fn accept(
    listener: &TcpListener,
    security: &Arc<WebSecurity>,
    sender: &mpsc::Sender<(Box<dyn Stream>, SocketAddr)>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let (security, sender) = (Arc::clone(security), sender.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Some(stream) = shake_hands(stream, from, &security).await {
                // The server is stopping.
                sender.send((stream, from)).await.ok();
            }
        });
    }
}

async fn shake_hands(
    stream: TcpStream,
    from: SocketAddr,
    security: &WebSecurity,
) -> Option<Box<dyn Stream>> {
    let Some(tls) = security.now().tls.clone() else {
        return Some(Box::new(stream));
    };
    let shaken = tokio::time::timeout(HANDSHAKE, TlsAcceptor::from(tls).accept(stream)).await;
    match shaken {
        Ok(Ok(stream)) => Some(Box::new(stream)),
        // Anybody can cause these: they are no news by default.
        Ok(Err(error)) => {
            tracing::debug!(%from, %error, "no TLS connection");
            None
        }
        Err(_) => {
            tracing::debug!(%from, "no TLS connection within {HANDSHAKE:?}");
            None
        }
    }
}

impl Listener for SecuredListener {
    type Io = Box<dyn Stream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(ready) => ready,
            // The accepting task ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
