//! Which container holds which device: the kubelet's pod-resources service, gRPC on a Unix socket.

pub mod wire;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use railscope_model::reading::Status;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, client::Grpc};
use tonic_prost::ProstCodec;
use tower::service_fn;

use wire::{ListPodResourcesRequest, ListPodResourcesResponse, PodResources};

/// Timeout of the request, including the connection. A kubelet replies in milliseconds.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Largest reply, bytes: the kubelet's own limit. tonic's default of 4 MiB is too small for a node with
/// many CPUs and pods, whose exclusive CPUs are all listed.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// Why the kubelet gave no list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// Nothing listens, or it refuses the connection.
    #[error("cannot connect to {socket}: {cause}")]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        cause: io::Error,
    },
    /// It did not reply within [`TIMEOUT`].
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    /// It answered with an error, or with something that is no list.
    #[error("{0}")]
    Refused(#[from] Box<tonic::Status>),
    /// The client could not be started.
    #[error("cannot start the client: {0}")]
    Client(#[source] io::Error),
    /// The connection broke while it was set up.
    #[error("HTTP/2 handshake failed: {0}")]
    Transport(#[from] tonic::transport::Error),
}

impl From<&ListError> for Status {
    fn from(error: &ListError) -> Self {
        match error {
            ListError::Connect { cause, .. } => match cause.kind() {
                io::ErrorKind::NotFound => Self::Absent,
                io::ErrorKind::PermissionDenied => Self::Denied,
                _ => Self::Failed,
            },
            ListError::Timeout => Self::Timeout,
            ListError::Refused(status) => match status.code() {
                Code::Unimplemented => Self::Unsupported,
                Code::PermissionDenied | Code::Unauthenticated => Self::Denied,
                Code::DeadlineExceeded => Self::Timeout,
                _ => Self::Failed,
            },
            ListError::Client(_) | ListError::Transport(_) => Self::Failed,
        }
    }
}

/// Sends one request, in this thread, within [`TIMEOUT`]. A separate connection for each request costs 0.1 ms and
/// outlives no restart of the kubelet.
///
/// # Errors
/// There is no kubelet, or it returned no list.
pub fn list(socket: &Path) -> Result<Vec<PodResources>, ListError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ListError::Client)?;
    let asked = runtime.block_on(async { tokio::time::timeout(TIMEOUT, ask(socket)).await });
    // A kubelet that sends without end keeps nothing of ours busy.
    runtime.shutdown_background();
    asked.map_err(|_| ListError::Timeout)?
}

async fn ask(socket: &Path) -> Result<Vec<PodResources>, ListError> {
    let mut client = Grpc::new(connect(socket).await?).max_decoding_message_size(LARGEST_ANSWER);
    client.ready().await?;
    let path = PathAndQuery::from_static("/v1.PodResourcesLister/List");
    let request = Request::new(ListPodResourcesRequest {});
    let codec = ProstCodec::<ListPodResourcesRequest, ListPodResourcesResponse>::default();
    let answer = client.unary(request, path, codec).await.map_err(Box::new)?;
    Ok(answer.into_inner().pod_resources)
}

async fn connect(socket: &Path) -> Result<Channel, ListError> {
    let failed = |cause| ListError::Connect {
        socket: socket.to_owned(),
        cause,
    };
    // A path that is too long for a socket address is still the path of nothing, where nothing is.
    std::fs::symlink_metadata(socket).map_err(failed)?;
    // Connected here and not in the connector, whose errors have lost their kind.
    let stream = UnixStream::connect(socket).await.map_err(failed)?;
    let mut once = Some(stream);
    let connector = service_fn(move |_| {
        let stream = once.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| io::Error::other("connected once already")) }
    });
    // The name is what a Unix socket has no use for, but HTTP/2 has a field for.
    let endpoint = Endpoint::from_static("http://localhost");
    Ok(endpoint.connect_with_connector(connector).await?)
}
