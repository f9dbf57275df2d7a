//! The forwarding tables of an InfiniBand subnet as `dump_fts` prints them.

use std::fmt::Write as _;

use crate::cluster::Cluster;
use crate::show::ibnetdiscover::describe;
use crate::spec::Transport;
use crate::traffic::router::Routing;
use crate::wiring::Device;

/// The text of `dump_fts` on the links that are up now; none where switches do not choose by the destination alone.
pub fn dump_fts(cluster: &Cluster) -> Option<String> {
    let spec = cluster.spec();
    let by_destination = matches!(spec.routing, Routing::Static | Routing::Minhop);
    if !by_destination || spec.transport != Transport::Infiniband {
        return None;
    }
    let conditions = cluster.conditions();
    let wiring = &conditions.wiring;
    let router = cluster.router(conditions);
    let lids = wiring.nics.iter().map(|nic| nic.lid);
    let highest = lids.max()?;
    let mut text = String::new();
    for switch in 0..wiring.switches.len() {
        let (description, _, guid) = describe(wiring, Device::Switch(switch));
        let _infallible = write!(
            text,
            "Unicast lids [0x0-{highest:#x}] of switch DR path slid 0; dlid 0; 0 guid 0x{:016x} ({description}):\n  \
             Lid  Out   Destination\n       Port     Info \n",
            guid.0
        );
        let mut entries = 0;
        for (to, nic) in wiring.nics.iter().enumerate() {
            let Some(lane) = router.forwards(switch, to) else {
                continue;
            };
            let (_, port) = wiring.cables[lane.cable()].ends[1 - lane.far_end()];
            let (destination, lid, guid) = (nic.description(), nic.lid, nic.guid);
            let _infallible = writeln!(
                text,
                "0x{lid:04x} {port:03} : (Channel Adapter portguid 0x{:016x}: '{destination}')",
                guid.0
            );
            entries += 1;
        }
        let _infallible = writeln!(text, "{entries} valid lids dumped \n");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ClusterSpec;
    use crate::traffic::router::Lane;

    #[test]
    fn tables_lead_where_packets_go() {
        let spec = ClusterSpec::demo(8).expect("a cluster");
        assert_eq!(
            dump_fts(&Cluster::new(spec.clone(), 1).expect("a cluster")),
            None,
            "sprayed"
        );
        for routing in [Routing::Static, Routing::Minhop] {
            let spec = ClusterSpec {
                routing,
                ..spec.clone()
            };
            leads_where_packets_go(&Cluster::new(spec, 1).expect("a cluster"));
        }
    }

    fn leads_where_packets_go(cluster: &Cluster) {
        let wiring = cluster.wiring();
        let router = cluster.router(cluster.conditions());
        let far_end = |lane: Lane| wiring.cables[lane.cable()].ends[lane.far_end()].0;
        let nics = wiring.nics.len();
        let mut hops = 0;
        for (from, to) in (0..nics).map(|from| (from, (from * 7 + 13) % nics)) {
            let Some(path) = router.path(from, to, 0) else {
                continue;
            };
            for lanes in path.windows(2) {
                let Device::Switch(switch) = far_end(lanes[0].0) else {
                    panic!("a switch between two cables");
                };
                assert_eq!(router.forwards(switch, to), Some(lanes[1].0));
                hops += 1;
            }
        }
        assert!(hops > nics, "{hops}");
        let text = dump_fts(cluster).expect("tables");
        let headers = text.lines().filter(|line| line.starts_with("Unicast lids"));
        assert_eq!(headers.count(), wiring.switches.len());
    }
}
