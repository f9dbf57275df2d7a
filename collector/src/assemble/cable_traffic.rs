//! What ports carry, for the lint: whether a cable that the plan has otherwise is in use.

use std::sync::Arc;

use railscope_model::fabric::Fabric;
use railscope_model::identity::Part;
use railscope_model::metric::{
    Metric, RDMA_PORT_RECEIVE_BYTES, RDMA_PORT_TRANSMIT_BYTES, SWITCH_PORT_RECEIVE_BYTES,
    SWITCH_PORT_TRANSMIT_BYTES,
};
use railscope_model::plan::{Socket, WiringPlan};

use crate::fabric::lint::{Finding, weigh};
use crate::store::History;

/// Time over which bytes are counted: several steps of a training job, so that both ends of a cable saw the same ones.
const SECONDS: f64 = 60.0;

/// The findings, those against a plan weighed with what the ports carry now.
pub(crate) fn weighed(
    findings: &Arc<Vec<Finding>>,
    fabric: &Fabric,
    plan: Option<&WiringPlan>,
    history: &History,
) -> Arc<Vec<Finding>> {
    match plan {
        Some(plan) if !findings.is_empty() => {
            let rates = |socket: &Socket| rates(history, socket);
            Arc::new(weigh(findings, fabric, plan, &rates))
        }
        _ => Arc::clone(findings),
    }
}

/// Bytes per second that a port sends and receives.
fn rates(history: &History, socket: &Socket) -> Option<[f64; 2]> {
    let port = socket.port.to_string();
    let (node, labels, metrics): (_, Vec<&str>, [&'static Metric; 2]) = match &socket.part {
        Part::Nic(node, device) => (
            history.node(node)?,
            vec![device.as_str(), &port],
            [&RDMA_PORT_TRANSMIT_BYTES, &RDMA_PORT_RECEIVE_BYTES],
        ),
        Part::Switch(switch) => (
            history.switch(switch)?,
            vec![&port],
            [&SWITCH_PORT_TRANSMIT_BYTES, &SWITCH_PORT_RECEIVE_BYTES],
        ),
        _ => return None,
    };
    let rate = |metric| Some(node.window(metric, &labels)?.increase(SECONDS)?.rate());
    Some([rate(metrics[0])?, rate(metrics[1])?])
}
