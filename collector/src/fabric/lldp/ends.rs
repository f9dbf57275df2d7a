//! Ends of cables in numbers: there are two for each of hundreds of thousands of cables, and each is named four times.

use foldhash::fast::FixedState;
use indexmap::IndexSet;
use railscope_model::fabric::PartId;
use railscope_model::identity::{PortName, PortWord, SwitchName};

/// One end of a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    /// A port of a NIC.
    Nic(PartId, u8),
    /// A port of a switch.
    Switch(SwitchNumber, PortNumber),
}

/// A switch of [`SwitchPorts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SwitchNumber(pub u32);

/// A port of a switch of [`SwitchPorts`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortNumber(u16);

/// Switches and their ports, each counted from 0 as it is first reported.
#[derive(Debug, Default)]
pub struct SwitchPorts {
    switches: IndexSet<SwitchName, FixedState>,
    /// By number of the switch.
    ports: Vec<Ports>,
}

/// Ports of one switch.
#[derive(Debug, Default)]
struct Ports {
    /// Whether it reports its neighbors.
    speaks: bool,
    names: IndexSet<PortName, FixedState>,
    /// So many of them, the first, the switch reported itself.
    own: usize,
}

impl SwitchPorts {
    /// A switch that reports its neighbors.
    pub fn speaker(&mut self, name: &SwitchName) -> SwitchNumber {
        let switch = self.switch(name);
        self.of_mut(switch).speaks = true;
        switch
    }

    /// A switch that others report.
    pub fn switch(&mut self, name: &SwitchName) -> SwitchNumber {
        let (place, is_new) = self.switches.insert_full(name.clone());
        if is_new {
            self.ports.push(Ports::default());
        }
        SwitchNumber(place as u32)
    }

    /// A port that the switch itself reports about. All of these are added before [`SwitchPorts::port`] is called.
    /// None for a text that cannot be a port's name, and for a switch with more than 65,536 of them: no switch has.
    pub fn own_port(&mut self, switch: SwitchNumber, text: &str) -> Option<End> {
        let end = self.port(switch, PortWord::read(text).ok()?)?;
        let ports = self.of_mut(switch);
        ports.own = ports.names.len();
        Some(end)
    }

    /// A port of a switch by any of its names; none as [`SwitchPorts::own_port`].
    pub fn port(&mut self, switch: SwitchNumber, word: PortWord<'_>) -> Option<End> {
        let names = &mut self.of_mut(switch).names;
        let known = names.get_index_of(&word);
        let place = known.unwrap_or_else(|| names.insert_full(word.into()).0);
        Some(End::Switch(switch, PortNumber(u16::try_from(place).ok()?)))
    }

    /// Switches that report their neighbors.
    pub(super) fn speakers(&self) -> impl Iterator<Item = (SwitchNumber, &SwitchName)> {
        let all = (0..).map(SwitchNumber).zip(&self.switches);
        all.filter(|(switch, _)| self.of(*switch).speaks)
    }

    /// Whether a switch reports its neighbors.
    pub(super) fn speaks(&self, name: &SwitchName) -> bool {
        let switch = self.find(name.as_str());
        switch.is_some_and(|switch| self.of(switch).speaks)
    }

    /// A switch by its name.
    pub(super) fn find(&self, name: &str) -> Option<SwitchNumber> {
        let place = self.switches.get_index_of(name)?;
        Some(SwitchNumber(place as u32))
    }

    /// A port of this name of which the switch itself reports.
    pub(super) fn own(&self, switch: SwitchNumber, word: PortWord<'_>) -> Option<End> {
        let ports = self.of(switch);
        let place = ports.names.get_index_of(&word)?;
        (place < ports.own).then_some(End::Switch(switch, PortNumber(place as u16)))
    }

    /// Whether a switch that reports its own ports has none of this name.
    pub(super) fn is_foreign(&self, switch: SwitchNumber, port: PortNumber) -> bool {
        let own = self.of(switch).own;
        own > 0 && usize::from(port.0) >= own
    }

    /// Names of a switch and of its port.
    pub(super) fn names(&self, switch: SwitchNumber, port: PortNumber) -> (&SwitchName, &PortName) {
        let name = &self.switches[switch.0 as usize];
        (name, &self.of(switch).names[usize::from(port.0)])
    }

    /// Names of all ports of a switch that were reported.
    pub(super) fn all(&self, switch: SwitchNumber) -> &IndexSet<PortName, FixedState> {
        &self.of(switch).names
    }

    /// How many switches there are.
    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    fn of(&self, switch: SwitchNumber) -> &Ports {
        &self.ports[switch.0 as usize]
    }

    fn of_mut(&mut self, switch: SwitchNumber) -> &mut Ports {
        &mut self.ports[switch.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_takes_eight_bytes_as_there_are_hundreds_of_thousands() {
        assert_eq!(size_of::<End>(), 8);
    }

    #[test]
    fn ports_that_others_name_are_foreign_to_a_switch_that_tells_its_own() {
        let mut ports = SwitchPorts::default();
        let name = |text: &str| text.parse::<SwitchName>().expect(text);
        let (leaf, quiet) = (ports.speaker(&name("leaf")), ports.switch(&name("quiet")));
        let own = ports.own_port(leaf, "swp1");
        assert_eq!(ports.port(leaf, PortWord::Name("swp1")), own);
        for (switch, word, foreign) in [
            (leaf, "swp1", false),
            (leaf, "Eth1", true),
            (quiet, "Eth1", false),
        ] {
            let Some(End::Switch(_, port)) = ports.port(switch, PortWord::Name(word)) else {
                panic!("{word}")
            };
            assert_eq!(ports.is_foreign(switch, port), foreign, "{word}");
        }
    }
}
