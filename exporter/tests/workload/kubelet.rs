//! A kubelet's pod-resources service: tonic's server on a Unix socket, with the exporter's own messages.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http;
use railscope_exporter::sampler::Machine;
use railscope_exporter::sources::podresources::wire::{
    ClaimResource, ContainerDevices, ContainerResources, DynamicResource, ListPodResourcesRequest,
    ListPodResourcesResponse, PodResources,
};
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

/// Its reaction to a request.
#[derive(Clone)]
pub(crate) enum Answer {
    Pods(Vec<PodResources>),
    /// Accepts the request and does not reply.
    Never,
    /// Listens and does not even accept.
    NoHttp,
    /// Has no such method.
    Unimplemented,
}

/// A running kubelet; ends when dropped.
pub(crate) struct Kubelet {
    runtime: Option<Runtime>,
    socket: PathBuf,
    _listener: Option<std::os::unix::net::UnixListener>,
}

impl Kubelet {
    pub(crate) fn start(machine: &Machine, answer: Answer) -> Self {
        let socket = machine.workloads.kubelet_socket.clone();
        if let Answer::NoHttp = answer {
            let listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
            return Self {
                runtime: None,
                socket,
                _listener: Some(listener),
            };
        }
        let runtime = Runtime::new().expect("a runtime");
        let listener = {
            let _inside = runtime.enter();
            UnixListener::bind(&socket).expect("binds")
        };
        let server = Server::builder().add_service(Lister(answer));
        runtime.spawn(server.serve_with_incoming(UnixListenerStream::new(listener)));
        Self {
            runtime: Some(runtime),
            socket,
            _listener: None,
        }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        fs::remove_file(&self.socket).expect("removes its socket");
    }
}

/// The service, written as tonic's generator would.
#[derive(Clone)]
struct Lister(Answer);

impl NamedService for Lister {
    const NAME: &'static str = "v1.PodResourcesLister";
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl tower::Service<http::Request<Body>> for Lister {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = List(self.0.clone());
        Box::pin(async move {
            assert_eq!(request.uri().path(), "/v1.PodResourcesLister/List");
            let codec = ProstCodec::<ListPodResourcesResponse, ListPodResourcesRequest>::default();
            Ok(Grpc::new(codec).unary(method, request).await)
        })
    }
}

struct List(Answer);

impl UnaryService<ListPodResourcesRequest> for List {
    type Response = ListPodResourcesResponse;
    type Future = BoxFuture<Result<Response<Self::Response>, Status>>;

    fn call(&mut self, _: Request<ListPodResourcesRequest>) -> Self::Future {
        let answer = self.0.clone();
        Box::pin(async move {
            match answer {
                Answer::Pods(pod_resources) => {
                    Ok(Response::new(ListPodResourcesResponse { pod_resources }))
                }
                Answer::Unimplemented => Err(Status::unimplemented("an old kubelet")),
                Answer::Never | Answer::NoHttp => std::future::pending().await,
            }
        })
    }
}

pub(crate) fn pod(
    namespace: &str,
    name: &str,
    containers: Vec<ContainerResources>,
) -> PodResources {
    PodResources {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        containers,
    }
}

/// A container with device ids by resource, and the devices of its one claim.
pub(crate) fn container(
    name: &str,
    devices: &[(&str, &[&str])],
    claims: &[(&str, &str, &str)],
) -> ContainerResources {
    let devices = devices.iter().map(|(resource, ids)| ContainerDevices {
        resource_name: (*resource).to_owned(),
        device_ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    });
    ContainerResources {
        name: name.to_owned(),
        devices: devices.collect(),
        dynamic_resources: vec![DynamicResource {
            claim_name: "claim".to_owned(),
            claim_namespace: "ml".to_owned(),
            claim_resources: claims.iter().map(claim).collect(),
        }],
    }
}

fn claim((driver, pool, device): &(&str, &str, &str)) -> ClaimResource {
    ClaimResource {
        driver_name: (*driver).to_owned(),
        pool_name: (*pool).to_owned(),
        device_name: (*device).to_owned(),
    }
}
