//! Messages of the kubelet's service `v1.PodResourcesLister`, the parts needed for devices.
//!
//! Field numbers are those of `k8s.io/kubelet/pkg/apis/podresources/v1/api.proto`. Fields that are not here
//! (exclusive CPUs, memory, NUMA topology) are skipped when read.
#![allow(missing_docs, reason = "the names are the protocol's")]

/// The request: everything.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodResourcesRequest {}

/// Every pod of the node, those without devices too.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodResourcesResponse {
    #[prost(message, repeated, tag = "1")]
    pub pod_resources: Vec<PodResources>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodResources {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(message, repeated, tag = "3")]
    pub containers: Vec<ContainerResources>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerResources {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<ContainerDevices>,
    #[prost(message, repeated, tag = "5")]
    pub dynamic_resources: Vec<DynamicResource>,
}

/// Devices of one resource, `nvidia.com/gpu`: what a device plugin named them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerDevices {
    #[prost(string, tag = "1")]
    pub resource_name: String,
    #[prost(string, repeated, tag = "2")]
    pub device_ids: Vec<String>,
}

/// One claim of Dynamic Resource Allocation.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DynamicResource {
    #[prost(string, tag = "2")]
    pub claim_name: String,
    #[prost(string, tag = "3")]
    pub claim_namespace: String,
    #[prost(message, repeated, tag = "4")]
    pub claim_resources: Vec<ClaimResource>,
}

/// One device of a claim. Kubelets before 1.34 leave driver, pool and device empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ClaimResource {
    #[prost(string, tag = "2")]
    pub driver_name: String,
    #[prost(string, tag = "3")]
    pub pool_name: String,
    #[prost(string, tag = "4")]
    pub device_name: String,
}
