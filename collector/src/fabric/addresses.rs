//! Addresses of switches and of their ports: which one replies to a probe on its path.

use std::collections::BTreeMap;

use railscope_model::identity::{PortName, SwitchName};

use crate::analyzer::Analyzer;

/// By address as it is reported, such as `10.1.0.7`: the switch, and the port if it is the address of
/// one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(BTreeMap<String, (SwitchName, Option<PortName>)>);

impl Addresses {
    /// The owner of an address.
    pub fn of(&self, address: &str) -> Option<&(SwitchName, Option<PortName>)> {
        self.0.get(address)
    }
}

impl FromIterator<(String, (SwitchName, Option<PortName>))> for Addresses {
    fn from_iter<I: IntoIterator<Item = (String, (SwitchName, Option<PortName>))>>(all: I) -> Self {
        Self(all.into_iter().collect())
    }
}

impl Analyzer {
    /// Sets the addresses of switches and their ports, in place of the previous ones: by
    /// them the paths of probes are known.
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = addresses;
        // What was found of the fabric by addresses is found again.
        self.epoch += 1;
    }
}
