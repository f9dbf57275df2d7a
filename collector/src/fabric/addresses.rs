//! Addresses of switches and of their ports: who it is that answers a probe on its way.

use std::collections::BTreeMap;

use railscope_model::identity::{PortName, SwitchName};

use crate::analyzer::Analyzer;

/// By address as it is told, such as `10.1.0.7`: the switch, and the port if it is the address of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(BTreeMap<String, (SwitchName, Option<PortName>)>);

impl Addresses {
    /// Who has an address.
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
    /// Says which addresses switches and their ports have, in place of what was said before: by them the ways of probes are
    /// known.
    pub fn set_addresses(&mut self, addresses: Addresses) {
        self.addresses = addresses;
        // What was found of the fabric by addresses is found anew.
        self.epoch += 1;
    }
}
