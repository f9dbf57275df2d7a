//! Changes one after another as the difference between before the first and after the last.

use std::collections::BTreeMap;

use railscope_model::identity::Part;
use railscope_model::units::LinkSpeed;

use super::{Change, Ends, Socket};

/// Whether a thing was there before, and is after.
#[derive(Clone, Copy)]
struct There {
    before: bool,
    after: bool,
}

/// What becomes of each thing; of a thing that is named for the first time, what happens to it reports what
/// was.
#[derive(Default)]
struct Net {
    parts: BTreeMap<Part, There>,
    cables: BTreeMap<Ends, There>,
    speeds: BTreeMap<Ends, [LinkSpeed; 2]>,
}

impl Net {
    fn part(&mut self, part: &Part, after: bool) {
        let new = There {
            before: !after,
            after,
        };
        self.parts.entry(part.clone()).or_insert(new).after = after;
    }

    fn cable(&mut self, ends: &Ends, after: bool) {
        let new = There {
            before: !after,
            after,
        };
        self.cables.entry(in_order(ends)).or_insert(new).after = after;
    }
}

/// What all of these changes come to: parts first, then cables by their ends. A cable of which one end stayed has moved.
pub fn net<'a>(changes: impl IntoIterator<Item = &'a Change>) -> Vec<Change> {
    let mut net = Net::default();
    for change in changes {
        match change {
            Change::PartCame(part) => net.part(part, true),
            Change::PartWent(part) => net.part(part, false),
            Change::CableCame(ends) => net.cable(ends, true),
            Change::CableWent(ends) => net.cable(ends, false),
            Change::CableMoved { from, to } => {
                net.cable(from, false);
                net.cable(to, true);
            }
            Change::SpeedChanged { cable, from, to } => {
                let speeds = net.speeds.entry(in_order(cable)).or_insert([*from, *to]);
                speeds[1] = *to;
            }
        }
    }
    let mut out = Vec::new();
    for (part, there) in net.parts {
        match (there.before, there.after) {
            (true, false) => out.push(Change::PartWent(part)),
            (false, true) => out.push(Change::PartCame(part)),
            _ => {}
        }
    }
    cables(&net.cables, &mut out);
    for (cable, [from, to]) in net.speeds {
        let stayed = net
            .cables
            .get(&cable)
            .is_none_or(|there| there.before && there.after);
        if stayed && from != to {
            out.push(Change::SpeedChanged { cable, from, to });
        }
    }
    out
}

/// The NIC, or the lower one of two switches, first: the other order is the same cable.
fn in_order(ends: &Ends) -> Ends {
    let mut ends = ends.clone();
    ends.sort_by(|a, b| {
        let is_switch = |end: &Socket| matches!(end.part, Part::Switch(_));
        (is_switch(a), a).cmp(&(is_switch(b), b))
    });
    ends
}

fn cables(cables: &BTreeMap<Ends, There>, out: &mut Vec<Change>) {
    let only = |before: bool| {
        let cables = cables.iter();
        cables.filter(move |(_, there)| there.before == before && there.after != before)
    };
    let mut came: BTreeMap<&Ends, bool> = only(false).map(|(ends, _)| (ends, false)).collect();
    for (from, _) in only(true) {
        // A cable is where its first end is, that of the NIC, before where its second is.
        let moved = from.iter().find_map(|stayed| {
            let mut open = came.iter().filter(|(_, told)| !**told);
            let to = open
                .find(|(to, _)| to.contains(stayed))
                .map(|(to, _)| *to)?;
            Some((stayed, to))
        });
        let Some((stayed, to)) = moved else {
            out.push(Change::CableWent(from.clone()));
            continue;
        };
        came.insert(to, true);
        let stayed_first = |ends: &Ends| {
            let mut ends = ends.clone();
            if ends[0] != *stayed {
                ends.swap(0, 1);
            }
            ends
        };
        out.push(Change::CableMoved {
            from: stayed_first(from),
            to: stayed_first(to),
        });
    }
    let new = came.into_iter().filter(|(_, told)| !told);
    out.extend(new.map(|(ends, _)| Change::CableCame(ends.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(nic: &str, port: u16) -> Ends {
        let socket = |part: &str, port: u16| Socket {
            part: part.parse().expect(part),
            port: port.into(),
        };
        [socket(nic, 1), socket("switch/leaf", port)]
    }

    #[test]
    fn what_came_and_went_again_is_no_difference_and_two_moves_are_one() {
        let speed = |text: &str| text.parse::<LinkSpeed>().expect(text);
        let (one, two, three) = (ends("nic/a:x", 1), ends("nic/a:x", 2), ends("nic/a:x", 3));
        let (came, went) = (Change::CableCame, Change::CableWent);
        let moved = |from: &Ends, to: &Ends| Change::CableMoved {
            from: from.clone(),
            to: to.clone(),
        };
        let runs = |from: &str, to: &str| Change::SpeedChanged {
            cable: one.clone(),
            from: speed(from),
            to: speed(to),
        };
        let host = || "host/a".parse::<Part>().expect("a host");
        let turned = |ends: &Ends| [ends[1].clone(), ends[0].clone()];
        for (changes, expected) in [
            (vec![], vec![]),
            (vec![came(one.clone())], vec![came(one.clone())]),
            (vec![went(one.clone()), came(one.clone())], vec![]),
            (vec![went(one.clone()), came(turned(&one))], vec![]),
            (vec![came(one.clone()), went(one.clone())], vec![]),
            (
                vec![went(one.clone()), came(two.clone())],
                vec![moved(&one, &two)],
            ),
            (
                vec![moved(&one, &two), moved(&two, &three)],
                vec![moved(&one, &three)],
            ),
            (vec![moved(&one, &two), moved(&two, &one)], vec![]),
            (
                vec![runs("4xNDR", "4xHDR"), runs("4xHDR", "4xEDR")],
                vec![runs("4xNDR", "4xEDR")],
            ),
            (vec![runs("4xNDR", "4xHDR"), runs("4xHDR", "4xNDR")], vec![]),
            (
                vec![runs("4xNDR", "4xHDR"), went(one.clone())],
                vec![went(one.clone())],
            ),
            (
                vec![Change::PartWent(host()), Change::PartCame(host())],
                vec![],
            ),
            (
                vec![Change::PartCame(host())],
                vec![Change::PartCame(host())],
            ),
        ] {
            assert_eq!(net(&changes), expected, "{changes:?}");
        }
    }
}
