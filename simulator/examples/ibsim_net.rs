//! Prints the subnet of a cluster (a TOML file such as those in tests/fabrics) as a net file of ibsim.

#![allow(clippy::print_stdout)] // that is what it is for

use std::io::Write as _;

use railscope_simulator::show::ibnetdiscover::ibsim_net;
use railscope_simulator::spec::ClusterSpec;
use railscope_simulator::wiring::Wiring;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("usage: ibsim_net CLUSTER.toml")?;
    let spec: ClusterSpec = toml::from_str(&std::fs::read_to_string(&path)?)?;
    let wiring = Wiring::plan(&spec)?;
    let net = ibsim_net(&wiring);
    eprintln!(
        "{} switches, {} adapters",
        wiring.switches.len(),
        wiring.nics.len()
    );
    std::io::stdout().write_all(net.as_bytes())?;
    Ok(())
}
