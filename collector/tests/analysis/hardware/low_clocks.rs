//! Nodes whose GPUs fall to a low clock together, where no exporter reports why.

use super::super::innocent::{Reported, reporting};
use super::super::{Fault, incidents, of_gpus, run_every};

/// Clock in MHz, power in W and temperature of GPUs.
type Load = (f64, f64, f64);

/// What all GPUs report that work, and those of a node that has got a lower power limit.
const USUAL: Load = (1410.0, 280.0, 55.0);
const CAPPED: Load = (1125.0, 192.0, 48.0);

/// GPUs of nodes report so over time.
fn loads(of: impl Fn(usize, u64) -> Load + 'static) -> Box<Fault> {
    Box::new(move |node, seconds, page| {
        let (megahertz, watts, celsius) = of(node, seconds);
        let page = reporting(&page, seconds, |_| Reported {
            utilization: if watts < 50.0 { 0.0 } else { 0.98 },
            megahertz,
            watts,
            is_capped: false,
        });
        page + &of_gpus(|gpu| {
            format!("railscope_gpu_temperature_celsius{{gpu=\"{gpu}\",sensor=\"gpu\"}} {celsius}\n")
        })
    })
}

/// What is open after 300 s if node 3 has this load from one time to another.
fn found(load: Load, [from, to]: [u64; 2]) -> Vec<String> {
    let of = move |node, seconds| match seconds {
        _ if node != 3 => USUAL,
        // Between two steps of its job.
        130 => (780.0, 42.0, 45.0),
        seconds if (from..to).contains(&seconds) => load,
        _ => USUAL,
    };
    incidents(&run_every(10, 0, &loads(of)))
}

#[test]
fn a_node_whose_gpus_fell_to_a_low_clock_at_work_has_got_a_power_limit() {
    const NAMED: &str = "power-limit host/n3 gpus=4 [gpu/n3:0 gpu/n3:1 gpu/n3:2 gpu/n3:3]";
    assert_eq!(found(CAPPED, [80, 400]), [NAMED], "minutes ago");
    assert_eq!(found(CAPPED, [240, 400]), [NAMED]);
    assert_eq!(found(CAPPED, [40, 110]), [""; 0], "until it was lifted");
    assert_eq!(
        found(CAPPED, [0, 400]),
        [""; 0],
        "from the start: other work"
    );
    let (megahertz, watts, celsius) = CAPPED;
    assert_eq!(found((megahertz, USUAL.1, celsius), [80, 400]), [""; 0]);
    assert_eq!(found((megahertz, watts, 58.0), [80, 400]), [""; 0], "heat");
}

#[test]
fn a_limit_of_several_nodes_is_the_site_s() {
    let of = |node, seconds| match node {
        // The limit of one is lifted early.
        3 if (120..200).contains(&seconds) => CAPPED,
        5 if seconds >= 120 => CAPPED,
        _ => USUAL,
    };
    assert_eq!(incidents(&run_every(10, 0, &loads(of))), [""; 0]);
}

#[test]
fn a_node_that_begins_other_work_at_a_lower_clock_has_got_no_limit() {
    let of = |node, seconds| match (node, seconds) {
        (3, 120..160) => (780.0, 42.0, 45.0),
        (3, 160..) => CAPPED,
        _ => USUAL,
    };
    assert_eq!(incidents(&run_every(10, 0, &loads(of))), [""; 0]);
}
